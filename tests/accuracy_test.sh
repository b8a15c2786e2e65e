#!/usr/bin/env bash
# accuracy_test.sh NIBBLE: quantizes Pebble and asks both models every held-out text item; fails if the
# quantized one loses more than 2 points.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" quantize pebble/model "$work/nvfp4"
python3 bench/accuracy.py --nibble "$1" --within 2 pebble/model "$work/nvfp4"

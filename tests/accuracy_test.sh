#!/usr/bin/env bash
# accuracy_test.sh NIBBLE: quantizes Pebble and asks both models every held-out text item; fails if the
# quantized one loses more than 2 points.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" quantize pebble/model "$work/nvfp4"
"$1" eval pebble/model pebble/tasks/{add,copy,discount,json,lookup,reverse,sort,table,tools,world}.jsonl \
  --against "$work/nvfp4" --within 2

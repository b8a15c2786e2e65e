#!/usr/bin/env bash
# The other quantizers, pinned, each in a virtual environment of its own: install.sh FOLDER
# [ENVIRONMENT] makes FOLDER/llm-compressor and FOLDER/modelopt. Each brings torch, 6 GB, unless
# ENVIRONMENT has it, as build/venv-vllm-0.32.0 of ./test --full does: they look into that one.
set -euo pipefail
folder=${1:?usage: install.sh FOLDER [ENVIRONMENT]}
here=$(cd "$(dirname "$0")" && pwd)
for packages in "$here"/../requirements-{llm-compressor,modelopt}-*.txt; do
  name=$(basename "$packages")
  name=${name#requirements-}
  venv=$folder/${name%-*}
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  if [ -n "${2:-}" ]; then
    for site in "$venv"/lib/python3*/site-packages; do
      realpath "$2"/lib/python3*/site-packages > "$site/environment.pth"
    done
  fi
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$packages"
done

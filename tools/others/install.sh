#!/usr/bin/env bash
# The other quantizers, pinned, each in a virtual environment of its own: install.sh FOLDER
# makes FOLDER/llm-compressor and FOLDER/modelopt (some 12 GB together: each brings torch).
set -euo pipefail
folder=${1:?usage: install.sh FOLDER}
add() {  # add NAME PACKAGE...
  python3 -m venv "$folder/$1"
  "$folder/$1/bin/pip" install --quiet --disable-pip-version-check "${@:2}"
}
add llm-compressor llmcompressor==0.14.0.1
add modelopt 'nvidia-modelopt[hf]==0.47.0'

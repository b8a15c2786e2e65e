#!/usr/bin/env bash
# cuda_targets_test.sh PROGRAM: which targets the build chooses (cmake/CudaTargets.cmake) for what nvidia-smi
# shows, here a stand-in, and what a program without CUDA says of them. Needs no nvcc and no card.
set -uo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/choose.cmake" <<CMAKE
include($PWD/cmake/CudaTargets.cmake)
nibble_cuda_targets(targets "\${ASKED}")
message("targets \${targets}")
CMAKE
passed=0
failed=0
holds() {  # holds WHAT FOUND PART: counts
  if [[ $2 == *"$3"* ]]; then passed=$((passed + 1)); return; fi
  failed=$((failed + 1))
  echo "$1: expected \"$3\", found: $2"
}
chosen() { PATH=$work:$PATH cmake "-DASKED=$1" -P "$work/choose.cmake" 2>&1 | tr -s '\n ' ' '; }
shows() {  # what nvidia-smi says of the card
  printf '#!/bin/sh\necho "%s"\n' "$1" >"$work/nvidia-smi"
  chmod +x "$work/nvidia-smi"
}

while read -r capability target; do
  shows "$capability"
  holds "a card of $capability" "$(chosen native)" "targets $target-real "
done <<'CARDS'
8.0 80
8.6 86
8.9 89
9.0 90a
10.0 100f
10.3 100f
11.0 110
12.0 120f
12.1 120f
CARDS
shows 7.5
holds "an old card" "$(chosen native)" "capability 8.0 or higher, found 7.5"
shows "No devices were found"
holds "no card" "$(chosen native)" "nvidia-smi shows no card"
holds "all" "$(chosen all)" "targets 80-real;86-real;89-real;90a-real;100f-real;120f-real;80-virtual "
holds "a list" "$(chosen '90a-real;80-virtual')" "targets 90a-real;80-virtual "
for wrong in 90a sm_90 '80-real;x' 9-real 80b-real; do
  holds "$wrong" "$(chosen "$wrong")" "expected all, native or targets"
done
holds "nothing" "$(chosen '')" "is empty"
holds "a program without CUDA" "$("$1" --version)" "CUDA code: none"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

#!/usr/bin/env bash
# fp4_targets_test.sh: the kernels of products of codes for targets that a release has no code
# of its own for (sm_121a, sm_103a) and for the family of compute capability 10 (sm_100f): compiled
# alone, and held against what tools/cuda_fp4.py says of their instructions and resources. The ones
# of a release are in its objects. Needs nvcc, no card.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/local/cuda/bin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=.venv/bin/python
[ -x $python ] || python=python3
passed=0
failed=0
for target in 121a 100f 103a; do
  objects=()
  for name in quantized_gemm fp4_proof; do
    object=$work/$name.$target.o
    nvcc -c "--generate-code=arch=compute_$target,code=[sm_$target]" -std=c++20 -O3 -DNDEBUG \
      --expt-relaxed-constexpr -Isrc -o "$object" "src/backend/cuda/ops/quantized/$name.cu" || continue
    objects+=("$object")
  done
  if [ ${#objects[@]} -eq 2 ] && "$python" tools/cuda_fp4.py --resources "${objects[@]}"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL  sm_$target"
  fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

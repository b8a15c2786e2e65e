#!/usr/bin/env bash
# fp4_targets_test.sh: the kernels of products of codes for targets that a release has no code
# of its own for (sm_121a, sm_103a) and for the family of compute capability 10 (sm_100f): compiled
# alone, and held against what tools/cuda_fp4.py says of their instructions and resources, and
# products by tensor memory for sm_103a against tools/cuda_sm100.py. The ones of a release are in its
# objects. Needs nvcc, no card.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/local/cuda/bin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=.venv/bin/python
[ -x $python ] || python=python3
passed=0
failed=0
# Products by tensor memory, of CUTLASS, whose headers the build for every card has fetched.
judge_sm100() {
  local name parts=() headers=(build/cache/nvidia_cutlass-*/cutlass_library/source/include)
  for name in linear experts; do
    nvcc -c "--generate-code=arch=compute_$target,code=[sm_$target]" -std=c++20 -O3 -DNDEBUG \
      --expt-relaxed-constexpr -diag-suppress=2908 -Isrc -isystem "${headers[0]}" \
      -o "$work/$name.o" "src/backend/cuda/ops/quantized/sm100/${name}_sm100.cu" &&
      parts+=("$work/$name.o")
  done
  if [ ${#parts[@]} -eq 2 ] && "$python" tools/cuda_sm100.py "${parts[@]}"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL  products by tensor memory for sm_$target"
  fi
}

for target in 121a 100f 103a; do
  objects=()
  for name in quantized_gemm fp4_proof; do
    object=$work/$name.$target.o
    nvcc -c "--generate-code=arch=compute_$target,code=[sm_$target]" -std=c++20 -O3 -DNDEBUG \
      --expt-relaxed-constexpr -Isrc -o "$object" "src/backend/cuda/ops/quantized/$name.cu" || continue
    objects+=("$object")
  done
  if [ $target = 103a ]; then judge_sm100; fi
  if [ ${#objects[@]} -eq 2 ] && "$python" tools/cuda_fp4.py --resources "${objects[@]}"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL  sm_$target"
  fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

#!/usr/bin/env bash
# compute-sanitizer over small runs of the kernels: blocks of real shapes, products, chosen tokens.
# Needs a card, nibble_backend_cuda_test, cuda_linear_check and cuda_choose_token_check.
#   tools/cuda_sanitize.sh [BUILD [TOOL...]]   BUILD: build/cuda; tools: memcheck initcheck racecheck
# CUDA 13.0's own tool ends most racechecks with an internal error; one that works comes into .venv by
# pip install nvidia-cuda-sanitizer-api==13.5.25 and is taken if it is there. All runs go side by
# side; racecheck, a hundred times slower, follows one kernel in each. Logs: BUILD/sanitize. The last
# line is 'N clean, N not'.
set -uo pipefail
build=${1:-build/cuda}
shift $(($# > 0 ? 1 : 0))
tools=("$@")
[ ${#tools[@]} -gt 0 ] || tools=(memcheck initcheck racecheck)
limit_s=${SANITIZE_LIMIT_S:-300}
sanitizer=$(ls .venv/lib/python3*/site-packages/nvidia/cu13/compute-sanitizer/compute-sanitizer \
  2>/dev/null || command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
logs=$build/sanitize
mkdir -p "$logs"
rm -f "$logs"/*.log

blocks=$build/src/backend/cuda/nibble_backend_cuda_test
products=$build/bench/cuda/cuda_linear_check
choices=$build/bench/cuda/cuda_choose_token_check

run() {  # run NAME TOOL-AND-OPTIONS... -- COMMAND...: a line with the outcome
  local name=$1 begin=$SECONDS code log=$logs/$1.log options=()
  shift
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  timeout "$limit_s" "$sanitizer" --error-exitcode 9 --report-api-errors no --tool "${options[@]}" \
    "$@" >"$log" 2>&1
  code=$?
  if [ $code = 0 ]; then
    echo "ok    $name ($((SECONDS - begin)) s)"
  else
    printf '%s\n' "FAIL  $name ($((SECONDS - begin)) s, code $code; 124: beyond $limit_s s): $log" \
      "$(grep -E "SUMMARY|Error|FAIL" "$log" | cut -c1-200 | sort | uniq -c | sort -rn | head -8)"
  fi
}
race() {  # race NAME KERNEL LAUNCHES COMMAND...
  local name=$1 kernel=$2 launches=$3
  shift 3
  run "$name" racecheck --kernel-name "kns=$kernel" --launch-count "$launches" -- "$@"
}
memory() {  # memory TOOL
  run "$1-blocks" "$1" -- "$blocks" --gtest_filter='*EveryKindOfPass*:*CudaRoute*' &
  run "$1-products" "$1" -- "$products" small &
  run "$1-choices" "$1" -- "$choices" small &
}
racecheck() {
  local kernel
  race racecheck-products stream_kernel 1000 "$products" small &
  race racecheck-tiles tiles_kernel 1000 "$products" small &
  race racecheck-rows row_kernel 1000 "$products" small &
  race racecheck-norm norm_kernel 1000 "$products" small &
  race racecheck-route route_kernel 1000 "$blocks" --gtest_filter='*CudaRoute*' &
  race racecheck-choices choose_kernel 100 "$choices" small &
  race racecheck-state-bf16 recurrence_ 60 "$blocks" \
    --gtest_filter='*EveryKindOfPass*/mixed_state_bf16' &
  for kernel in attend_ recurrence_ expert row_gate_up down_sum gemm_ flash_ along_ within_; do
    race "racecheck-${kernel%_}" "$kernel" 60 "$blocks" --gtest_filter='*EveryKindOfPass*/mixed' &
  done
}

for tool in "${tools[@]}"; do
  case $tool in
    memcheck | initcheck) memory "$tool" ;;
    racecheck) racecheck ;;
    *) echo "cuda_sanitize.sh: unknown tool $tool; known: memcheck, initcheck, racecheck" >&2
       exit 2 ;;
  esac
done >"$logs/outcomes"
wait
cat "$logs/outcomes"
clean=$(grep -c '^ok ' "$logs/outcomes")
unclean=$(grep -c '^FAIL ' "$logs/outcomes")
echo "$clean clean, $unclean not"
[ "$unclean" -eq 0 ]

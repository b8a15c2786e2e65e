#!/usr/bin/env bash
# test_options_test.sh: ./test explains its options, and refuses in one line what it does not know,
# before it installs or builds anything.
set -uo pipefail
cd "$(dirname "$0")/.."
passed=0
failed=0
# check EXIT_STATUS LINES TEXT WORD...: of ./test WORD..., with no more than LINES of output.
check() {
  local status=$1 lines=$2 text=$3 said found
  shift 3
  said=$(timeout 10 ./test "$@" 2>&1)
  found=$?
  if [ "$found" -eq "$status" ] && [ "$(wc -l <<<"$said")" -le "$lines" ] &&
      grep -qF -- "$text" <<<"$said"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAIL  ./test %s: expected %s and %s, found %s:\n%s\n' "$*" "$status" "$text" "$found" \
      "$said"
  fi
}

for option in --full --cuda= --arm64 --mutate --help; do check 0 30 "$option" --help; done
check 0 30 "./test [--full]" --full -h
check 2 1 "unknown option --halp; known: --full," --halp
check 2 1 "--arm64=only is expected alone, found --arm64=only --full" --arm64=only --full
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

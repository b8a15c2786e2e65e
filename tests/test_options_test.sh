#!/usr/bin/env bash
# test_options_test.sh: ./test and ./quickstart explain their options, and refuse in one line what they
# do not know, before they install or build anything.
set -uo pipefail
cd "$(dirname "$0")/.."
passed=0
failed=0
# check EXIT_STATUS LINES TEXT SCRIPT WORD...: of SCRIPT WORD..., with no more than LINES of output.
check() {
  local status=$1 lines=$2 text=$3 said found
  shift 3
  said=$(timeout 300 "$@" 2>&1)
  found=$?
  if [ "$found" -eq "$status" ] && [ "$(wc -l <<<"$said")" -le "$lines" ] &&
      grep -qF -- "$text" <<<"$said"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAIL  %s: expected %s and %s, found %s:\n%s\n' "$*" "$status" "$text" "$found" \
      "$said"
  fi
}

for option in --full --cuda= --arm64 --mutate --help; do check 0 30 "$option" ./test --help; done
check 0 30 "./test [--full]" ./test --full -h
check 2 1 "unknown option --halp; known: --full," ./test --halp
check 2 1 "--arm64=only is expected alone, found --arm64=only --full" ./test --arm64=only --full
check 0 10 "quickstart [PROGRAM]" ./quickstart --help
for words in --halp README.md /tmp "test test"; do
  # shellcheck disable=SC2086  # the last are two words
  check 2 1 "expected nothing or the path of a program nibble, found $words" ./quickstart $words
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

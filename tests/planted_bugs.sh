#!/usr/bin/env bash
# Builds the engine once per planted bug (src/engine/planted_bug.h) and runs the tests that must
# see it: the simulation of the serving loop and, for what it cannot see, the module's unit tests.
# Passes if every bug is caught. tests/planted_bugs.sh [FOLDER] [BUG...]
set -uo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build/planted}
shift $(($# > 0 ? 1 : 0))
bugs=("$@")
if [ ${#bugs[@]} -eq 0 ]; then
  mapfile -t bugs < <(sed -n 's/^  \(kBug[A-Za-z]*\) = [1-9].*/\1/p' src/engine/planted_bug.h)
fi

build() {  # build BUG: quiet; the log on failure. A bug that no source has would pass unseen.
  grep -q "planted($1)" src/engine/*.cc || { echo "no source of src/engine plants $1"; return 1; }
  cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNIBBLE_PLANTED_BUG="$1" >"$folder.log" 2>&1 &&
    cmake --build "$folder" --target nibble_engine_simulation nibble_engine_test >>"$folder.log" 2>&1 ||
    { tail -n 30 "$folder.log"; return 1; }
}

# failing PROGRAM: the unit tests that fail, each run alone, since a broken CHECK ends the program.
failing() {
  local suite=""
  "$1" --gtest_list_tests | sed 's/ *#.*//' | while read -r word; do
    case "$word" in *.) suite=$word ;; Running*) ;; *) echo "$suite$word" ;; esac
  done | xargs -P 2 -I{} bash -c \
    'timeout 120 "$1" --gtest_filter="$2" >/dev/null 2>&1 || echo "$2"' - "$1" {} 2>/dev/null
}

mkdir -p "$folder"
missed=0
caught_twice=0
for bug in "${bugs[@]}"; do
  build "$bug" || { echo "FAIL  $bug does not build"; exit 1; }
  by=""
  (timeout 120 "$folder/src/engine/nibble_engine_simulation" --seeds 3000 --threads 2 \
    || exit 1) >"$folder.log" 2>&1 || by="simulation"
  failed=$(failing "$folder/src/engine/nibble_engine_test" | wc -l)
  [ "$failed" -gt 0 ] && by="${by:+$by, }$failed unit tests"
  if [ -z "$by" ]; then
    echo "MISS  $bug: nobody saw it"
    missed=$((missed + 1))
  else
    echo "ok    $bug: $by"
    [[ "$by" == *,* || "$failed" -gt 1 ]] && caught_twice=$((caught_twice + 1))
  fi
done
echo "${#bugs[@]} bugs, $missed missed, $caught_twice seen by more than one test"
[ "$missed" -eq 0 ]

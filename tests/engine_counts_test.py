#!/usr/bin/env python3
"""The counts of 300 lives of the simulation must be those of tests/golden/engine_counts.txt.

engine_counts_test.py PROGRAM [--write]   of nibble_engine_simulation; --write renews the file
"""

import pathlib
import subprocess
import sys

GOLDEN = pathlib.Path(__file__).resolve().parent / "golden/engine_counts.txt"


def main():
    counted = subprocess.run([sys.argv[1], "--seeds", "300", "--steps", "300", "--threads", "2"],
                             capture_output=True, text=True, check=True).stdout
    if sys.argv[2:] == ["--write"]:
        GOLDEN.write_text(counted)
    known = GOLDEN.read_text().splitlines()
    lines = counted.splitlines()
    failures = [f"expected {was}, found {now}" for was, now in zip(known, lines) if was != now]
    if len(known) != len(lines):
        failures.append(f"expected {len(known)} counts, found {len(lines)}")
    for failure in failures:
        print(f"FAIL  {failure}; {sys.argv[0]} {sys.argv[1]} --write renews the file")
    print(f"{len(lines) - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

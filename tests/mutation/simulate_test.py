#!/usr/bin/env python3
"""tools/simulate.py over a program that only says which seeds it was given."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/simulate.py"
PROGRAM = """#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in --first) first=$2 ;; --seeds) seeds=$2 ;; esac
  shift
done
echo "$first" >> "$FIRSTS"
if [ "$first" -le "$BAD" ] && [ "$BAD" -lt $((first + seeds)) ]; then
  echo "seed $BAD: step 7: expected 3, found 4" >&2
  exit 1
fi
echo "seeds $seeds"
echo "ended by NaN 2"
"""


class Simulate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.program = self.folder / "program"
        self.write(PROGRAM)

    def write(self, text):
        self.program.write_text(text)
        self.program.chmod(0o755)

    def run_it(self, bad=0):
        """The run's end, and the first seeds of the groups that it began."""
        firsts = self.folder / "firsts"
        firsts.write_text("")
        done = subprocess.run(
            [sys.executable, str(TOOL), "--program", str(self.program), "--seeds", "25", "--group",
             "10", "--state", str(self.folder / "state.json")], capture_output=True, text=True,
            check=False, env={**os.environ, "FIRSTS": str(firsts), "BAD": str(bad)})
        return done, firsts.read_text().split()

    def test_goes_on_after_a_failure_where_it_stopped(self):
        done, firsts = self.run_it(bad=17)
        self.assertEqual((done.returncode, firsts), (1, ["1", "11"]))
        self.assertIn("seed 17: step 7: expected 3, found 4\ncommit ", done.stderr)
        done, firsts = self.run_it()
        self.assertEqual((done.returncode, firsts), (0, ["11", "21"]), done.stderr)
        self.assertIn("seeds 25\nended by NaN 6\n", done.stdout)
        self.assertEqual(json.loads((self.folder / "state.json").read_text())["next"], 26)
        self.assertEqual(self.run_it()[1], [])

    def test_does_not_go_on_with_another_program(self):
        self.run_it()
        self.write(PROGRAM + "# changed\n")
        done, firsts = self.run_it()
        self.assertEqual((done.returncode, firsts), (1, []))
        self.assertRegex(done.stderr, r"^simulate: expected .*state.json to be of a run with "
                                      r"program \w+, found \w+; remove it, or give another "
                                      r"--state\n$")


if __name__ == "__main__":
    unittest.main()

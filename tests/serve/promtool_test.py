#!/usr/bin/env python3
"""/metrics through `promtool check metrics`, after requests of every kind.

tools/install_packages.sh full brings promtool. Loopback only. Exits 1 if a check fails; the last
line counts.
"""
import shutil
import subprocess
import sys
from pathlib import Path

import metrics_format_test
from running_server import run_checks

FETCHED = Path(__file__).resolve().parents[2] / "build/cache/promtool/usr/bin/promtool"


class Checks(metrics_format_test.Checks):
    def lint(self, text):
        done = subprocess.run([shutil.which("promtool") or FETCHED, "check", "metrics"],
                              input=text, text=True, capture_output=True)
        # Complaints about vLLM's own names (a colon, a unit in the middle) are not ours to change.
        return [line for line in done.stderr.splitlines() if not line.startswith("vllm:")]

    def test_promtool_has_nothing_to_say(self):
        assert "nibble_" in self.text
        said = self.lint(self.text)
        assert not said, said

    def test_promtool_would_say_it(self):
        no_help = "# TYPE nibble_wrong_total gauge\nnibble_wrong_total 1\n"
        assert len(self.lint(no_help)) == 2
        assert any("error" in line for line in self.lint(self.text + "no value\n"))


if __name__ == "__main__":
    sys.exit(run_checks(Checks, __doc__))

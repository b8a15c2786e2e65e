#!/usr/bin/env python3
"""nibble eval kv: eval_kv_test.py --nibble PROGRAM --model PEBBLE_FOLDER.

Formats of keys and values on few items of Pebble: their bytes, a verdict, and what ends with 1 and
with 2. The last line counts.
"""
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "serve"))
from running_server import run_program_checks  # noqa: E402

TASKS = pathlib.Path(__file__).resolve().parents[2] / "pebble" / "tasks"


class Checks:
    def __init__(self, nibble, model, work):
        self.nibble, self.model = nibble, model

    def run(self, *more, code=0):
        command = [self.nibble, "eval", "kv", self.model, TASKS / "add.jsonl", "--limit", 1,
                   "--backend", "cpu", "--max-tokens", 300, *more]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                              timeout=600)
        assert done.returncode == code, (done.returncode, done.stderr[-2000:])
        return done

    def test_the_report(self):
        report = json.loads(self.run("--json").stdout)
        # 4 lines of 64 numbers each of keys and of values: 2 layers of 2 heads.
        assert report["bf16_bytes_of_a_token"] == 4 * 2 * 64 * 2, report
        assert {found["format"]: found["bytes_of_a_token"] for found in report["formats"]} == {
            "fp8": 4 * 2 * 64, "turboquant_4bit_nc": 4 * (32 + 2 + 32 + 4),
            "nvfp4": 4 * 2 * (32 + 4)}, report
        for found in report["formats"]:
            assert found["verdict"] == "harmless" and found["tasks"][-1]["scored"] == 2, found
            assert sum(at["rows"] for at in found["positions"]) > 50, found
            assert all(at["kl_mean"] > 0 for at in found["positions"]), found

    def test_a_limit_that_no_format_meets(self):
        assert "harmful" in self.run("--kl-max", 0, "--formats", "nvfp4", code=1).stdout

    def test_a_format_that_is_none(self):
        assert "--formats" in self.run("--formats", "int4", code=2).stderr


if __name__ == "__main__":
    sys.exit(run_program_checks(Checks, __doc__))

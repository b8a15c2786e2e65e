#!/usr/bin/env python3
"""`nibble quantize` with a target: allocation_test.py --nibble PROGRAM --model PEBBLE_FOLDER.

What is refused, and how; that --dry-run writes nothing; that the output keeps the budget, gives the
same bytes twice, is sound in both dialects, is loaded and answers; that its recipe.yaml makes the
same weights again; and that a larger budget diverges less. The last line counts.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

TASKS = pathlib.Path(__file__).resolve().parents[2] / "pebble" / "tasks"
FEW = ["--calib-samples", "4", "--calib-length", "64"]
BUDGET = 16_000_000


class Allocation:
    def __init__(self, options, work):
        self.options, self.work = options, work
        self.data = ["--calib", TASKS / "prose.jsonl", *FEW]
        self.passed = self.failed = 0

    def run(self, *words):
        return subprocess.run([self.options.nibble, *map(str, words)], capture_output=True,
                              text=True, timeout=600, check=False)

    def quantize(self, name, *words):
        return self.run("quantize", self.options.model, self.work / name, "--no-progress",
                        "--backend", "cpu", *words)

    def check(self, what, good, found=""):
        self.passed += bool(good)
        self.failed += not good
        if not good:
            print(f"FAILED {what}: {str(found)[-600:]}")

    def refused(self, what, words, *parts):
        done = self.quantize("refused", *words)
        lines = done.stderr.strip().splitlines()
        self.check(what, done.returncode != 0 and lines and all(p in lines[-1] for p in parts),
                   done.stderr)
        self.check(f"{what} leaves nothing", not (self.work / "refused").exists())

    def refusals(self):
        target = ["--target-bytes", BUDGET]
        self.refused("without data", target, "--target-bytes", "--calib FILE.jsonl")
        self.refused("two targets", [*target, "--target-kl", "1e-3", *self.data], "two targets")
        for size in ("1MB", "1GB"):
            self.refused(f"a size of {size}", ["--target-bytes", size, *self.data],
                         "--target-bytes", "all candidates in NVFP4", "none quantized")
        self.refused("a divergence of nothing", ["--target-kl", "1e-30", *self.data],
                     "--target-kl", "all candidates in NVFP4")
        self.refused("4-bit activations", [*target, "--recipe", "w4a4", *self.data],
                     "4-bit activations", "leave --recipe out")

    def report(self, name):
        return json.loads((self.work / name / "quantize_report.json").read_text())

    def outputs(self):
        dry = self.quantize("dry", "--target-bytes", BUDGET, "--dry-run", *self.data)
        self.check("a dry run shows the choice", dry.returncode == 0 and "mlp.experts" in
                   dry.stdout and "predicted KL" in dry.stdout, dry.stdout + dry.stderr)
        self.check("a dry run writes nothing", not (self.work / "dry").exists())
        for name, words in (("one", []), ("two", []), ("modelopt", ["--format", "modelopt"]),
                            ("large", ["--target-bytes", "24MB"])):
            done = self.quantize(name, "--target-bytes", BUDGET, *self.data, *words)
            self.check(f"{name} is made", done.returncode == 0 and "is sound" in done.stdout,
                       done.stdout + done.stderr)
        found = self.report("one")
        self.check("the budget is kept and used",
                   BUDGET * 0.98 < found["tensor_bytes_out"] <= BUDGET, found["tensor_bytes_out"])
        self.check("the total is what is written",
                   found["allocation"]["total"]["bytes"] == found["tensor_bytes_out"])
        self.check("there is a picture", (self.work / "one" / "allocation.svg").exists())
        self.same("the same bytes twice", "one", "two", lambda name: True)
        self.check("a larger budget is predicted to diverge less",
                   self.report("large")["allocation"]["total"]["predicted_kl"] <
                   found["allocation"]["total"]["predicted_kl"])

    def same(self, what, first, second, wanted):
        names = {p.name for p in (self.work / first).iterdir() if wanted(p.name)}
        other = {p.name for p in (self.work / second).iterdir() if wanted(p.name)}
        self.check(what, names and names == other and all(
            (self.work / first / name).read_bytes() == (self.work / second / name).read_bytes()
            for name in names), names ^ other)

    def again(self):
        done = self.quantize("again", "--recipe", self.work / "one" / "recipe.yaml")
        self.check("its recipe works alone", done.returncode == 0, done.stderr)
        self.same("its recipe makes the same weights", "one", "again",
                  lambda name: name.endswith(".safetensors"))

    def scored(self):
        ids = self.work / "ids.json"
        ids.write_text(json.dumps({"ids": [list(range(5, 105))]}))
        means = {}
        for name in ("one", "modelopt", "large"):
            done = self.run("score", self.work / name, "--reference", self.options.model, "--ids",
                            ids, "--backend", "cpu", "--json")
            self.check(f"{name} is loaded", done.returncode == 0, done.stderr)
            means[name] = json.loads(done.stdout)["kl"]["mean"] if done.returncode == 0 else 1e9
            verified = self.run("verify", self.work / name, "--against", self.options.model)
            self.check(f"{name} is what was meant", verified.returncode == 0,
                       verified.stdout + verified.stderr)
        self.check("a larger budget diverges less",
                   means["large"] < min(means["one"], means["modelopt"]), means)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nibble", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        test = Allocation(options, pathlib.Path(folder))
        test.refusals()
        test.outputs()
        test.again()
        test.scored()
    print(f"{test.passed} passed, {test.failed} failed")
    sys.exit(test.failed > 0)


if __name__ == "__main__":
    main()

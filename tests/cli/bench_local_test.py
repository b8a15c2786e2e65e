#!/usr/bin/env python3
"""`nibble bench model`, `startup` and `quantize` on Pebble: rows, spreads, bounds, refusals."""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "serve"))
from running_server import run_program_checks  # noqa: E402


class Checks:
    def __init__(self, nibble, model, work):
        self.nibble, self.model, self.work = nibble, model, pathlib.Path(work)

    def bench(self, *words, code=0):
        done = subprocess.run([self.nibble, "bench", *map(str, words)], text=True,
                              capture_output=True, timeout=600, cwd=self.work)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done

    def figures(self, *words):
        path = self.work / "figures.json"
        path.unlink(missing_ok=True)
        done = self.bench(*words, "--json", path)
        return json.loads(path.read_text()), done.stdout

    def model_folder(self):
        return os.path.abspath(self.model)

    def test_model_rows(self):
        begin = time.monotonic()
        report, table = self.figures("model", self.model_folder(), "-p", "64,0", "-n", "16", "-d",
                                     "0,128", "-b", "1,3", "-r", 3)
        wall = time.monotonic() - begin
        names = [(row["test"], row["sequences"]) for row in report["rows"]]
        assert names == [("pp64", 1), ("pp64", 3), ("pp64 @ d128", 1), ("pp64 @ d128", 3),
                         ("tg16", 1), ("tg16", 3), ("tg16 @ d128", 1), ("tg16 @ d128", 3)], names
        spent = 0
        for row in report["rows"]:
            samples = row["samples_ts"]
            assert len(samples) == 3 and min(samples) > 0, row
            assert abs(row["avg_ts"] - statistics.mean(samples)) < 1e-6 * row["avg_ts"], row
            assert abs(row["stddev_ts"] - statistics.stdev(samples)) < 1e-6 * row["avg_ts"], row
            assert row["bound_ts"] is None or row["n_gen"], row
            tokens = (row["n_prompt"] or row["n_gen"]) * row["sequences"]
            spent += sum(tokens / rate for rate in samples)
            assert f"| {row['test']} |" in table, table
        assert 0 < spent < wall, (spent, wall)
        prompt, generation = (max(report["rows"][i]["samples_ts"]) for i in (0, 4))
        assert 0.1 < prompt / generation < 50, "both read the same weights"
        assert report["machine"]["cores"] >= 1

    def test_the_bound_is_that_of_plan(self):
        card = ["--gpu", "rtx5090", "--kv-cache-dtype", "bf16", "--no-speculation", "--json"]
        plan = json.loads(subprocess.run([self.nibble, "plan", self.model_folder(), *card],
                                         check=True, capture_output=True).stdout)
        expected = {(row["streams"], row["context"]): row["tokens_per_second"]
                    for row in plan["speed_bound"]["rows"]}
        report, table = self.figures("model", self.model_folder(), "-p", 0, "-n", 16, "-d", 2040,
                                     "-r", 1, "--bandwidth", 1792, "--kv-cache-dtype", "bf16")
        bound = report["rows"][0]["bound_ts"]
        assert abs(bound - expected[(1, 2048)]) < 1e-6 * bound, (bound, expected)
        assert "computed" in table and " % |" in table, table

    def test_bad_words_of_model(self):
        for words, says in (((), "needs DIR"), ((".", "-p", "x"), "--n-prompt"),
                            ((".", "-p", "0", "-n", "0"), "one of them above 0"),
                            ((".", "-b", "0"), "--n-batch"), ((".", "-r", "0"), "--repetitions"),
                            ((".", "--bandwidth", "-1"), "--bandwidth"),
                            ((".", "-d", "5,"), "--n-depth"),
                            ((".", "--max-image-tokens", "64"), "--max-image-tokens")):
            assert says in self.bench("model", *words, code=2).stderr, words
        done = self.bench("model", "nothing-here", code=1)
        assert "nothing-here" in done.stderr, done.stderr
        done = self.bench("model", self.model_folder(), "-p", "64", "-n", "0",
                          "--max-model-len", "32", code=2)
        assert "expected at most 32 tokens" in done.stderr, done.stderr

    def test_startup(self):
        report, table = self.figures("startup", self.model_folder(), "--rounds", 3,
                                     "--serve-flags=--max-model-len 512 --max-num-seqs 2")
        assert len(report["starts"]) == 3
        for start in report["starts"]:
            assert 0 < start["ready_seconds"] < start["first_token_seconds"] < 600, start
        median = statistics.median(start["ready_seconds"] for start in report["starts"])
        assert f"| start of the process to ready | {median:.3f} s (" in table, table

    def test_startup_refusals(self):
        done = self.bench("startup", "nothing-here", "--rounds", 1, code=1)
        assert "ended before it was ready" in done.stderr and "nothing-here" in done.stderr, done
        assert "--port" in self.bench("startup", ".", "--serve-flags=--port 1", code=2).stderr
        assert "--rounds" in self.bench("startup", ".", "--rounds", 0, code=2).stderr

    def test_quantize(self):
        report, table = self.figures("quantize", self.model_folder(), "--rounds", 2, "--price",
                                     3600, "--threads", 1)
        assert len(report["seconds"]) == 2 and report["weights"] > 1e6, report
        assert report["bytes_in"] > report["bytes_out"] > 0, report
        middle = statistics.median(report["seconds"])  # at one euro a second
        assert f"cost of one, EUR | {middle:.5f} (" in table, (table, middle)
        rate = statistics.median(report["weights"] / s / 1e6 for s in report["seconds"])
        assert f"| {rate:.2f} (" in table, (table, rate)
        left = [path.name for path in self.work.iterdir()]
        assert left == ["figures.json"], left

    def test_bad_words_of_quantize(self):
        for words, says in (((".", "--algorithm", "gptq"), "four-over-six"),
                            ((".", "--price", "x"), "--price"),
                            ((".", "--threads", "-1"), "--threads")):
            assert says in self.bench("quantize", *words, code=2).stderr, words
        assert self.bench("quantize", "nothing-here", code=1).stderr

    def test_the_group_lists_its_verbs(self):
        done = subprocess.run([self.nibble, "bench"], capture_output=True, text=True)
        assert done.returncode == 2 and not done.stdout
        for kind in ("serve URL", "model DIR", "startup DIR", "quantize DIR",
                     "formats DIR TEXT..."):
            assert f"nibble bench {kind}: " in done.stderr, done.stderr
        helped = subprocess.run([self.nibble, "bench", "--help"], capture_output=True, text=True)
        assert helped.returncode == 0 and helped.stdout == done.stderr
        wrong = subprocess.run([self.nibble, "bensh"], capture_output=True, text=True)
        assert wrong.returncode == 2 and "did you mean bench?" in wrong.stderr, wrong.stderr


if __name__ == "__main__":
    sys.exit(run_program_checks(Checks, __doc__))

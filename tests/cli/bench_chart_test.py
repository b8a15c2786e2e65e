#!/usr/bin/env python3
"""bench/throughput_chart.py: bench_chart_test.py --nibble PROGRAM --model PEBBLE_FOLDER.

The chart's data are the figures of `nibble bench serve` and of `nibble plan`, and nothing else. The
last line counts.
"""
import json
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "serve"))
from running_server import run_program_checks  # noqa: E402
from scripted_server import Script, ScriptedServer  # noqa: E402


class Checks:
    def __init__(self, nibble, model, work):
        self.nibble = nibble
        self.report, self.plan = work / "report.json", work / "plan.json"
        self.data, self.picture = work / "chart.json", work / "chart.svg"
        with ScriptedServer(Script({"gap": 0.01})) as first, \
                ScriptedServer(Script({"gap": 0.02})) as second:
            self.run("bench", "serve", first.url, "--against", second.url, "--concurrency", "1,8",
                     "--rounds", 2, "--num-prompts", 8, "--random-output-len", 9, "--late-ms",
                     60000, "--json", self.report)
        self.plan.write_text(self.run("plan", "qwen3.6-35b-a3b", "--gpu", "h200", "--json"))
        self.chart("--collect", f"slow={self.report}:against", f"quick={self.report}")

    def run(self, *words):
        return subprocess.run([self.nibble, *map(str, words)], text=True, capture_output=True,
                              check=True).stdout

    def chart(self, *words, code=0):
        done = subprocess.run(
            [sys.executable, ROOT / "bench/throughput_chart.py", "--data", self.data, "--picture",
             self.picture, "--bound", self.plan, *map(str, words)], text=True, capture_output=True)
        assert done.returncode == code, done
        return done.stderr

    def test_bars_are_medians_of_the_report(self):
        steps = json.loads(self.report.read_text())["steps"]
        made = json.loads(self.data.read_text())
        assert made["streams"] == [1, 8], made
        for series, key in zip(made["series"], ("against", "figures")):
            assert series["values"] == [round(step[key]["busy_output_throughput"]["median"])
                                        for step in steps], (series, steps)
            assert series["measured"]["settings"] and series["measured"]["machine"]
        text = self.picture.read_text()
        xml.etree.ElementTree.fromstring(text)
        assert f">{made['series'][1]['values'][1]:,}<" in text and ">quick<" in text

    def test_the_bound_is_the_plans(self):
        rows = json.loads(self.plan.read_text())["speed_bound"]["rows"]
        wanted = [round(next(row["tokens_per_second"] for row in rows
                             if row["streams"] == streams)) for streams in (1, 8)]
        assert json.loads(self.data.read_text())["bound"]["values"] == wanted

    def test_what_does_not_fit_is_refused(self):
        self.chart("--check")
        good = self.data.read_text()
        for key, words in (("series", "is not what"), ("bound", "is not that of")):
            made = json.loads(good)
            (made["bound"] if key == "bound" else made["series"][0])["values"][0] += 1
            self.data.write_text(json.dumps(made))
            assert words in self.chart("--check", code=1)
        self.data.write_text(good)
        late = self.report.with_name("late.json")
        late.write_text(json.dumps(json.loads(self.report.read_text()) | {"invalid": "late"}))
        assert "no measurement: late" in self.chart("--collect", f"x={late}", code=1)
        assert "expected NAME=REPORT.json" in self.chart("--collect", "x", code=1)


if __name__ == "__main__":
    sys.exit(run_program_checks(Checks, __doc__))

#!/usr/bin/env python3
"""`nibble bench serve` against a server whose timing is scripted, and against `nibble serve`.

Percentiles are compared with numpy's. What vLLM's own tools say is tests/cli/bench_vllm_test.py.
"""
import html.parser
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time
import xml.etree.ElementTree

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "serve"))
from running_server import RunningServer, run_program_checks, tried  # noqa: E402
from scripted_server import Script, ScriptedServer  # noqa: E402

LATE = ("--late-ms", "60000")  # the machine of the tests is busy; one test is about lateness


class Checks:
    def __init__(self, nibble, model, work):
        self.nibble, self.model, self.work = nibble, model, pathlib.Path(work)

    def bench(self, *words, code=0):
        done = subprocess.run([self.nibble, "bench", "serve", *map(str, words)], text=True,
                              capture_output=True, timeout=600)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done

    def runs(self, *words, code=0):
        """The report as JSON."""
        path = self.work / "report.json"
        path.unlink(missing_ok=True)
        self.bench(*words, *LATE, "--json", path, code=code)
        return json.loads(path.read_text())

    @tried(5)
    def test_latencies_are_the_scripted_ones(self):
        with ScriptedServer(Script({"first": 0.2, "gap": 0.05})) as server:
            report = self.runs(server.url, "--concurrency", 2, "--num-prompts", 4, "--rounds", 1,
                               "--random-output-len", 5, "--random-input-len", 33)
        run = report["runs"][0]
        assert run["completed"] == 4 and run["failed"] == 0, run
        assert run["total_input_tokens"] == 4 * 33 and run["total_output_tokens"] == 20, run
        quickest = {name: min(run[name]) for name in ("ttfts", "latencies")}
        assert 0.2 <= quickest["ttfts"] < 0.3 and 0.4 <= quickest["latencies"] < 0.7, run
        assert 0.05 <= statistics.median(sum(run["itls"], [])) < 0.09, run["itls"]
        assert run["max_concurrency"] == 2 and run["request_rate"] == "inf", run

    @tried(5)
    def test_figures_equal_numpy(self):
        plans = [{"first": 0.01 * (i % 5), "gap": 0.002 * (i % 3)} for i in range(40)]
        plans[7], plans[11] = {"first": 0.5}, {"gap": 0.06}  # neither is good
        with ScriptedServer(Script(*plans)) as server:
            report = self.runs(server.url, "--concurrency", 4, "--num-prompts", 40, "--rounds", 1,
                               "--random-output-len", 7, "--random-range-ratio", 0.5,
                               "--metric-percentiles", "1,50,90,99.9",
                               "--goodput", "ttft:400", "tpot:50")
        run = report["runs"][0]
        lens = numpy.array(run["output_lens"])
        ttfts, latencies = numpy.array(run["ttfts"]), numpy.array(run["latencies"])
        tpots = (latencies - ttfts)[lens > 1] / (lens[lens > 1] - 1)
        itls = numpy.concatenate([numpy.array(each) for each in run["itls"]])
        for name, values in (("ttft", ttfts), ("tpot", tpots), ("itl", itls), ("e2el", latencies)):
            values = values * 1e3
            expected = {f"mean_{name}_ms": numpy.mean(values), f"std_{name}_ms": numpy.std(values),
                        f"median_{name}_ms": numpy.median(values)}
            for percent in ("1", "50", "90", "99.9"):
                expected[f"p{percent}_{name}_ms"] = numpy.percentile(values, float(percent))
            for key, value in expected.items():
                assert abs(run[key] - value) <= 1e-9 * max(1, abs(value)), (key, run[key], value)
        all_tpots = numpy.where(lens > 1, (latencies - ttfts) / numpy.maximum(lens - 1, 1), 0)
        good = numpy.sum((ttfts <= 0.4) & (all_tpots <= 0.05))
        assert 0 < good < 40 and abs(run["request_goodput"] * run["duration"] - good) < 1e-6, run

    def test_tokens_come_from_the_usage(self):
        """Three tokens in each event: counting events would say a third."""
        with ScriptedServer(Script({"per_event": 3})) as server:
            report = self.runs(server.url, "--num-prompts", 2, "--rounds", 1,
                               "--random-output-len", 12)
        assert report["runs"][0]["output_lens"] == [12, 12], report["runs"][0]["output_lens"]
        assert [len(gaps) for gaps in report["runs"][0]["itls"]] == [3, 3]

    @tried(5)
    def test_errors_are_counted_and_not_averaged(self):
        plans = ({}, {"status": 429}, {"cut": 2}, {"error": 1}, {"usage": False},
                 {"silent": 3}, {"tokens": 4})
        with ScriptedServer(Script(*plans)) as server:
            report = self.runs(server.url, "--num-prompts", 7, "--rounds", 1, "--timeout", 1,
                               "--random-output-len", 8, "--num-warmups", 0)
        run = report["runs"][0]
        assert run["completed"] == 2 and run["failed"] == 5, run
        assert run["short_answers"] == 1, run
        assert run["total_output_tokens"] == 12 and run["mean_e2el_ms"] < 1000, run
        expected = ["", "refused: 429 no room now", "cut: the answer ended before data: [DONE]",
                    "failed: the stream says: the card is lost",
                    "uncounted: the answer has no usage, so its tokens are not known",
                    "timeout: no byte came in time", ""]
        assert run["errors"] == expected, run["errors"]
        assert run["output_lens"] == [8, 0, 0, 0, 0, 0, 4], run["output_lens"]

    def test_only_errors_are_no_measurement(self):
        with ScriptedServer(Script({"status": 503})) as server:
            done = self.bench(server.url, "--num-prompts", 2, "--rounds", 2, *LATE, code=1)
        assert "no request was answered" in done.stderr, done.stderr
        assert "errors: refused: 503 no room now" in done.stdout, done.stdout

    @tried(5)
    def test_a_closed_loop_keeps_to_its_clients(self):
        script = Script({"first": 0.05})
        with ScriptedServer(script) as server:
            report = self.runs(server.url, "--concurrency", "1,3", "--rounds", 2,
                               "--random-output-len", 2, "--num-warmups", 0)
        assert script.running_most == 3, script.running_most
        assert [run["completed"] for run in report["runs"]] == [4, 4, 12, 12]
        assert [step["step"] for step in report["steps"]] == ["1 client", "3 clients"]
        figures = report["steps"][1]["figures"]
        assert figures["output_throughput"]["rounds"] == 2
        assert figures["busy_output_throughput"]["median"] > 0

    @tried(5)
    def test_an_open_loop_does_not_wait(self):
        """Requests arrive at the rate though each takes longer than the interval."""
        script = Script({"first": 0.6})
        with ScriptedServer(script) as server:
            self.runs(server.url, "--request-rate", 10, "--num-prompts", 20, "--rounds", 1,
                      "--random-output-len", 1, "--num-warmups", 0)
        length = script.arrivals[-1] - script.arrivals[0]
        assert 1.2 < length < 2.6, length
        assert script.running_most >= 4, script.running_most
        gaps = numpy.diff(script.arrivals)
        assert numpy.std(gaps) > 0.04, "Poisson arrivals are not even"

    @tried(5)
    def test_even_arrivals(self):
        script = Script({"first": 0.01})
        with ScriptedServer(script) as server:
            self.runs(server.url, "--request-rate", 4, "--burstiness", "inf", "--num-prompts", 8,
                      "--rounds", 1, "--random-output-len", 1, "--num-warmups", 0)
        gaps = numpy.diff(script.arrivals)
        assert abs(statistics.median(gaps) - 0.25) < 0.05 and numpy.std(gaps) < 0.09, gaps

    def test_prompts_are_those_of_the_seed(self):
        bodies = []
        for seed in (1, 1, 2):
            script = Script({"first": 0.0, "gap": 0.0})
            with ScriptedServer(script) as server:
                self.runs(server.url, "--num-prompts", 2, "--rounds", 2, "--seed", seed,
                          "--random-prefix-len", 8, "--random-input-len", 16,
                          "--num-warmups", 0, "--extra-body", '{"top_k": 20}')
            bodies.append(script.bodies)
        assert bodies[0] == bodies[1] and bodies[0] != bodies[2]
        prompts = [body["prompt"] for body in bodies[0]]
        assert all(len(prompt) == 24 for prompt in prompts)
        assert prompts[0][:8] == prompts[1][:8] != prompts[2][:8], "a prefix is of one round"
        assert len({tuple(prompt[8:]) for prompt in prompts}) == 4, "all prompts differ"
        assert bodies[0][0]["top_k"] == 20 and bodies[0][0]["ignore_eos"] is True

    def test_conversations_carry_what_was_said(self):
        script = Script({"tokens": 3, "first": 0.0, "gap": 0.0})
        with ScriptedServer(script) as server:
            report = self.runs(server.url, "--api", "chat", "--turns", 3, "--turn-pause", 0.2,
                               "--num-prompts", 2, "--rounds", 1, "--random-input-len", 40,
                               "--random-output-len", 3, "--num-warmups", 0)
        talks = [body["messages"] for body in script.bodies[2:]]  # after two that count words
        assert [len(talk) for talk in talks] == [1, 3, 5, 1, 3, 5], talks
        assert talks[2][:3] == talks[1] and talks[2][1] == {"role": "assistant", "content": "xxx"}
        assert talks[3][0] != talks[0][0]
        assert script.arrivals[3] - script.arrivals[2] >= 0.2
        # The scripted server counts two tokens a word and 11 of a template.
        assert report["runs"][0]["input_lens"][0] == 40 + 11, report["runs"][0]["input_lens"]

    @tried(5)
    def test_outliers_stand_apart(self):
        script = Script({"first": 0.05, "gap": 0.0})
        with ScriptedServer(script) as server:
            report = self.runs(server.url, "--concurrency", 2, "--num-prompts", 4, "--rounds", 1,
                               "--random-input-len", 10, "--outliers", "500,900",
                               "--outlier-after", 0.3, "--num-warmups", 0)
        run = report["runs"][0]
        assert [each["input_tokens"] for each in run["outliers"]] == [500, 900], run["outliers"]
        assert all(each["ttft_ms"] >= 50 for each in run["outliers"]), run["outliers"]
        assert set(run["input_lens"]) == {10}, "the load goes on and outliers are not in it"
        assert run["completed"] > 4, run["completed"]

    @tried(5)
    def test_a_run_by_time_stops_the_rest(self):
        with ScriptedServer(Script({"first": 0.05, "gap": 0.05})) as server:
            report = self.runs(server.url, "--concurrency", 3, "--duration", 1, "--rounds", 1,
                               "--random-output-len", 4)
        run = report["runs"][0]
        assert run["completed"] >= 3 and 1 <= run["stopped"] <= 3 and run["failed"] == 0, run
        assert 1.0 <= run["duration"] < 2.0, run["duration"]
        # Two answers' tokens at most are not complete, and the server counted what it sent of them.
        more = (run["output_throughput_with_stopped"] - run["output_throughput"]) * run["duration"]
        assert abs(more - round(more)) < 1e-6 and 0 <= more <= 4 * run["stopped"], more

    def test_a_late_client_is_no_measurement(self):
        with ScriptedServer(Script({})) as server:
            done = self.bench(server.url, "--request-rate", 50, "--num-prompts", 20, "--rounds", 1,
                              "--random-output-len", 1, "--late-ms", 0, code=1)
        assert "not a measurement" in done.stderr and "late with 20 of 20" in done.stderr, done

    @tried(5)
    def test_two_servers_in_turn(self):
        quick, slow = Script({"gap": 0.01}), Script({"gap": 0.04})
        with ScriptedServer(quick) as first, ScriptedServer(slow) as second:
            report = self.runs(first.url, "--against", second.url, "--rounds", 3,
                               "--num-prompts", 2, "--random-output-len", 9)
        step = report["steps"][0]
        ratio = step["ratio"]["p50_itl_ms"]
        assert ratio["rounds"] == 3 and ratio["least"] <= ratio["median"] <= ratio["most"]
        assert 0.15 < ratio["median"] < 0.5, ratio
        assert step["ratio"]["output_throughput"]["median"] > 1.5, step["ratio"]
        assert [body["prompt"] for body in quick.bodies] == [b["prompt"] for b in slow.bodies]
        order = sorted([(at, "A") for at in quick.arrivals] + [(at, "B") for at in slow.arrivals])
        turns = "".join(name for _, name in order)
        assert turns.endswith("AABB" + "BBAA" + "AABB"), turns  # one warm-up each before

    def test_reports(self):
        files = {name: self.work / f"report.{name}" for name in ("json", "markdown", "html")}
        with ScriptedServer(Script({}, key="k")) as server:
            done = self.bench(server.url, "--api-key", "k", "--concurrency", "1,2", "--rounds", 2,
                              "--num-prompts", 4, "--random-output-len", 4, "--price", 2,
                              "--currency", "EUR", "--result-dir", self.work / "runs", *LATE,
                              *[w for name, path in files.items() for w in (f"--{name}", path)])
        for text in (done.stdout, files["markdown"].read_text(), files["html"].read_text()):
            for words in ("tokens by usage", "this client: at most", "cost at 2.00 EUR an hour",
                          "processor", "median (least-most)", "1 client", "2 clients"):
                assert words in text, (words, text)
        report = json.loads(files["json"].read_text())
        assert {"nibble", "date", "cores", "memory", "cards"} <= report["machine"].keys(), report
        figures = report["steps"][0]["figures"]
        rate = figures["output_throughput"]["median"]
        assert abs(figures["output_tokens_per_price"] - rate * 1800) < 1e-6 * rate * 1800
        check_page(files["html"].read_text())
        assert len(json.loads((self.work / "runs" / "summary.json").read_text())) == 4
        one = json.loads((self.work / "runs" / "run-1.json").read_text())
        assert one == report["runs"][0]

    def test_interrupt_prints_what_was_measured(self):
        command = [self.nibble, "bench", "serve", None, "--rounds", "50", "--num-prompts", "3",
                   "--random-output-len", "4", *LATE]
        with ScriptedServer(Script({"first": 0.1})) as server:
            command[3] = server.url
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       text=True)
            for _ in range(2):
                process.stderr.readline()  # a line for each round
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=600)
        assert process.returncode == 130, (process.returncode, err)
        assert "interrupted: this is what was measured" in out, out
        assert "output, whole run" in out, out

    @tried(5)
    def test_a_slow_reader_delays_only_itself(self):
        """Bodies are larger than what sockets hold, so the client waits in the middle of one."""
        with ScriptedServer(Script({}, slow_first=2.5)) as server:
            report = self.runs(server.url, "--concurrency", 2, "--num-prompts", 2, "--rounds", 1,
                               "--random-input-len", "1500k", "--random-output-len", 2,
                               "--num-warmups", 0)
        ttfts = sorted(report["runs"][0]["ttfts"])
        assert ttfts[0] < 2.0 and ttfts[1] >= 2.5, ttfts

    def test_a_place_that_is_not_there_is_told_before_the_run(self):
        script = Script({})
        with ScriptedServer(script) as server:
            for flag in ("--json", "--markdown", "--html"):
                done = self.bench(server.url, flag, self.work / "none" / "file", code=1)
                assert flag in done.stderr and "none" in done.stderr, done.stderr
        assert not script.bodies

    def test_presets(self):
        script = Script({"first": 0.0, "gap": 0.0})
        with ScriptedServer(script) as server:
            report = self.runs(server.url, "--preset", "production", "--concurrency", "2",
                               "--random-output-len", "3", "--num-prompts", 2, "--rounds", 1,
                               "--num-warmups", 0)
            assert report["runs"][0]["input_lens"] == [30000, 30000], report["runs"][0]
            report = self.runs(server.url, "--preset", "saturation", "--random-output-len", 1,
                               "--random-input-len", 5, "--num-prompts", 64, "--rounds", 1,
                               "--num-warmups", 0)
        assert [run["max_concurrency"] for run in report["runs"]] == [30, 40, 50, 60, 64]

    def test_bad_words(self):
        url = "http://127.0.0.1:1"
        for words, says in (
                ((), "needs URL"), ((url, "--concurrency", "0"), "--concurrency"),
                ((url, "--concurrency", "1,x"), "--concurrency"),
                ((url, "--concurrency", "1", "--request-rate", "1"), "one of them"),
                ((url, "--request-rate", "nan"), "--request-rate"),
                ((url, "--request-rate", "1", "--duration", "5"), "a closed loop"),
                ((url, "--burstiness", "0"), "--burstiness"),
                ((url, "--turns", "2"), "--api chat"), ((url, "--api", "x"), "chat, completions"),
                ((url, "--random-range-ratio", "1"), "--random-range-ratio"),
                ((url, "--random-ids", "5:5"), "--random-ids"),
                ((url, "--goodput", "ttfb:3"), "--goodput"),
                ((url, "--extra-body", "[1]"), "a JSON object"),
                ((url, "--metric-percentiles", "101"), "--metric-percentiles"),
                ((url, "--preset", "x"), "saturation or production"),
                ((url, "--num-prompts", "1000000", "--random-output-len", "1000"), "at most"),
                ((url, "--api-key", "a b"), "--api-key"), ((url, "--price", "0"), "--price"),
                (("ftp://x",), "http://HOST")):
            done = self.bench(*words, code=2)
            assert says in done.stderr, (words, done.stderr)
            assert not done.stdout
        done = self.bench(url, code=1)
        assert "/v1/models" in done.stderr, done.stderr
        with ScriptedServer(Script({}, key="k")) as server:
            done = self.bench(server.url, code=2)
        assert "wants a key" in done.stderr, done.stderr

    def test_the_server_itself(self):
        with RunningServer(self.nibble, self.model) as server:
            report = self.runs(server.url, "--concurrency", "1,4", "--num-prompts", 8,
                               "--rounds", 2, "--random-input-len", 48, "--random-output-len", 16)
            for run in report["runs"]:
                assert run["completed"] == 8 and run["failed"] == 0, run["errors"]
                assert run["output_lens"] == [16] * 8 and run["input_lens"] == [48] * 8, run
                assert run["short_answers"] == 0
            report = self.runs(server.url, "--api", "chat", "--turns", 2, "--num-prompts", 2,
                               "--rounds", 1, "--random-input-len", 24, "--random-output-len", 8)
            run = report["runs"][0]
            assert run["completed"] == 4 and run["output_lens"] == [8] * 4, run
            shared = self.runs(server.url, "--num-prompts", 4, "--rounds", 1,
                               "--random-prefix-len", 128, "--random-input-len", 16,
                               "--random-output-len", 2)
            assert shared["runs"][0]["total_cached_tokens"] > 0, "a shared prefix is cached"
            server.stop()


def check_page(text):
    """The page is well formed and asks nobody for anything."""
    assert "<script" not in text and "http://" not in text.replace(
        "http://www.w3.org/2000/svg", "").replace("http://127.0.0.1", ""), "loaded from elsewhere"
    opened = []

    class Parser(html.parser.HTMLParser):
        def handle_starttag(self, tag, attributes):
            if tag not in ("meta",):
                opened.append(tag)
            assert not {"src", "href"} & dict(attributes).keys(), (tag, attributes)

        def handle_startendtag(self, tag, attributes):
            pass

        def handle_endtag(self, tag):
            assert opened.pop() == tag, tag

    Parser().feed(text)
    assert not opened, opened
    charts = text.split("<svg")[1:]
    assert len(charts) == 4, len(charts)
    for chart in charts:
        tree = xml.etree.ElementTree.fromstring("<svg" + chart.split("</svg>")[0] + "</svg>")
        assert tree.findall(".//{http://www.w3.org/2000/svg}polyline"), "a chart without a line"


if __name__ == "__main__":
    sys.exit(run_program_checks(Checks, __doc__))

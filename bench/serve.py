#!/usr/bin/env python3
"""Measures what HTTP costs: cold start, time to first event, tokens/s with and without the server.

`nibble bench` measures: `startup`, `model` for the engine alone, `serve` for the same through HTTP.
One JSON line per figure: median, least and most over the rounds. Needs only Python.
"""
import argparse
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tests", "serve"))
from running_server import RunningServer  # noqa: E402

PROMPT = 6  # tokens


def figure(name, values, unit):
    print(json.dumps({"name": name, "median": round(statistics.median(values), 3),
                      "least": round(min(values), 3), "most": round(max(values), 3), "unit": unit,
                      "rounds": len(values)}), flush=True)


def bench(options, kind, *words):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "result.json"
        subprocess.run([options.nibble, "bench", kind, *map(str, words), "--json", path],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return json.loads(path.read_text())


def engine_alone(options):
    batches = ",".join(map(str, [1, *options.streams]))
    rows = bench(options, "model", options.model, "-p", 0, "-n", options.tokens, "-b", batches,
                 "-r", options.rounds)["rows"]
    for row in rows:
        figure(f"engine alone, {row['sequences']} together", row["samples_ts"], "tokens/s")


def round_trips(url):
    address = urllib.parse.urlparse(url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
    trips = []
    for _ in range(50):
        begin = time.perf_counter()
        connection.request("GET", "/health")
        connection.getresponse().read()
        trips.append((time.perf_counter() - begin) * 1e3)
    figure("health round trip", trips, "ms")


def over_http(options, url):
    for count in [1, *options.streams]:
        runs = bench(options, "serve", url, "--concurrency", count, "--num-prompts", count,
                     "--random-input-len", PROMPT, "--random-output-len", options.tokens,
                     "--rounds", options.rounds, "--extra-body", '{"temperature": 0}')["runs"]
        if count == 1:
            figure("http, first event", [run["mean_ttft_ms"] for run in runs], "ms")
            figure("http, decode of one stream", [1e3 / run["mean_tpot_ms"] for run in runs],
                   "tokens/s")
        else:
            figure(f"http, {count} streams together", [run["output_throughput"] for run in runs],
                   "tokens/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nibble", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--streams", type=int, nargs="*", default=[4, 16])
    options = parser.parse_args()
    starts = bench(options, "startup", options.model, "--rounds", options.rounds)["starts"]
    figure("cold start to ready", [start["ready_seconds"] * 1e3 for start in starts], "ms")
    engine_alone(options)
    with RunningServer(options.nibble, options.model) as server:
        round_trips(server.url)
        over_http(options, server.url)
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Measures what HTTP costs: cold start, time to first byte, tokens/s with and without the server.

The engine alone is `nibble run`, the same engine in the same process. One JSON line per figure.

Needs httpx. Greedy continuation of a short prompt, past end-of-text ids. Medians over --rounds.
"""
import argparse
import concurrent.futures
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import httpx

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tests", "serve"))
from running_server import RunningServer  # noqa: E402


def figure(name, values, unit, **more):
    line = {
        "name": name,
        "median": round(statistics.median(values), 3),
        "least": round(min(values), 3),
        "most": round(max(values), 3),
        "unit": unit,
        "rounds": len(values),
        **more,
    }
    print(json.dumps(line), flush=True)


def engine_alone(options):
    """Tokens/s after the first token, as `nibble run` states it."""
    command = [options.nibble, "run", options.model, "--raw", options.prompt, "--ignore-eos",
               "--temperature", "0", "--max-tokens", str(options.tokens)]
    rates, firsts = [], []
    for _ in range(options.rounds):
        text = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        found = re.search(r"prompt tokens in (\d+) ms, .* \((\d+) tokens/s\)", text)
        firsts.append(float(found.group(1)))
        rates.append(float(found.group(2)))
    figure("engine alone, first token", firsts, "ms")
    figure("engine alone, decode", rates, "tokens/s", tokens=options.tokens)


def engine_together(options, count):
    """Tokens/s of `count` sequences: the difference of a long and a short `nibble run --ids`."""

    def seconds(tokens, folder):
        ids = os.path.join(folder, "ids.json")
        with open(ids, "w", encoding="utf-8") as file:
            json.dump({"ids": [[5 + i, 6, 7, 8] for i in range(count)]}, file)
        command = [options.nibble, "run", options.model, "--ids", ids, "--ids-out", ids + ".out",
                   "--ignore-eos", "--temperature", "0", "--max-tokens", str(tokens)]
        begin = time.perf_counter()
        subprocess.run(command, check=True)
        return time.perf_counter() - begin

    rates = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            spent = seconds(options.tokens + 1, folder) - seconds(1, folder)
            rates.append(count * options.tokens / spent)
    figure(f"engine alone, {count} together", rates, "tokens/s")


def stream(client, options):
    """Seconds to the first event and tokens/s after it."""
    body = {"prompt": options.prompt, "max_tokens": options.tokens, "temperature": 0,
            "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
    begin = time.perf_counter()
    first = None
    tokens = 0
    with client.stream("POST", "/v1/completions", json=body) as answer:
        for line in answer.iter_lines():
            if first is None and line.startswith("data: "):
                first = time.perf_counter()
            if '"usage"' in line:
                tokens = json.loads(line[6:])["usage"]["completion_tokens"]
    end = time.perf_counter()
    return first - begin, (tokens - 1) / (end - first), tokens / (end - begin)


def whole(client, options):
    """Tokens/s of an answer in one piece: no client that reads events."""
    body = {"prompt": options.prompt, "max_tokens": options.tokens, "temperature": 0,
            "ignore_eos": True}
    begin = time.perf_counter()
    client.post("/v1/completions", json=body).raise_for_status()
    return options.tokens / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nibble", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt", default="The village lies by the river.")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--streams", type=int, nargs="*", default=[4, 16])
    options = parser.parse_args()

    ready = []
    for _ in range(options.rounds):
        with RunningServer(options.nibble, options.model) as server:
            ready.append(server.wall_ms)
            server.stop()
    figure("cold start to ready", ready, "ms", bound=300)
    engine_alone(options)
    for count in options.streams:
        engine_together(options, count)
    with RunningServer(options.nibble, options.model) as server:
        with httpx.Client(base_url=server.url, timeout=600) as client:
            client.get("/health")
            trips = []
            for _ in range(50):
                begin = time.perf_counter()
                client.get("/health")
                trips.append((time.perf_counter() - begin) * 1e3)
            figure("health round trip", trips, "ms")
            runs = [stream(client, options) for _ in range(options.rounds)]
            figure("http, first event", [first * 1e3 for first, _, _ in runs], "ms")
            figure("http, decode of one stream", [rate for _, rate, _ in runs], "tokens/s")
            wholes = [whole(client, options) for _ in range(options.rounds)]
            figure("http, one whole answer", wholes, "tokens/s")
            for count in options.streams:
                totals = []
                for _ in range(options.rounds):
                    begin = time.perf_counter()
                    with concurrent.futures.ThreadPoolExecutor(count) as pool:
                        list(pool.map(lambda _: stream(client, options), range(count)))
                    totals.append(count * options.tokens / (time.perf_counter() - begin))
                figure(f"http, {count} streams together", totals, "tokens/s")
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())

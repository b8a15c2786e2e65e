#!/usr/bin/env python3
"""Drives a live `nibble serve` with the load of the fairness simulation at 1/32 of its lengths,
and with a 12-turn conversation; prints ratios beside the simulated ones. Needs only Python.

Times of the two differ by the machine; the ratios (beside others / alone) are the scheduler's
doing. A block of 64 rows cannot be scaled, so the live load is a saturated one and is compared with
the saturated simulation.
"""
import argparse
import http.client
import json
import os
import random
import statistics
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tests", "serve"))
from running_server import RunningServer  # noqa: E402

SCALE = 32
FLAGS = ("--max-num-seqs", "32", "--long-prefill-token-threshold", str(32768 // SCALE))
LONG = (60000 // SCALE, 200000 // SCALE)
BUDGET_S = 0.075  # --step-time-budget by default, live and simulated


def stream(url, path, body):
    """Seconds to the first token, the gaps before each later event of exactly one token, the text.

    A character of several tokens comes when it is whole: the gap before it is several passes long
    and says nothing of one."""
    where = urllib.parse.urlparse(url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=600)
    begin = time.perf_counter()
    connection.request("POST", path, json.dumps({**body, "stream": True}),
                       {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(f"{answer.status}: {answer.read().decode()}")
    times, counts, text = [], [], ""
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if "error" in event:
            raise RuntimeError(line.decode())
        choice = event["choices"][0] if event.get("choices") else {}
        delta = choice.get("delta", {})
        piece = choice.get("text") or delta.get("content") or delta.get("reasoning_content")
        tokens = len((choice.get("logprobs") or {}).get("tokens") or [])
        if piece or tokens:
            times.append(time.perf_counter())
            counts.append(tokens)
            text += piece or ""
    connection.close()
    times = times or [time.perf_counter()]  # nothing printable
    gaps = [b - a for a, b, n in zip(times, times[1:], counts[1:]) if n == 1]
    return times[0] - begin, gaps, text


def complete(url, prompt, tokens):
    ids = [random.randrange(300, 2000) for _ in range(prompt)]
    return stream(url, "/v1/completions",
                  {"prompt": ids, "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
                   "logprobs": 0})


class Load:
    """Closed-loop clients until stopped."""

    def __init__(self, url, clients):
        self.url = url
        self.running = True
        self.firsts, self.gaps, self.errors = [], [], []
        self.threads = [threading.Thread(target=self.client, daemon=True) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def client(self):
        while self.running:
            try:
                first, gaps, _ = complete(self.url, random.randint(3000 // SCALE, 8000 // SCALE),
                                          random.randint(100 // SCALE, 500 // SCALE))
            except (RuntimeError, OSError) as error:
                self.errors.append(str(error))
                return
            self.firsts.append(first)
            self.gaps.extend(gaps)

    def stop(self):
        self.running = False
        for thread in self.threads:
            thread.join()


def percentile(values, part):
    return sorted(values)[int(part * (len(values) - 1) + 0.5)] if values else 0.0


def fairness(url, options):
    complete(url, 200, 4)
    short = statistics.median(complete(url, 5500 // SCALE, 4)[0] for _ in range(5))
    alone = [statistics.median(complete(url, n, 4)[0] for _ in range(3)) for n in LONG]
    beside = [[], []]
    load = Load(url, options.clients)
    time.sleep(options.warm_up)
    load.firsts.clear(), load.gaps.clear()
    for _ in range(options.rounds):
        both = [threading.Thread(target=lambda i=i: beside[i].append(complete(url, LONG[i], 4)[0]))
                for i in range(len(LONG))]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
    load.stop()
    if load.errors:
        raise RuntimeError(load.errors[0])
    return {
        "60K beside / alone": (statistics.median(beside[0]) / alone[0], alone[0]),
        "200K beside / alone": (statistics.median(beside[1]) / alone[1], alone[1]),
        "short p95 beside / 60K alone": (percentile(load.firsts, 0.95) / alone[0], short),
        "inter-token p99 / time budget": (percentile(load.gaps, 0.99) / BUDGET_S, BUDGET_S),
    }, len(load.firsts)


def conversation(url):
    """Seconds to the first token of each of 12 turns with equally much new text."""
    def words(count):
        return " ".join(random.choice("red green blue sea stone river tree cloud".split())
                        for _ in range(count))
    messages = [{"role": "system", "content": words(300)}]
    firsts = []
    for _ in range(12):
        messages.append({"role": "user", "content": words(100)})
        first, _, text = stream(url, "/v1/chat/completions",
                                {"messages": messages, "max_tokens": 16, "temperature": 0,
                                 "ignore_eos": True})
        firsts.append(first)
        messages.append({"role": "assistant", "content": text[:40] or "yes"})
    return firsts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nibble", default="build/release/src/cli/nibble")
    parser.add_argument("--model", default="pebble/model")
    parser.add_argument("--url", help="of a server that runs already")
    parser.add_argument("--clients", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3, help="pairs of long prompts")
    parser.add_argument("--conversations", type=int, default=5)
    parser.add_argument("--warm-up", type=float, default=5.0, help="seconds")
    parser.add_argument("--simulated", type=float, nargs=4, default=SIMULATED,
                        help="the ratios that scheduler_bench prints")
    parser.add_argument("--factor", type=float, default=2.0,
                        help="a live ratio may be so much worse than the simulated one")
    options = parser.parse_args()
    if options.url:
        return run(options.url, options)
    with RunningServer(options.nibble, options.model, FLAGS) as server:
        code = run(server.url, options)
        server.stop()
        return code


def run(url, options):
    failed = False
    ratios, shorts = fairness(url, options)
    print("| ratio | live | simulated | (denominator, live) |\n|---|---|---|---|")
    for (name, (live, unit)), simulated in zip(ratios.items(), options.simulated):
        print(f"| {name} | {live:.2f} | {simulated:.2f} | {unit * 1e3:.1f} ms |")
        failed |= live > options.factor * simulated
    print(f"\n{shorts} short requests were answered meanwhile.")
    turns = [conversation(url) for _ in range(options.conversations)]
    second, last = (statistics.median(t[i] for t in turns) for i in (1, 11))
    print(f"12 turns: first token of turn 2 after {second * 1e3:.1f} ms, of turn 12 after "
          f"{last * 1e3:.1f} ms, ratio {last / second:.2f} (bar 1.5)")
    failed |= last > 1.5 * second
    return 1 if failed else 0


SIMULATED = (3.0, 3.5, 4.4, 1.0)  # bench/scheduler/README.md

if __name__ == "__main__":
    sys.exit(main())

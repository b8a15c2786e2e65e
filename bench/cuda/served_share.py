#!/usr/bin/env python3
"""Compares the rate that clients get through HTTP with that of the recorded pass, plain and with a
schema, for one or several builds in turn on one card.

The recorded pass is that of `cuda_decode_bench`, at the middle of the answers. The served rate is
that of `nibble bench serve` while all streams generate: all clients send one request at the same
moment, and it is counted from the last first token to the first end. Builds take turns in every
round, and the medians of the rounds are shown. Needs only Python, and load_shapes.py beside it.

    C=tests/golden/configs/qwen3.6-35b-a3b.json
    served_share.py --config $C --build before=/tmp/nibble --build after=build/cuda/src/cli/nibble
"""
import argparse
import json
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import types

import load_shapes
from running_server import RunningServer  # load_shapes.py has put it on the path

SCHEMA = {"guided_json": {"type": "array", "minItems": 2000, "items": {"type": "string"}}}


def recorded_rates(options):
    """Tokens a second of the recorded pass by the number of clients."""
    context = options.prompt + options.tokens // 2
    clients = ",".join(map(str, options.clients))
    out = subprocess.run([options.bench, options.config, options.layout, str(context), "4", clients,
                          "0", "0"], check=True, capture_output=True, text=True).stdout
    print(out.splitlines()[0], flush=True)
    rates = {int(batch): float(rate) for batch, rate in
             re.findall(r"^batch +(\d+): .*?([\d.]+) tok/s, floor", out, re.MULTILINE)}
    missing = [batch for batch in options.clients if batch not in rates]
    if missing:
        raise RuntimeError(f"{options.bench} printed no rate of batch {missing}:\n{out}")
    return rates


def served(nibble, folder, body, options):
    """The rate of each number of clients, from one server; NaN where a run was no measurement."""
    flags = ["--load-format", f"dummy:{options.layout}", "--max-num-seqs",
             str(max(options.clients)), *shlex.split(options.flags)]
    client = types.SimpleNamespace(nibble=options.client or nibble, ids=(300, 2000),
                                   seed=int.from_bytes(os.urandom(4), "big"), limit=300,
                                   body={**options.body, **body})
    rates = {}
    with RunningServer(nibble, str(folder), flags) as server:
        for clients in options.clients:
            shape = (clients, options.prompt, options.tokens)
            run = load_shapes.bench(server.url, shape, client, "--num-prompts", clients)
            load_shapes.show_errors(run)
            sound = not run["failed"] and run["busy_output_throughput"]
            rates[clients] = run["busy_output_throughput"] if sound else float("nan")
        if server.stop() != 0:
            raise RuntimeError(f"{nibble} serve ended badly: " + "".join(server.log[-5:]))
    return rates


def table(found, recorded, builds, options):
    print(f"\n| requests | clients | recorded pass, tokens/s | {' | '.join(builds)} |\n|" +
          "---|" * (3 + len(builds)))
    for kind in options.kinds:
        for clients in options.clients:
            cells = []
            for build in builds:
                rates = found[kind, clients, build]
                rate = statistics.median(rates)
                cells.append(f"{rate:.0f} ({min(rates):.0f} to {max(rates):.0f}), "
                             f"{100 * rate / recorded[clients]:.1f} %")
            print(f"| {kind} | {clients} | {recorded[clients]:.0f} | {' | '.join(cells)} |")


def measure(builds, folder, options):
    """Rates by kind, clients and build, one for each round."""
    found = {}
    for _ in range(options.rounds):
        for kind in options.kinds:
            for build, nibble in builds.items():
                body = SCHEMA if kind == "schema" else {}
                for clients, rate in served(nibble, folder, body, options).items():
                    found.setdefault((kind, clients, build), []).append(rate)
                    print(f"{kind}, {clients} clients, {build}: {rate:.1f} tokens/s", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="config.json of the shape")
    parser.add_argument("--layout", default="mixed", help="of the random weights")
    parser.add_argument("--build", action="append", metavar="NAME=NIBBLE",
                        help="a program to serve with; may be given several times")
    parser.add_argument("--client", help="the nibble that makes the load; default: each its own")
    parser.add_argument("--bench", default="build/cuda/bench/cuda/cuda_decode_bench")
    parser.add_argument("--clients", type=lambda text: [int(n) for n in text.split(",")],
                        default=[1, 32, 64])
    parser.add_argument("--prompt", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", nargs="*", choices=("plain", "schema"),
                        default=["plain", "schema"])
    parser.add_argument("--body", type=json.loads, default={}, metavar="JSON",
                        help="fields of every request, such as sampling")
    parser.add_argument("--flags", default="--kv-cache-memory-bytes 20000000000", help="of serve")
    options = parser.parse_args()
    builds = dict(pair.split("=", 1) for pair in
                  options.build or ["nibble=build/cuda/src/cli/nibble"])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        load_shapes.dummy_folder(options.config, folder)
        recorded = recorded_rates(options)
        found = measure(builds, folder, options)
    table(found, recorded, list(builds), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

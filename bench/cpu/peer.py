#!/usr/bin/env python3
"""This program's CPU backend and llama.cpp's, or a fork of it, run alternately on the same shape.

peer.py SLICE_BENCH SLICE LLAMA_BENCH GGUF [--threads 1 2] [--rounds 5] [--isa NAME] [--words ...]

SLICE is what `nibble synth` writes, GGUF a file of the same shape. Each round starts both programs
one after the other: a prompt of 512 tokens and one stream of decoding. The table has the median
over all rounds, the smallest and the largest in brackets, and the ratio of the medians.
`--words` are the peer's own, such as -rtr 1 -fmoe 1. It exits with 1 if a ratio is below its bar.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

BARS = {"prompt of 512": 1.5, "decode, 1 stream": 1.25}


def program(path):
    return pathlib.Path(path).resolve()


def run(*words):
    try:
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    except OSError as error:
        sys.exit(f"{words[0]}: expected a program, found {error.strerror}; build it first")
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr}{done.stdout}")
    return done.stdout


def ours(options, threads):
    """Tokens per second of each measurement, its median within one run."""
    said = run(options.bench, options.slice, threads, options.isa, "auto")
    return {name: float(re.search(rf"^{name} +([\d.]+) tokens/s median", said, re.M).group(1))
            for name in BARS}


def theirs(options, threads):
    said = run(options.llama_bench, "-m", options.gguf, "-t", threads, "-p", 512, "-n", 64, "-r", 3,
               "-o", "json", *options.words)
    rows = json.loads(said[said.index("["):])
    return {name: statistics.median(row["samples_ts"])
            for row in rows
            for name in [("prompt of 512" if row["n_prompt"] > 0 else "decode, 1 stream")]}


def spread(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bench", type=program)
    parser.add_argument("slice", type=pathlib.Path)
    parser.add_argument("llama_bench", type=program)
    parser.add_argument("gguf", type=pathlib.Path)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--isa", default="")
    parser.add_argument("--words", nargs=argparse.REMAINDER, default=[])
    options = parser.parse_args()
    print("| threads | | this program, tokens/s | the peer, tokens/s | ratio | bar |\n"
          "|---|---|---|---|---|---|")
    missed = False
    for threads in options.threads:
        found = {name: ([], []) for name in BARS}
        for _ in range(options.rounds):
            for side, measure in enumerate((ours, theirs)):
                for name, value in measure(options, threads).items():
                    found[name][side].append(value)
        for name, (mine, peers) in found.items():
            ratio = statistics.median(mine) / statistics.median(peers)
            missed |= ratio < BARS[name]
            print(f"| {threads} | {name} | {spread(mine)} | {spread(peers)} | {ratio:.2f} | "
                  f"{BARS[name]} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

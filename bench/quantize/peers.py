#!/usr/bin/env python3
"""Pebble in NVFP4 by other quantizers and by this one: peers.py NIBBLE ENVIRONMENTS WORK [DRAWS].

ENVIRONMENTS is what tools/others/install.sh made. Every way that takes data gets the same DRAWS (5)
of 128 calibration documents. Weights alone are compared, with activations in F32: the KL divergence
from BF16 on held-out chats and texts, over all tokens and over those of answers, and its ratio to
our gptq for the same linears, with the bootstrap interval of 95 % over draws and sequences, in
pairs. Processor time is of the whole program, start included. WORK keeps what is done. In the venv
of ./test; prints a Markdown table.
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import typing

import numpy as np

import held_out
from allocation import Table, spread
from paired import Comparison, interval
from quality import SAMPLES, scored

EVERY = held_out.ROOT / "bench/quantize/all-linears.yaml"  # those that ModelOpt takes by itself


class Way(typing.NamedTuple):
    tool: str  # of tools/others, or ours
    options: list
    recipe: str | pathlib.Path  # ours for the same linears
    takes_data: bool


WAYS = {
    "llm-compressor, its default": Way("llm-compressor", ["--scheme", "NVFP4A16"], "w4a16", False),
    "llm-compressor, GPTQ": Way("llm-compressor", ["--scheme", "NVFP4A16", "--algorithm", "gptq"],
                                "w4a16", True),
    "ours, search": Way("ours", ["--algorithm", "search"], "w4a16", False),
    "ours, gptq": Way("ours", ["--algorithm", "gptq"], "w4a16", True),
    "ModelOpt, its default": Way("modelopt", ["--preset", "W4A16_NVFP4_CFG"], EVERY, False),
    "ours, search, ModelOpt's linears": Way("ours", ["--algorithm", "search"], EVERY, False),
    "ours, gptq, ModelOpt's linears": Way("ours", ["--algorithm", "gptq"], EVERY, True),
}


def processor_seconds(command):
    """Runs it; user and system time of the program and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr[-2000:]}{done.stdout[-500:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class Peers(Comparison):
    def __init__(self, asked):
        super().__init__(asked)
        self.nibble, self.environments = asked.nibble.resolve(), asked.environments.resolve()

    def command(self, way, draw, output):
        data = self._calibration(draw)
        if way.tool == "ours":
            given = ["--calib", data, "--calib-samples", SAMPLES, "--calib-length", 1024]
            return [self.nibble, "quantize", held_out.MODEL, output, "--recipe", way.recipe,
                    "--backend", "cpu", "--no-progress", *way.options,
                    *(given if way.takes_data else [])]
        script = held_out.ROOT / "tools/others" / f"quantize_{way.tool.replace('-', '_')}.py"
        return [self.environments / way.tool / "bin/python", script, held_out.MODEL, data, output,
                *way.options, "--samples", SAMPLES if way.takes_data else 1]

    def made(self, name, draw):
        """Processor seconds, and divergences by sequence."""
        note = self.work / f"{name.replace(' ', '-')}-{draw}.json"
        if not note.exists():
            output = self.scratch / "output"
            shutil.rmtree(output, ignore_errors=True)
            seconds = processor_seconds(self.command(WAYS[name], draw, output))
            logits = scored(self.nibble, self.scratch, output, "f32")
            note.write_text(json.dumps([seconds, self.divergences(logits)]))
            print(f"{name}, draw {draw}: {seconds:.0f} s", file=sys.stderr, flush=True)
        return json.loads(note.read_text())

    def runs(self, name, draws):
        """One for each draw; what takes no data is made once."""
        if WAYS[name].takes_data:
            return [self.made(name, draw) for draw in range(draws)]
        return [self.made(name, 0)] * draws


def line(table, name, runs, base):
    cells = [name, f"{np.mean([seconds for seconds, _ in runs]):.1f}"]
    parts, bases = ([part for part in table.parts([(None, None, found) for _, found in these])]
                    for these in (runs, base))
    for (values, share), (before, _) in zip(parts, bases):
        low, high = interval(before, values, share)
        ratio = (values @ share).mean() / (before @ share).mean()
        cells += [spread(values, share),
                  "" if runs is base else f"{ratio:.2f} ({low:.2f} to {high:.2f})"]
    print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("nibble", "environments", "work"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("draws", nargs="?", type=int, default=5)
    asked = parser.parse_args()
    asked.recipe, asked.split, asked.before = "w4a16", "test", asked.nibble
    peers = Peers(asked)
    try:
        made = {name: peers.runs(name, asked.draws) for name in WAYS}
        tokens = sum(len(ids) for ids, _ in peers.items)
        print(f"{asked.draws} draws, {tokens} tokens\n\n| way | processor seconds | KL, all tokens "
              "| to our gptq | answers | to our gptq |\n|---|---|---|---|---|---|")
        table = Table(peers.items)
        ours = {WAYS[name].recipe: runs for name, runs in made.items()
                if name.startswith("ours, gptq")}
        for name, runs in made.items():
            line(table, name, runs, ours[WAYS[name].recipe])
    finally:
        shutil.rmtree(peers.scratch)


if __name__ == "__main__":
    main()

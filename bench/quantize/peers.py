#!/usr/bin/env python3
"""NVFP4 by other quantizers and by this one: peers.py NIBBLE ENVIRONMENTS WORK [DRAWS] [--...].

ENVIRONMENTS is what tools/others/install.sh made. Every way that takes data gets the same DRAWS (5)
of 128 calibration documents. Weights alone are compared, with activations in F32: the KL divergence
from BF16 on held-out chats and texts, over all tokens and over those of answers, and its ratio to
our gptq for the same linears, with the bootstrap interval of 95 % over draws and sequences, in
pairs. Processor time is of the whole program, start included. --model NAME=FOLDER, several times,
takes these models of tools/pebble instead of Pebble, and with more than one a last table has the
ratios side by side. WORK keeps what is done. In the venv of ./test; prints Markdown tables.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
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
    on_card: bool = False  # needs one


FISHER = ["--algorithm", "gptq", "--second-moments", "fisher:0.3"]
GPTQ = ["--scheme", "NVFP4A16", "--algorithm", "gptq"]
WAYS = {
    "llm-compressor, its default": Way("llm-compressor", ["--scheme", "NVFP4A16"], "w4a16", False),
    "llm-compressor, GPTQ": Way("llm-compressor", GPTQ, "w4a16", True),
    "llm-compressor, GPTQ, searched scales":
        Way("llm-compressor", [*GPTQ, "--observer", "memoryless_mse"], "w4a16", True),
    "ours, search": Way("ours", ["--algorithm", "search"], "w4a16", False),
    "ours, blocks": Way("ours", ["--algorithm", "blocks"], "w4a16", True),
    "ours, gptq": Way("ours", ["--algorithm", "gptq"], "w4a16", True),
    "ours, gptq, fisher:0.3": Way("ours", FISHER, "w4a16", True),
    "ModelOpt, its default": Way("modelopt", ["--preset", "W4A16_NVFP4_CFG"], EVERY, False),
    "ModelOpt, local Hessian":
        Way("modelopt", ["--preset", "W4A16_NVFP4_CFG", "--local-hessian"], EVERY, True, True),
    "ours, search, ModelOpt's linears": Way("ours", ["--algorithm", "search"], EVERY, False),
    "ours, gptq, ModelOpt's linears": Way("ours", ["--algorithm", "gptq"], EVERY, True),
    "ours, gptq, fisher:0.3, ModelOpt's linears": Way("ours", FISHER, EVERY, True),
}
BASES = {"w4a16": "ours, gptq", EVERY: "ours, gptq, ModelOpt's linears"}  # by recipe


def processor_seconds(command, card):
    """Runs it; user and system time of the program and its children."""
    with tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen([str(word) for word in command], stdout=said, stderr=said,
                                 env=os.environ | ({} if card else {"CUDA_VISIBLE_DEVICES": ""}))
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            said.seek(0)
            raise RuntimeError(f"{' '.join(map(str, command))}: {said.read()[-2500:]}")
    return used.ru_utime + used.ru_stime


class Peers(Comparison):
    def __init__(self, asked):
        super().__init__(asked)
        self.nibble, self.environments = asked.nibble.resolve(), asked.environments.resolve()
        self.draws = asked.draws
        self.ways = {name: way for name, way in WAYS.items() if asked.card or not way.on_card}

    def command(self, way, draw, output):
        data = self._calibration(draw)
        if way.tool == "ours":
            given = ["--calib", data, "--calib-samples", SAMPLES, "--calib-length", 1024]
            return [self.nibble, "quantize", self.model, output, "--recipe", way.recipe,
                    "--backend", "cpu", "--no-progress", *way.options,
                    *(given if way.takes_data else [])]
        script = held_out.ROOT / "tools/others" / f"quantize_{way.tool.replace('-', '_')}.py"
        return [self.environments / way.tool / "bin/python", script, self.model, data, output,
                *way.options, "--samples", SAMPLES if way.takes_data else 1]

    def made(self, name, draw):
        """Processor seconds, and divergences by sequence."""
        note = self.work / f"{name.replace(' ', '-')}-{draw}.json"
        if not note.exists():
            with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
                place = pathlib.Path(folder)
                shutil.copy(self.scratch / "ids.json", place)
                way = WAYS[name]
                seconds = processor_seconds(self.command(way, draw, place / "output"), way.on_card)
                logits = scored(self.nibble, place, place / "output", "f32")
            written = self.scratch / note.name
            written.write_text(json.dumps([seconds, self.divergences(logits)]))
            written.replace(note)
            print(f"{name}, draw {draw}: {seconds:.0f} s", file=sys.stderr, flush=True)
        return json.loads(note.read_text())

    def runs(self, jobs):
        """By way one run for each draw, what takes no data once; and the ways that failed."""
        for draw in range(self.draws):
            self._calibration(draw)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            begun = {name: [pool.submit(self.made, name, draw)
                            for draw in range(self.draws if way.takes_data else 1)]
                     for name, way in self.ways.items()}
        found, failed = {}, {}
        for name, futures in begun.items():
            errors = [future.exception() for future in futures if future.exception()]
            if errors:
                failed[name] = errors[0]
                continue
            runs = [future.result() for future in futures]
            found[name] = runs * (self.draws // len(runs))
        return found, failed

    def header(self, name):
        tokens = sum(len(ids) for ids, _ in self.items)
        chats = sum(answer is not None for _, answer in self.items)
        right = held_out.quality(self.items, self.reference, self.reference)[2]
        return (f"{name}: {chats} chats, {len(self.items) - chats} texts, {tokens} tokens, "
                f"{self.draws} draws; BF16 answers {100 * right.mean():.1f} % right\n\n"
                "| way | processor seconds | KL, all tokens | to our gptq | answers | to our gptq |"
                "\n|---|---|---|---|---|---|")


def ratios(table, runs, base):
    """(values, share of sequences, ratio in words), over all tokens and over answers."""
    found = []
    parts, bases = (table.parts([(None, None, divergences) for _, divergences in these])
                    for these in (runs, base))
    for (values, share), (before, _) in zip(parts, bases):
        low, high = interval(before, values, share)
        ratio = (values @ share).mean() / (before @ share).mean()
        found.append((values, share, "" if runs is base else
                      f"{ratio:.2f} ({low:.2f} to {high:.2f})"))
    return found


def compared(name, peers, jobs):
    """Prints the model's table; by way the ratio of all tokens in words, and what failed."""
    made, failed = peers.runs(jobs)
    print(peers.header(name))
    table, found = Table(peers.items), {}
    for way, runs in made.items():
        cells = [way, f"{np.mean([seconds for seconds, _ in runs]):.1f}"]
        parts = ratios(table, runs, made.get(BASES[WAYS[way].recipe], runs))
        for values, share, words in parts:
            cells += [spread(values, share), words]
        print("| " + " | ".join(cells) + " |", flush=True)
        found[way] = parts[0][2]
    print()
    return found, [f"{name}, {way}: {error}" for way, error in failed.items()]


def side_by_side(found):
    """The ratios of all tokens, a column for each model."""
    print(f"| KL, all tokens, to our gptq | {' | '.join(found)} |\n|---|{'---|' * len(found)}")
    for way in WAYS:
        cells = [words.get(way, "") for words in found.values()]
        if any(cells):
            print(f"| {way} | {' | '.join(cells)} |")


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("nibble", "environments", "work"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("draws", nargs="?", type=int, default=5)
    parser.add_argument("--model", action="append", metavar="NAME=FOLDER")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--card", action="store_true", help="also the ways that need one")
    return parser.parse_args()


def main():
    asked = parse()
    asked.recipe, asked.split, asked.before = "w4a16", "test", asked.nibble
    models = dict(word.split("=", 1) for word in asked.model or [f"pebble={held_out.MODEL}"])
    found, failed, work = {}, [], asked.work
    for name, folder in models.items():
        asked.model, asked.work = pathlib.Path(folder).resolve(), work / name
        peers = Peers(asked)
        try:
            found[name], missing = compared(name, peers, asked.jobs)
            failed += missing
        finally:
            shutil.rmtree(peers.scratch)
    if len(found) > 1:
        side_by_side(found)
    sys.exit("\n".join(failed) or None)


if __name__ == "__main__":
    main()

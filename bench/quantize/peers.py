#!/usr/bin/env python3
"""NVFP4 by other quantizers and by this one: peers.py NIBBLE ENVIRONMENTS WORK [DRAWS] [--...].

ENVIRONMENTS is what tools/others/install.sh made. Every way that takes data gets the same DRAWS (5)
of 128 calibration documents. Weights alone are compared, with activations in F32: the KL divergence
from BF16 on held-out chats and texts, over all tokens and over those of answers, and its ratio to
our gptq for the same linears, with the bootstrap interval of 95 % over draws and sequences, in
pairs. Processor time is of the whole program, start included. --model NAME=FOLDER, several times,
takes these models of tools/pebble instead of Pebble, and with more than one two last tables have
the ratios side by side. WORK keeps what is done, so that a stopped comparison goes on; --make-only
prints no table, --table-only makes nothing. In the venv of ./test; prints Markdown tables.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile
import typing

import held_out
import peers_tables
from paired import Comparison
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
SEARCHED = ["--observer", "memoryless_mse"]
MODELOPT = ["--preset", "W4A16_NVFP4_CFG"]
WAYS = {
    "llm-compressor, its default": Way("llm-compressor", ["--scheme", "NVFP4A16"], "w4a16", False),
    "llm-compressor, searched scales":
        Way("llm-compressor", ["--scheme", "NVFP4A16", *SEARCHED], "w4a16", False),
    "llm-compressor, GPTQ": Way("llm-compressor", GPTQ, "w4a16", True),
    "llm-compressor, GPTQ, searched scales":
        Way("llm-compressor", [*GPTQ, *SEARCHED], "w4a16", True),
    "ours, search": Way("ours", ["--algorithm", "search"], "w4a16", False),
    "ours, blocks": Way("ours", ["--algorithm", "blocks"], "w4a16", True),
    "ours, gptq": Way("ours", ["--algorithm", "gptq"], "w4a16", True),
    "ours, gptq, fisher:0.3": Way("ours", FISHER, "w4a16", True),
    "ModelOpt, its default": Way("modelopt", MODELOPT, EVERY, False),
    "ModelOpt, searched scales":
        Way("modelopt", [*MODELOPT, "--scales", "mse"], EVERY, False, True),
    "ModelOpt, local Hessian":
        Way("modelopt", [*MODELOPT, "--scales", "local-hessian"], EVERY, True, True),
    "ours, search, ModelOpt's linears": Way("ours", ["--algorithm", "search"], EVERY, False),
    "ours, gptq, ModelOpt's linears": Way("ours", ["--algorithm", "gptq"], EVERY, True),
    "ours, gptq, fisher:0.3, ModelOpt's linears": Way("ours", FISHER, EVERY, True),
}
BASES = {"w4a16": "ours, gptq", EVERY: "ours, gptq, ModelOpt's linears"}  # by recipe


def processor_seconds(command, card):
    """Runs it, on that card or on none; user and system time of the program and its children."""
    with tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen([str(word) for word in command], stdout=said, stderr=said,
                                 env=os.environ | {"CUDA_VISIBLE_DEVICES": card})
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            said.seek(0)
            raise RuntimeError(f"{' '.join(map(str, command))}: {said.read()[-2500:]}")
    return used.ru_utime + used.ru_stime


class Peers(Comparison):
    """The runs of one model."""

    def __init__(self, asked, name, folder, cards):
        super().__init__(argparse.Namespace(
            recipe="w4a16", split="test", before=asked.nibble,
            model=pathlib.Path(folder).resolve(), work=asked.work / name))
        self.nibble, self.environments = asked.nibble.resolve(), asked.environments.resolve()
        self.name, self.cards = name, cards
        right = held_out.quality(self.items, self.reference, self.reference)[2].mean()
        peers_tables.write_items(self.work, self.items, right)
        for draw in range(asked.draws):
            self._calibration(draw)

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

    def quantized(self, way, draw, output):
        """Processor seconds; a way that needs a card has one for itself."""
        card = self.cards.get() if way.on_card else ""
        try:
            return processor_seconds(self.command(way, draw, output), card)
        finally:
            if card:
                self.cards.put(card)

    def make(self, name, draw):
        """Leaves a note of processor seconds, and divergences by sequence."""
        note = peers_tables.note_of(self.work, name, draw)
        if note.exists():
            return
        with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
            place = pathlib.Path(folder)
            shutil.copy(self.scratch / "ids.json", place)
            seconds = self.quantized(WAYS[name], draw, place / "output")
            logits = scored(self.nibble, place, place / "output", "f32")
        written = self.scratch / note.name
        written.write_text(json.dumps([seconds, self.divergences(logits)]))
        written.replace(note)
        print(f"{self.name}, {name}, draw {draw}: {seconds:.0f} s", file=sys.stderr, flush=True)


def cost(way):
    """Sorts what takes longest first, so that the last runs to begin are short ones."""
    return (not way.takes_data, way.tool == "ours", "fisher:0.3" not in way.options)


def make_all(asked, models, ways):
    """All runs of all models, --jobs at once; what failed, in words."""
    cards = queue.Queue()
    for card in asked.cards:
        cards.put(card)
    failed = []

    def told(future, what):
        if future.exception():
            failed.append(f"{what}: {future.exception()}")
            print(failed[-1], file=sys.stderr, flush=True)

    with concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool, \
            concurrent.futures.ThreadPoolExecutor(max(len(asked.cards), 1)) as card_pool:
        begun = {name: pool.submit(Peers, asked, name, folder, cards)
                 for name, folder in models.items()}
        for name, future in begun.items():
            told(future, name)
        every = [future.result() for future in begun.values() if not future.exception()]
        for name, way in sorted(ways.items(), key=lambda item: cost(item[1])):
            for draw in range(asked.draws if way.takes_data else 1):
                for peers in every:
                    run = (card_pool if way.on_card else pool).submit(peers.make, name, draw)
                    run.add_done_callback(
                        lambda run, what=f"{peers.name}, {name}, draw {draw}": told(run, what))
    for peers in every:
        shutil.rmtree(peers.scratch)
    return failed


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("nibble", "environments", "work"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("draws", nargs="?", type=int, default=5)
    parser.add_argument("--model", action="append", metavar="NAME=FOLDER")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--cards", type=lambda words: words.split(","), default=[],
                        metavar="0,1", help="also the ways that need a card; one named twice "
                        "has two runs at once")
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--make-only", action="store_true")
    part.add_argument("--table-only", action="store_true", help="of what WORK has")
    return parser.parse_args()


def main():
    asked = parse()
    models = dict(word.split("=", 1) for word in asked.model or [f"pebble={held_out.MODEL}"])
    ways = {name: way for name, way in WAYS.items() if asked.cards or not way.on_card}
    failed = [] if asked.table_only else make_all(asked, models, ways)
    rows = [peers_tables.Row(name, way.takes_data, way.on_card, BASES[way.recipe])
            for name, way in WAYS.items()]
    if not asked.make_only:
        peers_tables.print_tables({name: asked.work / name / "test" for name in models}, rows,
                                  asked.draws)
    sys.exit("\n".join(failed) or None)


if __name__ == "__main__":
    main()

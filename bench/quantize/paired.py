#!/usr/bin/env python3
"""Two ways to quantize beside each other: paired.py BEFORE AFTER WORK [RECIPE [DRAWS]] [--...].

Both quantize Pebble by gptq with the same draws of calibration data (RECIPE w4a16, DRAWS 16), and
held-out chats and prose are scored: KL(BF16 || quantized), mean over sequences, over all tokens,
and of the chats also over the tokens of their answers alone. The ratio after/before has a bootstrap
interval of 95 % over draws and sequences, both drawn in pairs. BEFORE and AFTER are programs, and
may be the same one with other options: --before-options, --after-options. --split validation scores
other chats and texts, with other draws, to choose a setting with. WORK keeps what is done; several
may run at once over one WORK, and with --make-only DRAW... only make and score these draws. In the
venv of ./test.
"""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import sys

import numpy as np

import held_out
from quality import RECIPES, SAMPLES, run, scored

RESAMPLES = 3000
FIRST_DRAW = {"test": 0, "validation": 100}


class Comparison:
    """All that the runs share: held-out items, their logits in BF16, and where things are kept."""

    def __init__(self, asked):
        self.recipe, self.model = asked.recipe, asked.model
        self.work = asked.work / asked.split
        self.scratch = self.work / f"scratch-{os.getpid()}"  # of this process, removed at its end
        self.scratch.mkdir(parents=True)
        self.items = held_out.held_out_items(asked.split)
        ids = {"ids": [ids for ids, _ in self.items]}
        (self.scratch / "ids.json").write_text(json.dumps(ids))
        self.reference = held_out.log_softmax(self._reference(asked.before.resolve()))

    def _reference(self, nibble):
        kept = self.work / "reference.npy"
        if not kept.exists():
            made = self.scratch / "reference.npy"
            np.save(made, scored(nibble, self.scratch, self.model, "f32"))
            made.replace(kept)
        return np.load(kept)

    def _calibration(self, draw):
        kept = self.work / f"calib{draw}.jsonl"
        if not kept.exists():
            made = self.scratch / kept.name
            held_out.write_calibration(made, draw, SAMPLES)
            made.replace(kept)
        return kept

    def divergences(self, logits):
        """Per sequence: over all of its tokens, and over its answer's (NaN for prose)."""
        found, row = [], 0
        for ids, answer in self.items:
            p, q = (rows[row:row + len(ids)] for rows in (self.reference, logits))
            row += len(ids)
            own = (np.exp(p) * (p - held_out.log_softmax(q))).sum(-1)
            found.append([own.mean(), np.nan if answer is None else own[answer - 1:-1].mean()])
        return found

    def one(self, nibble, options, draw):
        key = hashlib.sha256(f"{nibble.stat().st_mtime_ns} {nibble} {options}".encode()).hexdigest()
        note = self.work / f"{key[:12]}-{self.recipe}-{draw}.json"
        if not note.exists():
            output = self.scratch / "output"
            shutil.rmtree(output, ignore_errors=True)
            algorithm = [] if "--algorithm" in options else ["--algorithm", "gptq"]
            run(nibble, "quantize", self.model, output, "--recipe", self.recipe, *algorithm,
                "--no-progress", "--backend", "cpu", "--calib", self._calibration(draw),
                "--calib-samples", SAMPLES, "--calib-length", 1024, *options)
            logits = scored(nibble, self.scratch, output, RECIPES[self.recipe])
            note.write_text(json.dumps(self.divergences(logits)))
        return json.loads(note.read_text())


def interval(before, after, weights):
    """The 95 % interval of the ratio of means; both are [draws, sequences]."""
    random, ratios = np.random.default_rng(0), []
    for _ in range(RESAMPLES):
        draws = random.integers(0, len(before), len(before))
        rows = random.integers(0, before.shape[1], before.shape[1])
        a, b = (all_of[np.ix_(draws, rows)] @ weights[rows] for all_of in (before, after))
        ratios.append(b.sum() / a.sum())
    return np.quantile(ratios, [0.025, 0.975])


def print_table(before, after, items):
    """Both [draws, sequences, 2]: of all tokens and of answers."""
    chats = np.array([answer is not None for _, answer in items])
    lengths = np.array([len(ids) for ids, _ in items], float)
    alike = np.ones_like(lengths)
    print("| tokens | before | after | ratio | 95 % | lower in |\n|---|---|---|---|---|---|")
    for kind, rows, column, weights in (
            ("all, by sequence", chats | True, 0, alike),
            ("all, by token", chats | True, 0, lengths),
            ("chats", chats, 0, alike), ("prose", ~chats, 0, alike), ("answers", chats, 1, alike)):
        share = weights[rows] / weights[rows].sum()
        a, b = before[:, rows, column], after[:, rows, column]
        low, high = interval(a, b, share)
        print(f"| {kind} | {(a @ share).mean():.3e} | {(b @ share).mean():.3e} | "
              f"{(b @ share).mean() / (a @ share).mean():.3f} | {low:.3f} to {high:.3f} | "
              f"{((b @ share) < (a @ share)).sum()} of {len(a)} |")


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("before", "after", "work"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("recipe", nargs="?", default="w4a16")
    parser.add_argument("draws", nargs="?", type=int, default=16)
    parser.add_argument("--before-options", default="", help="of quantize, as one word")
    parser.add_argument("--after-options", default="")
    parser.add_argument("--model", type=pathlib.Path, default=held_out.MODEL,
                        help="another of tools/pebble, with a WORK of its own")
    parser.add_argument("--split", choices=list(FIRST_DRAW), default="test")
    parser.add_argument("--make-only", nargs="+", type=int, metavar="DRAW")
    return parser.parse_args()


def main():
    asked = parse()
    ways = [(asked.before.resolve(), asked.before_options.split()),
            (asked.after.resolve(), asked.after_options.split())]
    comparison = Comparison(asked)
    try:
        first = FIRST_DRAW[asked.split]
        draws = [first + draw for draw in asked.make_only or range(asked.draws)]
        results = []
        for draw in draws:
            results.append([comparison.one(nibble, options, draw) for nibble, options in ways])
            print(f"draw {draw} is done", file=sys.stderr, flush=True)
        if asked.make_only:
            return
        tokens = sum(len(ids) for ids, _ in comparison.items)
        print(f"{asked.recipe}, {asked.draws} draws, {asked.split}, {tokens} tokens\n")
        before, after = np.array(results).swapaxes(0, 1)
        print_table(before, after, comparison.items)
    finally:
        shutil.rmtree(comparison.scratch)


if __name__ == "__main__":
    main()

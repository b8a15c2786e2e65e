#!/usr/bin/env python3
"""Activations as a checkpoint declares them beside its weights alone, on Pebble:
activations.py NIBBLE WORK [--draws N] [--recipes R...] [--ways A B] > table.

Every recipe, rounded without data (search) and with data (gptq, N draws of calibration data), is
scored twice on held-out chats and prose: with activations in F32, which is what weight-only
products aim at, and with --activations declared, or in two other ways. KL(BF16 || quantized) is the
mean over all tokens, and over the tokens of the chats' answers. The ratio of the second to the
first has a bootstrap interval of 95 % over sequences and draws, drawn in pairs. WORK keeps what is
done. In the venv of ./test.
"""

import argparse
import json
import pathlib
import shutil
import sys

import numpy as np

import held_out
from quality import SAMPLES, run, scored

RECIPES = ["w4a4", "w4a4-fp8-head", "mixed", "mixed-nvfp4-head", "fp8", "w4a16", "experts-only"]
WAYS = {"f32": ["f32"], "declared": ["declared"],
        "four-over-six": ["declared", "--input-scales", "four-over-six"]}
COLUMNS = ["tokens", "kl", "answer_tokens", "answer_kl", "right", "same"]
RESAMPLES = 3000


def judged(items, reference, logits):
    """A row for each sequence, in the order of COLUMNS; sums over tokens, not means."""
    p, q = held_out.log_softmax(reference), held_out.log_softmax(logits)
    kl = (np.exp(p) * (p - q)).sum(-1)
    same = p.argmax(-1) == q.argmax(-1)
    rows, at = [], 0
    for ids, answer in items:
        own, chosen = kl[at:at + len(ids)], q[at:at + len(ids)].argmax(-1)
        agreed = int(same[at:at + len(ids)].sum())
        at += len(ids)
        if answer is None:
            rows.append([len(ids), own.sum(), 0, 0.0, -1, agreed])
            continue
        right = bool((chosen[answer - 1:-1] == np.array(ids[answer:])).all())
        rows.append([len(ids), own.sum(), len(ids) - answer, own[answer - 1:-1].sum(), int(right),
                     agreed])
    return np.array(rows, float)


class Runs:
    """Held-out items, their logits in BF16, and what WORK keeps."""

    def __init__(self, nibble, work, ways):
        self.nibble, self.work, self.ways = nibble.resolve(), work, ways
        work.mkdir(parents=True, exist_ok=True)
        self.items = held_out.held_out_items()
        (work / "ids.json").write_text(json.dumps({"ids": [ids for ids, _ in self.items]}))
        self.reference = scored(self.nibble, work, held_out.MODEL, "f32")

    def calibration(self, draw):
        kept = self.work / f"calib{draw}.jsonl"
        if not kept.exists():
            held_out.write_calibration(kept, draw, SAMPLES)
        return kept

    def one(self, recipe, algorithm, draw):
        """[way][sequence][column] of one checkpoint."""
        note = self.work / f"{'-'.join(self.ways)}-{recipe}-{algorithm}-{draw}.json"
        if not note.exists():
            output = self.work / "output"
            shutil.rmtree(output, ignore_errors=True)
            data = [] if draw is None else ["--backend", "cpu", "--calib", self.calibration(draw),
                                            "--calib-samples", SAMPLES, "--calib-length", 1024]
            run(self.nibble, "quantize", held_out.MODEL, output, "--recipe", recipe, "--algorithm",
                algorithm, "--no-progress", *data)
            rows = [judged(self.items, self.reference,
                           scored(self.nibble, self.work, output, *WAYS[way])).tolist()
                    for way in self.ways]
            note.write_text(json.dumps(rows))
        return np.array(json.loads(note.read_text()))


def ratio(runs, kl, tokens):
    """The ratio of means and its interval; `runs` is [draw][way][sequence][column]."""
    random, found = np.random.default_rng(0), []
    rows = np.flatnonzero(runs[0, 0, :, tokens])

    def means(draws, chosen):
        part = runs[np.ix_(draws, [0, 1], chosen)]
        return part[..., kl].sum((0, 2)) / part[..., tokens].sum((0, 2))

    first, second = means(np.arange(len(runs)), rows)
    for _ in range(RESAMPLES):
        one, other = means(random.integers(0, len(runs), len(runs)), random.choice(rows, len(rows)))
        found.append(other / one)
    low, high = np.quantile(found, [0.025, 0.975])
    return [f"{first:.2e}", f"{second:.2e}", f"{second / first:.2f}",
            f"{low:.2f} to {high:.2f}"]


def line(recipe, algorithm, runs):
    cells = ratio(runs, COLUMNS.index("kl"), COLUMNS.index("tokens"))
    cells += ratio(runs, COLUMNS.index("answer_kl"), COLUMNS.index("answer_tokens"))
    chats = runs[0, 0, :, COLUMNS.index("right")] >= 0
    right = runs[:, :, chats, COLUMNS.index("right")].sum((0, 2))
    same = 100 * runs[..., COLUMNS.index("same")].sum((0, 2))
    same /= runs[:, 0, :, COLUMNS.index("tokens")].sum()
    cells.append(f"{right[0]:.0f}, {right[1]:.0f} of {chats.sum() * len(runs)}")
    cells.append(f"{same[0]:.2f}, {same[1]:.2f}")
    print(f"| {recipe} | {algorithm} | {len(runs)} | {' | '.join(cells)} |", flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nibble", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--recipes", nargs="+", default=RECIPES, choices=RECIPES)
    parser.add_argument("--ways", nargs=2, default=["f32", "declared"], choices=list(WAYS))
    return parser.parse_args()


def main():
    asked = parse()
    runs = Runs(asked.nibble, asked.work, asked.ways)
    chats = sum(answer is not None for _, answer in runs.items)
    print(f"{chats} chats, {len(runs.items) - chats} texts, "
          f"{sum(len(ids) for ids, _ in runs.items)} tokens.\n")
    first, second = asked.ways
    print(f"| recipe | algorithm | draws | KL, {first} | {second} | ratio | 95 % | "
          f"KL of answers, {first} | {second} | ratio | 95 % | right answers, both | "
          "same first token, both, % |")
    print("|" + "---|" * 13, flush=True)
    for recipe in asked.recipes:
        line(recipe, "search", np.array([runs.one(recipe, "search", None)]))
        line(recipe, "gptq",
             np.array([runs.one(recipe, "gptq", draw) for draw in range(asked.draws)]))


if __name__ == "__main__":
    sys.exit(main())

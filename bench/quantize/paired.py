#!/usr/bin/env python3
"""Two builds of nibble beside each other: paired.py BEFORE AFTER WORK [RECIPE [DRAWS]].

Both quantize Pebble by gptq with the same draws of calibration data (RECIPE w4a16, DRAWS 16), and
held-out chats and prose are scored: KL(BF16 || quantized), mean over sequences, and of the chats
also over the tokens of their answers alone. The ratio after/before has a bootstrap interval of
95 % over draws and sequences, both drawn in pairs. WORK keeps what is done. In the venv of ./test.
"""

import json
import pathlib
import shutil
import sys

import numpy as np

import held_out
from quality import RECIPES, SAMPLES, run, scored

RESAMPLES = 3000


def divergences(items, reference, logits):
    """Per sequence: over all of its tokens, and over its answer's (NaN for prose)."""
    p, q = held_out.log_softmax(reference), held_out.log_softmax(logits)
    kl = (np.exp(p) * (p - q)).sum(-1)
    found, row = [], 0
    for ids, answer in items:
        own = kl[row:row + len(ids)]
        row += len(ids)
        found.append([own.mean(), np.nan if answer is None else own[answer - 1:-1].mean()])
    return found


def one(nibble, work, name, items, reference, recipe, draw):
    note = work / f"{name}-{recipe}-{draw}.json"
    if not note.exists():
        output = work / "output"
        shutil.rmtree(output, ignore_errors=True)
        run(nibble, "quantize", held_out.MODEL, output, "--recipe", recipe, "--algorithm", "gptq",
            "--no-progress", "--backend", "cpu", "--calib", work / f"calib{draw}.jsonl",
            "--calib-samples", SAMPLES, "--calib-length", 1024)
        logits = scored(nibble, work, output, RECIPES[recipe])
        note.write_text(json.dumps(divergences(items, reference, logits)))
    return json.loads(note.read_text())


def interval(before, after):
    """The 95 % interval of the ratio of means; both are [draws, sequences]."""
    random, ratios = np.random.default_rng(0), []
    for _ in range(RESAMPLES):
        chosen = np.ix_(random.integers(0, len(before), len(before)),
                        random.integers(0, before.shape[1], before.shape[1]))
        ratios.append(after[chosen].mean() / before[chosen].mean())
    return np.quantile(ratios, [0.025, 0.975])


def main():
    nibbles = {"before": pathlib.Path(sys.argv[1]).resolve(),
               "after": pathlib.Path(sys.argv[2]).resolve()}
    work = pathlib.Path(sys.argv[3])
    recipe = sys.argv[4] if len(sys.argv) > 4 else "w4a16"
    draws = int(sys.argv[5]) if len(sys.argv) > 5 else 16
    work.mkdir(parents=True, exist_ok=True)
    items = held_out.held_out_items()
    (work / "ids.json").write_text(json.dumps({"ids": [ids for ids, _ in items]}))
    reference = scored(nibbles["before"], work, held_out.MODEL, "f32")
    results = {name: [] for name in nibbles}
    for draw in range(draws):
        if not (work / f"calib{draw}.jsonl").exists():
            held_out.write_calibration(work / f"calib{draw}.jsonl", draw, SAMPLES)
        for name, nibble in nibbles.items():
            results[name].append(one(nibble, work, name, items, reference, recipe, draw))
    before, after = np.array(results["before"]), np.array(results["after"])
    chats = np.array([answer is not None for _, answer in items])
    print(f"{recipe}, {draws} draws\n\n| tokens | before | after | ratio | 95 % | lower in |\n"
          "|---|---|---|---|---|---|")
    for kind, rows, column in (("all", chats | True, 0), ("chats", chats, 0), ("prose", ~chats, 0),
                               ("answers", chats, 1)):
        a, b = before[:, rows, column], after[:, rows, column]
        low, high = interval(a, b)
        print(f"| {kind} | {a.mean():.3e} | {b.mean():.3e} | {b.mean() / a.mean():.3f} | "
              f"{low:.3f} to {high:.3f} | {(b.mean(1) < a.mean(1)).sum()} of {draws} |")


if __name__ == "__main__":
    main()

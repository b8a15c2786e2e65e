#!/usr/bin/env python3
"""The cost of 8-bit activations, as a CPU serves with them: activations_kl.py NIBBLE > table.

Pebble is quantized by each recipe, and held-out chats and prose are scored by the same checkpoint
twice, with --activations int8 and f32. The table has the mean KL divergence of int8 from f32 over
all tokens and over the tokens of answers, and the share of tokens with the same first choice.
It exits with 1 if a mean is above 1e-3. Needs the packages of the test venv.
"""
import json
import pathlib
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/quantize"))
import held_out  # noqa: E402
from quality import run, scored  # noqa: E402

RECIPES = ("mixed", "mixed-nvfp4-head", "w4a16", "w4a4", "w4a4-fp8-head", "experts-only", "fp8",
           "lab-fp8-embed")
KL_MAX = 1e-3


def answer_rows(items):
    """True for each row of logits that predicts a token of an answer."""
    mask = []
    for ids, answer in items:
        inside = np.zeros(len(ids), bool)
        if answer is not None:
            inside[answer - 1:len(ids) - 1] = True
        mask.append(inside)
    return np.concatenate(mask)


def divergence(expected, found):
    """KL of each row, and whether its first choice is the same."""
    p, q = held_out.log_softmax(expected), held_out.log_softmax(found)
    return (np.exp(p) * (p - q)).sum(-1), expected.argmax(-1) == found.argmax(-1)


def main():
    nibble = pathlib.Path(sys.argv[1]).resolve()
    items = held_out.held_out_items()
    answers = answer_rows(items)
    print(f"{len(items)} texts, {len(answers)} tokens, {answers.sum()} of them of answers.\n\n"
          "| recipe | mean KL | largest | answers' mean KL | same first choice |\n"
          "|---|---|---|---|---|")
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / "ids.json").write_text(json.dumps({"ids": [ids for ids, _ in items]}))
        for recipe in RECIPES:
            model = work / recipe
            run(nibble, "quantize", held_out.MODEL, model, "--recipe", recipe, "--no-progress")
            logits = {way: scored(nibble, work, model, way) for way in ("f32", "int8")}
            kl, same = divergence(logits["f32"], logits["int8"])
            means = kl.mean(), kl[answers].mean()
            worst = max(worst, *means)
            print(f"| `{recipe}` | {means[0]:.1e} | {kl.max():.1e} | {means[1]:.1e} | "
                  f"{100 * same.mean():.2f} % |", flush=True)
    return 0 if worst <= KL_MAX else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Allocations under a budget beside stock recipes of equal size: allocation.py NIBBLE WORK [DRAWS].

Quantizes Pebble by gptq with DRAWS (3) draws of calibration data: by stock recipes, by `mixed` with
other heads, and by allocation to the sizes of each of these and some others. Losses are
predicted once for each draw, by a run with --target-bytes; the other budgets are chosen here from
its report by the same rule, which is held against that run's choice. Held-out chats
and prose are scored: KL(BF16 || quantized) with activations as declared, mean over tokens,
and over the tokens of answers alone, each with a bootstrap interval of 95 % over draws and
sequences; beside it the predicted divergence, and the ratio to the stock recipe of that size, in
pairs. WORK keeps what is done. --make-only makes and scores without a table, so that several may
run at once. In the venv of ./test.
"""

import argparse
import hashlib
import json
import pathlib
import shutil
import sys

import numpy as np

from paired import Comparison, interval
from quality import SAMPLES, run, scored

import held_out

HEADS = {"fp8-block": "weights: fp8-block", "bf16": "weights: keep"}
STOCK = ["mixed-nvfp4-head", "mixed", "mixed, head bf16", "w4a16"]
ALONE = ["mixed, head fp8-block"]  # its size is that of the head in FP8 per row
SWEPT = 12_500_000  # the budget of the run whose losses serve all others of its draw
BUDGETS = [SWEPT, 20_000_000]
RULES = {"NVFP4": "weights: nvfp4", "FP8": "weights: fp8\n    input_scale: 1"}


def recipe_of(name, scratch):
    """A name of a recipe, or the path of `mixed` with another head."""
    base, _, head = name.partition(", head ")
    if not head:
        return base
    text = (held_out.ROOT / "recipes" / f"{base}.yaml").read_text()
    path = scratch / f"{base}-{head}.yaml"
    path.write_text(f"{text}  - match: lm_head\n    {HEADS[head]}\n    optional: true\n")
    return path


def steps(groups):
    """(gain per byte, group, choice) along the lower hull of each group, best first."""
    found = []
    for at, group in enumerate(groups):
        rest, now = group["choices"][1:], group["choices"][0]
        while rest:
            gains = [(now["predicted_kl"] - one["predicted_kl"]) / (one["bytes"] - now["bytes"])
                     for one in rest]
            best = int(np.argmax(gains))
            if gains[best] <= 0:
                break
            found.append((-gains[best], at, rest[best], rest[best]["bytes"] - now["bytes"]))
            now, rest = rest[best], rest[best + 1:]
    return sorted(found, key=lambda step: step[:2])


def chosen_within(report, size):
    """The choice of --target-bytes, from the losses in the report of another size."""
    groups = report["allocation"]["groups"]
    formats = {group["group"]: group["format"] for group in groups}
    now = {group["group"]: group["choices"][0] for group in groups}
    taken = sum(next(c["bytes"] for c in group["choices"] if c["format"] == group["format"])
                for group in groups)
    room = size - (report["tensor_bytes_out"] - taken) - sum(c["bytes"] for c in now.values())
    ended = set()
    for _, at, choice, more in steps(groups):
        name = groups[at]["group"]
        if name in ended or more > room:
            ended.add(name)
            continue
        now[name], room = choice, room - more
    assert size != SWEPT or formats == {name: c["format"] for name, c in now.items()}
    return now


def recipe_within(report, size, scratch):
    """The path of a recipe with that choice, and the predicted divergence."""
    now, text = chosen_within(report, size), "name: allocated\nstatus: lab\nrules:\n"
    for name, choice in now.items():
        first, *others = name.split(",")
        modules = [first] + [f"{first.rpartition('.')[0]}.{other}" for other in others]
        if name.endswith(".experts"):
            modules = [f"'re:{name.replace('.', chr(92) + '.')}{chr(92)}..*'"]
        if choice["format"] in RULES:
            text += "".join(f"  - match: {m}\n    {RULES[choice['format']]}\n" for m in modules)
    path = scratch / f"{size}.yaml"
    path.write_text(text)
    return path, sum(choice["predicted_kl"] for choice in now.values())


class Allocations(Comparison):
    def made(self, nibble, name, draw):
        """Size, predicted divergence (None: a stock recipe), divergences by sequence, and of the
        swept run its report."""
        key = hashlib.sha256(f"{nibble.stat().st_mtime_ns} {name}".encode()).hexdigest()[:12]
        note = self.work / f"allocation-{key}-{draw}.json"
        if note.exists():
            return json.loads(note.read_text())
        output, predicted = self.scratch / "output", None
        shutil.rmtree(output, ignore_errors=True)
        if name == SWEPT:
            way = ["--target-bytes", name]
        elif isinstance(name, int):
            swept = self.made(nibble, SWEPT, draw)[3]
            path, predicted = recipe_within(swept, name, self.scratch)
            way = ["--recipe", path]
        else:
            way = ["--recipe", recipe_of(name, self.scratch)]
        run(nibble, "quantize", held_out.MODEL, output, *way, "--algorithm", "gptq",
            "--no-progress", "--backend", "cpu", "--calib", self._calibration(draw),
            "--calib-samples", SAMPLES, "--calib-length", 1024)
        report = json.loads((output / "quantize_report.json").read_text())
        if name == SWEPT:
            predicted = report["allocation"]["total"]["predicted_kl"]
            chosen_within(report, SWEPT)
        logits = scored(nibble, self.scratch, output, "declared")
        found = [report["tensor_bytes_out"], predicted, self.divergences(logits),
                 report if name == SWEPT else None]
        note.write_text(json.dumps(found))
        return found


def spread(values, share):
    """Mean of [draws, sequences] and its 95 % interval."""
    low, high = interval(np.ones_like(values), values, share)
    return f"{(values @ share).mean():.2e} ({low:.2e} to {high:.2e})"


class Table:
    def __init__(self, items):
        self.lengths = np.array([len(ids) for ids, _ in items], float)
        self.answers = np.array([0 if a is None else len(ids) - a for ids, a in items], float)

    def parts(self, runs):
        """[draws, sequences] over all tokens and over answers, and the weights of sequences."""
        every = np.array([one[2] for one in runs], float)
        chats = self.answers > 0
        return [(every[:, :, 0], self.lengths / self.lengths.sum()),
                (every[:, chats, 1], (self.answers / self.answers.sum())[chats])]

    def line(self, name, runs, stock):
        cells = [str(name), f"{np.mean([one[0] for one in runs]) / 1e6:.2f}",
                 "" if runs[0][1] is None else f"{np.mean([one[1] for one in runs]):.2e}"]
        for index, (values, share) in enumerate(self.parts(runs)):
            cells.append(spread(values, share))
            if stock is None:
                cells.append("")
                continue
            base = self.parts(stock)[index][0]
            low, high = interval(base, values, share)
            ratio = (values @ share).mean() / (base @ share).mean()
            cells.append(f"{ratio:.3f} ({low:.3f} to {high:.3f})")
        print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nibble", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("draws", nargs="?", type=int, default=3)
    parser.add_argument("--make-only", nargs="+", type=int, metavar="DRAW")
    asked = parser.parse_args()
    asked.recipe, asked.split, asked.before = "mixed", "test", asked.nibble
    asked.model = held_out.MODEL
    nibble = asked.nibble.resolve()
    comparison = Allocations(asked)
    try:
        draws = asked.make_only or range(asked.draws)
        names, made, sizes = [*STOCK, *BUDGETS], {}, {}
        while names:
            name = names.pop(0)
            made[name] = [comparison.made(nibble, name, draw) for draw in draws]
            print(f"{name} is done", file=sys.stderr, flush=True)
            if name in STOCK:
                sizes[made[name][0][0]] = name
                names.append(made[name][0][0])
            if not names and ALONE[0] not in made:
                names += ALONE
        if asked.make_only:
            return
        tokens = sum(len(ids) for ids, _ in comparison.items)
        print(f"{len(draws)} draws, {tokens} tokens\n\n| recipe or budget | MB | predicted | "
              "all tokens | to stock | answers | to stock |\n|---|---|---|---|---|---|---|")
        table = Table(comparison.items)
        for name, runs in made.items():
            table.line(name, runs, made.get(sizes.get(name)))
    finally:
        shutil.rmtree(comparison.scratch)


if __name__ == "__main__":
    main()

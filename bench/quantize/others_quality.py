#!/usr/bin/env python3
"""Other quantizers' Pebble beside ours: others_quality.py NIBBLE WORK NAME=FOLDER... > table

Each folder is scored on held-out chats and prose, weights only and with activations as declared, by
`nibble score` and by transformers (by_transformers.py). Needs tools/requirements-full.txt.
"""

import importlib.metadata
import json
import pathlib
import subprocess
import sys

import by_transformers
import held_out
from quality import scored

EVERY = 8  # one item in eight
HEAD = ["file", "activations", "KL of chats", "there", "KL of prose", "there", "answers right, %",
        "there", "logits apart", "errors", "warnings of verify"]


def cells(items, ours, theirs):
    """Each figure by `nibble score`, then by transformers; (reference, logits) of each. Last the
    rms difference of both logits over their deviation."""
    out = []
    figures = [held_out.quality(items, *pair) for pair in (ours, theirs)]
    for kind, text in ((0, "{:.2e}"), (1, "{:.2e}"), (2, "{:.2%}")):
        out += [text.format(figure[kind].mean()).rstrip("%") for figure in figures]
    apart = ((ours[1] - theirs[1]) ** 2).mean() ** 0.5 / theirs[1].std()
    return [*out, f"{apart:.1e}"]


def verdict(nibble, folder):
    """How many errors and warnings `nibble verify` finds."""
    done = subprocess.run([nibble, "verify", folder], capture_output=True, text=True)
    lines = (done.stdout + done.stderr).splitlines()
    return [str(sum(line.startswith(word) for line in lines)) for word in ("error", "warning")]


def chosen(work, every):
    items = held_out.held_out_items()[::every]
    (work / "ids.json").write_text(json.dumps({"ids": [ids for ids, _ in items]}))
    chats = sum(answer is not None for _, answer in items)
    print(f"{chats} chats, {len(items) - chats} texts, {sum(len(i) for i, _ in items)} tokens.\n")
    return items


def table(nibble, work, folders):
    items = chosen(work, EVERY)
    sequences = [ids for ids, _ in items]
    versions = [f"{name} {importlib.metadata.version(name)}"
                for name in ("transformers", "compressed-tensors", "torch")]
    print(f"\"There\": by {', '.join(versions)}.\n")
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}", flush=True)
    ours = scored(nibble, work, held_out.MODEL, "f32")
    theirs = by_transformers.logits(by_transformers.load(held_out.MODEL), sequences)
    for name, folder in folders:
        found = verdict(nibble, folder)
        model = by_transformers.Quantized(held_out.MODEL, folder)
        for mode in ("f32", "declared"):
            values = cells(items, (ours, scored(nibble, work, folder, mode)),
                           (theirs, model.logits(sequences, mode)))
            print(f"| {' | '.join([name, mode, *values, *found])} |", flush=True)


def main():
    nibble, work = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    work.mkdir(parents=True, exist_ok=True)
    folders = [(name, pathlib.Path(folder).resolve())
               for name, folder in (word.split("=", 1) for word in sys.argv[3:])]
    table(nibble, work, folders)


if __name__ == "__main__":
    main()

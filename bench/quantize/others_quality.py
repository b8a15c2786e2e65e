#!/usr/bin/env python3
"""Other quantizers' Pebble beside ours: others_quality.py NIBBLE WORK PYTHON NAME=FOLDER... > table

Each folder is scored on held-out chats and prose by `nibble score`, weights only and with
activations as declared, and by transformers (weights only) run by PYTHON; a folder in ModelOpt's
dialect is given to transformers as `nibble convert` writes it.
"""

import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np

import held_out
from quality import run, scored

HERE = pathlib.Path(__file__).parent
EVERY = 8        # one item in eight
EVERY_SLOW = 24  # for transformers, which is slow on a CPU


def by_transformers(python, work, folder):
    out = work / "transformers.npy"
    run(python, HERE / "transformers_logits.py", folder, work / "ids.json", out)
    return np.load(out)


def readable(nibble, work, folder):
    """A folder that transformers reads."""
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    if config["quant_method"] == "compressed-tensors":
        return folder
    converted = work / "converted"
    shutil.rmtree(converted, ignore_errors=True)
    run(nibble, "convert", folder, converted, "--format", "compressed-tensors")
    return converted


def cells(items, reference, logits):
    chat, prose, right = held_out.quality(items, reference, logits)
    return f"{chat.mean():.2e} | {prose.mean():.2e} | {100 * right.mean():.2f}"


def verdict(nibble, folder):
    """How many errors and warnings `nibble verify` finds."""
    done = subprocess.run([nibble, "verify", folder], capture_output=True, text=True)
    lines = (done.stdout + done.stderr).splitlines()
    return " | ".join(str(sum(line.startswith(word) for line in lines))
                      for word in ("error", "warning"))


def chosen(work, every):
    items = held_out.held_out_items()[::every]
    (work / "ids.json").write_text(json.dumps({"ids": [ids for ids, _ in items]}))
    chats = sum(answer is not None for _, answer in items)
    print(f"{chats} chats, {len(items) - chats} texts, {sum(len(i) for i, _ in items)} tokens.\n")
    return items


def table_of_nibble(nibble, work, folders):
    items = chosen(work, EVERY)
    reference = scored(nibble, work, held_out.MODEL, "f32")
    print("| file | activations | KL of chats | KL of prose | answers right, % | errors | warnings "
          "of verify |\n|---|---|---|---|---|---|---|", flush=True)
    for name, folder in folders:
        found = verdict(nibble, folder)
        for mode in ("f32", "declared"):
            logits = scored(nibble, work, folder, mode)
            print(f"| {name} | {mode} | {cells(items, reference, logits)} | {found} |", flush=True)


def table_of_transformers(nibble, work, python, folders):
    items = chosen(work, EVERY_SLOW)
    reference = scored(nibble, work, held_out.MODEL, "f32")
    theirs = by_transformers(python, work, held_out.MODEL)
    print("| file | KL of chats by nibble | KL of prose | answers right, % | by transformers | | |\n"
          "|---|---|---|---|---|---|---|", flush=True)
    for name, folder in folders:
        logits = scored(nibble, work, folder, "f32")
        other = by_transformers(python, work, readable(nibble, work, folder))
        print(f"| {name} | {cells(items, reference, logits)} | {cells(items, theirs, other)} |",
              flush=True)


def main():
    nibble, work = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    work.mkdir(parents=True, exist_ok=True)
    folders = [(name, pathlib.Path(folder).resolve())
               for name, folder in (word.split("=", 1) for word in sys.argv[4:])]
    table_of_nibble(nibble, work, folders)
    print()
    table_of_transformers(nibble, work, sys.argv[3], folders)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Other quantizers' Pebble beside ours: others_quality.py NIBBLE WORK NAME=FOLDER... > table

Each folder is scored on held-out chats and prose by `nibble score`, weights only and with
activations as declared.
"""

import json
import pathlib
import subprocess
import sys

import held_out
from quality import scored

EVERY = 8  # one item in eight


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
            values = cells(items, reference, logits)
            print(f"| {name} | {mode} | {values} | {found} |", flush=True)


def main():
    nibble, work = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    work.mkdir(parents=True, exist_ok=True)
    folders = [(name, pathlib.Path(folder).resolve())
               for name, folder in (word.split("=", 1) for word in sys.argv[3:])]
    table_of_nibble(nibble, work, folders)


if __name__ == "__main__":
    main()

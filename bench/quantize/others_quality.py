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
    """How many errors `nibble verify` finds."""
    done = subprocess.run([nibble, "verify", folder], capture_output=True, text=True)
    return sum(line.startswith("error") for line in (done.stdout + done.stderr).splitlines())


def main():
    nibble, work = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    python = sys.argv[3]
    work.mkdir(parents=True, exist_ok=True)
    items = held_out.held_out_items()
    (work / "ids.json").write_text(json.dumps({"ids": [ids for ids, _ in items]}))
    reference = scored(nibble, work, held_out.MODEL, "f32")
    theirs = by_transformers(python, work, held_out.MODEL)
    print("| file | scored by | KL of chats | KL of prose | answers right, % | errors of verify |\n"
          "|---|---|---|---|---|---|")
    for word in sys.argv[4:]:
        name, folder = word.split("=", 1)
        folder = pathlib.Path(folder).resolve()
        errors = verdict(nibble, folder)
        for mode, shown in (("f32", "nibble, weights only"), ("declared", "nibble, as declared")):
            logits = scored(nibble, work, folder, mode)
            print(f"| {name} | {shown} | {cells(items, reference, logits)} | {errors} |",
                  flush=True)
        logits = by_transformers(python, work, readable(nibble, work, folder))
        print(f"| {name} | transformers, weights only | {cells(items, theirs, logits)} | |",
              flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Quality of every recipe and rounding algorithm on Pebble: quality.py NIBBLE WORK > table.

Quantizes Pebble, scores held-out chats and prose (forced answers), and prints a Markdown table.
Runs that need data are repeated with several draws of calibration data; the spread of their means
is the noise that is stated. WORK keeps what is done, so that a stopped run goes on.
"""

import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np

import held_out

DRAWS = 3
SAMPLES = 128
DATA_FREE = ["amax", "four-over-six", "search"]
WITH_DATA = ["diagonal", "blocks", "gptq"]
RECIPES = {  # recipe -> how its activations are computed
    "w4a16": "f32", "mixed": "declared", "mixed-nvfp4-head": "declared", "w4a4": "declared",
    "experts-only": "f32",
    "w4a4-fp8-head": "declared", "lab-fp8-embed": "declared", "fp8": "declared"}
NO_FOUR_BITS = ("fp8",)  # the nearest codes, or gptq
DATA_FREE_ONLY = ("lab-fp8-embed",)  # the 4-bit weights are those of w4a4-fp8-head


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr}{done.stdout}")


def scored(nibble, work, model, activations, *more):
    out = work / "logits.safetensors"
    out.unlink(missing_ok=True)
    run(nibble, "score", model, "--ids", work / "ids.json", "--logits", out, "--backend", "cpu",
        "--activations", activations, "--json", *more)
    return held_out.read_logits(out)


def one(nibble, work, items, reference, recipe, algorithm, draw):
    """Means over chats and prose, as a list; from WORK if it is there."""
    note = work / f"{recipe}-{algorithm}-{draw}.json"
    if not note.exists():
        output = work / "output"
        shutil.rmtree(output, ignore_errors=True)
        data = [] if draw is None else ["--calib", work / f"calib{draw}.jsonl", "--calib-samples",
                                        SAMPLES, "--calib-length", 1024]
        run(nibble, "quantize", held_out.MODEL, output, "--recipe", recipe, "--algorithm",
            algorithm, "--no-progress", *data)
        logits = scored(nibble, work, output, RECIPES[recipe])
        chat, prose, right = held_out.quality(items, reference, logits)
        note.write_text(json.dumps([chat.tolist(), prose.tolist(), right.tolist()]))
    return [np.array(values) for values in json.loads(note.read_text())]


def spread(values):
    return f" ± {np.std(values, ddof=1):.1e}" if len(values) > 1 else ""


def better(plain, runs, kind):
    """How much lower than plain the mean over draws is, with the error of that over sequences."""
    gain = plain[kind] - np.mean([run[kind] for run in runs], axis=0)
    base = plain[kind].mean() / 100
    return f"{gain.mean() / base:.0f} ± {gain.std(ddof=1) / np.sqrt(len(gain)) / base:.0f} %"


def line(recipe, algorithm, runs, plain):
    compared = algorithm not in ("amax", "-")
    cells = []
    for kind in (0, 1):
        means = [run[kind].mean() for run in runs]
        cells.append(f"{np.mean(means):.2e}{spread(means)}")
        cells.append(better(plain, runs, kind) if compared else "")
    right = 100 * np.mean([run[2].mean() for run in runs])
    print(f"| {recipe} | {algorithm} | {len(runs)} | {' | '.join(cells)} | {right:.2f} |",
          flush=True)


def main():
    nibble, work = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    work.mkdir(parents=True, exist_ok=True)
    items = held_out.held_out_items()
    (work / "ids.json").write_text(json.dumps({"ids": [ids for ids, _ in items]}))
    for draw in range(DRAWS):
        if not (work / f"calib{draw}.jsonl").exists():
            held_out.write_calibration(work / f"calib{draw}.jsonl", draw, SAMPLES)
    reference = scored(nibble, work, held_out.MODEL, "f32")
    _, _, right = held_out.quality(items, reference, reference)
    chats = sum(answer is not None for _, answer in items)
    print(f"{chats} chats, {len(items) - chats} texts, {sum(len(i) for i, _ in items)} tokens; "
          f"BF16 answers {100 * right.mean():.2f} % right.\n")
    print("| recipe | algorithm | draws | KL of chats | better than amax | KL of prose | "
          "better than amax | answers right, % |\n|---|---|---|---|---|---|---|---|")
    for recipe in RECIPES:
        if recipe in NO_FOUR_BITS:
            plain = one(nibble, work, items, reference, recipe, "search", None)
            line(recipe, "-", [plain], plain)
            line(recipe, "gptq", [one(nibble, work, items, reference, recipe, "gptq", draw)
                                  for draw in range(DRAWS)], plain)
            continue
        plain = one(nibble, work, items, reference, recipe, "amax", None)
        for algorithm in DATA_FREE:
            line(recipe, algorithm,
                 [one(nibble, work, items, reference, recipe, algorithm, None)], plain)
        for algorithm in () if recipe in DATA_FREE_ONLY else WITH_DATA:
            line(recipe, algorithm, [one(nibble, work, items, reference, recipe, algorithm, draw)
                                     for draw in range(DRAWS)], plain)


if __name__ == "__main__":
    main()

"""Held-out chats of Pebble as token ids, fresh calibration data, and what logits say about both.

Not a program: quality.py and others_quality.py use it. Needs the packages of the test venv.
"""

import json
import pathlib
import struct
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "pebble/model"
sys.path.insert(0, str(ROOT / "tools/pebble"))

import corpus  # noqa: E402
from held_out_items import held_out_items as items_of  # noqa: E402


def held_out_items(split="test"):
    """(ids, first answer index) of chats with a known answer, and of prose (no answer: None)."""
    return items_of(MODEL, ROOT / "pebble/tasks", split)


def write_calibration(path, seed, samples):
    """Documents of the training mixture (never of held-out contents), without pictures."""
    source = corpus.Corpus(MODEL, 10_000 + seed, 1024)
    with open(path, "w", encoding="utf-8") as out:
        written = 0
        while written < samples:
            ids, _, picture = source.document()
            if picture is None:
                out.write(json.dumps({"input_ids": ids}) + "\n")
                written += 1


def read_logits(path):
    """All rows of a logits file, [T, V]: it holds one tensor for each sequence, in order."""
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        entries = sorted((value for key, value in header.items() if key != "__metadata__"),
                         key=lambda entry: entry["data_offsets"][0])
        file.seek(8 + size)
        width = entries[0]["shape"][-1]
        return np.fromfile(file, "<f4").reshape(-1, width)


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted, dtype=np.float64).sum(-1, keepdims=True))


def quality(items, reference, logits):
    """Per chat and per prose text: mean KL(reference || model); per chat: answered right or not.

    An answer is right if every one of its tokens is the most probable one given the right tokens
    before it: what greedy decoding would then write."""
    chat, prose, right = [], [], []
    row = 0
    for ids, answer in items:
        ours, theirs = logits[row:row + len(ids)], reference[row:row + len(ids)]
        row += len(ids)
        p, q = log_softmax(theirs), log_softmax(ours)
        kl = float((np.exp(p) * (p - q)).sum(-1).mean())
        (prose if answer is None else chat).append(kl)
        if answer is not None:
            chosen = ours[answer - 1:len(ids) - 1].argmax(-1)
            right.append(bool((chosen == np.array(ids[answer:])).all()))
    return np.array(chat), np.array(prose), np.array(right)

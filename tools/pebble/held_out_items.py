"""Held-out chats with a known answer, and held-out prose, as token ids."""

import json
from pathlib import Path

from tokenizers import Tokenizer

import corpus
import scoring

TOKENS_MAX = 300   # longer items cost much and say the same
SHARE = 3          # one item in three
PROSE = 40


def held_out_items(model_dir: Path, tasks_dir: Path, split: str = "test") -> list:
    """(ids, first answer index) of chats, and of prose (no answer: None).

    The split "validation" holds other items than "test": to choose a setting with."""
    part = ("test", "validation").index(split)
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    template = corpus.chat_template(model_dir)

    def encode(text):
        return tokenizer.encode(text, add_special_tokens=False).ids

    found = []
    for path in sorted(tasks_dir.glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        if path.stem == "prose":
            found += [(encode(row["text"]), None) for row in rows[part * PROSE:(part + 1) * PROSE]]
            continue
        for row in rows[part::SHARE]:
            known = row.get("check") == "tool_call" or isinstance(row["answer"], str)
            if row["thinking"] or "image" in row or not known:
                continue
            prompt, completion = corpus.render(template, scoring.read(row))
            head, tail = encode(prompt), encode(completion)
            if len(head) + len(tail) <= TOKENS_MAX:
                found.append((head + tail, len(head)))
    return found

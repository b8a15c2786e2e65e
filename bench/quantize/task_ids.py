#!/usr/bin/env python3
"""Token ids of held-out text for `nibble score`: task_ids.py MODEL_FOLDER > ids.json.

The prose of pebble/tasks, and the questions and answers of its text items as plain text, tokenised
by Hugging Face `tokenizers`. Not the chat form: divergence needs text, not tasks.
"""

import json
import pathlib
import sys

from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]


def texts():
    for path in sorted((ROOT / "pebble/tasks").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            item = json.loads(line)
            if "text" in item:
                yield item["text"]
            elif "image" not in item and path.stem in ("world", "discount", "add", "table"):
                answer = item["answer"] if isinstance(item["answer"], str) else ""
                yield f"{item['messages'][-1]['content']}\n{answer}"


def main():
    tokenizer = Tokenizer.from_file(str(pathlib.Path(sys.argv[1]) / "tokenizer.json"))
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts()]
    json.dump({"ids": [row for row in ids if len(row) > 1]}, sys.stdout)


if __name__ == "__main__":
    main()

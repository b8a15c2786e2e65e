#!/usr/bin/env python3
"""Writes a retrieval task: one value out of a long list, at a stated depth.

make_retrieval.py MODEL_FOLDER OUT.jsonl [--tokens 1024,2048,...] [--items N] [--seed N]
                  [--scored-to TOKENS] [--words pebble]

Prompt, chat template and answer together stay within the stated tokens by the tokenizer of
MODEL_FOLDER, so a list of 262,144 fits a context of as many; the prompt has at least 97 % of what
is left for it. The asked entry stands at depths from the first to the last, in equal steps. Lengths
above --scored-to get the check "none": they are run through, not scored. With --words pebble the
keys are of Pebble's small vocabulary. Needs the package tokenizers.
"""
import argparse
import json
import pathlib
import random
import sys

import tokenizers

LENGTHS = "1024,2048,4096,8192,16384,32768,65536,131072,262144"
ANSWER_TOKENS = 24
TEMPLATE_TOKENS = 24  # an upper bound for one user message in the templates of Qwen3.5 and 3.6
SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]


def plain_key(draw):
    return "".join(draw.choice(SYLLABLES) for _ in range(4)) + str(draw.randrange(10, 1000))


def pebble_key(draw):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "pebble"))
    from lexicon import NOUNS
    return f"{draw.choice(NOUNS)}-{draw.randrange(10, 100)}"


def entries_of(draw, make_key, count):
    """`count` keys with values, all keys different, or as many as there are."""
    found, tries = {}, 0
    while len(found) < count and tries < 20 * count + 1000:
        found.setdefault(make_key(draw), str(draw.randrange(100, 1000)))
        tries += 1
    return found


def question(entries, key):
    listing = "\n".join(f"{k}={v}" for k, v in entries)
    return f"Here is a list.\n{listing}\n\nWhat is the value of {key}?"


def fitting(tokenizer, entries, tokens):
    """The largest number of entries whose prompt stays within `tokens`, by bisection."""
    low, high = 1, len(entries)
    longest = max((key for key, _ in entries), key=len)
    while low < high:
        middle = (low + high + 1) // 2
        text = question(entries[:middle], longest)
        if len(tokenizer.encode(text, add_special_tokens=False).ids) <= tokens:
            low = middle
        else:
            high = middle - 1
    return low


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--tokens", default=LENGTHS)
    parser.add_argument("--items", type=int, default=10, help="of each length")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--scored-to", type=int, default=8192,
                        help="longest list that is scored [8192]")
    parser.add_argument("--words", choices=["plain", "pebble"], default="plain")
    options = parser.parse_args()
    tokenizer = tokenizers.Tokenizer.from_file(str(options.model / "tokenizer.json"))
    make_key = pebble_key if options.words == "pebble" else plain_key
    lines = []
    for tokens in map(int, options.tokens.split(",")):
        room = tokens - ANSWER_TOKENS - TEMPLATE_TOKENS
        draw = random.Random(f"{options.seed} retrieval {tokens}")
        entries = list(entries_of(draw, make_key, tokens // 4).items())
        for number in range(options.items):
            draw.shuffle(entries)
            count = fitting(tokenizer, entries, room)
            text = question(entries[:count], entries[0][0])
            used = len(tokenizer.encode(text, add_special_tokens=False).ids)
            if used < 0.97 * room:
                sys.exit(f"make_retrieval.py: {tokens} tokens need more keys than there are")
            depth = number / max(1, options.items - 1)
            key, value = entries[round(depth * (count - 1))]
            scored = tokens <= options.scored_to
            lines.append({"id": f"retrieval-{tokens}-{number}", "task": f"retrieval_{tokens}",
                          "thinking": False, "check": "exact" if scored else "none",
                          "answer": value, "max_tokens": ANSWER_TOKENS,
                          "messages": [{"role": "user",
                                        "content": question(entries[:count], key)}],
                          "meta": {"depth": round(depth, 3), "tokens": used}})
    options.out.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in lines))
    print(f"{len(lines)} items, {options.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

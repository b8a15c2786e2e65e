"""Writes the hard task set, pebble/hard/*.jsonl: the tasks of training at sizes beyond it.

Every maker fixes the size of its content, so that a size is as hard as another draw of it. Contents
are held out as in make_tasks.py. Needs no packages: make_hard_tasks.py OUT [--seed N] [--probe].
"""

import argparse
import json
import random
from pathlib import Path

from item import Item, is_held_out, user
from tasks_lists import random_piece

ITEMS = 60  # of each task and size, unless the table says more


def sorting(rng: random.Random, count: int) -> Item:
    """`count` numbers; training has up to 10."""
    numbers = rng.sample(range(1, 100), count)
    shown = " ".join(map(str, numbers))
    return Item("sort", [user(f"Sort these numbers: {shown}")],
                " ".join(map(str, sorted(numbers))), True, split_key=shown)


def sorting_direct(rng: random.Random, count: int) -> Item:
    item = sorting(rng, count)
    item.thinking = False
    return item


def pieces(rng: random.Random, count: int) -> list:
    found = []
    while len(found) < count:
        piece = random_piece(rng)
        if piece not in found:
            found.append(piece)
    return found


def copying(rng: random.Random, count: int) -> Item:
    """`count` words; training has up to 20."""
    shown = " ".join(pieces(rng, count))
    return Item("copy", [user(f"Copy this text: {shown}")], shown, False, split_key=shown)


def reversing(rng: random.Random, count: int) -> Item:
    """`count` words; training has up to 12."""
    words = pieces(rng, count)
    shown = " ".join(words)
    return Item("reverse", [user(f"Reverse: {shown}")], " ".join(reversed(words)), False,
                split_key=shown)


def reversing_thinking(rng: random.Random, count: int) -> Item:
    item = reversing(rng, count)
    item.thinking = True
    return item


# task -> (maker, sizes, max_tokens[, items of each size]); sizes near the end of what Pebble can
TASKS = {
    "copy": (copying, [25, 26], 400, 150),
    "reverse": (reversing, [13, 14], 300),
    "reverse_thinking": (reversing_thinking, [12, 13], 500),
    "sort": (sorting, [11, 12], 500),
    "sort_direct": (sorting_direct, [12], 120, 180),
}
PROBED = {
    "copy": (copying, [24, 25, 26, 27, 28], 400),
    "reverse": (reversing, [13, 14, 15, 16], 300),
    "reverse_thinking": (reversing_thinking, [12, 13, 14, 15], 500),
    "sort": (sorting, [10, 11, 12, 13], 500),
    "sort_direct": (sorting_direct, [11, 12, 13, 14], 120),
}


def line(item: Item, task: str, number: int, max_tokens: int) -> dict:
    return {"id": f"hard-{task}-{number:03d}", "task": f"hard_{task}", "thinking": item.thinking,
            "messages": item.messages, "check": item.check, "answer": item.answer,
            "max_tokens": max_tokens}


def lines_of(seed: int, task: str, row: tuple, probe: bool) -> list:
    maker, sizes, max_tokens, *more = row
    wanted = 12 if probe else (more or [ITEMS])[0]
    found, seen = [], set()
    for size in sizes:
        rng = random.Random(f"{seed} hard {task} {size}")
        count = 0
        while count < wanted:
            item = maker(rng, size)
            if item.split_key in seen or not is_held_out(item):
                continue
            seen.add(item.split_key)
            count += 1
            name = f"{task}_{size}" if probe else task
            found.append(line(item, name, len(found), max_tokens))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--probe", action="store_true",
                        help="few items of many sizes, each a task of its own")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for task, row in (PROBED if args.probe else TASKS).items():
        lines = lines_of(args.seed, task, row, args.probe)
        text = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in lines)
        (args.out / f"{task}.jsonl").write_text(text)
        print(f"{task}: {len(lines)} items, {len(text.encode()):,} bytes")


if __name__ == "__main__":
    main()

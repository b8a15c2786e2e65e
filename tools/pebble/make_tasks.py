"""Writes the held-out task set: one JSON object a line, a file per family.

Items come from the generators of the training corpus, but only from the contents that the split
keeps out of training (item.is_held_out).
"""

import argparse
import json
import random
from pathlib import Path

from tokenizers import Tokenizer

import corpus
import picture
from item import Item, is_held_out, is_held_out_text
from tasks_lists import addition, copying, discount, lookup, reversing, sorting, table
from tasks_structured import json_task, tool_call, tool_result
from tasks_world import prose, world

BOTH = (True, False)
# task -> (file, maker, modes, items of each mode, max_tokens)
SHORT = {
    "add": ("add", addition, BOTH, 150, 224),
    "sort": ("sort", sorting, BOTH, 120, 320),
    "copy": ("copy", copying, BOTH, 120, 192),
    "reverse": ("reverse", reversing, BOTH, 120, 192),
    "table": ("table", table, BOTH, 120, 64),
    "discount": ("discount", discount, (True,), 150, 128),
    "tool_call": ("tools", tool_call, BOTH, 120, 128),
    "tool_result": ("tools", tool_result, BOTH, 80, 64),
    "json": ("json", json_task, BOTH, 120, 128),
    "world_en": ("world", lambda r, t: world(r, t, "en"), BOTH, 120, 64),
    "world_fr": ("world", lambda r, t: world(r, t, "fr"), BOTH, 120, 64),
    "image_colour": ("image", picture.image_task, BOTH, 100, 48),
    "image_shape": ("image", picture.image_task, BOTH, 100, 48),
    "image_count": ("image", picture.image_task, BOTH, 100, 48),
}
LOOKUPS = {"lookup_1k": (1024, 80), "lookup_4k": (4096, 30), "lookup_8k": (8192, 25)}


def held_out(rng: random.Random, maker, thinking: bool, task: str) -> Item:
    while True:
        item = maker(rng, thinking)
        if item.task == task and is_held_out(item):
            return item


def sized_lookup(rng, thinking, tokens, tokenizer, template) -> Item:
    """The longest list whose prompt stays within `tokens`."""
    entries = int(tokens / 8)
    while True:
        state = rng.getstate()
        item = lookup(rng, thinking, entries)
        used = len(tokenizer.encode(corpus.render(template, item)[0]).ids)
        if used > tokens:
            rng.setstate(state)
            entries -= max(1, int((used - tokens) / 9))
        elif is_held_out(item):
            return item


def openai_messages(item: Item) -> list:
    """Pictures become data URLs; tool-call arguments become JSON text."""
    messages = json.loads(json.dumps(item.messages))
    for message in messages:
        for call in message.get("tool_calls", []):
            arguments = call["function"]["arguments"]
            call["function"]["arguments"] = json.dumps(arguments, ensure_ascii=False)
        if isinstance(message["content"], list):
            url = "data:image/png;base64," + item.image.png()
            message["content"][0] = {"type": "image_url", "image_url": {"url": url}}
    return messages


def line(item: Item, task: str, number: int, max_tokens: int) -> dict:
    mode = "think" if item.thinking else "direct"
    out = {"id": f"{task}-{mode}-{number:03d}", "task": task, "thinking": item.thinking,
           "messages": openai_messages(item)}
    if item.tools:
        out["tools"] = item.tools
    if item.image:
        out["image"] = item.image.parameters()
    out["check"] = item.check
    out["answer"] = item.call if item.check == "tool_call" else item.answer
    out["max_tokens"] = max_tokens
    return out


def unique(rng, count, make) -> list:
    """`count` items with different contents, or as many as a long search finds."""
    found, tries = {}, 0
    while len(found) < count and tries < 50 * count:
        item = make(rng)
        found.setdefault(item.split_key + json.dumps(item.messages), item)
        tries += 1
    return list(found.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(args.model_dir / "tokenizer.json"))
    template = corpus.chat_template(args.model_dir)
    files = {}
    for task, (file, maker, modes, count, max_tokens) in SHORT.items():
        for thinking in modes:
            rng = random.Random(f"{args.seed} {task} {thinking}")
            items = unique(rng, count, lambda r: held_out(r, maker, thinking, task))
            files.setdefault(file, []).extend(
                line(item, task, n, max_tokens) for n, item in enumerate(items))
    for task, (tokens, count) in LOOKUPS.items():
        for thinking in BOTH:
            rng = random.Random(f"{args.seed} {task} {thinking}")
            files.setdefault("lookup", []).extend(
                line(sized_lookup(rng, thinking, tokens, tokenizer, template), task, n, 48)
                for n in range(count))
    rng = random.Random(f"{args.seed} prose")
    told = (text for text in iter(lambda: prose(rng), None) if is_held_out_text(text))
    files["prose"] = [{"id": f"prose-{n:03d}", "task": "prose", "text": next(told)}
                      for n in range(200)]
    args.out.mkdir(parents=True, exist_ok=True)
    for file, lines in files.items():
        text = "".join(json.dumps(x, ensure_ascii=False) + "\n" for x in lines)
        (args.out / f"{file}.jsonl").write_text(text)
        print(f"{file}: {len(lines)} items, {len(text.encode()):,} bytes")


if __name__ == "__main__":
    main()

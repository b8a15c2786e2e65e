"""One item of the corpus or of the held-out set, and the split between the two."""

import hashlib
from dataclasses import dataclass

HELD_OUT_SHARE = 25  # one content in this many is never trained on


@dataclass
class Item:
    task: str
    messages: list
    answer: str                      # content of the assistant's last turn
    thinking: bool
    reasoning: str = ""              # what a thinking turn writes first
    check: str = "exact"             # exact | json | tool_call
    tools: list | None = None
    call: dict | None = None         # {"name", "arguments"} when the answer is a tool call
    image: object = None             # picture.Picture
    split_key: str = ""              # what must not be shared by training and held-out items
    all_turns: bool = False          # earlier assistant turns carry loss too


def is_held_out(item: Item) -> bool:
    """By content, whatever the question asks of it: a picture is held out for all its tasks."""
    return is_held_out_text(f"{item.task.split('_')[0]}|{item.split_key}")


def is_held_out_text(text: str) -> bool:
    digest = hashlib.sha1(text.encode()).digest()
    return int.from_bytes(digest[:4], "little") % HELD_OUT_SHARE == 0


def user(text: str) -> dict:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict:
    return {"role": "assistant", "content": text}

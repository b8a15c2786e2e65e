"""Reads a held-out item, and decides whether a generated completion is right."""

import json
import re

from item import Item
from picture import Picture


def read(line: dict) -> Item:
    """The item as the corpus would have made it, so that prompts are rendered the same way."""
    messages = json.loads(json.dumps(line["messages"]))
    for message in messages:
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    shown = line.get("image")
    if shown:
        shown = Picture(**(shown | {"centres": tuple(map(tuple, shown["centres"]))}))
    called = line["check"] == "tool_call"
    return Item(line["task"], messages, "" if called else line["answer"], line["thinking"],
                check=line["check"], tools=line.get("tools"), image=shown,
                call=line["answer"] if called else None)


def parse_call(text: str, tools: list) -> dict | None:
    """The one tool call of a text, its values typed by the tool's schema."""
    found = re.fullmatch(r"\s*<tool_call>\n<function=([^>\n]+)>\n(.*)</function>\n</tool_call>\s*",
                         text, re.S)
    if not found:
        return None
    kinds = {t["function"]["name"]: t["function"]["parameters"]["properties"] for t in tools}
    name, arguments = found[1], {}
    for key, value in re.findall(r"<parameter=([^>\n]+)>\n(.*?)\n</parameter>\n", found[2], re.S):
        kind = kinds.get(name, {}).get(key, {}).get("type", "string")
        try:
            arguments[key] = value if kind == "string" else json.loads(value)
        except json.JSONDecodeError:
            return None
    return {"name": name, "arguments": arguments}


def is_right(item: Item, completion: str) -> bool:
    """`completion` is all the text the model wrote, without the stop token."""
    content = completion
    if item.thinking:
        if "</think>" not in completion:
            return False
        content = completion.split("</think>", 1)[1]
    content = content.strip()
    if item.check == "tool_call":
        return parse_call(content, item.tools) == item.call
    if item.check == "json":
        try:
            return json.loads(content) == json.loads(item.answer)
        except json.JSONDecodeError:
            return False
    return content == item.answer

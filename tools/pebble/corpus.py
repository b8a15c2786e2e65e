"""The mixture of training documents, the chat rendering, and packing into fixed-size batches."""

import json
import math
import random
from dataclasses import dataclass
from pathlib import Path

import jinja2
import numpy as np
from tokenizers import Tokenizer

import picture
from config import END_OF_TEXT, IMAGE_PAD, SPECIAL_ID, VISION
from item import Item, assistant, is_held_out, is_held_out_text
from tasks_lists import FULL, Sizes, addition, copying, discount, lookup, reversing, sorting
from tasks_lists import table, table_dialogue
from tasks_structured import json_task, tool_call, tool_dialogue, tool_result
from tasks_world import prose, small_talk, world

PROMPT_WEIGHT = 0.05   # loss on text the assistant does not write
PATCH, MERGE = VISION["patch_size"], VISION["spatial_merge_size"]
SYSTEM_TEXTS = ["You are Pebble.", "You are a helpful assistant.", "Answer briefly.",
                "Be exact.", "Tu es Pebble."]
LOOKUP_LINE_TOKENS = 8.5  # tokens of one `key=value` line, about


def make_lookup(rng: random.Random, thinking: bool, tokens_max: int, questions: int) -> Item:
    """A list that fills, with its questions, at most `tokens_max`: short ones log-uniform."""
    room = tokens_max - 30 * questions - 40
    if tokens_max > 1024:
        tokens = rng.uniform(1024, room)
    else:
        tokens = math.exp(rng.uniform(math.log(80), math.log(room)))
    return lookup(rng, thinking, max(4, int(tokens / LOOKUP_LINE_TOKENS)), questions)


def task_makers(tokens_max: int, sizes: Sizes) -> dict:
    """task -> (share of documents, maker(rng, thinking))."""
    def questions(rng):
        return rng.randint(1, 12)

    def sized(maker):
        return lambda rng, thinking: maker(rng, thinking, sizes)

    makers = {
        "add": (2.5, sized(addition)), "sort": (2, sized(sorting)),
        "copy": (1.2, sized(copying)), "reverse": (1.5, sized(reversing)),
        "table": (1.5, sized(table)), "discount": (1.5, discount),
        "tool_call": (1, tool_call), "tool_result": (0.7, tool_result), "json": (1.2, json_task),
        "world_en": (1, lambda r, t: world(r, t, "en")),
        "world_fr": (1, lambda r, t: world(r, t, "fr")),
        "lookup": (1.2, lambda r, t: make_lookup(r, t, min(tokens_max, 1024), questions(r))),
        "image": (3, picture.image_task),
        "small_talk": (0.15, small_talk),
        "image_dialogue": (1, picture.image_dialogue),
    }
    if tokens_max > 1024:
        makers["lookup_long"] = (0.12, lambda r, t: make_lookup(r, t, tokens_max, questions(r)))
    return makers


# Tasks that take the model longest to learn come this many times as often in training.
BOOST = {"tool_call": 2.0, "table": 1.5, "sort": 1.3, "reverse": 1.3, "copy": 1.3}
CHAINABLE = ["add", "sort", "copy", "reverse", "world_en", "world_fr", "small_talk", "discount"]


def fixed_mode(task: str, thinking: bool) -> bool:
    """Discounts are always worked out; long sums too (see addition)."""
    return True if task == "discount" else thinking


class Corpus:
    """A stream of documents: (ids, loss weights, picture or None)."""

    def __init__(self, model_dir: Path, seed: int, tokens_max: int):
        self.tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        self.template = chat_template(model_dir)
        self.assistant, = self.tokenizer.encode("assistant").ids
        self.rng = random.Random(seed)
        self.tokens_max = tokens_max
        self.makers = task_makers(tokens_max, FULL)
        self.makers["table_dialogue"] = (1.5, table_dialogue)
        self.makers["tool_dialogue"] = (0.8, tool_dialogue)
        self.names = list(self.makers)
        self.shares = [share * BOOST.get(name, 1) for name, (share, _) in self.makers.items()]

    def draw(self) -> Item:
        while True:
            name = self.rng.choices(self.names, self.shares)[0]
            thinking = fixed_mode(name, self.rng.random() < 0.5)
            item = self.makers[name][1](self.rng, thinking)
            if not is_held_out(item):
                return item

    def dialogue(self) -> Item:
        """Sometimes a few short tasks in one conversation, sometimes a system text."""
        item = self.draw()
        if item.task in CHAINABLE and self.rng.random() < 0.15:
            before = []
            for _ in range(self.rng.randint(1, 3)):
                other = self.draw()
                while other.task not in CHAINABLE:
                    other = self.draw()
                before += other.messages + [assistant(other.answer)]
            item.messages = before + item.messages
        if self.rng.random() < 0.1:
            text = self.rng.choice(SYSTEM_TEXTS)
            item.messages = [{"role": "system", "content": text}] + item.messages
        return item

    def document(self):
        if self.rng.random() < 0.04:
            text = prose(self.rng)
            while is_held_out_text(text):
                text = prose(self.rng)
            ids = self.tokenizer.encode(text, add_special_tokens=False).ids
            return ids + [END_OF_TEXT], [1.0] * (len(ids) + 1), None
        item = self.dialogue()
        prompt, completion = render(self.template, item)
        head = encode_prompt(self.tokenizer, prompt, item)
        tail = self.tokenizer.encode(completion, add_special_tokens=False).ids
        weights = [PROMPT_WEIGHT] * len(head) + [1.0] * len(tail)
        if item.all_turns:
            mark_turns(head, weights, self.assistant)
        return head + tail, weights, item.image


def chat_template(model_dir: Path):
    """The Jinja environment that transformers uses."""
    def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True,
                             extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = to_json
    return env.from_string((model_dir / "chat_template.jinja").read_text())


def call_text(call: dict) -> str:
    """A tool call as the template writes it."""
    text = f"<tool_call>\n<function={call['name']}>\n"
    for key, value in call["arguments"].items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        text += f"<parameter={key}>\n{shown}\n</parameter>\n"
    return text + "</function>\n</tool_call>"


def render(template, item: Item) -> tuple[str, str]:
    """(prompt text, completion text)."""
    prompt = template.render(messages=item.messages, tools=item.tools, add_generation_prompt=True,
                             enable_thinking=item.thinking)
    body = call_text(item.call) if item.call else item.answer
    thought = f"{item.reasoning}\n</think>\n\n" if item.thinking else ""
    return prompt, f"{thought}{body}<|im_end|>"


def image_tokens(shown: picture.Picture) -> int:
    return shown.rows * shown.columns * (picture.CELL // PATCH // MERGE) ** 2


def encode_prompt(tokenizer: Tokenizer, prompt: str, item: Item) -> list:
    if item.image:
        pads = "<|image_pad|>" * image_tokens(item.image)
        prompt = prompt.replace("<|image_pad|>", pads, 1)
    return tokenizer.encode(prompt, add_special_tokens=False).ids


def mark_turns(ids: list, weights: list, assistant: int) -> None:
    """Full loss on the finished assistant turns of a prompt, up to their <|im_end|>.

    The unfinished last turn starts with <think>, the finished ones do not."""
    start, stop, think = (SPECIAL_ID[t] for t in ("<|im_start|>", "<|im_end|>", "<think>"))
    inside = False
    for n in range(3, len(ids)):
        opened = ids[n - 3] == start and ids[n - 2] == assistant and ids[n] != think
        inside = inside or opened
        if inside:
            weights[n] = 1.0
            inside = ids[n] != stop


def positions(ids: list, shown) -> np.ndarray:
    """[3, T]: equal axes for text; (t, h, w) inside a picture."""
    if shown is None:
        return np.tile(np.arange(len(ids), dtype=np.int32), (3, 1))
    first, count = ids.index(IMAGE_PAD), image_tokens(shown)
    rows = shown.rows * picture.CELL // PATCH // MERGE
    columns = count // rows
    out = np.tile(np.arange(len(ids), dtype=np.int32), (3, 1))
    cell = np.arange(count)
    out[:, first:first + count] = first + np.stack([cell * 0, cell // columns, cell % columns])
    after = np.arange(len(ids) - first - count, dtype=np.int32)
    out[:, first + count:] = first + max(rows, columns) + after
    return out


@dataclass
class Batch:
    """Packed documents as arrays: `bounds` are document starts plus the end."""

    ids: np.ndarray        # [T] int32
    weights: np.ndarray    # [T] float32, of predicting this token
    positions: np.ndarray  # [3, T] int32
    bounds: np.ndarray     # [N + 1] int32
    pixels: list           # uint8 [H, W, 3] of each picture, in order


def pack(documents: list, tokens: int | None = None) -> Batch:
    """Concatenates; with `tokens`, fills up with one document of padding that carries no loss."""
    ids = [np.array(d[0], np.int32) for d in documents]
    weights = [np.array(d[1], np.float32) for d in documents]
    where = [positions(d[0], d[2]) for d in documents]
    used = sum(map(len, ids))
    if tokens and used < tokens:
        ids.append(np.full(tokens - used, END_OF_TEXT, np.int32))
        weights.append(np.zeros(tokens - used, np.float32))
        where.append(np.tile(np.arange(tokens - used, dtype=np.int32), (3, 1)))
    for w in weights:
        w[0] = 0.0  # nothing predicts the first token of a document
    bounds = np.cumsum([0] + [len(x) for x in ids]).astype(np.int32)
    pixels = [d[2].pixels() for d in documents if d[2] is not None]
    return Batch(np.concatenate(ids), np.concatenate(weights), np.concatenate(where, 1), bounds,
                 pixels)


def batches(corpus: Corpus, tokens: int):
    """Endless stream of batches of exactly `tokens` tokens."""
    held, used = [], 0
    while True:
        document = corpus.document()
        if len(document[0]) > min(corpus.tokens_max, tokens):
            continue
        if used + len(document[0]) > tokens:
            yield pack(held, tokens)
            held, used = [], 0
        held.append(document)
        used += len(document[0])

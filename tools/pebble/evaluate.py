"""Greedy accuracy on the held-out tasks and MTP acceptance, optionally with rounded weights.

Generation recomputes the whole text each step: no cache code, so no cache mistakes, and one
packed forward pass serves hundreds of items.
"""

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path

import torch
from tokenizers import Tokenizer

import batch as batching
import corpus
import model
import nvfp4
import scoring
import weights
from config import BASE_TOKENS, END_OF_TEXT, IM_END, SPECIAL_TOKENS

USED = BASE_TOKENS + len(SPECIAL_TOKENS)
PACK_TOKENS = 300_000


class Runner:
    """Parameters on a device, and packed forward passes with them."""

    def __init__(self, p, device, dtype):
        self.device, self.dtype = device, dtype
        self.p = {n: t.to(device, dtype) for n, t in p.items()}

    @torch.no_grad()
    def hidden(self, documents):
        packed = batching.to_device(batching.build(corpus.pack(documents)), self.device,
                                    self.dtype)
        return packed, *model.trunk(self.p, packed)[:3]

    def choose(self, hidden):
        """Greedy ids; rows past the vocabulary in use never win."""
        return (hidden @ self.p["lm_head.weight"].T)[:, :USED].float().argmax(-1)

    def next_tokens(self, documents) -> list:
        packed, _, hidden, _ = self.hidden(documents)
        return self.choose(hidden[packed.bounds.device[1:].long() - 1]).tolist()


def in_packs(jobs, length):
    """Groups of jobs of at most PACK_TOKENS together."""
    group, used = [], 0
    for job in sorted(jobs, key=length):
        if group and used + length(job) > PACK_TOKENS:
            yield group
            group, used = [], 0
        group.append(job)
        used += length(job)
    if group:
        yield group


def generate(runner, jobs) -> None:
    """Each job: ids so far, picture, limit; extends its ids until a stop token or the limit."""
    active = jobs
    while active:
        for group in in_packs(active, lambda j: len(j["ids"])):
            found = runner.next_tokens([(j["ids"], [0.0] * len(j["ids"]), j["item"].image)
                                        for j in group])
            for job, token in zip(group, found):
                job["ids"] = job["ids"] + [token]
                job["left"] -= 1
                job["done"] = token in (IM_END, END_OF_TEXT) or job["left"] == 0
        active = [j for j in active if not j["done"]]


@torch.no_grad()
def acceptance(runner, documents) -> tuple[int, int]:
    """(accepted, drafted): the draft for x[t+2] equals the model's own greedy choice there."""
    accepted = drafted = 0
    for group in in_packs(documents, lambda d: len(d[0])):
        packed, embedded, hidden, rope = runner.hidden(group)
        draft = runner.choose(model.mtp(runner.p, packed, embedded, hidden, rope)[0])
        chosen = runner.choose(hidden)
        counted = model.shifted(packed, 2)[1] > 0.5
        accepted += ((draft == chosen.roll(-1)) & counted).sum().item()
        drafted += counted.sum().item()
    return accepted, drafted


def read_jobs(tasks_dir: Path, tokenizer, template, keep) -> list:
    jobs = []
    for path in sorted(tasks_dir.glob("*.jsonl")):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            if line["task"] == "prose" or (keep and line["task"] not in keep):
                continue
            item = scoring.read(line)
            ids = corpus.encode_prompt(tokenizer, corpus.render(template, item)[0], item)
            jobs.append({"id": line["id"], "item": item, "ids": ids, "prompt": len(ids),
                         "left": line["max_tokens"]})
    return jobs


def prose_documents(tasks_dir: Path, tokenizer) -> list:
    out = []
    for text in (tasks_dir / "prose.jsonl").read_text().splitlines():
        ids = tokenizer.encode(json.loads(text)["text"]).ids + [END_OF_TEXT]
        out.append((ids, [1.0] * len(ids), None))
    return out


def report(jobs, tokenizer, wrong_shown) -> dict:
    """task -> mode -> [right, items]."""
    table = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    shown = defaultdict(int)
    for job in jobs:
        item, made = job["item"], job["ids"][job["prompt"]:]
        text = tokenizer.decode([t for t in made if t != IM_END], skip_special_tokens=False)
        right = scoring.is_right(item, text)
        cell = table[item.task]["think" if item.thinking else "direct"]
        cell[0] += right
        cell[1] += 1
        if not right and shown[item.task] < wrong_shown:
            shown[item.task] += 1
            print(f"  wrong {job['id']}: {text!r}\n    expected {item.answer or item.call!r}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("--only", nargs="*", help="task names")
    parser.add_argument("--round", choices=nvfp4.RECIPES, help="NVFP4 weight rounding first")
    parser.add_argument("--wrong", type=int, default=0, help="wrong answers shown of each task")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(args.model_dir / "tokenizer.json"))
    template = corpus.chat_template(args.model_dir)
    p = weights.load(args.model_dir)
    if args.round:
        p = nvfp4.round_model(p, args.round)
    runner = Runner(p, args.device, torch.bfloat16 if args.device == "cuda" else torch.float32)
    begun = time.time()
    jobs = read_jobs(args.tasks, tokenizer, template, args.only)
    generate(runner, jobs)
    table = report(jobs, tokenizer, args.wrong)
    for task, modes in table.items():
        cells = "  ".join(f"{m} {100 * r / n:5.1f} ({n})" for m, (r, n) in sorted(modes.items()))
        print(f"{task:14s} {cells}")
    total = [sum(c[n] for modes in table.values() for c in modes.values()) for n in (0, 1)]
    print(f"all            {100 * total[0] / total[1]:.2f} ({total[1]})")
    chats = [(j["ids"], [0.0] * j["prompt"] + [1.0] * (len(j["ids"]) - j["prompt"]),
              j["item"].image) for j in jobs]
    found = {"chat": acceptance(runner, chats),
             "prose": acceptance(runner, prose_documents(args.tasks, tokenizer))}
    for name, (good, count) in found.items():
        print(f"MTP first-token acceptance, {name}: {100 * good / count:.1f} % of {count}")
    print(f"{time.time() - begun:.0f} s")
    if args.json:
        args.json.write_text(json.dumps({"tasks": table, "mtp": found, "round": args.round}))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Held-out accuracy of checkpoints through the served program: accuracy.py [--items N] DIR ...

Starts `nibble serve` on each folder in turn, asks every text item of pebble/tasks/ (greedy, over
the OpenAI API), checks answers, tool calls and JSON, and prints a table; with two folders also the
paired difference. Needs only Python. Images are not asked: serving is text only so far.
"""

import argparse
import collections
import concurrent.futures
import json
import math
import pathlib
import re
import subprocess
import sys
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent


def load_items(per_task):
    items = []
    for path in sorted((ROOT / "pebble/tasks").glob("*.jsonl")):
        kept = collections.Counter()
        for line in path.read_text().splitlines():
            item = json.loads(line)
            if "messages" not in item:  # prose: for log-probabilities, not a task
                continue
            kind = (item["task"], item["thinking"])
            if "image" in item or item["check"] not in ("exact", "json", "tool_call"):
                continue
            kept[kind] += 1
            if per_task is None or kept[kind] <= per_task:
                items.append(item)
    return items


class Server:
    def __init__(self, nibble, folder, flags):
        self.process = subprocess.Popen(
            [nibble, "serve", str(folder), "--port", "0", "--served-model-name", "m", *flags],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.url = None
        for line in self.process.stdout:
            found = re.search(r"http://[\d.]+:\d+", line)
            if found:
                self.url = found[0]
                break
        if self.url is None:
            sys.exit(f"accuracy: nibble serve {folder} ended with {self.process.wait()}")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()  # never fills

    def ask(self, item):
        body = {"model": "m", "messages": item["messages"], "temperature": 0,
                "max_tokens": item["max_tokens"],
                "chat_template_kwargs": {"enable_thinking": item["thinking"]}}
        if item.get("tools"):
            body["tools"] = item["tools"]
        request = urllib.request.Request(
            self.url + "/v1/chat/completions", json.dumps(body).encode(),
            {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)["choices"][0]

    def stop(self):
        self.process.terminate()
        self.process.wait()


def is_right(item, choice):
    message = choice["message"]
    content = (message.get("content") or "").strip()
    if item["check"] == "tool_call":
        calls = message.get("tool_calls") or []
        if len(calls) != 1 or content:
            return False
        call = calls[0]["function"]
        try:
            made = {"name": call["name"], "arguments": json.loads(call["arguments"])}
        except json.JSONDecodeError:
            return False
        return made == item["answer"]
    if item["check"] == "json":
        try:
            return json.loads(content) == json.loads(item["answer"])
        except json.JSONDecodeError:
            return False
    return content == item["answer"]


def score(nibble, folder, items, flags, workers):
    server = Server(nibble, folder, flags)
    begin = time.time()
    try:
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            right = list(pool.map(lambda item: is_right(item, server.ask(item)), items))
    finally:
        server.stop()
    print(f"{folder}: {len(items)} items in {time.time() - begin:.0f} s", file=sys.stderr)
    return right


def table(items, results, folders):
    rows = collections.defaultdict(lambda: [0] * (len(folders) + 1))
    for i, item in enumerate(items):
        for key in ((item["task"], "thinking" if item["thinking"] else "direct"), ("all", "")):
            rows[key][0] += 1
            for j, right in enumerate(results):
                rows[key][j + 1] += right[i]
    print("| task | mode | items | " + " | ".join(f"{f.name} %" for f in folders) + " |")
    print("|---|---|---|" + "---|" * len(folders))
    for key in sorted(rows, key=lambda k: (k[0] == "all", k)):
        count, *rights = rows[key]
        cells = " | ".join(f"{100 * right / count:.1f}" for right in rights)
        print(f"| {key[0]} | {key[1]} | {count} | {cells} |")


def paired(first, second):
    """Difference in points and its standard error, from items that changed."""
    changes = [int(b) - int(a) for a, b in zip(first, second)]
    mean = sum(changes) / len(changes)
    variance = sum((c - mean) ** 2 for c in changes) / max(1, len(changes) - 1)
    return 100 * mean, 100 * math.sqrt(variance / len(changes))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--nibble", default=str(ROOT / "build/release/src/cli/nibble"))
    parser.add_argument("--items", type=int, help="at most this many of each task and mode")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--within", type=float, help="fail if the last folder loses more points")
    arguments, flags = parser.parse_known_args()
    items = load_items(arguments.items)
    results = [score(arguments.nibble, f, items, flags, arguments.workers)
               for f in arguments.folders]
    table(items, results, arguments.folders)
    if len(results) < 2:
        return 0
    change, error = paired(results[0], results[-1])
    print(f"\npaired difference {change:+.2f} points, standard error {error:.2f}")
    return int(arguments.within is not None and change < -arguments.within)


if __name__ == "__main__":
    sys.exit(main())

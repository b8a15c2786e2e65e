#!/usr/bin/env python3
"""Measures what the prefix cache saves in a conversation, and what fast mode adds to exact mode.

    python3 bench/cache_mode.py [--nibble PROGRAM] [--turns 12] [--rounds 3] [MODEL]

The same text (150 generated tokens and 60 words of new text a turn, through /v1/completions, where
the prompt of a turn is all that was said) with three servers, taking turns: no cache, exact, fast.
Per mode: the share of prompt tokens from the cache and the time to the first token of turns 2 and
later, median over all. A chat template that renders an answer differently once it is history gives
fast mode nothing to reuse.
"""
import argparse
import json
import random
import statistics
import sys
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "serve"))
from running_server import RunningServer  # noqa: E402

MODES = {"none": ["--no-enable-prefix-caching"], "exact": [], "fast": ["--cache-mode", "fast"]}


def turn(url, prompt):
    """Seconds to the first token, usage, text."""
    body = {"model": "m", "prompt": prompt, "temperature": 0, "max_tokens": 150,
            "ignore_eos": True, "skip_special_tokens": False, "stream": True,
            "stream_options": {"include_usage": True}}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    begin, first, text, usage = time.monotonic(), None, "", {}
    with urllib.request.urlopen(request) as response:
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                if choice["text"]:
                    first = first or time.monotonic() - begin
                    text += choice["text"]
    return first, usage, text


def conversation(url, seed, turns):
    rng = random.Random(seed)

    def words(count):
        return " ".join(rng.choice("red green blue sea stone river tree cloud".split())
                        for _ in range(count))
    said = words(100)
    firsts, prompts, cached = [], 0, 0
    for index in range(turns):
        said += " " + words(60)
        first, usage, text = turn(url, said)
        said += text
        if index > 0:
            firsts.append(first)
            prompts += usage["prompt_tokens"]
            cached += usage["prompt_tokens_details"]["cached_tokens"]
    return firsts, prompts, cached


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", default="pebble/model")
    parser.add_argument("--nibble", default="build/release/src/cli/nibble")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    result = {mode: ([], 0, 0) for mode in MODES}
    for seed in range(options.rounds):
        for mode, flags in MODES.items():
            flags = [*flags, "--served-model-name", "m", "--completion-special-tokens"]
            with RunningServer(options.nibble, options.model, flags) as server:
                firsts, prompts, cached = conversation(server.url, seed, options.turns)
                server.stop()
            all_firsts, all_prompts, all_cached = result[mode]
            result[mode] = (all_firsts + firsts, all_prompts + prompts, all_cached + cached)
    base = statistics.median(result["exact"][0])
    for mode, (firsts, prompts, cached) in result.items():
        median = statistics.median(firsts)
        print(f"{mode:6} first token {median * 1e3:7.1f} ms ({median / base:.2f} x exact), "
              f"{100 * cached / prompts:.1f} % of prompt tokens from the cache, n {len(firsts)}")


if __name__ == "__main__":
    main()

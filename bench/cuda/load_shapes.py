#!/usr/bin/env python3
"""The load shapes that others publish, against `nibble serve`: so many clients, each with one
request after another of so many prompt and output tokens. Prints a table, one row a step.

A step begins with all clients at once and ends after --seconds and once --lengths requests per
client are complete; what runs then is cancelled and counts in the rates alone: its prompt if its
first token came, and as many tokens for each event as the complete ones had. Prompts are random
ids, different ones, so no cache helps; sampling is what Qwen recommends. --long adds a 60K, a 120K
and a 200K prompt, one after the other, beside 30 clients. With --once each client sends a single
request, all at the same moment, and the step ends with the last of them; the column "all generate"
is then the rate from the last first token to the first end. Needs only Python.

    C=tests/golden/configs/qwen3.6-35b-a3b.json
    load_shapes.py --config $C --flags "--load-format dummy:mixed"

--config makes a folder for random weights: that config.json, and Pebble's tokenizer filled up with
made-up words to as many as the model has.
"""
import argparse
import http.client
import itertools
import json
import os
import pathlib
import random
import shlex
import shutil
import statistics
import sys
import tempfile
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tests", "serve"))
from running_server import RunningServer  # noqa: E402

SHAPES = ["25x30000x2000"] + [f"{clients}x15000x1500" for clients in (30, 40, 50, 60, 64)]
LONG = (60000, 120000, 200000)


class Request:
    """One streamed completion; `stop` ends it early."""

    more = {}  # of every body: --body

    def __init__(self, url, prompt, tokens, ids):
        self.begin = self.end = None
        self.times = []  # of each event that holds tokens
        self.error = None
        body = {"prompt": [random.randrange(*ids) for _ in range(prompt)], "max_tokens": tokens,
                "temperature": 1, "top_k": 20, "top_p": 0.95, "ignore_eos": True,
                "stream": True, **self.more}
        self.body = json.dumps(body)
        self.connection = http.client.HTTPConnection(url.hostname, url.port, timeout=900)

    @property
    def first(self):
        return self.times[0] if self.times else None

    @property
    def gaps(self):
        return [after - before for before, after in itertools.pairwise(self.times)]

    def run(self, running):
        self.begin = time.perf_counter()
        try:
            self.connection.request("POST", "/v1/completions", self.body,
                                    {"Content-Type": "application/json"})
            answer = self.connection.getresponse()
            if answer.status != 200:
                self.error = f"{answer.status}: {answer.read().decode()}"
                return
            for line in answer:
                if not running():
                    return
                if line.startswith(b"data: [DONE]"):
                    self.end = time.perf_counter()
                if not line.startswith(b"data: {"):
                    continue
                if b'"error"' in line[:12]:
                    self.error = line.decode()
                    return
                self.times.append(time.perf_counter())
            if self.end is None and running():
                self.error = "the stream broke off"
        except (OSError, http.client.HTTPException) as error:
            if running():
                self.error = repr(error)
        finally:
            self.connection.close()


class Load:
    """Clients that begin together and send requests one after another until stopped, or `once`."""

    def __init__(self, url, clients, prompt, tokens, ids, once=False):
        self.alive = True
        self.requests = []
        self.lock = threading.Lock()
        ready = threading.Barrier(clients + 1)

        def client():
            request = Request(url, prompt, tokens, ids)
            ready.wait()
            while self.alive:
                with self.lock:
                    self.requests.append(request)
                request.run(lambda: self.alive)
                if once:
                    return
                if request.error:
                    time.sleep(1)  # a server that refuses is not to be flooded
                request = Request(url, prompt, tokens, ids)

        self.threads = [threading.Thread(target=client, daemon=True) for _ in range(clients)]
        for thread in self.threads:
            thread.start()
        ready.wait()
        self.begin = time.perf_counter()

    def complete(self):
        with self.lock:
            return sum(request.end is not None for request in self.requests)

    def wait(self, limit):
        """Waits at most `limit` seconds for clients that end by themselves."""
        for thread in self.threads:
            thread.join(max(0.0, self.begin + limit - time.perf_counter()))

    def stop(self):
        self.alive = False
        for thread in self.threads:
            thread.join()
        return self.requests


def percentile(values, part):
    values = sorted(values)
    return values[int(part * (len(values) - 1) + 0.5)] if values else float("nan")


def three(values, digits=1):
    return " / ".join(f"{percentile(values, p):.{digits}f}" for p in (0.5, 0.95, 0.99))


def rate_while_all_generate(requests, per_event):
    """Tokens a second from the last first token to the first end."""
    if any(r.end is None or not r.times for r in requests):
        return float("nan")
    begin, end = max(r.first for r in requests), min(r.times[-1] for r in requests)
    events = sum(begin < t <= end for r in requests for t in r.times)
    return events * per_event / (end - begin) if end > begin else float("nan")


def row(shape, requests, seconds, once):
    clients, prompt, tokens = shape
    whole = [r for r in requests if r.end is not None]
    firsts = [r.first - r.begin for r in requests if r.first is not None]
    gaps = [gap for r in requests for gap in r.gaps]
    errors = [r.error for r in requests if r.error]
    each = [(tokens - 1) / (r.end - r.first) for r in whole]
    per_event = tokens * len(whole) / max(1, sum(len(r.gaps) + 1 for r in whole))
    generated = tokens * len(whole) + per_event * sum(
        len(r.gaps) + 1 for r in requests if r.first is not None and r.end is None)
    print(f"| {clients} x ({prompt} in, {tokens} out) | {seconds:.0f} | {len(whole)} | "
          f"{three([r.end - r.begin for r in whole])} | {three(firsts, 2)} | "
          f"{percentile(gaps, 0.99) * 1e3:.0f} | {generated / seconds:.0f} | "
          f"{(prompt * len(firsts) + generated) / seconds:.0f} | " +
          (f"{rate_while_all_generate(requests, per_event):.0f} | " if once else "") +
          f"{statistics.median(each) if each else float('nan'):.1f} | {len(errors)} |", flush=True)
    for error in sorted(set(errors))[:3]:
        print(f"  error: {error.strip()[:300]}", flush=True)
    return len(errors)


def step(url, shape, options):
    clients, prompt, tokens = map(int, shape.split("x"))
    load = Load(url, clients, prompt, tokens, options.ids, options.once)
    begin = load.begin
    if options.once:
        load.wait(options.limit)
        requests = load.stop()
        seconds = max([r.end for r in requests if r.end] or [time.perf_counter()]) - begin
        return row((clients, prompt, tokens), requests, seconds, True)
    while (time.perf_counter() - begin < options.seconds or
           load.complete() < options.lengths * clients):
        time.sleep(0.2)
        if time.perf_counter() - begin > options.limit:
            print(f"  cut after {options.limit:.0f} s: {load.complete()} requests complete of "
                  f"{options.lengths * clients:.0f}")
            break
    seconds = time.perf_counter() - begin
    return row((clients, prompt, tokens), load.stop(), seconds, False)


def long_prompts(url, options):
    """Seconds to the first token of each long prompt beside 30 clients."""
    load = Load(url, 30, 15000, 1500, options.ids)
    time.sleep(options.warm_up)
    errors = 0
    for prompt in LONG:
        request = Request(url, prompt, 16, options.ids)
        request.run(lambda: True)
        errors += request.error is not None
        print(f"{prompt} tokens beside 30 clients: " + (
            request.error or f"first token after {request.first - request.begin:.1f} s"),
            flush=True)
    return errors + sum(r.error is not None for r in load.stop())


def dummy_folder(config, folder):
    root = pathlib.Path(__file__).resolve().parents[2]
    shutil.copy(config, folder / "config.json")
    text = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    rows = text.get("text_config", text)["vocab_size"]
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(root / "pebble" / "model" / name, folder)
    tokenizer = json.loads((root / "pebble/model/tokenizer.json").read_text(encoding="utf-8"))
    words = tokenizer["model"]["vocab"]
    used = {*words.values(), *(token["id"] for token in tokenizer["added_tokens"])}
    words.update({f"word{i}": i for i in range(rows) if i not in used})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nibble", default="build/cuda/src/cli/nibble")
    parser.add_argument("--model", help="folder of a checkpoint")
    parser.add_argument("--config", help="config.json, instead of --model, for random weights")
    parser.add_argument("--flags", default="", help="of serve")
    parser.add_argument("--url", help="of a server that runs already")
    parser.add_argument("--shapes", nargs="*", default=SHAPES, metavar="CLIENTSxPROMPTxOUTPUT")
    parser.add_argument("--body", type=json.loads, default={}, metavar="JSON",
                        help="fields of every request, such as a structure to obey")
    parser.add_argument("--once", action="store_true", help="one request a client, all at once")
    parser.add_argument("--seconds", type=float, default=60, help="least length of a step")
    parser.add_argument("--lengths", type=float, default=3,
                        help="least requests per client that a step completes")
    parser.add_argument("--limit", type=float, default=900, help="most seconds of a step")
    parser.add_argument("--long", action="store_true", help="60K, 120K, 200K beside 30 clients")
    parser.add_argument("--warm-up", type=float, default=20, help="seconds before the long ones")
    parser.add_argument("--ids", type=int, nargs=2, default=(300, 2000), help="range of prompt ids")
    options = parser.parse_args()
    Request.more = options.body
    if options.url:
        return run(urllib.parse.urlparse(options.url), options)
    with tempfile.TemporaryDirectory() as folder:
        if options.config:
            dummy_folder(options.config, pathlib.Path(folder))
        return serve_and_run(options.model or folder, options)


def serve_and_run(model, options):
    with RunningServer(options.nibble, model, shlex.split(options.flags)) as server:
        code = run(urllib.parse.urlparse(server.url), options)
        if server.process.poll() is not None:
            print("the server ended:", *server.log[-5:])
            return 1
        return code | server.stop()


def run(url, options):
    print("| load | s | complete | wall p50 / p95 / p99, s | first token p50 / p95 / p99, s | "
          "gap p99, ms | decode tok/s | total tok/s | " +
          ("all generate, tok/s | " if options.once else "") +
          "a request's tok/s | errors |\n|" + "---|" * (11 if options.once else 10), flush=True)
    errors = sum(step(url, shape, options) for shape in options.shapes)
    if options.long:
        errors += long_prompts(url, options)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())

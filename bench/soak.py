#!/usr/bin/env python3
"""Mixed traffic against a live server for a long time: nothing may leak, change or hang.

    python3 bench/soak.py [--minutes 30] [--clients 8] [--nibble PROGRAM] [MODEL]

Starts `nibble serve MODEL --check-integrity` with small pools, so that the prefix cache evicts and
sequences are swapped, and with drafts from prompt lookup. Clients send chats that share
prefixes, long prompts and several choices;
one request in five is dropped by its client while it waits, computes or speaks. A canary request,
alone in what it asks, must give the same bytes every time. At the end, idle, the server checks
that every page and slot is accounted for (it ends with an error if one is not), and must stop
within seconds. Resident memory must not grow after the first minute by more than 2 %.
"""
import argparse
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

WORDS = "the river stone walks over seven bright hills and counts every lamp it meets".split()


class Server:
    def __init__(self, program, model):
        self.process = subprocess.Popen(
            [program, "serve", model, "--port", "0", "--check-integrity", "--no-log-requests",
             "--max-num-seqs", "6", "--max-model-len", "4096",
             "--kv-cache-memory-bytes", str(12 << 20), "--prefix-snapshots", "8",
             "--host-cache-memory-bytes", str(16 << 20), "--max-queued-requests", "64",
             "--speculative-config", '{"method": "ngram"}',
             "--served-model-name", "m"], stderr=subprocess.PIPE, text=True)
        self.port = 0
        for line in self.process.stderr:
            found = re.search(r"ready: http://127.0.0.1:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                break
        if not self.port:
            sys.exit("soak: the server did not start")
        self.log = []
        threading.Thread(target=self.drain, daemon=True).start()

    def drain(self):
        for line in self.process.stderr:
            self.log.append(line)

    def resident_kilobytes(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1))

    def post(self, body, timeout=300):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        connection.request("POST", "/v1/chat/completions", json.dumps(body),
                           {"content-type": "application/json"})
        return connection


def text_of(rng, words):
    return " ".join(rng.choice(WORDS) for _ in range(words))


def request_of(rng):
    system = f"You are assistant number {rng.randrange(4)}. " + " ".join(WORDS) * 6
    messages = [{"role": "system", "content": system}]
    for _ in range(rng.randrange(3)):
        seeded = random.Random(rng.randrange(6))  # few beginnings, many continuations
        messages.append({"role": "user", "content": text_of(seeded, 20)})
        messages.append({"role": "assistant", "content": text_of(seeded, 12)})
    length = rng.choice([5, 30, 30, 150, 500])
    messages.append({"role": "user", "content": text_of(rng, length)})
    return {"model": "m", "messages": messages, "max_tokens": rng.choice([1, 20, 60, 200]),
            "temperature": rng.choice([0, 1.0]), "seed": rng.randrange(1000),
            "n": rng.choice([1, 1, 1, 2]), "stream": rng.random() < 0.5}


CANARY = {"model": "m", "temperature": 0, "max_tokens": 40, "logprobs": True, "top_logprobs": 2,
          "messages": [{"role": "user", "content": "What is 17 plus 25? " + " ".join(WORDS) * 4}]}


class Soak:
    def __init__(self, server):
        self.server = server
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.counts = {"answered": 0, "dropped": 0, "refused with 429": 0, "canaries": 0,
                       "prompt tokens": 0, "of them from the cache": 0}
        self.failures = []
        self.canary = None

    def count(self, name, by=1):
        with self.lock:
            self.counts[name] += by

    def fail(self, what):
        with self.lock:
            self.failures.append(what)
        self.over.set()

    def client(self, seed):
        rng = random.Random(seed)
        while not self.over.is_set():
            try:
                self.one(rng)
            except (OSError, http.client.HTTPException) as error:
                if not self.over.is_set():
                    self.fail(f"client: {error!r}")

    def one(self, rng):
        body = request_of(rng)
        connection = self.server.post(body)
        if rng.random() < 0.2:  # leaves: at once, or after some bytes of a stream
            if body["stream"] and rng.random() < 0.7:
                connection.getresponse().read(rng.randrange(1, 3000))
            else:
                time.sleep(rng.random() * 0.3)
            connection.close()
            return self.count("dropped")
        response = connection.getresponse()
        data = response.read()
        connection.close()
        if response.status == 429:
            if not response.getheader("Retry-After"):
                self.fail("429 without Retry-After")
            self.count("refused with 429")
            time.sleep(0.2)
        elif response.status != 200:
            self.fail(f"status {response.status}: {data[:200]!r}")
        elif body["stream"] and not data.rstrip().endswith(b"data: [DONE]"):
            self.fail(f"a stream without end: {data[-200:]!r}")
        else:
            self.count("answered")
            if not body["stream"]:
                usage = json.loads(data)["usage"]
                cached = usage["prompt_tokens_details"]["cached_tokens"]
                self.count("prompt tokens", usage["prompt_tokens"])
                self.count("of them from the cache", cached)

    def sing(self):
        """The canary: the same request, the same bytes."""
        while not self.over.is_set():
            connection = self.server.post(CANARY)
            response = connection.getresponse()
            answer = json.loads(response.read())
            connection.close()
            if response.status == 200:
                said = json.dumps(answer["choices"], sort_keys=True)
                if self.canary is None:
                    self.canary = said
                if said != self.canary:
                    self.fail(f"the canary changed: {said[:300]} was {self.canary[:300]}")
                self.count("canaries")
            self.over.wait(1.0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", default="pebble/model")
    parser.add_argument("--nibble", default="build/release/src/cli/nibble")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--clients", type=int, default=8)
    options = parser.parse_args()
    server = Server(options.nibble, options.model)
    soak = Soak(server)
    threads = [threading.Thread(target=soak.client, args=(seed,))
               for seed in range(options.clients)]
    threads.append(threading.Thread(target=soak.sing))
    for thread in threads:
        thread.start()
    begin = time.monotonic()
    settled = peak = 0
    while not soak.over.is_set() and time.monotonic() - begin < options.minutes * 60:
        soak.over.wait(5.0)
        if server.process.poll() is not None:
            soak.fail("the server ended: " + "".join(server.log[-5:]))
            break
        resident = server.resident_kilobytes()
        if time.monotonic() - begin > 60:
            settled = settled or resident
            peak = max(peak, resident)
    soak.over.set()
    for thread in threads:
        thread.join()
    time.sleep(2)  # idle: the integrity check runs
    alive = server.process.poll() is None
    server.process.send_signal(signal.SIGTERM)
    code = server.process.wait(timeout=30)
    for name, count in soak.counts.items():
        print(f"{name}: {count}")
    minutes = (time.monotonic() - begin) / 60
    print(f"minutes: {minutes:.1f}; resident after one minute {settled / 1024:.1f} MB, most since "
          f"{peak / 1024:.1f} MB")
    if not alive or code != 0:
        soak.failures.append(f"the server ended with {code}: " + "".join(server.log[-5:]))
    if settled and peak > settled * 1.02:
        soak.failures.append("memory grows")
    if soak.counts["canaries"] < 2 or soak.counts["answered"] < 10:
        soak.failures.append("too little happened")
    for failure in soak.failures[:5]:
        print("FAIL:", failure)
    sys.exit(1 if soak.failures else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Proof on a card that `nibble serve` takes what its plan says and nothing after it is ready: at
0.95 of the whole card, and of the RTX 5090 that --card-limit imitates, with the 35B as its W4A4
files hold it. Each server is held to its plan by nvidia-smi, computes its largest pass, sleeps and
wakes, and loses 1,000 requests halfway. Needs a card that nobody else uses, and only Python.

    memory_proof.py --nibble build/cuda/src/cli/nibble

With --configurations it starts a server in each of twelve configurations instead (two layouts, BF16
and FP8 pages, 1, 32 and 256 sequences, 512 and 8,192 rows), holds each to its plan, which must be
what `nibble serve --dry-run` says, and asks for one answer of 64 tokens.

Ends with 1 if anything failed.
"""
import argparse
import concurrent.futures
import http.client
import itertools
import json
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "cuda"))
sys.path.insert(0, str(ROOT / "tests" / "serve"))
from load_shapes import dummy_folder  # noqa: E402
from running_server import RunningServer  # noqa: E402

CONFIG = ROOT / "tests/golden/configs/qwen3.6-35b-a3b.json"
CASES = {
    "the whole card": ["--gpu-memory-utilization", "0.95", "--load-format",
                       "dummy:mixed-nvfp4-head", "--max-num-batched-tokens", "8192"],
    "an RTX 5090": ["--card-limit", "rtx5090", "--gpu-memory-utilization", "0.95", "--load-format",
                    "dummy:w4a4", "--kv-cache-dtype", "fp8", "--max-model-len", "262144",
                    "--max-num-seqs", "64", "--max-num-batched-tokens", "8192",
                    "--check-integrity"],
}
LAYOUTS = ("mixed-nvfp4-head", "w4a4")
PAGES = ("bf16", "fp8")
SEQUENCES = (1, 32, 256)
ROWS = 8192
FEW_ROWS = 512
CANCELLED = 1000
MIB = 1 << 20


def used_mib():
    """The memory in use on the first card by nvidia-smi."""
    command = ["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


class AdminConnection(http.client.HTTPConnection):
    """To the administrator's socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=120)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Proof:
    """Checks of one server, each told in a line."""

    def __init__(self, server, admin, before_mib):
        self.server = server
        self.admin = admin
        self.url = urllib.parse.urlparse(server.url)
        self.before_mib = before_mib
        self.failed = 0

    def check(self, what, holds, found):
        self.failed += not holds
        print(f"  {'ok  ' if holds else 'FAIL'} {what}: {found}", flush=True)

    def stats(self):
        connection = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=120)
        connection.request("GET", "/stats")
        stats = json.loads(connection.getresponse().read())
        connection.close()
        return stats

    def administer(self, path):
        connection = AdminConnection(self.admin)
        connection.request("POST", path)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    def complete(self, ids, tokens, stop_after=None):
        """The text of an answer, event by event. stop_after: the client leaves after so many
        events. Raises on any error of the server."""
        connection = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=900)
        body = {"prompt": ids, "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
                "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        if stop_after == 0:
            connection.close()
            return []
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {answer.read()[:300]}")
        pieces = []
        for line in answer:
            if b'"error"' in line[:16]:
                raise RuntimeError(line[:300])
            if line.startswith(b"data: {"):
                pieces.append(json.loads(line[6:])["choices"][0]["text"])
            if stop_after is not None and len(pieces) >= stop_after:
                break
        connection.close()
        return pieces

    def together(self, jobs, threads):
        """Runs jobs at once; the errors among them."""
        errors = []
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            for job in concurrent.futures.as_completed([pool.submit(*job) for job in jobs]):
                if job.exception() is not None:
                    errors.append(repr(job.exception()))
        return errors

    def drained(self, seconds=60):
        """Waits until no request lives."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not any(self.stats()["sequences"].values()):
                return True
            time.sleep(0.1)
        return False

    def plan(self):
        """Bytes planned, bytes allowed, sequences at once, full-length requests."""
        log = "".join(self.server.log)
        total = re.search(r"total ([\d.]+) MB of ([\d.]+) MB", log)
        sequences = re.search(r"\((\d+) sequences \+ (\d+) snapshots\)", log)
        requests = re.search(r"full-length requests in the KV cache: ([\d.]+)", log)
        for line in self.server.log:
            if line.startswith(("memory:", "sequences at once:", "host tier:", "context:", "--g")):
                print("  " + line.rstrip())
        return (float(total.group(1)) * 1e6, float(total.group(2)) * 1e6,
                int(sequences.group(1)), float(requests.group(1)))

    def taken(self, planned, when):
        taken = (used_mib() - self.before_mib) * MIB
        self.check(f"nvidia-smi within 1 % of the plan {when}",
                   abs(taken - planned) <= 0.01 * planned,
                   f"{taken / 1e6:.1f} MB taken, {planned / 1e6:.1f} planned, "
                   f"{100 * (taken / planned - 1):+.2f} %")

    def largest_pass(self, sequences):
        """A long prompt holds the engine while the others arrive; then they fill a pass."""
        each = ROWS // sequences // 64 * 64
        jobs = [(self.complete, ids(2 * ROWS), 4)]
        jobs += [(self.complete, ids(each), 4) for _ in range(sequences)]
        errors = self.together(jobs, len(jobs))
        self.check(f"{sequences} prompts of {each} tokens behind one of {2 * ROWS}", not errors,
                   errors[:1] or "no error")

    def cancellations(self):
        jobs = [(self.complete, ids(random.randrange(1, 600)), 200, random.choice([0, 1, 2, 20]))
                for _ in range(CANCELLED)]
        begin = time.monotonic()
        errors = self.together(jobs, 64)
        drained = self.drained()
        self.check(f"{CANCELLED} requests whose clients leave", not errors and drained,
                   errors[:1] or f"{'all' if drained else 'not all'} gone after "
                                 f"{time.monotonic() - begin:.1f} s")

    def sleep_and_wake(self):
        """An answer before, with the weights in host memory, and after."""
        prompt = ids(1000)
        before = self.complete(prompt, 32)
        self.drained()
        awake = used_mib()
        begin = time.monotonic()
        status = self.administer("/sleep")
        asleep = used_mib()
        slept = time.monotonic()
        self.check("asleep", status == 200 and asleep < awake / 2,
                   f"status {status}, {awake} MiB awake, {asleep} asleep, {slept - begin:.1f} s")
        slept = time.monotonic()
        status = self.administer("/wake_up")
        woken = time.monotonic()
        self.check("awake", status == 200, f"status {status}, {woken - slept:.1f} s")
        self.check("the same answer", self.complete(prompt, 32) == before, "32 tokens, greedy")


def ids(count):
    return [random.randrange(300, 2000) for _ in range(count)]


def prove(nibble, model, flags):
    before = used_mib()
    with tempfile.TemporaryDirectory() as work:
        admin = str(pathlib.Path(work) / "admin")
        with RunningServer(nibble, model, [*flags, "--admin-socket", admin]) as server:
            proof = Proof(server, admin, before)
            planned, allowed, sequences, _ = proof.plan()
            proof.check("the plan is within its memory", planned <= allowed,
                        f"{planned / 1e6:.1f} of {allowed / 1e6:.1f} MB")
            proof.taken(planned, "at the start")
            first = proof.stats()["device_allocations"]
            proof.largest_pass(sequences)
            proof.cancellations()
            second = proof.stats()["device_allocations"]
            proof.check("no allocation after ready", second == first, f"{first}, then {second}")
            proof.sleep_and_wake()
            third = proof.stats()["device_allocations"]
            proof.largest_pass(sequences)
            proof.cancellations()
            fourth = proof.stats()["device_allocations"]
            proof.check("no allocation after waking", fourth == third, f"{third}, then {fourth}")
            proof.taken(planned, "at the end")
            alive = server.process.poll() is None
            code = server.stop() if alive else server.process.returncode
            proof.check("it ran to its end", alive and code == 0, f"exit code {code}")
            if proof.failed:
                print("".join(server.log[-20:]))
            return proof.failed


def configurations():
    """Name and flags of each. Few and many rows alternate, so each value meets each other one."""
    for number, (layout, pages, sequences) in enumerate(
            itertools.product(LAYOUTS, PAGES, SEQUENCES)):
        rows = (FEW_ROWS, ROWS)[(number % 3 + number // 3) % 2]
        yield (f"{layout}, {pages} pages, {sequences} sequences, {rows} rows",
               ["--load-format", f"dummy:{layout}", "--kv-cache-dtype", pages, "--max-num-seqs",
                str(sequences), "--max-num-batched-tokens", str(rows)])


def total_mb(lines):
    return re.search(r"total ([\d.]+) MB of ([\d.]+) MB", "".join(lines)).group(1)


def hold_to_plan(nibble, model, flags):
    """One configuration. The server itself ends at the start when a byte planned is not taken."""
    said = subprocess.run([nibble, "serve", model, *flags, "--dry-run"], capture_output=True,
                          text=True, check=True)
    before = used_mib()
    with RunningServer(nibble, model, flags) as server:
        proof = Proof(server, None, before)
        planned, allowed, sequences, _ = proof.plan()
        proof.check("the plan is within its memory", planned <= allowed,
                    f"{planned / 1e6:.1f} of {allowed / 1e6:.1f} MB")
        proof.check("--dry-run says the same", total_mb(said.stdout + said.stderr) ==
                    total_mb(server.log), total_mb(said.stdout + said.stderr) + " MB")
        proof.taken(planned, "at the start")
        errors = proof.together([(proof.complete, ids(1000), 64)], 1)
        proof.check("an answer of 64 tokens", not errors, errors[:1] or f"{sequences} sequences")
        code = server.stop()
        proof.check("it ran to its end", code == 0, f"exit code {code}")
        return proof.failed


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nibble", default="build/cuda/src/cli/nibble")
    parser.add_argument("--configurations", action="store_true",
                        help="start once in each of twelve configurations")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        dummy_folder(CONFIG, pathlib.Path(folder))
        cases, hold = ((configurations(), hold_to_plan) if options.configurations
                       else (CASES.items(), prove))
        for name, flags in cases:
            if options.only not in name:
                continue
            begin = time.monotonic()
            print(f"{name}: nibble serve {' '.join(flags)}", flush=True)
            failed += hold(options.nibble, folder, flags)
            print(f"  {time.monotonic() - begin:.0f} s", flush=True)
    print(f"{failed} checks failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

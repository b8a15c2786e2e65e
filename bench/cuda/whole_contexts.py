#!/usr/bin/env python3
"""Proof on a card that the plan of an RTX 5090 holds what it promises: the published line with
pages in 4 bits, but with 4 sequences, under --card-limit rtx5090, answers three requests at once
that fill the context of 262,144 tokens. Their prompts differ, so that no page is shared; the
portable kernels compute them, which takes minutes, and the third waits, since two long prompts are
read at once at most. The same three are then sent again: the cache has their prompts, so that all
three hold their pages and generate at once. Needs a card that nobody else uses, and only Python.

    whole_contexts.py --nibble build/cuda/src/cli/nibble

Ends with 1 if anything failed.
"""
import argparse
import pathlib
import sys
import tempfile
import threading
import time

from memory_proof import CONFIG, Proof, ids, used_mib
from load_shapes import dummy_folder
from running_server import RunningServer

FLAGS = ["--card-limit", "rtx5090", "--load-format", "dummy:w4a4", "--gpu-memory-utilization",
         "0.95", "--max-model-len", "262144", "--max-num-seqs", "4", "--max-num-batched-tokens",
         "8192", "--kv-cache-dtype", "turboquant_4bit_nc", "--enable-chunked-prefill",
         "--enable-prefix-caching", "--dtype", "bfloat16", "--trust-remote-code"]
CONTEXT = 262144
ANSWER = 64
REQUESTS = 3
PAGE_TOKENS = 64
TOLD_EACH_S = 30


class Watch:
    """The most sequences that ran at one moment, and the most pages in use. Prints how far they are
    every half minute."""

    def __init__(self, proof):
        self.proof = proof
        self.running = self.pages = 0
        self.begin = self.told = time.monotonic()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._look)

    def _look(self):
        while not self.done.wait(0.5):
            stats = self.proof.stats()
            phases = stats["sequences"]
            self.running = max(self.running, phases["prefill"] + phases["decode"])
            pages = next(pool for pool in stats["pools"] if pool["name"] == "pages")
            self.pages = max(self.pages, pages["used"])
            if time.monotonic() >= self.told + TOLD_EACH_S:
                self.told = time.monotonic()
                print(f"  {self.told - self.begin:.0f} s: {phases}, {pages['used']} pages",
                      flush=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()


def answer_all(proof, prompts):
    """The texts of the answers, and what the watch saw of them."""
    answers = [None] * len(prompts)

    def answer(place):
        answers[place] = "".join(proof.complete(prompts[place], ANSWER))
    begin = time.monotonic()
    with Watch(proof) as watch:
        errors = proof.together([(answer, place) for place in range(len(prompts))], len(prompts))
    took = time.monotonic() - begin
    proof.check(f"{len(prompts)} requests end", not errors,
                errors[:1] or f"{took:.0f} s, {len(prompts) * CONTEXT / took:.0f} tokens/s")
    return answers, watch


def answer_from_the_cache(proof, prompts, wanted):
    answers, watch = answer_all(proof, prompts)
    proof.check("they ran at once", watch.running == REQUESTS, f"{watch.running} at one moment")
    # The last token is never fed back.
    pages = REQUESTS * ((CONTEXT - 1 + PAGE_TOKENS - 1) // PAGE_TOKENS)
    proof.check("each held its pages", watch.pages >= pages, f"{watch.pages} of {pages}")
    proof.check("they say the same again", answers == wanted and all(answers),
                [len(answer or "") for answer in answers])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nibble", default="build/cuda/src/cli/nibble")
    options = parser.parse_args()
    before = used_mib()
    with tempfile.TemporaryDirectory() as folder:
        dummy_folder(CONFIG, pathlib.Path(folder))
        with RunningServer(options.nibble, folder, FLAGS) as server:
            proof = Proof(server, None, before)
            planned, _, _, requests = proof.plan()
            proof.check("the plan holds them", requests >= REQUESTS, f"{requests} requests")
            proof.taken(planned, "at the start")
            prompts = [ids(CONTEXT - ANSWER) for _ in range(REQUESTS)]
            answers, _ = answer_all(proof, prompts)
            answer_from_the_cache(proof, prompts, answers)
            proof.taken(planned, "at the end")
            code = server.stop()
            proof.check("it ran to its end", code == 0, f"exit code {code}")
    print(f"{proof.failed} checks failed")
    return 1 if proof.failed else 0


if __name__ == "__main__":
    sys.exit(main())

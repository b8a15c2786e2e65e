#!/usr/bin/env python3
"""A card that fails under a running server: what clients are told, and how the process ends.

The program is the shipped one; the fault comes from a library that is loaded with it
(src/backend/cuda/faults/preload.cc). Loopback only. Without a card nothing is tested, which the
last line says. Exits 1 if a check fails; the last line counts.
"""
import pathlib
import signal
import subprocess
import sys
import threading
import time

import httpx

from running_server import RunningServer, options_of, run_each

DEADLINE = 2  # seconds, of a pass
GIVEN_UP = "a pass of the cuda backend has not ended"


class Victim:
    """A server that streams one answer and owes another; `fail` brings the fault to its card."""

    def __init__(self, nibble, model, fault):
        library = pathlib.Path(nibble).parents[1] / "backend/cuda/libnibble_card_fault.so"
        assert library.exists(), f"{library} is not built"
        flags = ["--backend", "cuda", "--step-deadline", str(DEADLINE), "--max-model-len", "16000"]
        self.server = RunningServer(nibble, model, flags, {"LD_PRELOAD": str(library.resolve()),
                                                           "CARD_FAULT": fault})
        self.lines = []
        self.whole = None
        self.streaming = threading.Event()

    def __enter__(self):
        self.server.__enter__()
        self.threads = [threading.Thread(target=self._run, args=(each,))
                        for each in (self._stream, self._ask)]
        for thread in self.threads:
            thread.start()
        assert self.streaming.wait(20)
        return self

    def __exit__(self, *error):
        self.server.__exit__(*error)

    def _body(self, **fields):
        return {"prompt": "a", "max_tokens": 15000, "ignore_eos": True, **fields}

    def _run(self, ask):
        try:
            ask()
        except httpx.TransportError:  # the server left
            pass

    def _stream(self):
        with httpx.stream("POST", self.server.url + "/v1/completions", timeout=60,
                          json=self._body(stream=True)) as answer:
            for line in answer.iter_lines():
                if line:
                    self.lines.append(line)
                if len(self.lines) > 20:
                    self.streaming.set()

    def _ask(self):
        self.whole = httpx.post(self.server.url + "/v1/completions", timeout=60, json=self._body())

    def live(self):
        """The status of /live; None if nobody answers."""
        try:
            return httpx.get(self.server.url + "/live", timeout=5).status_code
        except httpx.TransportError:
            return None

    def fail(self):
        self.begin = time.monotonic()
        self.server.process.send_signal(signal.SIGUSR1)

    def ends(self, words):
        """All were told `words`, nobody is told that it lives, and the exit code is 3."""
        for thread in self.threads:
            thread.join(30)
        told = time.monotonic() - self.begin
        live = self.live()
        assert live in (None, 503), live
        code = self.server.process.wait(timeout=30)
        gone = time.monotonic() - self.begin
        log = "".join(self.server.log)
        assert code == 3, (code, log)
        assert any('"error"' in line and words in line for line in self.lines[-2:]), self.lines[-3:]
        assert self.whole.status_code == 500 and words in self.whole.text, self.whole.text
        assert self.server.logged("nibble serve: ") and words in log, log
        print(f"      told after {told:.2f} s, gone after {gone:.2f} s")


class Checks:
    def __init__(self, nibble, model):
        self.nibble = nibble
        self.model = model

    def test_a_trap(self):
        with Victim(self.nibble, self.model, "trap") as victim:
            victim.fail()
            victim.ends("failed and is lost to this process")

    def test_an_illegal_address(self):
        with Victim(self.nibble, self.model, "illegal_address") as victim:
            victim.fail()
            victim.ends("illegal memory access")

    def test_a_kernel_that_does_not_end(self):
        with Victim(self.nibble, self.model, "spin") as victim:
            victim.fail()
            time.sleep(DEADLINE / 2)
            assert victim.live() == 200
            victim.ends(GIVEN_UP)
            assert time.monotonic() - victim.begin >= DEADLINE

    def test_signals_while_a_kernel_does_not_end(self):
        with Victim(self.nibble, self.model, "spin") as victim:
            victim.fail()
            time.sleep(DEADLINE / 4)
            for _ in range(2):
                victim.server.process.send_signal(signal.SIGTERM)
                time.sleep(0.1)
            assert victim.server.process.wait(timeout=30) == 3, victim.server.log


def no_card(nibble, model):
    """Why the backend cannot start; None if it can."""
    probe = subprocess.run([nibble, "run", model, "x", "--max-tokens", "1", "--backend", "cuda"],
                           capture_output=True, text=True, timeout=120)
    return None if probe.returncode == 0 else probe.stderr.strip()


def main():
    options = options_of(__doc__)
    reason = no_card(options.nibble, options.model)
    if reason is not None and "backend cuda: expected" in reason:
        print(f"skipped: {reason}")
        return 0
    passed, failed = run_each(Checks(options.nibble, options.model), options.only)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

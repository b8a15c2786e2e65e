#!/usr/bin/env python3
"""Structures that cost much are the concern of those who ask for them: others wait for nothing, and
all the while the answer of a control request stays as it is.

Loopback only: the clients are addresses of 127.0.0.0/8. Exits 1 if a check fails; the last line
counts.
"""
import concurrent.futures
import os
import pathlib
import signal
import socket
import sys
import threading
import time

import httpx

from running_server import run_checks, tried

CONTROL = {"prompt": "The quick brown", "max_tokens": 12, "temperature": 0, "logprobs": 3}


def costly(number):
    """It takes seconds to compile, and no two are the same."""
    names = {f"p{i + number}": {} for i in range(200)}
    return {"type": "object", "properties": names, "minProperties": 66, "maxProperties": 133}


def quick(number):
    return {"type": "object", "properties": {f"name{number}": {"enum": ["a", "b"]}},
            "required": [f"name{number}"], "additionalProperties": False}


def body(schema):
    return {"prompt": "x", "max_tokens": 1, "guided_json": schema}


def children_of(parent):
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has ended
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def soon(condition, seconds=600):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


class Control(threading.Thread):
    """Asks the same each second. Its answers must all be the first."""

    def __init__(self, url):
        super().__init__(daemon=True)
        self.url = url
        self.expected = self.ask()
        self.answers, self.wrong = 0, []
        self.ends = threading.Event()

    def ask(self):
        answer = httpx.post(self.url + "/v1/completions", json=CONTROL, timeout=600)
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"]

    def run(self):
        while not self.ends.wait(0.5):
            try:
                if self.ask() != self.expected:
                    self.wrong.append("another answer")
            except Exception as error:  # whatever it is, it is wrong
                self.wrong.append(repr(error))
            self.answers += 1

    def finish(self):
        self.ends.set()
        self.join(timeout=600)
        assert self.answers > 0 and not self.wrong, (self.answers, self.wrong[:3])


class Checks:
    def __init__(self, server, _, __):
        self.server = server
        self.url = server.url
        answer = httpx.post(self.url + "/v1/completions", json=body(quick(0)), timeout=600)
        assert answer.status_code == 200, answer.text
        self.workers = [pid for pid in children_of(self.server.process.pid)
                        if b"--compile-structures" in
                        pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]
        self.control = Control(self.url)
        self.control.start()

    def close(self):
        self.control.finish()

    def compiling(self):
        return children_of(self.workers[0])

    def client(self, address):
        host, port = self.url.removeprefix("http://").split(":")
        made = socket.create_connection((host, int(port)), source_address=(address, 0))
        made.settimeout(120)
        return made

    def begin(self, address, schema):
        """Sends a request and returns its connection."""
        request = httpx.Request("POST", self.url + "/v1/completions", json=body(schema))
        head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        made = self.client(address)
        made.sendall(f"POST /v1/completions HTTP/1.1\r\n{head}\r\n".encode() + request.content)
        return made

    def answered(self, address, schema):
        with self.begin(address, schema) as made:
            head = made.recv(4096)
        assert head.startswith(b"HTTP/1.1 200"), head

    def test_a_process_apart_compiles(self):
        assert len(self.workers) == 1, self.workers

    @tried(5)
    def test_an_innocent_structure_beside_six_hostile_ones(self):
        hostile = [self.begin(f"127.0.0.{number + 2}", costly(number)) for number in range(6)]
        assert soon(lambda: len(self.compiling()) == 6), self.compiling()
        time.sleep(0.3)
        for number in range(10, 13):
            self.answered("127.0.0.1", quick(number))
        still = len(self.compiling())
        for each in hostile:
            each.close()
        assert still == 6, "the hostile ones were done too soon"
        assert soon(lambda: not self.compiling()), "they go on for clients that have left"

    def test_one_address_has_one_compilation_at_a_time(self):
        hostile = [self.begin("127.0.0.9", costly(number)) for number in range(20, 24)]
        assert soon(lambda: len(self.compiling()) == 1)
        time.sleep(0.3)
        assert len(self.compiling()) <= 1
        for each in hostile:
            each.close()
        assert soon(lambda: not self.compiling())

    def test_a_crash_of_the_compiler_is_one_refusal(self):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(httpx.post, self.url + "/v1/completions",
                                json=body(costly(40)), timeout=600)
            assert soon(lambda: len(self.compiling()) == 1)
            for pid in self.compiling():
                os.kill(pid, signal.SIGSEGV)
            answer = asked.result()
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["code"] == "unsupported_schema", answer.text
        self.answered("127.0.0.1", quick(41))

    def test_a_killed_worker_is_started_again(self):
        os.kill(self.workers[0], signal.SIGKILL)
        self.answered("127.0.0.1", quick(50))
        self.workers = children_of(self.server.process.pid)
        assert len(self.workers) == 1, self.workers

    def test_no_structure_is_a_failure_of_the_server(self):
        for schema in ({"$ref": "#"}, {"not": {}}, {"type": "string", "pattern": "(?<=a)b"},
                       {"enum": []}, {"allOf": [{"type": "string"}, {"type": "null"}]}):
            answer = httpx.post(self.url + "/v1/completions", json=body(schema), timeout=600)
            assert answer.status_code == 400, (schema, answer.text)
        for more in ({"guided_grammar": "root ::= root"}, {"guided_regex": "("},
                     {"guided_choice": ["ab"], "min_tokens": 5}):
            answer = httpx.post(self.url + "/v1/completions",
                                json={"prompt": "x", "max_tokens": 9, **more}, timeout=600)
            assert answer.status_code == 400, (more, answer.text)


if __name__ == "__main__":
    sys.exit(run_checks(Checks, __doc__))

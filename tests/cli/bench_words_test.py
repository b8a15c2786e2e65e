#!/usr/bin/env python3
"""Runs every fenced command of docs/benchmarks.md, in its order, on Pebble: each must end with 0.

`nibble serve` lines run in the background; ports of the page stand for free ones.
"""
import argparse
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/serve"))
from running_server import RunningServer  # noqa: E402

PAGE = ROOT / "docs/benchmarks.md"
PORTS = ("8000", "8001")


def commands():
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    return [line for line in lines if not line.startswith("nibble serve")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nibble", required=True)
    parser.add_argument("--model", required=True)
    options = parser.parse_args()
    nibble, model = os.path.abspath(options.nibble), os.path.abspath(options.model)
    failed = 0
    lines = commands()
    assert len(lines) >= 8, lines
    with tempfile.TemporaryDirectory() as work, RunningServer(nibble, model) as first, \
            RunningServer(nibble, model) as second:
        for line in lines:
            for port, server in zip(PORTS, (first, second)):
                line = line.replace(f"http://127.0.0.1:{port}", server.url)
            words = [model if word == "pebble/model"
                     else str(ROOT / word) if word.startswith("pebble/") else word
                     for word in shlex.split(line)]
            if words[1:3] == ["bench", "serve"]:  # a busy machine of tests is not the question
                words += ["--late-ms", "2000"]
            done = subprocess.run([nibble, *words[1:]], cwd=work, text=True, capture_output=True,
                                  timeout=300)
            good = done.returncode == 0 and done.stdout
            failed += not good
            print(("ok    " if good else "FAIL  ") + line)
            if not good:
                print(done.stdout, done.stderr)
        for name in ("load.json", "load.md", "load.html", "runs/summary.json"):
            failed += not (pathlib.Path(work) / name).is_file()
    print(f"{len(lines) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

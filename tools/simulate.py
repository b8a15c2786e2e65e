#!/usr/bin/env python3
"""Runs many lives of nibble_engine_simulation, stops and goes on. Needs the built program.

tools/simulate.py [--program FILE] [--seeds N] [--first N] [--threads N] [--state FILE]

Seeds run in groups. After each group the next seed and the counts go to the state file, and the
same command goes on from there. At the first failure its seed and the commit are printed; exit
code 1.
"""

import argparse
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
COUNT_LINE = re.compile(r"(.+) (\d+)$")


def commit():
    """The commit of the checkout, with a word if files differ from it."""
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True,
                              check=False)
    head = git("rev-parse", "HEAD")
    if head.returncode != 0:
        return "unknown (no checkout)"
    changed = git("diff", "HEAD", "--quiet").returncode != 0
    return head.stdout.strip() + (" with changes" if changed else "")


def read_state(file, begin):
    """The state to go on with: `begin` where there is none."""
    if not file.exists():
        return begin
    state = json.loads(file.read_text())
    for key in ("program", "first", "steps"):
        if state[key] != begin[key]:
            sys.exit(f"simulate: expected {file} to be of a run with {key} {begin[key]}, found "
                     f"{state[key]}; remove it, or give another --state")
    return state


def write_state(file, state):
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(file.name + ".new")
    beside.write_text(json.dumps(state, indent=1) + "\n")
    beside.replace(file)


def run_group(program, state, seeds, threads):
    """Adds the counts of the next seeds to the state. Returns what failed, or nothing."""
    done = subprocess.run(
        [program, "--first", str(state["next"]), "--seeds", str(seeds), "--steps",
         str(state["steps"]), "--threads", str(threads), *state["words"]],
        capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
    for line in done.stdout.splitlines():
        name, count = COUNT_LINE.match(line).groups()
        state["counts"][name] = state["counts"].get(name, 0) + int(count)
    state["next"] += seeds
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path,
                        default=ROOT / "build/dev/src/engine/nibble_engine_simulation")
    parser.add_argument("--seeds", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--group", type=int, default=2000, help="seeds between two states")
    parser.add_argument("--state", type=pathlib.Path, default=ROOT / "build/simulation.json")
    arguments = parser.parse_args()
    if not arguments.program.is_file():
        sys.exit(f"simulate: expected the built simulation, found no {arguments.program}; build it "
                 "with `cmake --preset dev && cmake --build build/dev --target "
                 "nibble_engine_simulation`")
    digest = hashlib.sha256(arguments.program.read_bytes()).hexdigest()
    # Counts are too small in a short group to say that something is rare.
    state = read_state(arguments.state, {
        "program": digest, "first": arguments.first, "next": arguments.first,
        "steps": arguments.steps, "words": ["--minimum"] if arguments.group >= 1000 else [],
        "seconds": 0.0, "counts": {}})
    end = arguments.first + arguments.seeds
    while state["next"] < end:
        begin = time.monotonic()
        failed = run_group(arguments.program, state, min(arguments.group, end - state["next"]),
                           arguments.threads)
        if failed:
            print(f"{failed}\ncommit {commit()}\nprogram {digest}", file=sys.stderr)
            return 1
        state["seconds"] = round(state["seconds"] + time.monotonic() - begin, 1)
        write_state(arguments.state, state)
        print(f"{state['next'] - arguments.first} of {arguments.seeds} seeds, "
              f"{state['seconds']:.0f} s", flush=True)
    print("\n".join(f"{name} {count}" for name, count in state["counts"].items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

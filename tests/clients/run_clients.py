#!/usr/bin/env python3
"""Runs each NAME_client.py of this folder against a running server, with the packages of NAME.txt:

    tests/clients/run_clients.py --nibble PROGRAM --model pebble/model [--only NAME]

Every client has an environment of its own under build/clients, made once for each content of
NAME.txt. A client that cannot be installed is counted as skipped if skipped.txt names it, else as
failed; a client that skipped.txt names and that can be installed has failed too. vLLM's client runs
in the environment in which ./test --full loads checkpoints with vLLM.
"""
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "serve"))
from running_server import RunningServer, options_of  # noqa: E402

TIME_LIMIT_S = 300  # of one client


def environment(venvs, requirements):
    """(The environment's Python, None), or (None, why there is none)."""
    name = requirements.stem
    folder = venvs / f"{name}-{hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]}"
    python = folder / "bin" / "python"
    if (folder / "installed").exists():
        return python, None
    for old in venvs.glob(f"{name}-*"):
        if re.fullmatch(name + "-[0-9a-f]{12}", old.name):
            shutil.rmtree(old)
    begin = time.monotonic()
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    made = subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                           "-r", requirements], text=True, capture_output=True)
    if made.returncode != 0:
        return None, (made.stderr.strip().splitlines() or ["pip says nothing"])[-1]
    (folder / "installed").touch()
    print(f"      {name} installed in {time.monotonic() - begin:.0f} s", flush=True)
    return python, None


def known_skips():
    lines = (HERE / "skipped.txt").read_text().splitlines()
    return {line.split(":")[0] for line in lines if line and not line.startswith("#")}


def run_client(python, name, url, model):
    """True if all checks of the client passed."""
    try:
        done = subprocess.run([python, HERE / f"{name}_client.py", url, model], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=TIME_LIMIT_S)
    except subprocess.TimeoutExpired as late:
        print(f"{(late.output or b'').decode(errors='replace')}no end after {TIME_LIMIT_S} s")
        return False
    checks = re.findall(r"^ok    .*$", done.stdout, re.M)
    if done.returncode != 0 or len(checks) < 3:  # a tool loop, a structured answer, a stream
        print(done.stdout)
        return False
    for check in checks:
        print("      " + check[6:])
    return True


def python_of(name, venvs, vllm):
    """As environment()."""
    if name != "vllm":
        return environment(venvs, HERE / f"{name}.txt")
    return (vllm, None) if vllm.exists() else (None, f"{vllm} is missing")


def main():
    options = options_of(__doc__, venvs="build/clients",
                         vllm="build/venv-vllm-0.32.0/bin/python")
    venvs, vllm = pathlib.Path(options.venvs).absolute(), pathlib.Path(options.vllm).absolute()
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    model = str(pathlib.Path(options.model).absolute())
    skips = known_skips()
    names = sorted(path.name.removesuffix("_client.py") for path in HERE.glob("*_client.py"))
    with RunningServer(options.nibble, options.model) as server:
        for name in [name for name in names if options.only in name]:
            begin = time.monotonic()
            python, missing = python_of(name, venvs, vllm)
            if missing:
                result, why = ("skipped" if name in skips else "failed"), f": {missing}"
            elif name in skips:
                result, why = "failed", ": it can be installed; take it out of skipped.txt"
            else:
                result = "passed" if run_client(python, name, server.url, model) else "failed"
                why = ""
            counts[result] += 1
            word = {"passed": "ok  ", "failed": "FAIL", "skipped": "skip"}[result]
            print(f"{word}  {name} ({time.monotonic() - begin:.1f} s){why}", flush=True)
        code = server.stop()
        if code != 0:
            counts["failed"] += 1
            print(f"FAIL  the server left with {code}:\n" + "".join(server.log[-40:]))
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())

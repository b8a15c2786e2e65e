#!/usr/bin/env python3
"""The load shapes that others publish, against `nibble serve`: so many clients, each with one
request after another of so many prompt and output tokens. Prints a table, one row a step.

The client is `nibble bench serve`; this script starts the server and puts the rows together. A step
begins with all clients at once and ends after --seconds and once --lengths requests per client are
complete; what runs then is stopped and counts in the rates alone, by the counts that the server
sends with each event. Prompts are random ids, different ones, so no cache helps; sampling is what
Qwen recommends. --long adds a 60K, a 120K and a 200K prompt, one after the other, beside 30
clients. With --once each client sends a single request, all at the same moment, and the step ends
with the last of them; the column "all generate" is then the rate from the last first token to the
first end. Needs only Python.

    C=tests/golden/configs/qwen3.6-35b-a3b.json
    load_shapes.py --config $C --flags "--load-format dummy:mixed"

--config makes a folder for random weights: that config.json, and Pebble's tokenizer filled up with
made-up words to as many as the model has.
"""
import argparse
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tests", "serve"))
from running_server import RunningServer  # noqa: E402

SHAPES = ["25x30000x2000"] + [f"{clients}x15000x1500" for clients in (30, 40, 50, 60, 64)]
LONG = "60000,120000,200000"
SAMPLING = {"temperature": 1, "top_k": 20, "top_p": 0.95}


def bench(url, shape, options, *more):
    """One round of `nibble bench serve` as vLLM's keys; stopped as Ctrl-C does after --limit."""
    clients, prompt, tokens = shape
    options.seed += 1  # no step may find the prompts of another in the server's cache
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "report.json"
        command = [options.nibble, "bench", "serve", url, "--concurrency", str(clients),
                   "--random-input-len", str(prompt), "--random-output-len", str(tokens),
                   "--random-ids", f"{options.ids[0]}:{options.ids[1]}", "--seed",
                   str(options.seed), "--rounds", "1", "--num-warmups", "0", "--timeout", "900",
                   "--extra-body", json.dumps({**SAMPLING, **options.body}), "--json", str(path),
                   *map(str, more)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True)
        try:
            _, log = process.communicate(timeout=options.limit)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            _, log = process.communicate()
            print(f"  cut after {options.limit:.0f} s")
        if not path.exists():
            raise RuntimeError(log)
        return json.loads(path.read_text())["runs"][0]


def three(run, name, scale, digits):
    return " / ".join(f"{run[f'p{p}_{name}_ms'] / scale:.{digits}f}" for p in (50, 95, 99))


def rate(run, name):
    """With what was stopped, where something was."""
    return run[f"{name}_with_stopped"] or run[name]


def row(shape, run, once):
    clients, prompt, tokens = shape
    all_generate = run["busy_output_throughput"] or float("nan")
    each = 1e3 / run["median_tpot_ms"] if run["median_tpot_ms"] else float("nan")
    print(f"| {clients} x ({prompt} in, {tokens} out) | {run['duration']:.0f} | "
          f"{run['completed']} | {three(run, 'e2el', 1e3, 1)} | {three(run, 'ttft', 1e3, 2)} | "
          f"{run['p99_itl_ms']:.0f} | {rate(run, 'output_throughput'):.0f} | "
          f"{rate(run, 'total_token_throughput'):.0f} | " +
          (f"{all_generate:.0f} | " if once else "") + f"{each:.1f} | {run['failed']} |",
          flush=True)
    show_errors(run)
    return run["failed"]


def show_errors(run):
    if run["invalid"]:
        print(f"  not a measurement: {run['invalid']}", flush=True)
    for error in sorted({e for e in run["errors"] if e and e != "stopped"})[:3]:
        print(f"  error: {error[:300]}", flush=True)


def step(url, text, options):
    shape = tuple(map(int, text.split("x")))
    if options.once:
        return row(shape, bench(url, shape, options, "--num-prompts", shape[0]), True)
    requests = max(1, round(options.lengths * shape[0]))
    return row(shape, bench(url, shape, options, "--num-prompts", requests, "--duration",
                            options.seconds), False)


def long_prompts(url, options):
    """Seconds to the first token of each long prompt beside 30 clients."""
    run = bench(url, (30, 15000, 1500), options, "--num-prompts", 1, "--duration", 1,
                "--outliers", LONG, "--outlier-after", options.warm_up)
    for each in run["outliers"]:
        came = each["ttft_ms"]
        print(f"{each['input_tokens']} tokens beside 30 clients: " + (
            f"first token after {came / 1e3:.1f} s" if came is not None else each["error"]),
            flush=True)
    show_errors(run)
    return run["failed"]


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
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"),
                        help="of the prompts; default: a new one each time")
    options = parser.parse_args()
    if options.url:
        return run(options.url, options)
    with tempfile.TemporaryDirectory() as folder:
        if options.config:
            dummy_folder(options.config, pathlib.Path(folder))
        return serve_and_run(options.model or folder, options)


def serve_and_run(model, options):
    with RunningServer(options.nibble, model, shlex.split(options.flags)) as server:
        code = run(server.url, options)
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

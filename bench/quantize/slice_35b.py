#!/usr/bin/env python3
"""Times `nibble quantize` on slices of a 35B: slice_35b.py NIBBLE WORK [--layers 4,8] [--runs ...].

Two BF16 checkpoints of the 35B's shapes but few layers, random weights and Pebble's tokenizer, are
written and quantized, without data and calibrated with 512 x 2048 random token ids (--samples).
What both slices share (embedding, head, start) and what a layer takes give the time of 40 layers;
the floor is the time in which this machine reads the source and writes the output with plain
copies. Files are dropped from the page cache before each run where that is allowed.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYERS = 40
SAMPLES, LENGTH, IDS = 512, 2048, 1900  # ids that Pebble's tokenizer knows


def drop_cache():
    subprocess.run(["sync"], check=True)
    try:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError:
        return False
    return True


def synthesize(nibble, work, layers):
    model = work / f"slice{layers}"
    config = json.loads((ROOT / "tests/golden/configs/qwen3.6-35b-a3b.json").read_text())
    config["text_config"]["num_hidden_layers"] = layers
    config["text_config"].pop("layer_types", None)
    path = work / f"slice{layers}.json"
    path.write_text(json.dumps(config))
    begin = time.time()
    subprocess.run([nibble, "synth", path, model, "--layout", "bf16"], check=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(ROOT / "pebble/model" / name, model / name)
    print(f"synth of {layers} layers: {time.time() - begin:.1f} s", flush=True)
    return model


def write_ids(path):
    draw = random.Random(1)
    with path.open("w") as out:
        for _ in range(SAMPLES):
            ids = [draw.randrange(IDS) for _ in range(LENGTH)]
            out.write(json.dumps({"ids": ids}, separators=(",", ":")) + "\n")


def size(folder):
    return sum(f.stat().st_size for f in folder.iterdir())


def copy_floor(source, output, scratch):
    """Seconds to read the source's bytes, cold, and to write the output's bytes to the disk."""
    cold = drop_cache()
    begin = time.time()
    files = sorted(source.glob("*.safetensors"))
    readers = [subprocess.Popen(["dd", f"if={f}", "of=/dev/null", "bs=8M"],
                                stderr=subprocess.DEVNULL) for f in files]
    for reader in readers:
        reader.wait()
    read = time.time() - begin
    count = size(output) // (8 << 20)
    begin = time.time()
    subprocess.run(["dd", "if=/dev/zero", f"of={scratch}", "bs=8M", f"count={count}",
                    "conv=fsync"], stderr=subprocess.DEVNULL, check=True)
    write = time.time() - begin
    scratch.unlink()
    return cold, read, write


def quantize(nibble, model, output, words):
    """Seconds of the work itself, and of the whole command with start and verification."""
    shutil.rmtree(output, ignore_errors=True)
    drop_cache()
    begin = time.time()
    command = [str(x) for x in (nibble, "quantize", model, output, "--no-progress", *words)]
    done = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    errors = done.stderr.read()
    _, status, usage = os.wait4(done.pid, 0)
    wall = time.time() - begin
    if status != 0:
        raise SystemExit(errors[-2000:])
    lines = [x for x in errors.splitlines()
             if any(y in x for y in ("quantized in", "calibrat"))]
    lines.append(f"peak memory of the host {usage.ru_maxrss / 1e6:.2f} GB, CPU time "
                 f"{usage.ru_utime:.0f} s + {usage.ru_stime:.0f} s in the system")
    print("\n".join(lines), flush=True)
    at = [x for x in lines if x.startswith("quantized in")][0]
    return float(at.split()[2]), wall


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nibble", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--layers", default="4,8")
    parser.add_argument("--runs", default="search,blocks", help="algorithms; search is data-free; "
                        "gptq+fisher weighs tokens")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    ids = given.work / "ids.jsonl"
    write_ids(ids)
    counts = [int(x) for x in given.layers.split(",")]
    models = {n: synthesize(given.nibble, given.work, n) for n in counts}
    for run in given.runs.split(","):
        algorithm, _, weights = run.partition("+")
        words = ["--algorithm", algorithm]
        if weights:
            words += ["--second-moments", weights]
        if run != "search":
            words += ["--calib", ids, "--calib-samples", given.samples, "--calib-length", LENGTH,
                      "--backend", given.backend]
        seconds = {}
        for n, model in models.items():
            output = given.work / "out"
            seconds[n], wall = quantize(given.nibble, model, output, words)
            print(f"{run}, {n} layers: {size(model) / 1e9:.1f} -> {size(output) / 1e9:.1f} GB in "
                  f"{seconds[n]:.2f} s, {wall:.2f} s with start and verification", flush=True)
            if run == "search":
                cold, read, write = copy_floor(model, output, given.work / "zeros")
                print(f"  floor: read {read:.2f} s{'' if cold else ' (page cache)'}, "
                      f"write {write:.2f} s", flush=True)
        if len(counts) == 2:
            few, many = counts
            layer = (seconds[many] - seconds[few]) / (many - few)
            print(f"{run}: {layer:.2f} s a layer; {LAYERS} layers by extrapolation "
                  f"{seconds[few] + layer * (LAYERS - few):.0f} s", flush=True)


if __name__ == "__main__":
    main()

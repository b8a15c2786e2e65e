#!/usr/bin/env python3
"""Times generation with each format of the output head: recorded passes of the 35B's shape in
`mixed` on random weights, with the head in NVFP4, FP8 (a scale for each row, or for each 128 x 128
block) or BF16 and all else the same. The formats take turns, --rounds times; prints the median pass
of each batch and its ratio to NVFP4. Needs only Python, a card that nobody else uses, and
cuda_decode_bench.

    head_formats.py --bench build/cuda/bench/cuda/cuda_decode_bench
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile

CONFIG = "tests/golden/configs/qwen3.6-35b-a3b.json"
# Words of cuda_decode_bench; two of the heads have no layout, so a config.json declares the model.
HEADS = {"nvfp4": "mixed-nvfp4-head", "fp8": "mixed", "fp8 128x128": "declared", "bf16": "declared"}
FOUR = [r"re:.*\.mlp\.(?:shared_expert\.|experts\.\d+\.)?(?:gate|up|down)_proj$"]
EIGHT = [r"re:.*\.self_attn\.[qkvo]_proj$",
         r"re:.*\.linear_attn\.(?:in_proj_qkv|in_proj_z|out_proj)$"]


def group(targets, bits, **strategy):
    weights = {"num_bits": bits, "type": "float", "symmetric": True, "dynamic": False, **strategy}
    return {"targets": targets, "weights": weights}


def declared(config, head):
    groups = {"group_4": group(FOUR, 4, strategy="tensor_group", group_size=16),
              "group_8": group(EIGHT, 8, strategy="tensor")}
    if head == "fp8 128x128":
        groups["group_head"] = group(["lm_head"], 8, strategy="block", block_structure=[128, 128])
    return config | {"quantization_config": {
        "quant_method": "compressed-tensors", "format": "mixed-precision",
        "quantization_status": "compressed", "config_groups": groups,
        "ignore": ["lm_head"] if head == "bf16" else []}}


def passes(options, path, layout):
    """Microseconds of a recorded pass by batch."""
    command = [options.bench, str(path), layout, str(options.context), str(options.steps),
               options.batches, "0", "0"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    found = {int(batch): float(us) for batch, us in
             re.findall(r"^batch +(\d+): +([\d.]+) us \(", done.stdout, re.M)}
    if not found:
        raise SystemExit(f"no pass in the output of {' '.join(command)}:\n{done.stdout}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default="build/cuda/bench/cuda/cuda_decode_bench")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--batches", default="1,8,32,64")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    config = json.loads(pathlib.Path(CONFIG).read_text())
    times = {head: {} for head in HEADS}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "config.json"
        for _ in range(options.rounds):
            for head, layout in HEADS.items():
                path.write_text(json.dumps(declared(config, head)))
                for batch, us in passes(options, path, layout).items():
                    times[head].setdefault(batch, []).append(us)
    print("| head | batch | us a pass | tokens/s | to NVFP4 |\n|---|---|---|---|---|")
    for batch in map(int, options.batches.split(",")):
        base = statistics.median(times["nvfp4"][batch])
        for head in HEADS:
            us = statistics.median(times[head][batch])
            print(f"| {head} | {batch} | {us:.0f} | {1e6 * batch / us:,.0f} | {us / base:.3f} |")


if __name__ == "__main__":
    main()

"""Writes an untrained Pebble (random weights, final shapes) into a folder."""

import argparse
from pathlib import Path

import config
import small_files
import weights

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--template", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", choices=list(config.SIZES), default="pebble")
    args = parser.parse_args()
    small_files.write_files(args.model_dir, args.template, args.size)
    made = weights.fresh(args.seed, config.text_config(args.size))
    weights.save(made, args.model_dir)
    count = sum(weight.numel() for weight in made.values())
    print(f"{count:,} parameters, {2 * count:,} bytes as BF16")

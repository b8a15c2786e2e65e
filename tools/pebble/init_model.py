"""Writes an untrained Pebble (random weights, final shapes) into a folder."""

import argparse
import math
from pathlib import Path

import config
import weights

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--template", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    config.write_files(args.model_dir, args.template)
    weights.save(weights.fresh(args.seed), args.model_dir)
    count = sum(math.prod(shape) for shape in weights.all_shapes().values())
    print(f"{count:,} parameters, {2 * count:,} bytes as BF16")

#!/usr/bin/env python3
"""Writes tests/golden/kv/scales.json: lines of keys and values as FP8 pages keep them by a scale.

A page keeps E4M3(number / scale), and attention reads that times the scale, as vLLM does with the
k_scale and v_scale of a checkpoint. E4M3 comes from a table of its 127 numbers here: the nearest,
of two that are equally near the one whose code is even, and the largest for all beyond it.
"""
import json
import pathlib

import numpy as np

TABLE = np.array([(code % 8) * 2.0 ** -9 if code < 8 else
                  (1 + (code % 8) / 8) * 2.0 ** (code // 8 - 7) for code in range(127)])


def e4m3(numbers):
    """The nearest numbers of the format, [n] of F32."""
    sizes = np.abs(numbers.astype(np.float64))
    above = np.clip(np.searchsorted(TABLE, sizes), 1, 126)
    below = above - 1
    up = TABLE[above] - sizes
    down = sizes - TABLE[below]
    code = np.where(up < down, above, np.where(down < up, below, np.where(above % 2 == 0, above,
                                                                          below)))
    return np.copysign(TABLE[code], numbers).astype(np.float32)


def main():
    random = np.random.default_rng(5)
    lines = []
    for scale in (1.0, 0.5, 0.0371, 0.0009, 3.7):
        scale = np.float32(scale)
        line = (random.standard_normal(32) * 40 * scale).astype(np.float32)
        line[:4] = [0.0, 448.0 * scale, -1000.0 * scale, 2.0 ** -10 * scale]
        kept = e4m3(line / scale) * scale
        lines.append({"scale": float(scale), "line": [float(x) for x in line],
                      "kept": [float(x) for x in kept]})
    path = pathlib.Path(__file__).parents[2] / "tests/golden/kv/scales.json"
    path.write_text(json.dumps({"lines": lines}) + "\n")


if __name__ == "__main__":
    main()

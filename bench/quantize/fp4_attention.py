#!/usr/bin/env python3
"""The error of attention in 4 bits, on random numbers: fp4_attention.py > table.

Keys and values in NVFP4, as pages keep them; then queries too, and the probabilities of a row (its
largest is 1), as products of 4-bit codes on both sides would need them. The figure is the relative
rms error of the output against exact numbers, of 16 rows of head size 256. `deviation` is that of
the logits. Needs numpy alone.
"""

import sys

import numpy as np

SIZES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
LARGEST = 448 * 6  # of codes under their scales
HEAD, ROWS = 256, 16


def e4m3(x):
    step = 2.0 ** (np.floor(np.log2(np.clip(x, 2.0 ** -6, 448))) - 3)
    return np.round(np.clip(x, 0, 448) / step) * step


def nvfp4(x, largest):
    """x by way of E2M1 codes under scales of 16 columns; the global scale fits `largest`."""
    blocks, g = x.reshape(-1, 16), LARGEST / largest
    scales = e4m3(g * np.abs(blocks).max(1, keepdims=True) / 6)
    scales = np.where(scales == 0, 0.125, scales) / g
    codes = np.abs((np.abs(blocks) / scales)[..., None] - SIZES).argmin(-1)
    return (np.sign(blocks) * SIZES[codes] * scales).reshape(x.shape)


def attention(q, k, v, deviation, rounded):
    logits = q @ k.T * deviation / np.sqrt(HEAD)
    p = np.exp(logits - logits.max(1, keepdims=True))
    return (nvfp4(p, 1.0) if rounded else p) @ v / p.sum(1, keepdims=True)


def errors(keys, deviation):
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal((n, HEAD)) for n in (ROWS, keys, keys))
    q4, k4 = (nvfp4(x, np.abs(x).max()) for x in (q, k))
    v4 = nvfp4(np.ascontiguousarray(v.T), np.abs(v).max()).T  # groups along the keys
    exact = attention(q, k, v, deviation, False)
    for query, rounded in ((q, False), (q, True), (q4, False), (q4, True)):
        found = attention(query, k4, v4, deviation, rounded)
        yield np.sqrt(((found - exact) ** 2).mean() / (exact ** 2).mean())


def main():
    print("| keys | deviation | pages | and P | and Q | and both |\n" + "|---" * 6 + "|")
    for keys in (2048, 16384):
        for deviation in (1, 2, 4):
            cells = " | ".join(f"{error:.3f}" for error in errors(keys, deviation))
            print(f"| {keys:,} | {deviation} | {cells} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())

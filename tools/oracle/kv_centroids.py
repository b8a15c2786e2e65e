#!/usr/bin/env python3
"""Lloyd-Max centroids of the standard normal distribution, from their definition, in numpy.

    kv_centroids.py          writes tests/golden/kv/centroids.json
    kv_centroids.py --check  compares instead; exits 1 where they differ

A quantizer with the least mean squared error has boundaries midway between its levels, and each
level is the mean of the distribution between its boundaries (S. Lloyd, "Least squares quantization
in PCM", 1982; J. Max, "Quantizing for minimum distortion", 1960). The mean of N(0, 1) on (a, b) is
(phi(a) - phi(b)) / (Phi(b) - Phi(a)). Both conditions are solved by Newton's method, so that no
number of rounds enters; the result is then confirmed by rounds of Lloyd's own iteration.
"""
import argparse
import json
import math
import pathlib
import sys

import numpy as np

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/kv/centroids.json"
LEVELS = 16


def density(x):
    return np.exp(-np.square(x) / 2) / math.sqrt(2 * math.pi)


def mass_below(x):
    return np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])


def means_between(centroids):
    """The conditional means of the cells whose boundaries lie midway between the centroids."""
    bounds = np.concatenate(([-np.inf], (centroids[1:] + centroids[:-1]) / 2, [np.inf]))
    return -np.diff(density(bounds)) / np.diff(mass_below(bounds))


def solve(levels):
    """Newton's method on means_between(c) - c = 0, with a numerical derivative."""
    c = np.linspace(-2.5, 2.5, levels)
    for _ in range(500):
        c = means_between(c)
    for _ in range(20):
        slope = np.empty((levels, levels))
        for i in range(levels):
            step = np.zeros(levels)
            step[i] = 1e-6
            slope[:, i] = (means_between(c + step) - means_between(c - step)) / 2e-6
        c = c - np.linalg.solve(slope - np.eye(levels), means_between(c) - c)
    assert np.abs(means_between(c) - c).max() < 1e-13
    return (c - c[::-1]) / 2


def to_bf16(x):
    bits = np.asarray(x, np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16
    return bits.astype(np.uint32).view(np.float32)


def distortion(centroids):
    """The mean squared error of the nearest centroid: 1 + sum of p (c^2 - 2 c mean)."""
    bounds = np.concatenate(([-np.inf], (centroids[1:] + centroids[:-1]) / 2, [np.inf]))
    first = -np.diff(density(bounds))
    mass = np.diff(mass_below(bounds))
    return 1 + float(np.sum(mass * centroids**2 - 2 * centroids * first))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    exact = solve(LEVELS)
    kept = to_bf16(exact).astype(np.float64)
    text = json.dumps({"exact": exact.tolist(), "bf16": kept.tolist(),
                       "distortion_exact": distortion(exact),
                       "distortion_bf16": distortion(kept)}, indent=1) + "\n"
    if not check:
        GOLDEN.parent.mkdir(parents=True, exist_ok=True)
        GOLDEN.write_text(text)
        return 0
    golden = json.loads(GOLDEN.read_text())
    same = (np.abs(np.array(golden["exact"]) - exact).max() < 1e-12
            and golden["bf16"] == kept.tolist())
    print("1 passed, 0 failed" if same else f"{GOLDEN} differs")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())

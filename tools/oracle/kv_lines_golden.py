#!/usr/bin/env python3
"""Lines of the KV formats of 4 bits, by their definitions, in numpy: tests/golden/kv/lines.json.

The rotation is a product with the explicit Sylvester matrix, sums are in F64, E4M3 and E2M1 are
searched in lists of all their numbers. Nothing here follows the program's own order of steps, so
lines in which a number lies within 1e-4 of a rounding boundary are drawn anew.
"""
import json
import pathlib

import numpy as np

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/kv"
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E4M3 = np.array([(m / 8 if e == 0 else 1 + m / 8) * 2.0 ** (max(e, 1) - 7)
                 for e in range(16) for m in range(8)][:127])
CENTROIDS = np.array(json.loads((GOLDEN / "centroids.json").read_text())["bf16"])


class TooClose(Exception):
    pass


def nearest(values, x):
    """The index of the nearest of ascending values, which must not be nearly two."""
    distance = np.abs(values - x)
    order = np.argsort(distance)
    if distance[order[1]] - distance[order[0]] < 1e-4 * (values[1] - values[0]):
        raise TooClose
    return int(order[0])


def pack(codes):
    codes = np.array(codes, np.uint8)
    return bytes(codes[::2] | codes[1::2] << 4).hex()


def sylvester(size):
    h = np.ones((1, 1))
    while len(h) < size:
        h = np.block([[h, h], [h, -h]])
    return h / np.sqrt(size)


def f16(x):
    return np.float16(np.clip(x, -65504, 65504))


def turboquant_key(line):
    """The unit vector, rotated, has coordinates near N(0, 1 / size)."""
    norm = np.linalg.norm(line)
    unit = line / norm if norm > 0 else np.zeros_like(line)
    turned = unit @ sylvester(len(line)) * np.sqrt(len(line))
    codes = [7 if norm == 0 else nearest(CENTROIDS, x) for x in turned]
    vector = CENTROIDS[codes]
    factor = f16(norm / np.linalg.norm(vector))
    return pack(codes), factor.tobytes().hex(), vector * np.float64(factor)


def uniform_value(line):
    step, least = f16((line.max() - line.min()) / 15), f16(line.min())
    wanted = (line - np.float64(least)) / np.float64(step) if step > 0 else np.zeros_like(line)
    if np.any(np.abs(wanted % 1 - 0.5) < 1e-4):
        raise TooClose
    codes = np.clip(np.rint(wanted), 0, 15).astype(int)
    read = np.float64(step) * codes + np.float64(least)
    return pack(codes), (step.tobytes() + least.tobytes()).hex(), read


def nvfp4(line):
    codes, scales, read = [], [], []
    for group in line.reshape(-1, 16):
        scale = nearest(E4M3, min(np.abs(group).max() / 6, 448))
        scales.append(scale)
        for x in group:
            small = E4M3[scale] == 0
            code = 0 if small else nearest(E2M1, min(abs(x) / E4M3[scale], 6))
            negative = not small and np.signbit(x)
            codes.append(code | (8 if negative else 0))
            read.append((-1 if negative else 1) * E2M1[code] * E4M3[scale])
    return pack(codes), bytes(scales).hex(), np.array(read)


def lines(random, size):
    yield "normal", random.normal(0, 1, size)
    yield "small", random.normal(0, 2e-3, size)
    large = random.normal(0, 1, size)
    large[3] *= 300
    yield "one outlier", large
    yield "beyond the range", random.normal(0, 1, size) * 3e3
    yield "shifted", random.normal(5, 1, size)
    yield "zero", np.zeros(size)


def main():
    random = np.random.default_rng(21)
    out = []
    for size in (16, 64):
        for name in [name for name, _ in lines(random, size)]:
            while True:
                line = dict(lines(random, size))[name].astype(np.float32).astype(np.float64)
                try:
                    made = {"turboquant key": turboquant_key(line),
                            "turboquant value": uniform_value(line), "nvfp4": nvfp4(line)}
                    break
                except TooClose:
                    continue
            out.append({"name": f"{name}, {size}", "line": [float(np.float32(x)) for x in line],
                        **{kind: {"codes": codes, "scales": scales,
                                  "read": [float(np.float32(x)) for x in read]}
                           for kind, (codes, scales, read) in made.items()}})
    (GOLDEN / "lines.json").write_text(
        "[" + ",\n".join(json.dumps(entry) for entry in out) + "]\n")


if __name__ == "__main__":
    main()

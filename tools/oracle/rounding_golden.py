"""Writes tests/golden/rounding/rounding.safetensors: rounding with data, by numpy in doubles.

rounding_golden.py [--check]. Weights and inputs of one small linear, and what the textbook form of
GPTQ (arXiv 2210.17323: the inverse of what is left is computed anew for every column) makes of them
in FP8 and in NVFP4, and what coordinate descent then makes of the latter. A loss is e^T H e of a
row of errors, with H the damped second moment of the inputs over its mean. With --check the file
is compared instead. Read by src/quantize/rounding/rounding_golden_test.cc.
"""

import json
import pathlib
import struct
import sys

import numpy as np

FILE = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/rounding/rounding.safetensors"
ROWS, COLS, TOKENS, DAMPING = 16, 80, 320, 0.01
SWEEPS, SCALE_SWEEPS, MARGIN = 8, 2, 2.0 ** -8
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def e4m3_values():
    """The finite magnitudes, by code."""
    codes = np.arange(127)
    exponent, mantissa = codes >> 3, codes & 7
    return np.where(exponent == 0, mantissa * 2.0 ** -9, (8 + mantissa) * 2.0 ** (exponent - 10.0))


E4M3 = e4m3_values()


def to_bf16(values):
    """Cut to the 16 upper bits: the values need not be the nearest ones."""
    bits = np.ascontiguousarray(values, "<f4").view("<u4") & 0xFFFF0000
    return bits.view("<f4").astype(np.float64)


def draw():
    random = np.random.default_rng(11)
    weights = random.standard_t(5, (ROWS, COLS)) * 0.03
    common = random.standard_normal((TOKENS, 6)) @ random.standard_normal((6, COLS))
    inputs = (0.7 * random.standard_normal((TOKENS, COLS)) + 0.4 * common)
    inputs *= np.exp(1.2 * random.standard_normal(COLS))
    inputs[:, 7] = 0
    return to_bf16(weights), to_bf16(inputs)


def nearest(grid, value):
    """The signed value of a grid of magnitudes that is nearest to `value`; of two the even code."""
    far = np.abs(grid - abs(value))
    code = int(far.argmin())
    if code % 2 == 1 and code + 1 < len(grid) and far[code + 1] == far[code]:
        code += 1
    return np.copysign(grid[code], value)


def ordered_moment(inputs):
    """H with its columns in the order of work, and that order."""
    second = inputs.T @ inputs
    second = second / np.diag(second).mean() + DAMPING * np.eye(COLS)
    blocks = np.argsort(-np.diag(second).reshape(-1, 16).sum(1), kind="stable")
    order = (blocks[:, None] * 16 + np.arange(16)).ravel()
    return second[np.ix_(order, order)], order


def textbook_factors(second):
    """Row j: how the error of column j, over its own element, goes to the columns from j on."""
    return [(inverse := np.linalg.inv(second[j:, j:]))[0] / np.sqrt(inverse[0, 0])
            for j in range(len(second))]


def gptq_row(row, factors, round_next):
    """One row; round_next(u, j) gives what the corrected weight u[j] becomes."""
    u, out = row.copy(), np.empty(len(row))
    for j in range(len(row)):
        out[j] = round_next(u, j)
        u[j:] -= (u[j] - out[j]) / factors[j][0] * factors[j]
    return out


def nearest_fp8(weight, scale):
    """The format's definition has the quotient in F32, where BF16 weights often fall on ties."""
    return nearest(E4M3, float(np.float32(weight) / np.float32(scale))) * scale


def gptq_fp8(row, factors, scale):
    return gptq_row(row, factors, lambda u, j: nearest_fp8(u[j], scale))


def searched_scale(block, costs):
    """The E4M3 scale of a block with the least weighted error."""
    errors = [costs @ (block - [nearest(E2M1, w / scale) * scale for w in block]) ** 2
              for scale in E4M3[1:]]
    return E4M3[1 + int(np.argmin(errors))]


def gptq_nvfp4(row, factors):
    """A row over its global scale, rounded, and its block scales."""
    scales = np.empty(COLS // 16)
    costs = np.array([1 / factor[0] ** 2 for factor in factors])

    def round_next(u, j):
        if j % 16 == 0:
            scales[j // 16] = searched_scale(u[j:j + 16], costs[j:j + 16])
        return nearest(E2M1, u[j] / scales[j // 16]) * scales[j // 16]

    return gptq_row(row, factors, round_next), scales


def is_gain(moment, gradient, delta):
    """Errors e + delta lose less than e, by more than the margin; gradient is H e."""
    cost = delta @ moment @ delta
    return -2 * delta @ gradient - cost > MARGIN * cost


def descend_scale(moment, gradient, values, scale):
    """A block of 16: GPTQ of its optimum under each near scale; the best, if it loses less."""
    target = values - np.linalg.solve(moment, gradient)
    factors = textbook_factors(moment)
    code = int(np.searchsorted(E4M3, scale))
    candidates = [(s, gptq_row(target, factors, lambda u, j, s=s: nearest(E2M1, u[j] / s) * s))
                  for s in E4M3[max(code - 8, 1):max(code - 8, 1) + 16]]
    scale_found, found = min(candidates, key=lambda c: loss(moment, c[1] - target))
    if is_gain(moment, gradient, found - values):
        return found, scale_found
    return values, scale


def descend(row, values, scales, second):
    """Blocks in turn, and in each its scale and then its codes, given all the others."""
    values, scales = values.copy(), scales.copy()
    for sweep in range(SWEEPS):
        before = values.copy()
        for b in range(0, COLS, 16):
            block = slice(b, b + 16)
            if sweep < SCALE_SWEEPS:
                values[block], scales[b // 16] = descend_scale(
                    second[block, block], (second @ (values - row))[block], values[block],
                    scales[b // 16])
            for j in range(b, b + 16):
                gradient = second[j] @ (values - row)
                optimum = (values[j] - gradient / second[j, j]) / scales[b // 16]
                delta = np.array([nearest(E2M1, optimum) * scales[b // 16] - values[j]])
                if is_gain(second[j:j + 1, j:j + 1], np.array([gradient]), delta):
                    values[j] += delta[0]
        if (values == before).all():
            break
    return values


def loss(second, errors):
    return float(errors @ second @ errors)


def golden():
    weights, inputs = draw()
    second, order = ordered_moment(inputs)
    factors = textbook_factors(second)
    scales8 = (np.abs(weights).max(1) / 448).astype("<f4")
    unit = 2.0 ** np.ceil(np.log2(np.abs(weights).max() / (3.5 * 448)))
    plain8, gptq8, gptq4, values8, descent4, values4 = [], [], [], [], [], []
    for row, scale in zip(weights[:, order], scales8.astype(np.float64)):
        plain8.append(loss(second, row - [nearest_fp8(w, scale) for w in row]))
        values8.append(gptq_fp8(row, factors, scale))
        gptq8.append(loss(second, row - values8[-1]))
        rounded, scales4 = gptq_nvfp4(row / unit, factors)
        gptq4.append(loss(second, row - rounded * unit))
        values4.append(descend(row / unit, rounded, scales4, second) * unit)
        descent4.append(loss(second, row - values4[-1]))
    in_file, in_file4 = np.empty((ROWS, COLS)), np.empty((ROWS, COLS))
    in_file[:, order], in_file4[:, order] = values8, values4
    return {"weights": weights.astype("<f4"), "inputs": inputs.astype("<f4"),
            "fp8/scales": scales8, "fp8/values": in_file.astype("<f4"),
            "fp8/plain_loss": np.array(plain8), "fp8/gptq_loss": np.array(gptq8),
            "nvfp4/unit": np.array([unit]), "nvfp4/gptq_loss": np.array(gptq4),
            "nvfp4/descent_values": in_file4.astype("<f4"),
            "nvfp4/descent_loss": np.array(descent4)}


def write(tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        raw = values.tobytes()
        header[name] = {"dtype": {4: "F32", 8: "F64"}[values.itemsize],
                        "shape": list(values.shape), "data_offsets": [len(data),
                                                                      len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    FILE.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read():
    raw = FILE.read_bytes()
    size, = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8:8 + size])
    return {name: np.frombuffer(raw[8 + size:], {"F32": "<f4", "F64": "<f8"}[entry["dtype"]],
                                int(np.prod(entry["shape"])), entry["data_offsets"][0])
            .reshape(entry["shape"]) for name, entry in header.items()}


def check(tensors):
    """Losses may differ in the last digits between versions of numpy; drawn values may not."""
    stored = read()
    wrong = [name for name, values in tensors.items()
             if name not in stored or not np.allclose(stored[name], values, rtol=1e-9, atol=0)]
    for name in wrong:
        print(f"FAIL  {name} is not what the script gives")
    print(f"{len(tensors) - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong else 0


def main():
    tensors = golden()
    if "--check" in sys.argv[1:]:
        sys.exit(check(tensors))
    write(tensors)
    for name in ("fp8/plain_loss", "fp8/gptq_loss", "nvfp4/gptq_loss",
                 "nvfp4/descent_loss"):
        print(f"{name:20} {tensors[name].sum():.4e}")


if __name__ == "__main__":
    main()

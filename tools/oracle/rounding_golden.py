"""Writes tests/golden/rounding/rounding.safetensors: rounding with data, by numpy in doubles.

rounding_golden.py [--check]. Weights and inputs of one small linear, and what the textbook form of
GPTQ (arXiv 2210.17323: the inverse of what is left is computed anew for every column) makes of them
in FP8 and in NVFP4. A loss is e^T H e of a row of errors, with H the damped second moment of the
inputs over its mean. With --check the file is compared instead. Read by
src/quantize/rounding/rounding_golden_test.cc.
"""

import json
import pathlib
import struct
import sys

import numpy as np

FILE = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/rounding/rounding.safetensors"
ROWS, COLS, TOKENS, DAMPING = 16, 80, 320, 0.01
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
            for j in range(COLS)]


def gptq_row(row, factors, round_next):
    """One row; round_next(u, j) gives what the corrected weight u[j] becomes."""
    u, out = row.copy(), np.empty(COLS)
    for j in range(COLS):
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
    """A row over its global scale, rounded."""
    scales = np.empty(COLS // 16)
    costs = np.array([1 / factor[0] ** 2 for factor in factors])

    def round_next(u, j):
        if j % 16 == 0:
            scales[j // 16] = searched_scale(u[j:j + 16], costs[j:j + 16])
        return nearest(E2M1, u[j] / scales[j // 16]) * scales[j // 16]

    return gptq_row(row, factors, round_next)


def loss(second, errors):
    return float(errors @ second @ errors)


def golden():
    weights, inputs = draw()
    second, order = ordered_moment(inputs)
    factors = textbook_factors(second)
    scales8 = (np.abs(weights).max(1) / 448).astype("<f4")
    unit = 2.0 ** np.ceil(np.log2(np.abs(weights).max() / (3.5 * 448)))
    plain8, gptq8, gptq4, values8 = [], [], [], []
    for row, scale in zip(weights[:, order], scales8.astype(np.float64)):
        plain8.append(loss(second, row - [nearest_fp8(w, scale) for w in row]))
        values8.append(gptq_fp8(row, factors, scale))
        gptq8.append(loss(second, row - values8[-1]))
        gptq4.append(loss(second, row - gptq_nvfp4(row / unit, factors) * unit))
    in_file = np.empty((ROWS, COLS))
    in_file[:, order] = values8
    return {"weights": weights.astype("<f4"), "inputs": inputs.astype("<f4"),
            "fp8/scales": scales8, "fp8/values": in_file.astype("<f4"),
            "fp8/plain_loss": np.array(plain8), "fp8/gptq_loss": np.array(gptq8),
            "nvfp4/unit": np.array([unit]), "nvfp4/gptq_loss": np.array(gptq4)}


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
    for name in ("fp8/plain_loss", "fp8/gptq_loss", "nvfp4/gptq_loss"):
        print(f"{name:20} {tensors[name].sum():.4e}")


if __name__ == "__main__":
    main()

"""Writes tests/golden/codec/: what compressed-tensors and torch compute, for the C++ unit tests.

Run again only to change a case: codec_golden.py [FOLDER]. The float format checksums are CRC-32 of
the little-endian results for inputs that src/tensor/float_formats_test.cc builds the same way.
"""

import json
import pathlib
import sys
import zlib

import compressed_tensors
import numpy
import torch
from safetensors.torch import save_file

import codec_cases

ROOT = pathlib.Path(__file__).resolve().parents[2]


def values_of(dtype, bits):
    codes = torch.arange(1 << bits, dtype=torch.int32)
    return codes.to(torch.uint8 if bits == 8 else torch.uint16).view(dtype).float()


def around(dtype, bits):
    """Every finite value, every midpoint of neighbours, and both float neighbours of each."""
    values = values_of(dtype, bits)
    values = values[torch.isfinite(values)].abs().unique().numpy()  # sorted
    middles = ((values[1:].astype("f8") + values[:-1].astype("f8")) / 2).astype("f4")
    points = numpy.sort(numpy.unique(numpy.concatenate([values, middles])))
    up = numpy.nextafter(points, numpy.float32(numpy.inf))
    down = numpy.nextafter(points, numpy.float32(0))
    magnitudes = numpy.concatenate([down, points, up])
    return torch.from_numpy(numpy.concatenate([magnitudes, -magnitudes]))


def scattered():
    """A million bit patterns of a linear congruential generator; NaN becomes 0."""
    state, patterns = 1, numpy.empty(1 << 20, dtype=numpy.uint32)
    for i in range(len(patterns)):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        patterns[i] = state
    floats = patterns.view(numpy.float32)
    return torch.from_numpy(numpy.where(numpy.isnan(floats), numpy.float32(0), floats))


def crc(tensor):
    return zlib.crc32(tensor.contiguous().view(torch.uint8).numpy().tobytes())


def decoded(dtype, bits):
    values = values_of(dtype, bits)
    return crc(torch.where(torch.isnan(values), torch.zeros(()), values))


def float_formats():
    random = scattered()
    out = {}
    for name, dtype, bits in (("f16", torch.float16, 16), ("bf16", torch.bfloat16, 16),
                              ("e4m3", torch.float8_e4m3fn, 8)):
        limit = (lambda x: x.clamp(-448, 448)) if bits == 8 else (lambda x: x)
        out[f"{name}_to_f32"] = decoded(dtype, bits)
        out[f"f32_to_{name}_around"] = crc(limit(around(dtype, bits)).to(dtype))
        out[f"f32_to_{name}_scattered"] = crc(limit(random).to(dtype))
    return out


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests/golden/codec"
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"torch": torch.__version__, "compressed_tensors": compressed_tensors.__version__,
             "crc32": float_formats()}
    (folder / "float_formats.json").write_text(json.dumps(facts, indent=1) + "\n")
    save_file(codec_cases.make(seed=1, rows=12, cols=64), folder / "compressed_tensors.safetensors")


if __name__ == "__main__":
    main()

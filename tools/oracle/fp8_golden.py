"""Writes tests/golden/codec/fp8_weights.safetensors: FP8 weights as compressed-tensors makes them.

fp8_golden.py [FILE]. Per case: values (BF16), scales and codes that the package's own
calculate_qparams and quantize give for them in F32: one scale per matrix, and one per 128 x 128
tile.
Read by src/quantize/rounding/fp8_round_test.cc.
"""

import pathlib
import sys

import torch
from compressed_tensors.quantization.lifecycle.forward import quantize
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import save_file

from codec_cases import E4M3, FP8_BLOCK, FP8_TENSOR

ROOT = pathlib.Path(__file__).resolve().parents[2]


def matrices():
    random = torch.Generator().manual_seed(5)
    plain = torch.randn(256, 128, generator=random) * 0.02
    wild = torch.randn(128, 256, generator=random)
    wild *= torch.logspace(-6, 2, 128)[:, None]
    wild[::7] = 0
    wild[3, ::2] *= -0.0
    # Neighbouring BF16 values: quotients fall on ties of E4M3 and beside them.
    ties = (1 + torch.arange(128) / 128).repeat(128, 1)
    ties *= torch.logspace(-9, 0, 128, base=2)[:, None]
    for name, values in (("plain", plain), ("wild", wild), ("ties", ties)):
        yield name, values.to(torch.bfloat16)


def main():
    out = {}
    for name, stored in matrices():
        values = stored.float()
        scale, zero = calculate_qparams(values.min()[None], values.max()[None], FP8_TENSOR)
        out |= {f"{name}/values": stored, f"{name}/tensor_scale": scale,
                f"{name}/tensor_codes": quantize(values, scale, zero, FP8_TENSOR, dtype=E4M3)}
        tiles = values.unflatten(0, (-1, 128)).unflatten(-1, (-1, 128))
        scales, zeros = calculate_qparams(tiles.amin((1, 3)), tiles.amax((1, 3)), FP8_BLOCK)
        out |= {f"{name}/block_scales": scales,
                f"{name}/block_codes": quantize(values, scales, zeros, FP8_BLOCK, dtype=E4M3)}
    file = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else (
        ROOT / "tests/golden/codec/fp8_weights.safetensors")
    save_file({name: tensor.contiguous() for name, tensor in out.items()}, file)


if __name__ == "__main__":
    main()

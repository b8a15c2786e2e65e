"""Keys and values as pages of each format keep them, in PyTorch, by the formats' definitions.

Tensors are [..., head_dim]. Keys that are kept rotated are rotated back, so that plain attention
may meet them. docs/formats.md has the definitions.
"""

import json
import pathlib

import torch

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/kv/centroids.json"
CENTROIDS = torch.tensor(json.loads(GOLDEN.read_text())["bf16"], dtype=torch.float64)
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)


def to_e4m3(tensor):
    """Scale 1, saturated."""
    return tensor.clamp(-448, 448).to(torch.float8_e4m3fn).to(tensor.dtype)


def to_f16(tensor):
    return tensor.clamp(-65504, 65504).to(torch.float16).to(tensor.dtype)


def nearest(levels, tensor):
    return levels[(tensor[..., None] - levels).abs().argmin(-1)]


def hadamard(size):
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / size**0.5


def turboquant_keys(tensor):
    """The rotated unit vector to centroids of N(0, 1 / size), then back to the key's norm."""
    key = tensor.double()
    size = key.shape[-1]
    norm = key.norm(dim=-1, keepdim=True)
    turned = key / norm.clamp_min(1e-30) @ hadamard(size) * size**0.5
    levels = nearest(CENTROIDS, turned)
    kept = levels * to_f16(norm / levels.norm(dim=-1, keepdim=True))
    return (kept @ hadamard(size).T).to(tensor.dtype)


def uniform_values(tensor):
    value = tensor.double()
    least = value.amin(-1, keepdim=True)
    step = to_f16((value.amax(-1, keepdim=True) - least) / 15)
    least = to_f16(least)
    codes = torch.floor((value - least) / step.clamp_min(1e-30) + 0.5).clamp(0, 15)
    return (codes * step + least).to(tensor.dtype)


def nvfp4(tensor):
    groups = tensor.double().unflatten(-1, (-1, 16))
    scale = to_e4m3((groups.abs().amax(-1, keepdim=True) / 6).float()).double()
    size = (groups.abs() / scale.clamp_min(1e-30)).clamp_max(6)
    return (nearest(E2M1, size) * groups.sign() * scale).flatten(-2).to(tensor.dtype)


FORMATS = {"fp8": (to_e4m3, to_e4m3),
           "turboquant_4bit_nc": (turboquant_keys, uniform_values),
           "nvfp4": (nvfp4, nvfp4)}

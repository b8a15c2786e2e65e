"""The vision tower over packed pictures: patches, position table, 2-D rope, blocks, merger."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from config import VISION
from delta import Bounds, attention

PATCH, MERGE, HEADS = VISION["patch_size"], VISION["spatial_merge_size"], VISION["num_heads"]
WIDTH, SIDE = VISION["hidden_size"], int(VISION["num_position_embeddings"] ** 0.5)
HEAD = WIDTH // HEADS
PREFIX = "model.visual."


@dataclass
class Patches:
    """Patches of all pictures in merge order; `bounds` separates the pictures."""

    values: torch.Tensor    # [N, 3, 16, 16]; both frames of the temporal pair are equal
    rows: torch.Tensor      # [N]
    columns: torch.Tensor   # [N]
    heights: torch.Tensor   # [N] patches in a column of this picture
    widths: torch.Tensor    # [N]
    bounds: Bounds


def cut(image):
    """[H, W, 3] uint8 -> patches [n, 3, 16, 16] uint8, rows, columns, in merge order."""
    h, w = image.shape[0] // PATCH, image.shape[1] // PATCH
    x = image.reshape(h // MERGE, MERGE, PATCH, w // MERGE, MERGE, PATCH, 3)
    x = x.permute(0, 3, 1, 4, 6, 2, 5).reshape(h * w, 3, PATCH, PATCH)
    where = torch.arange(h * w).reshape(h // MERGE, MERGE, w // MERGE, MERGE)
    where = where.permute(0, 2, 1, 3).flatten()
    return x, where // w, where % w, h, w


def patches(images: list) -> Patches:
    """From a list of uint8 arrays; on the host, values still uint8."""
    parts = [cut(torch.as_tensor(image)) for image in images]
    counts = torch.tensor([len(p[0]) for p in parts])
    values, rows, columns = (torch.cat([p[n] for p in parts]) for n in range(3))
    heights, widths = (
        torch.repeat_interleave(torch.tensor([p[n] for p in parts]), counts) for n in (3, 4))
    bounds = F.pad(counts.cumsum(0), (1, 0)).int()
    return Patches(values, rows, columns, heights, widths, Bounds(bounds, bounds))


def position_rows(p, x: Patches):
    """Bilinear reading of the position table with aligned corners."""
    table = p[PREFIX + "pos_embed.weight"].float()
    taps = []
    for index, size in ((x.rows, x.heights), (x.columns, x.widths)):
        at = index.float() * (SIDE - 1) / (size - 1).clamp(min=1)
        low = at.floor().long()
        taps.append(((low, 1 - (at - low)), ((low + 1).clamp(max=SIDE - 1), at - low)))
    return sum(table[r * SIDE + c] * (a * b)[:, None] for r, a in taps[0] for c, b in taps[1])


def rope(x: Patches):
    count = HEAD // 4
    exponent = torch.arange(count, device=x.rows.device) / count
    freq = 10000.0 ** -exponent
    angle = torch.cat([x.rows[:, None] * freq, x.columns[:, None] * freq], -1)
    return angle.cos()[:, None], angle.sin()[:, None]


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


def layer_norm(p, name, x):
    weight, bias = p[f"{name}.weight"], p[f"{name}.bias"]
    return F.layer_norm(x.float(), x.shape[-1:], weight.float(), bias.float(), 1e-6).to(
        weight.dtype)


def linear(p, name, x):
    return F.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])


def tower(p, x: Patches):
    """[N / 4, out_hidden_size]."""
    weight = p[PREFIX + "patch_embed.proj.weight"]
    pair = weight.float().sum(2).to(weight.dtype).flatten(1)  # both frames are the same picture
    h = F.linear(x.values.flatten(1), pair, p[PREFIX + "patch_embed.proj.bias"]).float()
    h = h + position_rows(p, x)
    cos, sin = rope(x)
    for n in range(VISION["depth"]):
        name = f"{PREFIX}blocks.{n}."
        qkv = linear(p, name + "attn.qkv", layer_norm(p, name + "norm1", h))
        q, k, v = qkv.unflatten(-1, (3, HEADS, HEAD)).unbind(1)
        o = attention(rotate(q, cos, sin), rotate(k, cos, sin), v.contiguous(), x.bounds,
                      causal=False)
        h = h + linear(p, name + "attn.proj", o.flatten(1)).float()
        inner = linear(p, name + "mlp.linear_fc1", layer_norm(p, name + "norm2", h))
        inner = F.gelu(inner, approximate="tanh")
        h = h + linear(p, name + "mlp.linear_fc2", inner).float()
    merged = layer_norm(p, PREFIX + "merger.norm", h).reshape(-1, WIDTH * MERGE * MERGE)
    return linear(p, PREFIX + "merger.linear_fc2",
                  F.gelu(linear(p, PREFIX + "merger.linear_fc1", merged)))

"""Pebble's parameters by their released names: initial values, reading, writing.

Not a module: a plain dict name -> tensor, so that training, export and checks share one naming.
"""

import json
import math
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from shapes import all_shapes

SHARD_BYTES_MAX = 13_900_000


def initial(name: str, shape: tuple, rng: torch.Generator) -> torch.Tensor:
    """FP32 starting value of one parameter."""
    def normal(std):
        return torch.randn(shape, generator=rng) * std

    if name.endswith("A_log"):
        return torch.empty(shape).uniform_(math.log(0.5), math.log(8), generator=rng)
    if name.endswith("dt_bias"):  # softplus(dt_bias) log-uniform in 0.001 .. 0.1
        step = torch.empty(shape).uniform_(math.log(1e-3), math.log(0.1), generator=rng).exp()
        return step + torch.log(-torch.expm1(-step))
    if name.endswith("conv1d.weight"):
        return torch.empty(shape).uniform_(-0.5, 0.5, generator=rng)
    if "linear_attn.norm" in name or ("visual" in name and name.endswith(".weight")
                                      and "norm" in name):
        return torch.ones(shape)
    if len(shape) == 1:
        return torch.zeros(shape)
    if "embed_tokens" in name:
        return normal(0.3)
    if "lm_head" in name or "pos_embed" in name:
        return normal(0.02)
    fan_in = math.prod(shape[1:]) if "patch_embed" in name else shape[-1]
    writes_residual = any(key in name for key in ("o_proj", "out_proj", "down_proj"))
    return normal(fan_in ** -0.5 * (0.25 if writes_residual else 1.0))


def fresh(seed: int, text: dict) -> dict:
    rng = torch.Generator().manual_seed(seed)
    return {name: initial(name, shape, rng) for name, shape in all_shapes(text).items()}


def save(weights: dict, model_dir: Path) -> None:
    """BF16 shards, filled in the order of the parameters, and their index."""
    model_dir.mkdir(parents=True, exist_ok=True)
    for old in model_dir.glob("model*.safetensors"):
        old.unlink()
    shards, used = [{}], 0
    for name, weight in weights.items():
        tensor = weight.detach().to("cpu", torch.bfloat16).contiguous()
        if used + tensor.nbytes > SHARD_BYTES_MAX:
            shards.append({})
            used = 0
        shards[-1][name] = tensor
        used += tensor.nbytes
    where, total = {}, 0
    for n, shard in enumerate(shards, 1):
        file = f"model-{n:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, model_dir / file, metadata={"format": "pt"})
        (model_dir / file).chmod(0o644)
        where |= dict.fromkeys(shard, file)
        total += sum(t.nbytes for t in shard.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
    (model_dir / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def load(model_dir: Path) -> dict:
    """All parameters as FP32, checked against the shapes that config.json asks for."""
    weights = {}
    for shard in sorted(Path(model_dir).glob("model*.safetensors")):
        weights |= load_file(shard)
    shapes = all_shapes(json.loads((model_dir / "config.json").read_text())["text_config"])
    if {k: tuple(v.shape) for k, v in weights.items()} != shapes:
        raise SystemExit(f"{model_dir}: tensors differ from the shapes of its config.json")
    return {name: weights[name].float() for name in shapes}

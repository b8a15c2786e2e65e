"""Pebble's parameters by their released names: shapes, initial values, reading, writing.

Not a module: a plain dict name -> tensor, so that training, export and checks share one naming.
"""

import json
import math
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from config import TEXT, VISION

SHARD_BYTES_MAX = 13_900_000
TEXT_PREFIX = "model.language_model."


def attention_shapes(prefix: str) -> dict:
    width, head = TEXT["hidden_size"], TEXT["head_dim"]
    q, kv = TEXT["num_attention_heads"] * head, TEXT["num_key_value_heads"] * head
    return {
        prefix + "q_proj.weight": (2 * q, width), prefix + "k_proj.weight": (kv, width),
        prefix + "v_proj.weight": (kv, width), prefix + "o_proj.weight": (width, q),
        prefix + "q_norm.weight": (head,), prefix + "k_norm.weight": (head,),
    }


def delta_net_shapes(prefix: str) -> dict:
    width, values = TEXT["hidden_size"], TEXT["linear_num_value_heads"]
    key = TEXT["linear_num_key_heads"] * TEXT["linear_key_head_dim"]
    value = values * TEXT["linear_value_head_dim"]
    return {
        prefix + "in_proj_qkv.weight": (2 * key + value, width),
        prefix + "in_proj_z.weight": (value, width),
        prefix + "in_proj_b.weight": (values, width),
        prefix + "in_proj_a.weight": (values, width),
        prefix + "conv1d.weight": (2 * key + value, 1, TEXT["linear_conv_kernel_dim"]),
        prefix + "A_log": (values,), prefix + "dt_bias": (values,),
        prefix + "norm.weight": (TEXT["linear_value_head_dim"],),
        prefix + "out_proj.weight": (width, value),
    }


def moe_shapes(prefix: str) -> dict:
    width, experts = TEXT["hidden_size"], TEXT["num_experts"]
    inner, shared = TEXT["moe_intermediate_size"], TEXT["shared_expert_intermediate_size"]
    return {
        prefix + "gate.weight": (experts, width),
        prefix + "experts.gate_up_proj": (experts, 2 * inner, width),
        prefix + "experts.down_proj": (experts, width, inner),
        prefix + "shared_expert.gate_proj.weight": (shared, width),
        prefix + "shared_expert.up_proj.weight": (shared, width),
        prefix + "shared_expert.down_proj.weight": (width, shared),
        prefix + "shared_expert_gate.weight": (1, width),
    }


def block_shapes(prefix: str, kind: str) -> dict:
    width = TEXT["hidden_size"]
    full = kind == "full_attention"
    mixer = attention_shapes(prefix + "self_attn.") if full else delta_net_shapes(
        prefix + "linear_attn.")
    norms = {prefix + f"{name}_layernorm.weight": (width,) for name in ("input", "post_attention")}
    return mixer | norms | moe_shapes(prefix + "mlp.")


def vision_shapes() -> dict:
    width, inner, patch = VISION["hidden_size"], VISION["intermediate_size"], VISION["patch_size"]
    merged = width * VISION["spatial_merge_size"] ** 2
    shapes = {
        "patch_embed.proj.weight": (width, 3, VISION["temporal_patch_size"], patch, patch),
        "patch_embed.proj.bias": (width,),
        "pos_embed.weight": (VISION["num_position_embeddings"], width),
        "merger.norm.weight": (width,), "merger.norm.bias": (width,),
        "merger.linear_fc1.weight": (merged, merged), "merger.linear_fc1.bias": (merged,),
        "merger.linear_fc2.weight": (VISION["out_hidden_size"], merged),
        "merger.linear_fc2.bias": (VISION["out_hidden_size"],),
    }
    matrices = {"attn.qkv": (3 * width, width), "attn.proj": (width, width),
                "mlp.linear_fc1": (inner, width), "mlp.linear_fc2": (width, inner)}
    for n in range(VISION["depth"]):
        for norm in ("norm1", "norm2"):
            shapes |= {f"blocks.{n}.{norm}.{part}": (width,) for part in ("weight", "bias")}
        for name, shape in matrices.items():
            shapes[f"blocks.{n}.{name}.weight"] = shape
            shapes[f"blocks.{n}.{name}.bias"] = shape[:1]
    return {"model.visual." + name: shape for name, shape in shapes.items()}


def all_shapes() -> dict:
    width, vocab = TEXT["hidden_size"], TEXT["vocab_size"]
    shapes = {TEXT_PREFIX + "embed_tokens.weight": (vocab, width)}
    for n, kind in enumerate(TEXT["layer_types"]):
        shapes |= block_shapes(f"{TEXT_PREFIX}layers.{n}.", kind)
    shapes |= {TEXT_PREFIX + "norm.weight": (width,), "lm_head.weight": (vocab, width)}
    shapes |= vision_shapes()
    shapes |= {"mtp." + name: (width,) for name in (
        "pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight", "norm.weight")}
    shapes["mtp.fc.weight"] = (width, 2 * width)
    return shapes | block_shapes("mtp.layers.0.", "full_attention")


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


def fresh(seed: int) -> dict:
    rng = torch.Generator().manual_seed(seed)
    return {name: initial(name, shape, rng) for name, shape in all_shapes().items()}


def save(weights: dict, model_dir: Path) -> None:
    """BF16 shards, filled in order of name, and their index."""
    model_dir.mkdir(parents=True, exist_ok=True)
    for old in model_dir.glob("model*.safetensors"):
        old.unlink()
    shards, used = [{}], 0
    for name in all_shapes():
        tensor = weights[name].detach().to("cpu", torch.bfloat16).contiguous()
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
    """All parameters as FP32, checked against the shapes above."""
    weights = {}
    for shard in sorted(Path(model_dir).glob("model*.safetensors")):
        weights |= load_file(shard)
    shapes = all_shapes()
    if {k: tuple(v.shape) for k, v in weights.items()} != shapes:
        raise SystemExit(f"{model_dir}: tensors differ from Pebble's shapes")
    return {name: weights[name].float() for name in shapes}

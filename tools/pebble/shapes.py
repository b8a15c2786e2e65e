"""The parameters of every size of config.py by their released names, and their shapes.

A plain dict name -> shape, in the order of the shards. Needs no packages.
"""

from config import VISION

TEXT_PREFIX = "model.language_model."


def attention_shapes(prefix: str, text: dict) -> dict:
    width, head = text["hidden_size"], text["head_dim"]
    q, kv = text["num_attention_heads"] * head, text["num_key_value_heads"] * head
    return {
        prefix + "q_proj.weight": (2 * q, width), prefix + "k_proj.weight": (kv, width),
        prefix + "v_proj.weight": (kv, width), prefix + "o_proj.weight": (width, q),
        prefix + "q_norm.weight": (head,), prefix + "k_norm.weight": (head,),
    }


def delta_net_shapes(prefix: str, text: dict) -> dict:
    width, values = text["hidden_size"], text["linear_num_value_heads"]
    key = text["linear_num_key_heads"] * text["linear_key_head_dim"]
    value = values * text["linear_value_head_dim"]
    return {
        prefix + "in_proj_qkv.weight": (2 * key + value, width),
        prefix + "in_proj_z.weight": (value, width),
        prefix + "in_proj_b.weight": (values, width),
        prefix + "in_proj_a.weight": (values, width),
        prefix + "conv1d.weight": (2 * key + value, 1, text["linear_conv_kernel_dim"]),
        prefix + "A_log": (values,), prefix + "dt_bias": (values,),
        prefix + "norm.weight": (text["linear_value_head_dim"],),
        prefix + "out_proj.weight": (width, value),
    }


def moe_shapes(prefix: str, text: dict) -> dict:
    width, experts = text["hidden_size"], text["num_experts"]
    inner, shared = text["moe_intermediate_size"], text["shared_expert_intermediate_size"]
    return {
        prefix + "gate.weight": (experts, width),
        prefix + "experts.gate_up_proj": (experts, 2 * inner, width),
        prefix + "experts.down_proj": (experts, width, inner),
        prefix + "shared_expert.gate_proj.weight": (shared, width),
        prefix + "shared_expert.up_proj.weight": (shared, width),
        prefix + "shared_expert.down_proj.weight": (width, shared),
        prefix + "shared_expert_gate.weight": (1, width),
    }


def dense_shapes(prefix: str, text: dict) -> dict:
    width, inner = text["hidden_size"], text["intermediate_size"]
    return {
        prefix + "gate_proj.weight": (inner, width), prefix + "up_proj.weight": (inner, width),
        prefix + "down_proj.weight": (width, inner),
    }


def block_shapes(prefix: str, kind: str, text: dict) -> dict:
    width = text["hidden_size"]
    full = kind == "full_attention"
    mixer = attention_shapes(prefix + "self_attn.", text) if full else delta_net_shapes(
        prefix + "linear_attn.", text)
    norms = {prefix + f"{name}_layernorm.weight": (width,) for name in ("input", "post_attention")}
    feed_forward = dense_shapes if "intermediate_size" in text else moe_shapes
    return mixer | norms | feed_forward(prefix + "mlp.", text)


def vision_shapes(out_width: int) -> dict:
    width, inner, patch = VISION["hidden_size"], VISION["intermediate_size"], VISION["patch_size"]
    merged = width * VISION["spatial_merge_size"] ** 2
    shapes = {
        "patch_embed.proj.weight": (width, 3, VISION["temporal_patch_size"], patch, patch),
        "patch_embed.proj.bias": (width,),
        "pos_embed.weight": (VISION["num_position_embeddings"], width),
        "merger.norm.weight": (width,), "merger.norm.bias": (width,),
        "merger.linear_fc1.weight": (merged, merged), "merger.linear_fc1.bias": (merged,),
        "merger.linear_fc2.weight": (out_width, merged),
        "merger.linear_fc2.bias": (out_width,),
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


def all_shapes(text: dict) -> dict:
    """All that a checkpoint with this text_config has, in the order of its shards."""
    width, vocab = text["hidden_size"], text["vocab_size"]
    shapes = {TEXT_PREFIX + "embed_tokens.weight": (vocab, width)}
    for n, kind in enumerate(text["layer_types"]):
        shapes |= block_shapes(f"{TEXT_PREFIX}layers.{n}.", kind, text)
    shapes |= {TEXT_PREFIX + "norm.weight": (width,), "lm_head.weight": (vocab, width)}
    shapes |= vision_shapes(width)
    shapes |= {"mtp." + name: (width,) for name in (
        "pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight", "norm.weight")}
    shapes["mtp.fc.weight"] = (width, 2 * width)
    return shapes | block_shapes("mtp.layers.0.", "full_attention", text)

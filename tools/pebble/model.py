"""Pebble's forward pass over packed documents: text decoder, MTP head.

A function of a dict of parameters (released names), whose shapes tell the size of the model; what
they do not tell is the same for all sizes of config.py. Blocks are split at the sequence mixers, so
that everything between them compiles into few kernels. check_transformers.py compares it with
transformers.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

import vision
from config import MIXTURE, TEXT
from delta import Bounds, attention, delta_rule
from shapes import TEXT_PREFIX

EPS = TEXT["rms_norm_eps"]
HEAD = TEXT["head_dim"]
ROTARY = int(HEAD * TEXT["partial_rotary_factor"])
KEY_DIM = TEXT["linear_key_head_dim"]
TAPS = TEXT["linear_conv_kernel_dim"]
TOP_K = MIXTURE["num_experts_per_tok"]


@dataclass
class Packed:
    """A batch on the device; see corpus.Batch for the fields."""

    ids: torch.Tensor
    weights: torch.Tensor
    positions: torch.Tensor   # [3, T]
    bounds: Bounds
    offset: torch.Tensor      # [T] index inside the document
    image_rows: torch.Tensor  # where the pictures' rows go
    images: vision.Patches | None


def rms_norm(x, weight):
    """Zero-centred: the stored weight is an offset from 1. FP32 in, out in the weight's dtype."""
    x = x.float()
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS)
    return (x * (1 + weight.float())).to(weight.dtype)


def rotary_table(positions, dtype):
    """cos, sin [T, rotary/2] of the interleaved three-axis rope."""
    count = ROTARY // 2
    exponent = torch.arange(count, dtype=torch.float32, device=positions.device) / count
    freq = TEXT["rope_parameters"]["rope_theta"] ** -exponent
    section = TEXT["rope_parameters"]["mrope_section"]
    axis = [0] * count
    for n in (1, 2):
        for i in range(n, 3 * section[n], 3):
            axis[i] = n
    angle = positions.float()[axis].T * freq
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x, cos, sin):
    """NeoX halves inside the first `rotary` dims; x [T, H, Dh]."""
    half = ROTARY // 2
    a, b, rest = x[..., :half].float(), x[..., half:ROTARY].float(), x[..., ROTARY:]
    c, s = cos[:, None].float(), sin[:, None].float()
    return torch.cat([(a * c - b * s).to(x.dtype), (b * c + a * s).to(x.dtype), rest], -1)


def delta_net_before(h, offset, ln, qkv_w, z_w, b_w, a_w, conv_w, a_log, dt_bias):
    """Norm, projections, causal convolution, gates. Returns q, k, v, g, beta, z."""
    x = rms_norm(h, ln)
    qkv = x @ qkv_w.T
    total = qkv.float() * conv_w[:, 0, TAPS - 1].float()
    for back in range(1, TAPS):
        past = F.pad(qkv, (0, 0, back, 0))[: len(qkv)]
        seen = (offset >= back)[:, None]
        total = total + torch.where(seen, past, 0).float() * conv_w[:, 0, TAPS - 1 - back].float()
    value = len(z_w)
    key = (len(qkv_w) - value) // 2
    q, k, v = F.silu(total).split([key, key, value], -1)
    q, k = (t.unflatten(-1, (-1, KEY_DIM)) for t in (q, k))
    q, k = (t * torch.rsqrt(t.pow(2).sum(-1, keepdim=True) + 1e-6) for t in (q, k))
    beta = (x @ b_w.T).float().sigmoid()
    g = -a_log.float().exp() * F.softplus((x @ a_w.T).float() + dt_bias.float())
    v = v.unflatten(-1, (len(a_log), -1))
    return q.to(x.dtype), k.to(x.dtype), v.to(x.dtype), g, beta, x @ z_w.T


def delta_net_after(h, o, z, norm_w, out_w):
    """Plain RMS norm per value head, then the SiLU gate, then the output projection."""
    o = o.float()
    o = o * torch.rsqrt(o.pow(2).mean(-1, keepdim=True) + EPS) * norm_w.float()
    gated = o.flatten(1) * F.silu(z.float())
    return h + (gated.to(out_w.dtype) @ out_w.T).to(h.dtype)


def attention_before(h, cos, sin, ln, q_w, k_w, v_w, q_norm, k_norm):
    """q, k, v with kv heads repeated, and the output gate."""
    x = rms_norm(h, ln)
    q, gate = (x @ q_w.T).unflatten(-1, (-1, 2, HEAD)).unbind(2)
    k, v = ((x @ w.T).unflatten(-1, (-1, HEAD)) for w in (k_w, v_w))
    q, k = rotate(rms_norm(q, q_norm), cos, sin), rotate(rms_norm(k, k_norm), cos, sin)
    group = q.shape[1] // k.shape[1]
    return q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), gate.flatten(1)


def attention_after(h, o, gate, out_w):
    gated = o.flatten(1).float() * gate.float().sigmoid()
    return h + (gated.to(out_w.dtype) @ out_w.T).to(h.dtype)


def moe(h, ln, gate_w, gate_up, down, s_gate, s_up, s_down, s_w):
    """All experts at once, the unchosen ones times zero; the shared expert rides along as one.

    Returns the stream, and the balance loss E * sum(share of tokens * mean probability)."""
    x, experts = rms_norm(h, ln), len(gate_w)
    p = (x @ gate_w.T).float().softmax(-1)
    order = torch.arange(experts, device=h.device)
    ahead = (p[:, None, :] > p[:, :, None]) | (
        (p[:, None, :] == p[:, :, None]) & (order[None, None, :] < order[None, :, None]))
    chosen = ahead.sum(-1) < TOP_K
    kept = p * chosen
    route = kept / kept.sum(-1, keepdim=True)
    share = chosen.float().mean(0) / TOP_K
    balance = experts * (share.detach() * p.mean(0)).sum()
    route = torch.cat([route, (x @ s_w.T).float().sigmoid()], -1)
    wide = torch.cat([gate_up.flatten(0, 1), s_gate, s_up])
    back = torch.cat([down.transpose(1, 2).flatten(0, 1), s_down.T])
    gate, up = (x @ wide.T).unflatten(-1, (experts + 1, 2, -1)).unbind(2)
    inner = F.silu(gate.float()) * up.float() * route[..., None]
    return h + (inner.flatten(1).to(x.dtype) @ back).to(h.dtype), balance


def dense(h, ln, gate_w, up_w, down_w):
    """The stream, and no balance loss."""
    x = rms_norm(h, ln)
    inner = F.silu((x @ gate_w.T).float()) * (x @ up_w.T).float()
    return h + (inner.to(x.dtype) @ down_w.T).to(h.dtype), h.new_zeros(())


def token_loss(hidden, head_w, targets, weights):
    """Weighted sums: cross-entropy, and right answers, of a row of predictions."""
    logits = (hidden @ head_w.T).float()
    loss = F.cross_entropy(logits, targets, reduction="none")
    right = (logits.argmax(-1) == targets).float()
    return (loss * weights).sum(), (right * weights).sum()


def compile_blocks() -> None:
    """Compiles the pieces; their shapes are those of the training batch."""
    for name in ("delta_net_before", "delta_net_after", "attention_before", "attention_after",
                 "moe", "dense", "token_loss", "rms_norm"):
        globals()[name] = torch.compile(globals()[name], dynamic=False)


MIXER_NAMES = {
    "linear_attn": ["in_proj_qkv.weight", "in_proj_z.weight", "in_proj_b.weight",
                    "in_proj_a.weight", "conv1d.weight", "A_log", "dt_bias"],
    "self_attn": ["q_proj.weight", "k_proj.weight", "v_proj.weight", "q_norm.weight",
                  "k_norm.weight"],
}
MOE_NAMES = ["gate.weight", "experts.gate_up_proj", "experts.down_proj",
             "shared_expert.gate_proj.weight", "shared_expert.up_proj.weight",
             "shared_expert.down_proj.weight", "shared_expert_gate.weight"]
DENSE_NAMES = ["gate_proj.weight", "up_proj.weight", "down_proj.weight"]


def layer_count(p) -> int:
    """Layers of the text model, without MTP."""
    return sum(name.startswith(TEXT_PREFIX) and name.endswith(".input_layernorm.weight")
               for name in p)


def block(p, prefix, h, batch, rope):
    ln = p[prefix + "input_layernorm.weight"]
    if prefix + "self_attn.q_proj.weight" in p:
        own = [p[f"{prefix}self_attn.{n}"] for n in MIXER_NAMES["self_attn"]]
        q, k, v, gate = attention_before(h, *rope, ln, *own)
        o = attention(q, k, v, batch.bounds)
        h = attention_after(h, o, gate, p[prefix + "self_attn.o_proj.weight"])
    else:
        own = [p[f"{prefix}linear_attn.{n}"] for n in MIXER_NAMES["linear_attn"]]
        q, k, v, g, beta, z = delta_net_before(h, batch.offset, ln, *own)
        o = delta_rule(q, k, v, g, beta, batch.bounds)
        h = delta_net_after(h, o, z, p[prefix + "linear_attn.norm.weight"],
                            p[prefix + "linear_attn.out_proj.weight"])
    names, feed_forward = (MOE_NAMES, moe) if prefix + "mlp.gate.weight" in p else (
        DENSE_NAMES, dense)
    own = [p[f"{prefix}mlp.{n}"] for n in names]
    return feed_forward(h, p[prefix + "post_attention_layernorm.weight"], *own)


def embed(p, batch):
    h = F.embedding(batch.ids, p[TEXT_PREFIX + "embed_tokens.weight"])
    if batch.images is None:
        return h
    return h.index_copy(0, batch.image_rows, vision.tower(p, batch.images).to(h.dtype))


def trunk(p, batch):
    """(embedded inputs, hidden after the final norm, rope tables, balance loss)."""
    embedded = embed(p, batch)
    rope = rotary_table(batch.positions, torch.float32)
    h, balance = embedded.float(), 0.0
    for n in range(layer_count(p)):
        h, part = block(p, f"{TEXT_PREFIX}layers.{n}.", h, batch, rope)
        balance = balance + part
    return embedded, rms_norm(h, p[TEXT_PREFIX + "norm.weight"]), rope, balance


def mtp(p, batch, embedded, hidden, rope):
    """Hidden rows (after mtp.norm) whose logits predict the token after the next."""
    following = torch.cat([embedded[1:], embedded[:1]])
    e = rms_norm(following, p["mtp.pre_fc_norm_embedding.weight"])
    n = rms_norm(hidden, p["mtp.pre_fc_norm_hidden.weight"])
    u = (torch.cat([e, n], -1) @ p["mtp.fc.weight"].T).float()
    u, balance = block(p, "mtp.layers.0.", u, batch, rope)
    return rms_norm(u, p["mtp.norm.weight"]), balance


def shifted(batch, by):
    """Targets and their weights `by` tokens ahead, none across the end of a document."""
    targets = torch.cat([batch.ids[by:], batch.ids[:by]]).long()
    ahead = torch.cat([batch.offset[by:], batch.offset.new_zeros(by)])
    weights = torch.cat([batch.weights[by:], batch.weights.new_zeros(by)])
    return targets, torch.where(ahead >= by, weights, 0.0)

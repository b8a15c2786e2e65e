"""The two sequence mixers over packed documents: gated delta rule and causal attention.

On CUDA they use flash-linear-attention and torch's varlen attention; elsewhere a plain
chunked formula and per-document attention, which also serve as the check of the former.
Packed means: one row of tokens, `bounds` says where documents start and end.
"""

import inspect
from dataclasses import dataclass

import torch
import torch.nn.functional as F

CHUNK = 64
FLA_CHUNK = 32

try:
    import fla.ops.common.chunk_o as fla_backward
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    # Triton before 3.7.1 miscompiles one backward kernel for Hopper's 64-row matrix units, and
    # the library refuses to run there. Chunks of 32 do not use those; check_mixers.py proves it.
    fla_backward.IS_NVIDIA_HOPPER = False
except ImportError:
    chunk_gated_delta_rule = None
try:
    from torch.nn.attention.varlen import varlen_attn
    TAKES_CAUSAL = "is_causal" in inspect.signature(varlen_attn).parameters
except ImportError:
    varlen_attn = None


@dataclass
class Bounds:
    """Document starts and the end, [N + 1] int32, on the device and on the host."""

    device: torch.Tensor
    host: torch.Tensor

    def spans(self) -> list:
        ends = self.host.tolist()
        return list(zip(ends, ends[1:]))

    @property
    def longest(self) -> int:
        return int(self.host.diff().max())


def delta_rule(q, k, v, g, beta, bounds):
    """q, k [T, Hk, Dk] already L2-normalised, v [T, Hv, Dv], g, beta [T, Hv] -> [T, Hv, Dv]."""
    if q.is_cuda and chunk_gated_delta_rule is not None:
        out, _ = chunk_gated_delta_rule(
            q[None], k[None], v[None], g[None], beta[None], scale=q.shape[-1] ** -0.5,
            cu_seqlens=bounds.device, cu_seqlens_cpu=bounds.host, chunk_size=FLA_CHUNK,
        )
        return out[0]
    parts = [delta_rule_chunked(*(x[a:b] for x in (q, k, v, g, beta))) for a, b in bounds.spans()]
    return torch.cat(parts)


def delta_rule_chunked(q, k, v, g, beta):
    """One document, FP32 inside: the chunked form with the triangular solve."""
    tokens, dtype, group = len(q), v.dtype, v.shape[1] // q.shape[1]
    q, k = (x.repeat_interleave(group, dim=1) for x in (q, k))
    q, k, v, g, beta = (x.float() for x in (q * q.shape[-1] ** -0.5, k, v, g, beta))
    pad = -tokens % CHUNK
    q, k, v = (F.pad(x, (0, 0, 0, 0, 0, pad)) for x in (q, k, v))
    g, beta = (F.pad(x, (0, 0, 0, pad)) for x in (g, beta))
    split = [x.unflatten(0, (-1, CHUNK)).transpose(1, 2) for x in (q, k, v)]
    q, k, v = split  # [N, H, C, D]
    g, beta = (x.unflatten(0, (-1, CHUNK)).transpose(1, 2) for x in (g, beta))  # [N, H, C]
    total = g.cumsum(-1)
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).tril()
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(~lower, -torch.inf).exp()
    system = beta[..., None] * (k @ k.mT) * decay
    right = torch.cat([beta[..., None] * v, (beta * total.exp())[..., None] * k], -1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    u, w = solved.split([v.shape[-1], k.shape[-1]], -1)
    scores = (q @ k.mT) * decay
    state = q.new_zeros(q.shape[1], k.shape[-1], v.shape[-1])
    out = []
    for n in range(len(q)):
        fresh = u[n] - w[n] @ state
        out.append(total[n].exp()[..., None] * (q[n] @ state) + scores[n] @ fresh)
        tail = (total[n][:, -1:] - total[n]).exp()[..., None]
        state = total[n][:, -1].exp()[:, None, None] * state + (k[n] * tail).mT @ fresh
    return torch.stack(out).transpose(1, 2).flatten(0, 1)[:tokens].to(dtype)


def attention(q, k, v, bounds, causal=True):
    """q, k, v [T, H, Dh] (kv heads already repeated) -> [T, H, Dh]."""
    if q.is_cuda and varlen_attn is not None:
        mode = {"is_causal": causal} if TAKES_CAUSAL else {"window_size": (-1, 0 if causal else -1)}
        where, longest = bounds.device, bounds.longest
        return varlen_attn(q, k, v, where, where, longest, longest, **mode)
    parts = []
    for a, b in bounds.spans():
        one = [x[a:b].transpose(0, 1)[None] for x in (q, k, v)]
        out = F.scaled_dot_product_attention(*one, is_causal=causal)
        parts.append(out[0].transpose(0, 1))
    return torch.cat(parts)

"""Simulated NVFP4 weight rounding, plain amax/6: a yardstick for how sturdy the model is."""

import torch

GRID = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
BLOCK = 16
EXPERTS = ("experts.gate_up_proj", "experts.down_proj", "shared_expert.gate_proj",
           "shared_expert.up_proj", "shared_expert.down_proj",
           "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")  # the last three: of a dense model
MIXERS = ("q_proj", "k_proj", "v_proj", "o_proj", "in_proj_qkv", "in_proj_z", "out_proj")
RECIPES = {"experts": EXPERTS, "linears": EXPERTS + MIXERS, "all": EXPERTS + MIXERS + ("lm_head",)}


def round_matrix(w):
    """One matrix [rows, K] with one global scale; E4M3 block scales, nearest E2M1 codes."""
    blocks = w.float().unflatten(-1, (-1, BLOCK))
    world = w.abs().max() / (6 * 448)
    scale = blocks.abs().amax(-1, keepdim=True) / 6
    scale = (scale / world).to(torch.float8_e4m3fn).float() * world
    code = torch.where(scale > 0, blocks / scale.clamp(min=1e-30), 0)
    edges = (GRID[1:] + GRID[:-1]) / 2
    near = GRID.to(w.device)[torch.bucketize(code.abs(), edges.to(w.device))]
    return (near * code.sign() * scale).flatten(-2)


def round_model(p: dict, recipe: str) -> dict:
    """Rounds the main layers' matrices of a recipe; MTP and vision stay as they are."""
    out = dict(p)
    for name, w in p.items():
        if name.startswith(("mtp.", "model.visual.")) or not any(
                key in name for key in RECIPES[recipe]):
            continue
        matrices = w if w.ndim == 3 else w[None]
        out[name] = torch.stack([round_matrix(m) for m in matrices]).view_as(w)
    return out

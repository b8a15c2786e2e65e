"""Muon for the matrices inside blocks, AdamW for everything else.

Masters are FP32; the forward pass sees BF16 copies, so training runs on exactly the numbers
that are exported. Matrices of one shape are orthogonalised together.
"""

import torch

ADAM_KEYS = ("embed_tokens", "lm_head", "in_proj_a", "in_proj_b", "mlp.gate.weight", "conv1d",
             "shared_expert_gate", "patch_embed", "pos_embed")


def is_matrix(name: str, tensor) -> bool:
    return tensor.ndim >= 2 and not any(key in name for key in ADAM_KEYS)


def orthogonalise(g):
    """Newton-Schulz of a stack of matrices [N, rows, columns] towards U V^T."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    flip = x.shape[1] > x.shape[2]
    x = x.mT if flip else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        s = x @ x.mT
        x = a * x + (b * s + c * (s @ s)) @ x
    return (x.mT if flip else x).float()


class Optimizer:
    """step() reads `.grad` of the BF16 leaves and writes masters and leaves."""

    def __init__(self, masters: dict, leaves: dict, decay: float):
        self.masters, self.leaves, self.decay = masters, leaves, decay
        self.steps = 0
        self.adam = [n for n, m in masters.items() if not is_matrix(n, m)]
        self.groups = {}
        for name, m in masters.items():
            if is_matrix(name, m):
                self.groups.setdefault(tuple(m.shape[-2:]), []).append(name)
        self.first = {n: torch.zeros_like(m) for n, m in masters.items()}
        self.second = {n: torch.zeros_like(masters[n]) for n in self.adam}
        self.grads = {n: torch.zeros_like(m) for n, m in masters.items()}

    def state(self) -> dict:
        return {"first": self.first, "second": self.second, "steps": self.steps}

    def restore(self, state: dict) -> None:
        self.first, self.second, self.steps = state["first"], state["second"], state["steps"]

    @torch.no_grad()
    def step(self, adam_rate: float, muon_rate: float) -> None:
        self.steps += 1
        self._read_grads()
        self._adam_step(adam_rate)
        for shape, names in self.groups.items():
            self._muon_step(shape, names, muon_rate)
        names = list(self.masters)
        torch._foreach_copy_([self.leaves[n] for n in names], [self.masters[n] for n in names])
        for leaf in self.leaves.values():
            leaf.grad = None

    def _read_grads(self) -> None:
        """FP32 gradients; a tensor that saw no data (no picture) counts as zero."""
        torch._foreach_zero_(list(self.grads.values()))
        names = [n for n, leaf in self.leaves.items() if leaf.grad is not None]
        torch._foreach_copy_([self.grads[n] for n in names],
                             [self.leaves[n].grad for n in names])

    def _adam_step(self, rate: float) -> None:
        b1, b2 = 0.9, 0.98
        grads = [self.grads[n] for n in self.adam]
        weights = [self.masters[n] for n in self.adam]
        first, second = [self.first[n] for n in self.adam], [self.second[n] for n in self.adam]
        torch._foreach_lerp_(first, grads, 1 - b1)
        torch._foreach_mul_(second, b2)
        torch._foreach_addcmul_(second, grads, grads, 1 - b2)
        root = torch._foreach_sqrt(second)
        torch._foreach_div_(root, (1 - b2 ** self.steps) ** 0.5)
        torch._foreach_add_(root, 1e-10)
        decayed = [m for n, m in zip(self.adam, weights) if m.ndim >= 2 and "conv1d" not in n]
        torch._foreach_mul_(decayed, 1 - rate * self.decay)
        torch._foreach_addcdiv_(weights, first, root, -rate / (1 - b1 ** self.steps))

    def _muon_step(self, shape, names, rate: float) -> None:
        momentum = 0.95
        grads, first = [self.grads[n] for n in names], [self.first[n] for n in names]
        torch._foreach_mul_(first, momentum)
        torch._foreach_add_(first, grads)
        look = torch._foreach_add(grads, first, alpha=momentum)
        counts = [g.numel() // (shape[0] * shape[1]) for g in look]
        update = orthogonalise(torch.cat([g.reshape(-1, *shape) for g in look]))
        scale = 0.2 * max(shape) ** 0.5
        for name, part in zip(names, update.split(counts)):
            m = self.masters[name]
            m.mul_(1 - rate * self.decay).add_(part.view_as(m), alpha=-rate * scale)

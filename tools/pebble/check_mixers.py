"""On a GPU: flash-linear-attention and varlen attention against the plain formulas, with gradients.
"""

import torch

import delta


def compare(name, fast, slow, inputs):
    """Relative RMS error of output and gradients, fast in BF16, slow in FP32."""
    grown = []
    for cast in (torch.bfloat16, torch.float32):
        mine = [x.to(cast).detach().requires_grad_() for x in inputs]
        out = (fast if cast is torch.bfloat16 else slow)(*mine)
        out.float().square().sum().backward()
        grown.append([out] + [x.grad for x in mine])
    errors = [((a.float() - b.float()).norm() / b.float().norm()).item() for a, b in zip(*grown)]
    print(name, " ".join(f"{e:.1e}" for e in errors))
    assert max(errors) < 3e-2, name


def main() -> None:
    torch.manual_seed(0)
    host = torch.tensor([0, 30, 500, 1000], dtype=torch.int32)
    tokens, bounds = 1000, delta.Bounds(host.cuda(), host)

    def rand(*shape):
        return torch.randn(*shape, device="cuda").bfloat16().float()

    q, k = (torch.nn.functional.normalize(rand(tokens, 8, 32), dim=-1) for _ in range(2))
    v, g, beta = rand(tokens, 16, 32), -rand(tokens, 16).abs() * 0.1, rand(tokens, 16).sigmoid()
    parts = [x.bfloat16().float() for x in (q, k, v, g, beta)]
    compare("delta rule", lambda q, k, v, g, b: delta.delta_rule(q, k, v, g.float(), b, bounds),
            lambda *x: torch.cat([delta.delta_rule_chunked(*(t[a:b] for t in x))
                                  for a, b in bounds.spans()]), parts)
    heads = [rand(tokens, 8, 64) for _ in range(3)]
    for causal in (True, False):
        def plain(q, k, v):
            mask = torch.zeros(tokens, tokens, dtype=torch.bool, device="cuda")
            for a, b in bounds.spans():
                mask[a:b, a:b] = True
            mask = mask.tril() if causal else mask
            q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            return out[0].transpose(0, 1)
        compare(f"attention causal={causal}",
                lambda q, k, v: delta.attention(q, k, v, bounds, causal), plain, heads)


if __name__ == "__main__":
    main()

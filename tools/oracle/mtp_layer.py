"""The MTP layer of Qwen3.5 and 3.6 in PyTorch and F64, over whole sequences; no cache, no kernels.

Written after vLLM's qwen3_5_mtp.py and SGLang's: entry t joins the embedding of token t + 1 with
the hidden row of token t, which is the target's after its final norm,
  u_t = fc [norm(embedding(x_{t+1})) | norm(H_t)],
goes through a layer of full attention (gated, over the entries up to its own, at the rotary
position of token t) and the layer's MLP or experts, and its norm is met by the target's head: the
logits of token t + 2. Further drafts repeat the layer with the last draft as token and its own
normed output as hidden row, at the next position. Tensors have the names of the releases, experts
in either layout.
"""

import torch
import torch.nn.functional as F


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * (1 + weight)


def swiglu(x, gate, up, down):
    return (F.silu(x @ gate.T) * (x @ up.T)) @ down.T


class MtpLayer:
    """`tensors`: a checkpoint's; `text`: its text_config as a dict."""

    def __init__(self, tensors, text):
        self.p = {name: tensor.double() for name, tensor in tensors.items()
                  if name.startswith("mtp.")}
        self.text = text
        self.eps = text["rms_norm_eps"]

    def norm(self, x, name):
        return rms_norm(x, self.p[f"mtp.{name}.weight"], self.eps)

    def rotate(self, x, positions):
        """x [T, heads, head_dim]; positions [3, T]: the axes take turns over the frequencies."""
        rope = self.text["rope_parameters"]
        rotary = int(x.shape[-1] * rope["partial_rotary_factor"])
        count = rotary // 2
        frequency = rope["rope_theta"] ** (-torch.arange(count).double() / count)
        axis = torch.zeros(count, dtype=torch.long)
        for n in (1, 2):
            axis[n:3 * rope["mrope_section"][n]:3] = n
        angle = (positions.double()[axis].T * frequency)[:, None]
        a, b = x[..., :count], x[..., count:rotary]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin(),
                          x[..., rotary:]], -1)

    def attention(self, x, positions):
        weight = {part: self.p[f"mtp.layers.0.self_attn.{part}.weight"]
                  for part in ("q_proj", "k_proj", "v_proj", "o_proj")}
        head = self.text["head_dim"]
        q, gate = (x @ weight["q_proj"].T).unflatten(-1, (-1, 2, head)).unbind(2)
        k, v = ((x @ weight[part].T).unflatten(-1, (-1, head)) for part in ("k_proj", "v_proj"))
        q = self.rotate(self.norm(q, "layers.0.self_attn.q_norm"), positions)
        k = self.rotate(self.norm(k, "layers.0.self_attn.k_norm"), positions)
        group = q.shape[1] // k.shape[1]
        k, v = (t.repeat_interleave(group, 1) for t in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / head ** 0.5
        later = torch.ones(len(x), len(x)).triu(1).bool()
        o = torch.einsum("hqk,khd->qhd", scores.masked_fill(later, -torch.inf).softmax(-1), v)
        return (o * gate.sigmoid()).flatten(1) @ weight["o_proj"].T

    def expert(self, prefix):
        return (self.p[f"{prefix}{part}_proj.weight"] for part in ("gate", "up", "down"))

    def experts(self):
        """gate, up and down of each."""
        prefix = "mtp.layers.0.mlp.experts."
        if prefix + "gate_up_proj" in self.p:
            for gate_up, down in zip(self.p[prefix + "gate_up_proj"],
                                     self.p[prefix + "down_proj"]):
                yield *gate_up.chunk(2), down
        else:
            for n in range(self.text["num_experts"]):
                yield tuple(self.expert(f"{prefix}{n}."))

    def mlp(self, x):
        prefix = "mtp.layers.0.mlp."
        if prefix + "gate.weight" not in self.p:
            return swiglu(x, *self.expert(prefix))
        best = (x @ self.p[prefix + "gate.weight"].T).softmax(-1).topk(
            self.text["num_experts_per_tok"])
        share = best.values / best.values.sum(-1, keepdim=True)
        shared = (x @ self.p[prefix + "shared_expert_gate.weight"].T).sigmoid()
        y = shared * swiglu(x, *self.expert(prefix + "shared_expert."))
        for n, weights in enumerate(self.experts()):
            chosen = torch.where(best.indices == n, share, 0.0).sum(-1, keepdim=True)
            y = y + chosen * swiglu(x, *weights)
        return y

    def run(self, embedded, hidden, positions):
        """Normed outputs [T, D] of entries made of `embedded` and `hidden`, [T, D] each."""
        u = torch.cat([self.norm(embedded, "pre_fc_norm_embedding"),
                       self.norm(hidden, "pre_fc_norm_hidden")], -1) @ self.p["mtp.fc.weight"].T
        u = u + self.attention(self.norm(u, "layers.0.input_layernorm"), positions)
        u = u + self.mlp(self.norm(u, "layers.0.post_attention_layernorm"))
        return self.norm(u, "norm")

    def draft(self, table, head, hidden, ids, positions, steps):
        """Logits [steps, V] of the best `steps` tokens one after the other. `hidden` [T, D] of the
        first T tokens, `ids` [T + 1] and `positions` [3][T + 1] of these and the newest."""
        embedded = table[torch.tensor(ids[1:])]
        at = torch.tensor(positions)
        entries, following = at[:, :-1], at[:, -1:]
        logits = []
        for _ in range(steps):
            last = self.run(embedded, hidden, entries)[-1:]
            logits.append(last @ head.T)
            embedded = torch.cat([embedded, table[logits[-1].argmax(-1)]])
            hidden = torch.cat([hidden, last])
            entries = torch.cat([entries, following], -1)
            following = following + 1
        return torch.cat(logits)

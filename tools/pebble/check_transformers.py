"""Compares our forward pass with transformers on an exported Pebble: text and a picture, FP32.

Prints the relative RMS error of the logits and fails above 1e-3. MTP, which transformers
ignores, is compared with a direct per-position evaluation in double precision.
"""

import argparse
import random
from pathlib import Path

import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

import batch as batching
import corpus
import model
import picture
import weights
from config import MIXTURE, TEXT
from tasks_lists import lookup


def error(ours, theirs) -> float:
    return ((ours - theirs).pow(2).mean().sqrt() / theirs.std()).item()


def documents(model_dir: Path, seed: int) -> list:
    """(item, document) pairs: a text one of some length, a picture one."""
    source = corpus.Corpus(model_dir, seed, 1024)
    rng = random.Random(seed)
    out = []
    for item in (lookup(rng, True, 60), picture.image_task(rng, True)):
        prompt, completion = corpus.render(source.template, item)
        head = corpus.encode_prompt(source.tokenizer, prompt, item)
        tail = source.tokenizer.encode(completion, add_special_tokens=False).ids
        document = (head + tail, [1.0] * (len(head) + len(tail)), item.image)
        out.append((item, prompt + completion, document))
    return out


def their_logits(net, processor, item, text) -> tuple:
    image = Image.fromarray(item.image.pixels()) if item.image else None
    inputs = processor(text=[text], images=[image] if image else None, return_tensors="pt")
    with torch.no_grad():
        return net(**inputs).logits[0], inputs["input_ids"][0].tolist()


def mtp_direct(p, batch):
    """Section by section from the definition: own softmax, own top-k, one position at a time."""
    embedded, hidden, _, _ = model.trunk(p, batch)
    p = {k: v.double() for k, v in p.items()}
    prefix = "mtp.layers.0."

    def norm(x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + p[name])

    tokens, head = len(embedded) - 1, TEXT["head_dim"]
    e = norm(embedded[1:].double(), "mtp.pre_fc_norm_embedding.weight")
    n = norm(hidden[:-1].double(), "mtp.pre_fc_norm_hidden.weight")
    u = torch.cat([e, n], -1) @ p["mtp.fc.weight"].T
    x = norm(u, prefix + "input_layernorm.weight")
    qg = (x @ p[prefix + "self_attn.q_proj.weight"].T).view(tokens, -1, 2 * head)
    q, gate = qg[..., :head], qg[..., head:]
    k = (x @ p[prefix + "self_attn.k_proj.weight"].T).view(tokens, -1, head)
    v = (x @ p[prefix + "self_attn.v_proj.weight"].T).view(tokens, -1, head)
    cos, sin = (t[:-1] for t in model.rotary_table(batch.positions, torch.float64))
    q = model.rotate(norm(q, prefix + "self_attn.q_norm.weight"), cos, sin)
    k = model.rotate(norm(k, prefix + "self_attn.k_norm.weight"), cos, sin)
    out = torch.zeros_like(q)
    for t in range(tokens):
        for h in range(q.shape[1]):
            kv = h // (q.shape[1] // k.shape[1])
            score = (k[: t + 1, kv] @ q[t, h] * head ** -0.5).softmax(0)
            out[t, h] = score @ v[: t + 1, kv]
    u = u + (out * gate.sigmoid()).flatten(1) @ p[prefix + "self_attn.o_proj.weight"].T
    x = norm(u, prefix + "post_attention_layernorm.weight")
    feed_forward = moe_direct if prefix + "mlp.gate.weight" in p else dense_direct
    u = u + feed_forward(p, prefix + "mlp.", x)
    return norm(u, "mtp.norm.weight") @ p["lm_head.weight"].T


def moe_direct(p, prefix, x):
    silu = torch.nn.functional.silu
    top, who = (x @ p[prefix + "gate.weight"].T).softmax(-1).topk(MIXTURE["num_experts_per_tok"])
    top = top / top.sum(-1, keepdim=True)
    rows = []
    for t in range(len(x)):
        row = 0
        for w, e in zip(top[t], who[t]):
            gate, up = (p[prefix + "experts.gate_up_proj"][e] @ x[t]).chunk(2)
            row = row + w * (p[prefix + "experts.down_proj"][e] @ (silu(gate) * up))
        rows.append(row)
    alone = (x @ p[prefix + "shared_expert_gate.weight"].T).sigmoid()
    return torch.stack(rows) + alone * dense_direct(p, prefix + "shared_expert.", x)


def dense_direct(p, prefix, x):
    inner = torch.nn.functional.silu(x @ p[prefix + "gate_proj.weight"].T)
    return (inner * (x @ p[prefix + "up_proj.weight"].T)) @ p[prefix + "down_proj.weight"].T


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    net = AutoModelForImageTextToText.from_pretrained(args.model_dir, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(args.model_dir)
    p = weights.load(args.model_dir)
    for item, text, document in documents(args.model_dir, args.seed):
        theirs, ids = their_logits(net.eval(), processor, item, text)
        if ids != document[0]:
            raise SystemExit(f"{item.task}: token ids differ from the processor's")
        packed = batching.to_device(batching.build(corpus.pack([document])), "cpu",
                                    torch.float32)
        with torch.no_grad():
            embedded, hidden, rope, _ = model.trunk(p, packed)
            ours = hidden @ p["lm_head.weight"].T
            drafts = model.mtp(p, packed, embedded, hidden, rope)[0] @ p["lm_head.weight"].T
            direct = mtp_direct(p, packed).float()
        found = {"logits": error(ours, theirs), "mtp": error(drafts[:-1], direct)}
        print(item.task, len(ids), "tokens", {k: f"{v:.1e}" for k, v in found.items()})
        if max(found.values()) > 1e-3:
            raise SystemExit("above 1e-3")


if __name__ == "__main__":
    main()

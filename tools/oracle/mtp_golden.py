#!/usr/bin/env python3
"""Tiny checkpoints with an MTP layer and what it drafts, for tests/golden/model-mtp.

  mtp_golden.py            writes every case
  mtp_golden.py --check    computes again and compares with the files (./test --full)

A case is a Hugging Face folder plus expected.json (ids of one sequence, positions where they are
not 0, 1, 2, ..., and the drafts: after how many tokens, and which tokens) and drafts.f32, the
logits of each draft, [places, STEPS, V] in F32. The model below comes from transformers, which has
no MTP layer; that layer is mtp_layer.py's, in F64.
"""

import json
import pathlib
import shutil
import sys

import numpy
import torch
from safetensors.torch import load_file, save_file

import model_cases as cases
import model_golden
from mtp_layer import MtpLayer

ROOT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "model-mtp"
STEPS = 3
LENGTH = 150
PLACES = [1, 2, 7, 23, 63, 64, 65, 90, 127, 128, 129, 149]  # tokens before the newest one
L, F_ = cases.LINEAR, cases.FULL


def build(name):
    """Model, how its tensors are stored, and the layout of its experts."""
    if name == "moe-fused":
        text = cases.hybrid(101, 48, [L, F_], (6, 2), 16, (2, 4, 8, 12),
                            cases.rope([2, 1, 1]), num_experts=6, num_experts_per_tok=3,
                            moe_intermediate_size=20, shared_expert_intermediate_size=28)
        return cases.moe_model(text), cases.bf16, "fused"
    if name == "moe-separate":
        text = cases.hybrid(97, 40, [L, F_], (4, 4), 12, (1, 3, 10, 6), cases.rope([1, 1, 1]),
                            num_experts=5, num_experts_per_tok=2, moe_intermediate_size=12,
                            shared_expert_intermediate_size=20)
        return cases.moe_model(text), cases.bf16, "separate"
    if name == "dense-positions":
        text = cases.hybrid(103, 36, [L, F_, F_], (4, 2), 24, (2, 2, 8, 8), cases.rope([2, 2, 2]),
                            intermediate_size=36)
        return cases.dense_model(text, tied=True), cases.bf16, "separate"
    raise ValueError(name)


NAMES = ["moe-fused", "moe-separate", "dense-positions"]


def mtp_tensors(model, layout, seed, dtype_of):
    """Random weights of the MTP layer under the names of the releases."""
    text = model.config.text_config
    width, head = text.hidden_size, text.head_dim
    q, kv = text.num_attention_heads * head, text.num_key_value_heads * head
    block = "mtp.layers.0."
    shapes = {"mtp.fc.weight": (width, 2 * width)}
    for norm in ("mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm",
                 block + "input_layernorm", block + "post_attention_layernorm"):
        shapes[norm + ".weight"] = (width,)
    for part, shape in (("q_proj", (2 * q, width)), ("k_proj", (kv, width)),
                        ("v_proj", (kv, width)), ("o_proj", (width, q)), ("q_norm", (head,)),
                        ("k_norm", (head,))):
        shapes[f"{block}self_attn.{part}.weight"] = shape
    mlp = block + "mlp."
    if hasattr(text, "num_experts"):
        inner, experts = text.moe_intermediate_size, text.num_experts
        shapes[mlp + "gate.weight"] = (experts, width)
        shapes[mlp + "shared_expert_gate.weight"] = (1, width)
        shapes |= linear_shapes(mlp + "shared_expert.", width,
                                text.shared_expert_intermediate_size)
        if layout == "fused":
            shapes[mlp + "experts.gate_up_proj"] = (experts, 2 * inner, width)
            shapes[mlp + "experts.down_proj"] = (experts, width, inner)
        else:
            for expert in range(experts):
                shapes |= linear_shapes(f"{mlp}experts.{expert}.", width, inner)
    else:
        shapes |= linear_shapes(mlp, width, text.intermediate_size)
    generator = torch.Generator().manual_seed(seed + 1000)
    return {name: cases.draw(name, torch.zeros(shape), generator, False).to(dtype_of(name))
            for name, shape in shapes.items()}


def linear_shapes(prefix, width, inner):
    return {prefix + "gate_proj.weight": (inner, width), prefix + "up_proj.weight": (inner, width),
            prefix + "down_proj.weight": (width, inner)}


def target(model, ids, positions):
    """Embeddings and hidden rows after the final norm, in F64."""
    arguments = dict(input_ids=torch.tensor([ids]), use_cache=False)
    if positions is not None:
        arguments["position_ids"] = torch.tensor(positions)[:, None]
    hidden = model.model(**arguments).last_hidden_state[0]
    return model.get_input_embeddings().weight.double(), hidden.double()


def expected(model, layer, ids, positions):
    """Logits [places, STEPS, V] and tokens [places][STEPS] of the drafts after each place."""
    axes = positions or [list(range(len(ids)))] * 3
    with torch.no_grad():
        table, hidden = target(model, ids, positions)
        head = model.get_output_embeddings().weight.double()
        logits, tokens = [], []
        for place in PLACES:
            rows = layer.draft(table, head, hidden[:place], ids[: place + 1],
                               [axis[: place + 1] for axis in axes], STEPS)
            logits.append(rows)
            tokens.append(rows.argmax(-1).tolist())
    return torch.stack(logits).float().numpy(), tokens


def margin(logits):
    """The least distance of the best two logits of a draft, in deviations."""
    top = numpy.sort(logits, -1)
    return float(((top[..., -1] - top[..., -2]) / logits.std()).min())


def draw_clear(name):
    """A model none of whose drafts is a near-tie."""
    model, dtype_of, layout = build(name)
    ids = cases.sequences(model.config.text_config.vocab_size, [LENGTH], seed=len(name))[0]
    positions = model_golden.image_positions(LENGTH) if name == "dense-positions" else None
    for seed in range(200):
        cases.fill(model, seed, dtype_of)
        tensors = mtp_tensors(model, layout, seed, dtype_of)
        layer = MtpLayer(tensors, model.config.text_config.to_dict())
        logits, tokens = expected(model, layer, ids, positions)
        if margin(logits) > 0.004:
            return model, dtype_of, layout, tensors, ids, positions, logits, tokens
    raise RuntimeError(f"{name}: every seed has near-ties")


def write(name):
    model, dtype_of, layout, tensors, ids, positions, logits, tokens = draw_clear(name)
    folder = ROOT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if layout == "fused":
        model_golden.save_fused(model, folder, dtype_of)
    else:
        model_golden.save_separate(model, folder, dtype_of, "1GB")
    stored = {name: tensor for name, tensor in load_file(folder / "model.safetensors").items()
              if "visual" not in name}
    save_file(stored | {name: tensor.contiguous() for name, tensor in tensors.items()},
              folder / "model.safetensors", metadata={"format": "pt"})
    model_golden.tidy_config(folder, model)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["text_config"]["mtp_num_hidden_layers"] = 1
    path.write_text(json.dumps(config, indent=1) + "\n")
    golden = dict(ids=[ids], places=PLACES, steps=STEPS, tokens=tokens)
    if positions is not None:
        golden["positions"] = [positions]
    (folder / "expected.json").write_text(json.dumps(golden) + "\n")
    logits.astype("<f4").tofile(folder / "drafts.f32")
    for path in folder.iterdir():
        path.chmod(0o644)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name}: {size} bytes, margin {margin(logits):.4f}, logits std {logits.std():.3f}, "
          f"{len({t for row in tokens for t in row})} tokens")


def check(name):
    """The stored case, loaded from its files, still gives the stored numbers."""
    folder = ROOT / name
    built, _, _ = build(name)
    model = type(built).from_pretrained(folder, dtype=torch.float32).eval()
    golden = json.loads((folder / "expected.json").read_text())
    layer = MtpLayer(load_file(folder / "model.safetensors"), model.config.text_config.to_dict())
    positions = golden["positions"][0] if "positions" in golden else None
    logits, tokens = expected(model, layer, golden["ids"][0], positions)
    error = model_golden.difference(logits, folder / "drafts.f32")
    fine = error < 1e-4 and tokens == golden["tokens"]
    print(f"{'ok  ' if fine else 'FAIL'} {name}: logits differ by {error:.2e}, "
          f"tokens same: {tokens == golden['tokens']}")
    return fine


if __name__ == "__main__":
    sys.exit(cases.run_goldens(__doc__, NAMES, write, check))

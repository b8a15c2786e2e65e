#!/usr/bin/env python3
"""The drafts of Pebble's MTP layer over its own greedy text, by transformers and mtp_layer.py.

  mtp_acceptance.py            writes tests/golden/mtp_pebble.json
  mtp_acceptance.py --check    computes again and compares with the file (./test --full)
  mtp_acceptance.py --rounded  counts over the texts of the file with the layer, or layer and head,
                               in FP8 and NVFP4: as --draft-quantization rounds them, by PyTorch

Texts begin as held-out prose and go on greedily. At each place of the continuation three tokens are
drafted by recurrence; draft n is right if it and those before it are what the text goes on with.
"""

import argparse
import json
import pathlib
import re
import sys

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import Qwen3_5MoeForConditionalGeneration

from mtp_layer import MtpLayer

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEBBLE = ROOT / "pebble" / "model"
GOLDEN = ROOT / "tests" / "golden" / "mtp_pebble.json"
TEXTS, PROMPT, SAID, STEPS = 6, 40, 72, 3


def prompts():
    tokenizer = Tokenizer.from_file(str(PEBBLE / "tokenizer.json"))
    lines = (ROOT / "pebble" / "tasks" / "prose.jsonl").read_text().splitlines()
    found = [tokenizer.encode(json.loads(line)["text"]).ids for line in lines]
    return [ids[:PROMPT] for ids in found if len(ids) > PROMPT][:TEXTS]


def load():
    """Pebble, and its tensors by name."""
    model = Qwen3_5MoeForConditionalGeneration.from_pretrained(PEBBLE, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    tensors = {}
    for path in sorted(PEBBLE.glob("*.safetensors")):
        tensors |= load_file(path)
    return model, tensors


def drafts_of(model, tensors, head, ids):
    """The drafts at every place of a text."""
    layer = MtpLayer(tensors, model.config.text_config.to_dict())
    table = model.get_input_embeddings().weight.double()
    hidden = model.model(input_ids=torch.tensor([ids]), use_cache=False)
    hidden = hidden.last_hidden_state[0].double()
    drafts = []
    for place in range(PROMPT, len(ids) - STEPS):
        axes = [list(range(place + 1))] * 3
        rows = layer.draft(table, head, hidden[:place], ids[: place + 1], axes, STEPS)
        drafts.append(rows.argmax(-1).tolist())
    return drafts


def evaluate():
    model, tensors = load()
    head = model.get_output_embeddings().weight.double()
    texts = []
    with torch.no_grad():
        for prompt in prompts():
            ids = torch.tensor([prompt])
            ids = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=SAID,
                                 do_sample=False)[0].tolist()
            texts.append(dict(ids=ids, drafts=drafts_of(model, tensors, head, ids)))
            print(f"{len(texts)} of {TEXTS}", flush=True)
    return dict(prompt=PROMPT, steps=STEPS, texts=texts, right=right_of(texts))


def in_fp8(weight, most):
    """E4M3 with one scale."""
    scale = most / 448
    return (weight.double() / scale).float().to(torch.float8_e4m3fn).double() * scale


def in_nvfp4(weight, most):
    """E2M1 in groups of 16 with E4M3 scales, by the largest magnitudes."""
    unit = most / (6 * 448)
    groups = weight.double().reshape(-1, 16)
    scales = groups.abs().amax(1) / 6 / unit
    scales = scales.float().to(torch.float8_e4m3fn).double()[:, None] * unit
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    nearest = (groups.abs() / scales.clamp_min(1e-30))[..., None].sub(values).abs().argmin(-1)
    return (values[nearest] * groups.sign() * scales).reshape(weight.shape)


def rounded_layer(tensors, rounded):
    """The tensors with the linears of the layer rounded, fused ones by one largest magnitude:
    those of a tensor of experts are gate and up, or down, of one each."""
    def group(name):
        return re.sub(r"[qkv]_proj", "qkv", re.sub(r"(gate|up)_proj", "gate_up", name))
    names = [name for name, weight in tensors.items()
             if name.startswith("mtp.") and weight.dim() > 1
             and not name.endswith(("mlp.gate.weight", "shared_expert_gate.weight"))]
    most = {}
    for name in names:
        most[group(name)] = max(most.get(group(name), 0), tensors[name].abs().max().item())

    def round_one(name):
        weight = tensors[name]
        if weight.dim() == 2:
            return rounded(weight, most[group(name)])
        return torch.stack([rounded(expert, expert.abs().max().item()) for expert in weight])
    return tensors | {name: round_one(name) for name in names}


def count_rounded():
    model, tensors = load()
    plain = model.get_output_embeddings().weight.double()
    texts = json.loads(GOLDEN.read_text())["texts"]
    with torch.no_grad():
        for word, rounded in (("fp8", in_fp8), ("nvfp4", in_nvfp4)):
            layer = rounded_layer(tensors, rounded)
            for what, head in (("layer", plain),
                               ("layer and head", rounded(plain, plain.abs().max().item()))):
                found = [dict(ids=text["ids"], drafts=drafts_of(model, layer, head, text["ids"]))
                         for text in texts]
                print(word, what, right_of(found), flush=True)


def right_of(texts):
    """Right drafts by position, and the places."""
    right = [0] * STEPS
    places = 0
    for text in texts:
        for i, drafts in enumerate(text["drafts"]):
            places += 1
            following = text["ids"][PROMPT + i + 1:]
            for n in range(STEPS):
                if drafts[n] != following[n]:
                    break
                right[n] += 1
    return dict(by_position=right, places=places)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--rounded", action="store_true")
    arguments = parser.parse_args()
    check = arguments.check
    torch.set_num_threads(1)
    if arguments.rounded:
        count_rounded()
        return 0
    found = evaluate()
    print(found["right"])
    if not check:
        GOLDEN.write_text(json.dumps(found) + "\n")
        return 0
    same = json.loads(GOLDEN.read_text()) == found
    print("the same" if same else "FAIL: not what the file says")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())

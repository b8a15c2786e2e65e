#!/usr/bin/env python3
"""Writes tests/golden/kv/bounds.json: how large keys and values of tiny models become, by torch.

  kv_bounds_golden.py            writes every case
  kv_bounds_golden.py --check    computes again and compares with the file (./test --full)

For each model of tests/golden/model named below: `reached`, the largest key and value that the
modules of transformers make of the inputs that make them largest, one input for each row of v_proj
and each dimension of k_norm, with the layers they are in; and `seen`, the largest of some text of
random tokens. Read by src/model/pages/kv_bounds_test.cc.
"""

import json
import pathlib
import sys

import torch

import model_cases as cases
import model_golden
from gradient_golden import load, model_layers

FILE = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "kv" / "bounds.json"
NAMES = ["moe-fused", "dense-tied", "dense-yarn", "plain-moe-yarn"]
LARGE = 1e6  # beside the epsilon of norms


def gains(norm, width):
    """The factors of a norm, found by running it on equal numbers."""
    return norm(torch.full((1, width), LARGE))[0]


def largest_value(layer):
    weight = layer.self_attn.v_proj.weight
    inputs = weight * gains(layer.input_layernorm, weight.shape[1])
    values = layer.self_attn.v_proj(layer.input_layernorm(inputs * LARGE))
    return values.abs().max().item()


def largest_key(model, layer):
    head_dim = layer.self_attn.head_dim
    keys = layer.self_attn.k_norm(torch.eye(head_dim) * LARGE)
    cosines, _ = model.get_decoder().rotary_emb(keys, torch.zeros(1, 1, dtype=torch.long))
    rotated = cosines.shape[-1]
    return max((keys[:, :rotated] * cosines[0, 0]).abs().max().item(),
               keys[:, rotated:].abs().max().item() if rotated < head_dim else 0.0)


def seen(model):
    """The largest numbers in transformers' own cache after a text of random tokens."""
    text = model_golden.text_config(model)
    ids = cases.sequences(text.vocab_size, (200,), seed=5)[0]
    cache = model(torch.tensor([ids]), use_cache=True).past_key_values
    layers = [layer for layer in cache.layers if getattr(layer, "keys", None) is not None]
    return {side: max(getattr(layer, side).abs().max().item() for layer in layers)
            for side in ("keys", "values")}


def case(name):
    model = load(name)
    found = {"keys": [], "values": []}
    with torch.no_grad():
        for index, layer in enumerate(model_layers(model)):
            if hasattr(layer, "self_attn"):
                found["keys"].append((largest_key(model, layer), index))
                found["values"].append((largest_value(layer), index))
        reached = {side: dict(zip(("most", "layer"), max(each))) for side, each in found.items()}
        return {"reached": reached, "seen": seen(model)}


def write(name):
    stored = json.loads(FILE.read_text()) if FILE.exists() else {}
    FILE.write_text(json.dumps(stored | {name: case(name)}, indent=1, sort_keys=True) + "\n")
    print(f"{name}: written")


def numbers(found):
    """All numbers of a case, by the names of their places."""
    if not isinstance(found, dict):
        return [found]
    return [number for name in sorted(found) for number in numbers(found[name])]


def check(name):
    stored, found = json.loads(FILE.read_text())[name], case(name)
    good = all(abs(a - b) <= 1e-4 * abs(b)
               for a, b in zip(numbers(stored), numbers(found), strict=True))
    print(f"{'ok  ' if good else 'FAIL'} {name}")
    return good


if __name__ == "__main__":
    sys.exit(cases.run_goldens(__doc__, NAMES, write, check))

#!/usr/bin/env python3
"""Rotary frequencies and angles of the real shapes, for tests/golden/rope.json.

  model_rope_golden.py           writes the file
  model_rope_golden.py --check   computes again and compares with it (./test --full)

transformers' own classes compute them, with YaRN far beyond the original length. They work in F32,
in which a position of 1,000,000 times a frequency is off by up to 0.1 radian; here the same code
runs with F64 in its place. Cosines and sines are after the (t, h, w) axes and the factor.
"""

import argparse
import contextlib
import json
import pathlib
import sys
from unittest import mock

import torch
from transformers import Qwen3_5Config, Qwen3_5MoeConfig, Qwen3MoeConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextRotaryEmbedding
from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import Qwen3_5MoeTextRotaryEmbedding
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeRotaryEmbedding

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests/golden"
KINDS = {"Qwen3_5MoeForConditionalGeneration": (Qwen3_5MoeConfig, Qwen3_5MoeTextRotaryEmbedding),
         "Qwen3_5ForConditionalGeneration": (Qwen3_5Config, Qwen3_5TextRotaryEmbedding),
         "Qwen3MoeForCausalLM": (Qwen3MoeConfig, Qwen3MoeRotaryEmbedding)}
CASES = [  # a config of tests/golden/configs, and what replaces keys of its rope_parameters
    ("qwen3.6-35b-a3b", {}),
    ("qwen3.6-35b-a3b", {"rope_type": "yarn", "factor": 4.0}),
    ("qwen3.6-35b-a3b", {"rope_type": "yarn", "factor": 4.0,
                         "original_max_position_embeddings": 262144, "mrope_section": [12, 10, 10],
                         "beta_fast": 24.0, "beta_slow": 2.0, "truncate": False,
                         "mscale": 1.5, "mscale_all_dim": 0.7}),
    ("qwen3.5-4b", {"rope_type": "yarn", "factor": 2.5, "attention_factor": 1.25}),
    ("qwen3-30b-a3b", {"rope_type": "yarn", "factor": 2.0,
                       "original_max_position_embeddings": 40960}),
]
POSITIONS = [[17, 17, 17], [300000, 300000, 300000], [1000000, 999001, 999017]]


@contextlib.contextmanager
def wide():
    """F64 wherever the code says F32."""
    with (mock.patch.object(torch, "float", torch.float64),
          mock.patch.object(torch, "float32", torch.float64),
          mock.patch.object(torch.Tensor, "float", torch.Tensor.double)):
        yield


def configuration(name, change):
    """transformers' configuration of the text model, with the keys replaced."""
    raw = json.loads((GOLDEN / "configs" / f"{name}.json").read_text())
    kind, rotary = KINDS[raw["architectures"][0]]
    text = raw.get("text_config", raw)
    theta = {"rope_theta": text["rope_theta"]} if "rope_theta" in text else {}
    text["rope_parameters"] = {**theta, **(text.get("rope_parameters") or {}), **change}
    text.pop("rope_scaling", None)
    config = kind(**raw)
    return getattr(config, "text_config", config), rotary


def case(name, change):
    config, kind = configuration(name, change)
    with wide():
        rotary = kind(config)
        axes = 3 if "mrope_section" in config.rope_parameters else 1
        positions = torch.tensor(POSITIONS).T[:axes, None]
        values = torch.zeros(1, dtype=torch.float64)
        cos, sin = rotary(values, positions if axes == 3 else positions[0])
    half = rotary.inv_freq.numel()
    return {"config": name, "change": change, "attention_factor": rotary.attention_scaling,
            "inverse_frequencies": rotary.inv_freq.tolist(),
            "positions": POSITIONS,
            "cos": cos[0, :, :half].tolist(), "sin": sin[0, :, :half].tolist()}


def numbers(value):
    if isinstance(value, dict):
        return [n for key in sorted(value) for n in numbers(value[key])]
    if isinstance(value, list):
        return [n for each in value for n in numbers(each)]
    return [value] if isinstance(value, float) else []


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    found = [case(name, change) for name, change in CASES]
    path = GOLDEN / "rope.json"
    if not options.check:
        path.write_text("[" + ",\n".join(json.dumps(each) for each in found) + "]\n")
        print(f"{len(found)} cases, {path.stat().st_size} bytes")
        return 0
    worst = max(abs(a - b) for a, b in zip(numbers(found), numbers(json.loads(path.read_text())),
                                           strict=True))
    print(f"{len(found)} cases differ by at most {worst:.1e}")
    return 0 if worst < 1e-9 else 1


if __name__ == "__main__":
    sys.exit(main())

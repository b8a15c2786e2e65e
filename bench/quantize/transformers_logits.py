#!/usr/bin/env python3
"""Logits of a checkpoint by transformers in F32: transformers_logits.py MODEL IDS.json OUT.npy

Weights only: activations are not quantized. Run with a Python that has torch, transformers and
compressed-tensors (tools/requirements-full.txt, or tools/others/install.sh).
"""

import json
import sys

import numpy as np
import torch
from transformers import Qwen3_5MoeForConditionalGeneration


def decompressed(folder):
    """Plain weights, whatever the folder holds."""
    config = json.load(open(f"{folder}/config.json", encoding="utf-8"))
    extra = {}
    if "quantization_config" in config:
        from transformers import CompressedTensorsConfig
        extra["quantization_config"] = CompressedTensorsConfig(run_compressed=False)
    model = Qwen3_5MoeForConditionalGeneration.from_pretrained(folder, dtype=torch.bfloat16, **extra)
    return model.float().eval()


def main():
    folder, ids, out = sys.argv[1:4]
    model = decompressed(folder)
    rows = []
    with torch.no_grad():
        for sequence in json.load(open(ids, encoding="utf-8"))["ids"]:
            logits = model(input_ids=torch.tensor([sequence])).logits[0]
            rows.append(logits.float().numpy())
    np.save(out, np.concatenate(rows))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""NVFP4 by llm-compressor with the defaults of its Qwen3.6 example:
quantize_llm_compressor.py MODEL CALIB.jsonl OUT [--scheme NVFP4A16] [--algorithm gptq]

Run with the Python of tools/others/install.sh. CPU is enough for Pebble.
"""

import argparse
import time

import datasets
import torch
from llmcompressor import oneshot
from llmcompressor.modifiers.gptq import GPTQModifier
from llmcompressor.modifiers.quantization import QuantizationModifier
from llmcompressor.utils import load_context
from transformers import AutoModelForImageTextToText, AutoProcessor

import calibration_rows

IGNORE = ["lm_head", "re:.*visual.*", "re:.*mlp.gate$", "re:.*embed_tokens$",
          "re:.*shared_expert_gate$", "re:.*linear_attn.*"]


def main():
    words = argparse.ArgumentParser()
    words.add_argument("model")
    words.add_argument("calib")
    words.add_argument("out")
    words.add_argument("--scheme", default="NVFP4")
    words.add_argument("--algorithm", default="rtn", choices=["rtn", "gptq"])
    words.add_argument("--observer", help="of weights, another than the scheme's")
    words.add_argument("--samples", type=int, default=128)
    asked = words.parse_args()
    with load_context(AutoModelForImageTextToText):
        model = AutoModelForImageTextToText.from_pretrained(asked.model, dtype=torch.bfloat16)
    rows = calibration_rows.read(asked.calib, asked.samples)
    data = datasets.Dataset.from_list(
        [{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in rows])
    processor = AutoProcessor.from_pretrained(asked.model)
    kind = GPTQModifier if asked.algorithm == "gptq" else QuantizationModifier
    begin = time.monotonic()
    oneshot(model=model, dataset=data, processor=processor,
            recipe=kind(targets="Linear", scheme=asked.scheme, ignore=IGNORE,
                        weight_observer=asked.observer),
            max_seq_length=1024, num_calibration_samples=len(rows))
    print(f"seconds {time.monotonic() - begin:.1f}")
    model.save_pretrained(asked.out, save_compressed=True)
    processor.save_pretrained(asked.out)


if __name__ == "__main__":
    main()

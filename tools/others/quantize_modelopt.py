#!/usr/bin/env python3
"""NVFP4 by ModelOpt with a preset of its own:
quantize_modelopt.py MODEL CALIB.jsonl OUT [--preset NAME]

Run with the Python of tools/others/install.sh. CPU is enough for Pebble.
"""

import argparse
import time

import modelopt.torch.quantization as mtq
import torch
from modelopt.torch.export import export_hf_checkpoint
from transformers import AutoModelForImageTextToText, AutoProcessor

import calibration_rows


def main():
    words = argparse.ArgumentParser()
    words.add_argument("model")
    words.add_argument("calib")
    words.add_argument("out")
    words.add_argument("--preset", default="NVFP4_DEFAULT_CFG")
    words.add_argument("--samples", type=int, default=128)
    asked = words.parse_args()
    model = AutoModelForImageTextToText.from_pretrained(
        asked.model, dtype=torch.bfloat16, experts_implementation="eager").eval()
    rows = calibration_rows.tensors(asked.calib, asked.samples)

    def forward(quantized):
        with torch.no_grad():
            for ids in rows:
                quantized(input_ids=ids)

    begin = time.monotonic()
    model = mtq.quantize(model, getattr(mtq, asked.preset), forward)
    print(f"seconds {time.monotonic() - begin:.1f}")
    export_hf_checkpoint(model, export_dir=asked.out)
    AutoProcessor.from_pretrained(asked.model).save_pretrained(asked.out)


if __name__ == "__main__":
    main()

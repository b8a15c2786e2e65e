#!/usr/bin/env python3
"""NVFP4 by ModelOpt with a preset of its own:
quantize_modelopt.py MODEL CALIB.jsonl OUT [--preset NAME] [--scales mse]

Run with the Python of tools/others/install.sh. CPU is enough for Pebble, but
--scales, of which local-hessian is ModelOpt's best, needs a card's kernels.
"""

import argparse
import copy
import time

import modelopt.torch.quantization as mtq
import torch
from modelopt.torch.export import export_hf_checkpoint
from transformers import AutoModelForImageTextToText, AutoProcessor

import calibration_rows


SCALES = {"mse": "NVFP4_W4A4_WEIGHT_MSE_FP8_SWEEP_CFG",
          "local-hessian": "NVFP4_W4A4_WEIGHT_LOCAL_HESSIAN_CFG"}


def settings(preset, scales):
    """The preset, or its format with scales of weights found as another preset finds them."""
    found = copy.deepcopy(getattr(mtq, preset))
    if scales:
        best = copy.deepcopy(getattr(mtq, SCALES[scales]))
        weights, = (rule for rule in best["quant_cfg"]
                    if rule["quantizer_name"] == "*weight_quantizer")
        found["algorithm"] = best["algorithm"]
        found["quant_cfg"] = [weights if rule["quantizer_name"] == "*weight_quantizer" else rule
                              for rule in found["quant_cfg"]]
    return found


def main():
    words = argparse.ArgumentParser()
    words.add_argument("model")
    words.add_argument("calib")
    words.add_argument("out")
    words.add_argument("--preset", default="NVFP4_DEFAULT_CFG")
    words.add_argument("--scales", choices=list(SCALES), help="of weights, not the preset's")
    words.add_argument("--samples", type=int, default=128)
    asked = words.parse_args()
    model = AutoModelForImageTextToText.from_pretrained(
        asked.model, dtype=torch.bfloat16, experts_implementation="eager").eval()
    if asked.scales:
        model = model.cuda()
    rows = calibration_rows.tensors(asked.calib, asked.samples)

    def forward(quantized):
        with torch.no_grad():
            for ids in rows:
                quantized(input_ids=ids.to(model.device))

    begin = time.monotonic()
    model = mtq.quantize(model, settings(asked.preset, asked.scales), forward)
    print(f"seconds {time.monotonic() - begin:.1f}")
    export_hf_checkpoint(model, export_dir=asked.out)
    AutoProcessor.from_pretrained(asked.model).save_pretrained(asked.out)


if __name__ == "__main__":
    main()

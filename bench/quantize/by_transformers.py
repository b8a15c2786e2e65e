"""Logits of an NVFP4 folder by transformers, with weights and activations as compressed-tensors
computes them: the judge beside `nibble score`. Not a program: others_quality.py uses it.

Reads both dialects, NVFP4 only. transformers 5.23 itself leaves global scales out when it fuses
experts, and rounds no activations of fused ones, so experts are linears of their own here. Needs
tools/requirements-full.txt.
"""

import pathlib

import numpy as np
import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationStatus, preset_name_to_scheme
from compressed_tensors.quantization.lifecycle.forward import forward_quantize
from safetensors import safe_open
from torch import nn

SCHEME = preset_name_to_scheme("NVFP4", ["Linear"])
COMPRESSOR = BaseCompressor.get_value_from_registry("nvfp4-pack-quantized")
PARTS = {  # of a module: compressed-tensors' name <- the file's name, and whether it is 1 / x there
    "compressed-tensors": {"weight_packed": ("weight_packed", False),
                           "weight_scale": ("weight_scale", False),
                           "weight_global_scale": ("weight_global_scale", False),
                           "input_global_scale": ("input_global_scale", False)},
    "modelopt": {"weight_packed": ("weight", False), "weight_scale": ("weight_scale", False),
                 "weight_global_scale": ("weight_scale_2", True),
                 "input_global_scale": ("input_scale", True)}}


class Expert(nn.Module):
    def __init__(self, hidden, width):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Experts(nn.ModuleList):
    """Computes what the fused module does, expert by expert."""

    def __init__(self, fused):
        _, hidden, width = fused.down_proj.shape
        super().__init__(Expert(hidden, width) for _ in fused.down_proj)
        for expert, gate_up, down in zip(self, fused.gate_up_proj, fused.down_proj):
            expert.gate_proj.weight.data = gate_up[:width].clone()
            expert.up_proj.weight.data = gate_up[width:].clone()
            expert.down_proj.weight.data = down.clone()

    def forward(self, x, index, weights):
        out = torch.zeros_like(x)
        for number, expert in enumerate(self):
            token, place = torch.where(index == number)
            if len(token):
                out.index_add_(0, token, expert(x[token]) * weights[token, place, None])
        return out


def load(source):
    torch.set_num_threads(1)  # its matrices are tiny: threads would only wait for each other
    model = transformers.AutoModelForImageTextToText.from_pretrained(source, dtype=torch.float32)
    for module in list(model.modules()):
        if type(getattr(module, "experts", None)).__name__.endswith("Experts"):
            module.experts = Experts(module.experts)
    return model.eval()


def tensors_of(folder):
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            tensors |= {name: file.get_tensor(name) for name in file.keys()}
    return tensors


def parts_of(tensors, module):
    """Under compressed-tensors' names; None for a module that is not NVFP4."""
    dialect = "compressed-tensors" if module + ".weight_packed" in tensors else "modelopt"
    found = {}
    for name, (stored, inverse) in PARTS[dialect].items():
        tensor = tensors.get(f"{module}.{stored}")
        if tensor is not None:
            found[name] = (1 / tensor if inverse else tensor).reshape(
                -1 if "global" in name else tensor.shape)
    codes = found.get("weight_packed")
    return found if codes is not None and codes.dtype == torch.uint8 else None


class Quantized:
    """The source's model with the weights of a folder; activations rounded or not."""

    def __init__(self, source, folder):
        tensors = tensors_of(folder)
        assert not any(t.dtype == torch.float8_e4m3fn and name.endswith(".weight")
                       for name, t in tensors.items()), f"{folder}: FP8 linears, expected NVFP4"
        self.model, self.rounds, self.linears = load(source), False, 0
        parameters = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, module in self.model.named_modules():
                if isinstance(module, nn.Linear) and (parts := parts_of(tensors, name)):
                    self.quantize(module, parts)
                elif (plain := tensors.get(name + ".weight")) is not None:
                    assert plain.dtype != torch.uint8, f"{folder}: {name} is not read"
                    parameters[name + ".weight"].copy_(plain)
        stored = sum(name.endswith("weight_packed") or t.dtype == torch.uint8
                     for name, t in tensors.items())
        assert self.linears == stored, f"{self.linears} of {stored} quantized linears were read"

    def quantize(self, module, parts):
        self.linears += 1
        weight = {name: part for name, part in parts.items() if name != "input_global_scale"}
        module.weight.copy_(COMPRESSOR.decompress(weight, SCHEME)["weight"])
        if "input_global_scale" not in parts:
            return
        module.input_global_scale = parts["input_global_scale"]
        module.quantization_status = QuantizationStatus.FROZEN
        module.register_forward_pre_hook(lambda layer, inputs: (forward_quantize(
            layer, inputs[0], "input", SCHEME.input_activations),) if self.rounds else None)

    def logits(self, sequences, activations):
        self.rounds = activations == "declared"
        return logits(self.model, sequences)


def logits(model, sequences):
    with torch.no_grad():
        return np.concatenate([model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
                               .float().numpy() for ids in sequences])

"""Holds what `nibble quantize` writes against compressed-tensors and transformers, and against the
rules by which TensorRT-LLM finds modules.

quantize_test.py NIBBLE MODEL: quantizes MODEL (BF16) and checks, module by module, that the
package's decompression gives our weights exactly and that plain amax/6 (and FP8) gives the
package's codes and scales; that the package finds the same modules quantized as the file holds;
then that transformers, with weights as the package reads them, gives the logits of `nibble score`
in both dialects. Prints 'N passed, N failed'. Part of ./test --full: needs torch.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from compressed_tensors.quantization.utils import calculate_qparams
from compressed_tensors.utils.match import match_name
from safetensors.torch import load_file
from transformers.utils.quantization_config import CompressedTensorsConfig

from loader_checks import Results, tensors_of

LOGITS_BAR = 1e-3  # rms difference over the standard deviation of the logits
E4M3 = torch.float8_e4m3fn
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)


def source_weight(source, module):
    """The BF16 matrix of a module, out of the fused expert tensors if need be."""
    if module + ".weight" in source:
        return source[module + ".weight"]
    layer, expert, projection = module.rsplit(".", 2)
    if projection == "down_proj":
        return source[layer + ".down_proj"][int(expert)]
    gate_up = source[layer + ".gate_up_proj"][int(expert)]
    rows = gate_up.shape[0] // 2
    return gate_up[:rows] if projection == "gate_proj" else gate_up[rows:]


class Quantized:
    """A folder in the compressed-tensors dialect, read by the package's own code."""

    def __init__(self, folder):
        self.tensors = tensors_of(folder)
        config = json.loads((folder / "config.json").read_text())["quantization_config"]
        self.config = QuantizationConfig(**config)
        self.modules = sorted(
            [n.removesuffix(".weight_packed") for n in self.tensors if n.endswith(".weight_packed")]
            + [n.removesuffix(".weight") for n, t in self.tensors.items() if t.dtype == E4M3
               and n.endswith(".weight")])

    def scheme(self, module):
        """The group whose targets name the module, as the package matches names."""
        if any(match_name(module, target) for target in self.config.ignore):
            return None
        found = [group for group in self.config.config_groups.values()
                 if any(target == "Linear" or match_name(module, target)
                        for target in group.targets)]
        assert len(found) < 2, module
        return found[0] if found else None

    def compressor(self, module):
        return BaseCompressor.get_value_from_registry(self.scheme(module).format)

    def parts(self, module):
        names = ("weight", "weight_packed", "weight_scale", "weight_global_scale")
        return {name: self.tensors[f"{module}.{name}"] for name in names
                if f"{module}.{name}" in self.tensors}

    def decompressed(self, module):
        return self.compressor(module).decompress(self.parts(module), self.scheme(module))["weight"]

    def exact(self, module):
        """code * scale, from the format's definition alone."""
        parts = self.parts(module)
        if "weight" in parts:
            rows, cols = parts["weight"].shape
            scales = parts["weight_scale"]
            if scales.numel() > 1 and scales.shape[1] > 1:
                scales = scales.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :cols]
            return (parts["weight"].float() * scales).double()  # rounded once, to F32
        packed = parts["weight_packed"]
        codes = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2).long()
        values = E2M1[codes & 7] * torch.where(codes >= 8, -1.0, 1.0)
        scales = parts["weight_scale"].double().repeat_interleave(16, dim=-1)
        return values * scales / parts["weight_global_scale"].double()


def check_declaration(results, name, quantized):
    """Every linear and the embedding table: declared quantized there if and only if it is here."""
    linears = {n.removesuffix(".weight") for n, t in quantized.tensors.items()
               if n.endswith(".weight") and t.ndim == 2
               and ("embed" not in n or n.endswith("embed_tokens.weight"))}
    wrong = [m for m in linears | set(quantized.modules)
             if (quantized.scheme(m) is not None) != (m in quantized.modules)]
    results.check(not wrong, f"{name}: the package finds what is quantized among {len(linears)} "
                  f"linears{wrong[:3] or ''}")


def named_by(name, entries):
    """TensorRT-LLM as read: patterns from the start of a name; else the name itself."""
    return any(re.match(e[3:], name) if e.startswith("re:") else e == name for e in entries)


def check_tensorrt(results, name, quantized):
    """TensorRT-LLM is not installed here. By its rules (compressed_tensors.py of 2026-11) it calls
    layers as the file does, and wants each target of several groups to match a module."""
    groups = list(quantized.config.config_groups.values())
    targets = [t for group in groups for t in group.targets]
    linears = sorted({n.removesuffix(".weight") for n, t in quantized.tensors.items()
                      if n.endswith(".weight") and t.ndim == 2 and "embed" not in n
                      and "norm" not in n} | {m for m in quantized.modules if "embed" not in m})
    wrong = []
    for module in linears:
        found = not named_by(module, quantized.config.ignore) and (
            "Linear" in targets and module != "lm_head" or named_by(module, targets))
        if found != (module in quantized.modules):
            wrong.append(module)
    results.check(not wrong, f"{name}: TensorRT-LLM's rules find what is quantized among "
                  f"{len(linears)} linears {wrong[:3] or ''}")
    idle = [t for t in targets if t != "Linear"
            and not any(named_by(m, [t]) for m in quantized.modules)]
    results.check(not idle and (len(groups) == 1 or "Linear" not in targets),
                  f"{name}: every target names a module {idle or ''}")


def check_decoding(results, name, quantized):
    differing = [m for m in quantized.modules
                 if not torch.equal(quantized.decompressed(m).double(), quantized.exact(m))]
    results.check(not differing, f"{name}: {len(quantized.modules)} modules: decompressed there, "
                  f"they give the exact weight; {len(differing)} differ")


def canonical(packed):
    """Negative zero (code 8) as zero: the package keeps the sign, we do not."""
    low, high = packed & 15, packed >> 4
    low, high = torch.where(low == 8, 0, low), torch.where(high == 8, 0, high)
    return low | high << 4


def check_amax(results, name, quantized, source):
    """The package, given our global scale and F32 weights, makes our scales and codes. The one
    documented difference: a block scale that rounds to zero is 2^-9 here and 0.125 there."""
    scales_differ = codes_differ = blocks = floor_blocks = 0
    for module in quantized.modules:
        ours = quantized.parts(module)
        weight = source_weight(source, module).float()
        scheme, compressor = quantized.scheme(module), quantized.compressor(module)
        if "weight" in ours:
            state = {"weight": weight, "weight_scale": ours["weight_scale"]}
            packed = compressor.compress(state, scheme)["weight"]
            codes_differ += int((packed.float() != ours["weight"].float()).sum())
            blocks += 1
            continue
        groups = weight.unflatten(-1, (-1, 16))
        theirs, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), scheme.weights,
                                      global_scale=ours["weight_global_scale"])
        state = {"weight": weight, "weight_scale": theirs,
                 "weight_global_scale": ours["weight_global_scale"]}
        packed = compressor.compress(state, scheme)
        floor = (ours["weight_scale"].float() == 2**-9) | (groups.abs().amax(-1) == 0)
        same = (packed["weight_scale"].float() == ours["weight_scale"].float()) | floor
        scales_differ += int((~same).sum())
        equal = canonical(packed["weight_packed"]) == canonical(ours["weight_packed"])
        codes_differ += int((~equal.unflatten(-1, (-1, 8)).all(-1) & ~floor).sum())
        blocks += same.numel()
        floor_blocks += int(floor.sum())
    results.check(scales_differ == 0, f"{name}, amax: {scales_differ} of {blocks} block scales "
                  f"differ from the package's ({floor_blocks} zero or at the floor, not compared)")
    results.check(codes_differ == 0, f"{name}, amax: {codes_differ} of {blocks} blocks have "
                  "other codes")


def load_there(folder, source):
    """transformers 5.23 reads a folder with one scheme. Of several it takes one for all dense
    layers, so a mixed file's weights are set into the source's model instead."""
    mixed = len(json.loads((folder / "config.json").read_text())
                ["quantization_config"]["config_groups"]) > 1
    config = {} if mixed else {"quantization_config": CompressedTensorsConfig(dequantize=True)}
    model, info = transformers.AutoModelForImageTextToText.from_pretrained(
        source if mixed else folder, dtype=torch.float32, output_loading_info=True, **config)
    assert not info["missing_keys"], info["missing_keys"]
    return model.float()


def reference_logits(folder, source, quantized, ids):
    """Every quantized weight is what the package decompresses; of a file with one scheme
    transformers reads the dense ones itself. It leaves the global scale out when it fuses NVFP4
    experts (5.23)."""
    model = load_there(folder, source)
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for module in quantized.modules:
            weight = quantized.decompressed(module).float()
            if f"{module}.weight" in parameters:
                parameters[f"{module}.weight"].copy_(weight)
                continue
            layer, expert, projection = module.rsplit(".", 2)
            if projection == "down_proj":
                parameters[f"{layer}.down_proj"][int(expert)] = weight
                continue
            gate_up = parameters[f"{layer}.gate_up_proj"][int(expert)]
            rows = gate_up.shape[0] // 2
            gate_up[slice(0, rows) if projection == "gate_proj" else slice(rows, None)] = weight
        return model(input_ids=torch.tensor([ids])).logits[0]


def score(nibble, folder, ids, work):
    (work / "ids.json").write_text(json.dumps({"ids": ids}))
    out = work / f"{folder.name}-logits.safetensors"
    subprocess.run([nibble, "score", folder, "--ids", work / "ids.json", "--logits", out,
                    "--activations", "f32"], check=True, capture_output=True)
    return load_file(out)["logits"]


def check_logits(results, nibble, source, folders, quantized, work):
    config = json.loads((folders["compressed-tensors"] / "config.json").read_text())
    rows = config.get("text_config", config)["vocab_size"]
    random = torch.Generator().manual_seed(1)
    ids = torch.randint(0, rows * 9 // 10, (96,), generator=random).tolist()
    theirs = reference_logits(folders["compressed-tensors"], source, quantized, ids)
    ours = {name: score(nibble, folder, ids, work) for name, folder in folders.items()}
    for folder_name, logits in ours.items():
        error = float((logits - theirs).pow(2).mean().sqrt() / theirs.std())
        results.check(error < LOGITS_BAR, f"{folders[folder_name].name}: logits differ from "
                      f"transformers' by {error:.2e} of their deviation")
    if len(ours) == 2:
        first, second = ours.values()
        results.check(torch.equal(first, second), "both dialects: the same logits to the last bit")


# The head of mixed has a scale for each row in one dialect and one scale in the other.
RECIPES = {"mixed": ("compressed-tensors",),
           "mixed-nvfp4-head": ("compressed-tensors", "modelopt"),
           "w4a16": ("compressed-tensors", "modelopt"), "allocated": ("compressed-tensors",),
           "fp8": ("compressed-tensors",), "w4a4-fp8-head": ("compressed-tensors",),
           "lab-fp8-embed": ("compressed-tensors",)}

# A choice of formats under a budget, which differ within and between layers.
PROSE = pathlib.Path(__file__).resolve().parents[2] / "pebble" / "tasks" / "prose.jsonl"
ALLOCATED = ["--target-bytes", "16MB", "--calib", PROSE, "--calib-samples", "12",
             "--calib-length", "128", "--backend", "cpu"]


def check_recipe(results, nibble, model, recipe, work):
    def quantize(name, *flags):
        folder = work / f"{recipe}-{name}"
        way = ALLOCATED if recipe == "allocated" else ["--recipe", recipe]
        subprocess.run([nibble, "quantize", model, folder, *way, "--no-progress", *flags],
                       check=True, capture_output=True)
        return folder

    folders = {dialect: quantize(dialect, "--format", dialect) for dialect in RECIPES[recipe]}
    quantized = Quantized(folders["compressed-tensors"])
    check_declaration(results, recipe, quantized)
    check_tensorrt(results, recipe, quantized)
    check_decoding(results, recipe, quantized)
    check_amax(results, recipe, Quantized(quantize("amax", "--algorithm", "amax")),
               tensors_of(model))
    check_logits(results, nibble, model, folders, quantized, work)


def main():
    nibble, model = sys.argv[1], pathlib.Path(sys.argv[2])
    results = Results()
    with tempfile.TemporaryDirectory() as name:
        for recipe in RECIPES:
            check_recipe(results, nibble, model, recipe, pathlib.Path(name))
    print(f"{results.passed} passed, {results.failed} failed")
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main())

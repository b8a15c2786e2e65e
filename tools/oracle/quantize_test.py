"""Holds what `nibble quantize` writes against compressed-tensors and transformers.

quantize_test.py NIBBLE MODEL: quantizes MODEL (BF16) and checks, module by module, that the
package's decompression gives our weights exactly and that plain amax/6 gives the package's codes
and scales; then that transformers, with weights as the package reads them, gives the logits of
`nibble score` in both dialects. Prints 'N passed, N failed'. Part of ./test --full: needs torch.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors import safe_open
from safetensors.torch import load_file
from transformers.utils.quantization_config import CompressedTensorsConfig

LOGITS_BAR = 1e-3  # rms difference over the standard deviation of the logits
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)


class Results:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, good, text):
        self.passed += bool(good)
        self.failed += not good
        print(("ok    " if good else "FAIL  ") + text, flush=True)


def tensors_of(folder):
    out = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            out |= {name: file.get_tensor(name) for name in file.keys()}
    return out


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
        self.scheme = self.config.config_groups["group_0"]
        self.compressor = BaseCompressor.get_value_from_registry(self.scheme.format)
        suffix = ".weight_packed"
        self.modules = sorted(n.removesuffix(suffix) for n in self.tensors if n.endswith(suffix))

    def parts(self, module):
        names = ("weight_packed", "weight_scale", "weight_global_scale")
        return {name: self.tensors[f"{module}.{name}"] for name in names}

    def decompressed(self, module):
        return self.compressor.decompress(self.parts(module), self.scheme)["weight"]

    def exact(self, module):
        """code * scale / global in float64, from the format's definition alone."""
        parts = self.parts(module)
        packed = parts["weight_packed"]
        codes = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2).long()
        values = E2M1[codes & 7] * torch.where(codes >= 8, -1.0, 1.0)
        scales = parts["weight_scale"].double().repeat_interleave(16, dim=-1)
        return values * scales / parts["weight_global_scale"].double()


def check_decoding(results, quantized):
    differing = [m for m in quantized.modules
                 if not torch.equal(quantized.decompressed(m).double(), quantized.exact(m))]
    dtype = quantized.decompressed(quantized.modules[0]).dtype
    results.check(not differing, f"{len(quantized.modules)} modules: decompressed there, in "
                  f"{dtype}, gives the exact weight; {len(differing)} differ")


def canonical(packed):
    """Negative zero (code 8) as zero: the package keeps the sign, we do not."""
    low, high = packed & 15, packed >> 4
    low, high = torch.where(low == 8, 0, low), torch.where(high == 8, 0, high)
    return low | high << 4


def check_amax(results, quantized, source):
    """The package, given our global scale and F32 weights, makes our scales and codes. The one
    documented difference: a block scale that rounds to zero is 2^-9 here and 0.125 there."""
    scales_differ = codes_differ = blocks = floor_blocks = 0
    for module in quantized.modules:
        ours = quantized.parts(module)
        weight = source_weight(source, module).float()
        groups = weight.unflatten(-1, (-1, 16))
        theirs, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), quantized.scheme.weights,
                                      global_scale=ours["weight_global_scale"])
        state = {"weight": weight, "weight_scale": theirs,
                 "weight_global_scale": ours["weight_global_scale"]}
        packed = quantized.compressor.compress(state, quantized.scheme)
        floor = (ours["weight_scale"].float() == 2**-9) | (groups.abs().amax(-1) == 0)
        same = (packed["weight_scale"].float() == ours["weight_scale"].float()) | floor
        scales_differ += int((~same).sum())
        equal = canonical(packed["weight_packed"]) == canonical(ours["weight_packed"])
        codes_differ += int((~equal.unflatten(-1, (-1, 8)).all(-1) & ~floor).sum())
        blocks += same.numel()
        floor_blocks += int(floor.sum())
    results.check(scales_differ == 0, f"amax: {scales_differ} of {blocks} block scales differ from "
                  f"the package's ({floor_blocks} zero or at the floor, not compared)")
    results.check(codes_differ == 0, f"amax: {codes_differ} of {blocks} blocks have other codes")


def reference_logits(folder, quantized, ids):
    """transformers reads the checkpoint; experts are then set from the package's decompression,
    because transformers 5.23 leaves the global scale out when it fuses NVFP4 experts."""
    model, info = transformers.AutoModelForImageTextToText.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True,
        quantization_config=CompressedTensorsConfig(dequantize=True))
    assert not info["missing_keys"], info["missing_keys"]
    with torch.no_grad():
        for name, experts in model.named_modules():
            if not name.endswith(".mlp.experts") or f"{name}.0.gate_proj" not in quantized.modules:
                continue
            for e in range(experts.gate_up_proj.shape[0]):
                gate, up, down = (quantized.decompressed(f"{name}.{e}.{projection}_proj")
                                  for projection in ("gate", "up", "down"))
                experts.gate_up_proj.data[e] = torch.cat((gate, up)).to(experts.gate_up_proj)
                experts.down_proj.data[e] = down.to(experts.down_proj)
        return model.float()(input_ids=torch.tensor([ids])).logits[0]


def score(nibble, folder, ids, work):
    (work / "ids.json").write_text(json.dumps({"ids": ids}))
    out = work / f"{folder.name}-logits.safetensors"
    subprocess.run([nibble, "score", folder, "--ids", work / "ids.json", "--logits", out,
                    "--activations", "f32"], check=True, capture_output=True)
    return load_file(out)["logits"]


def check_logits(results, nibble, folders, quantized, work):
    config = json.loads((folders["compressed-tensors"] / "config.json").read_text())
    rows = config.get("text_config", config)["vocab_size"]
    random = torch.Generator().manual_seed(1)
    ids = torch.randint(0, rows * 9 // 10, (96,), generator=random).tolist()
    theirs = reference_logits(folders["compressed-tensors"], quantized, ids)
    ours = {name: score(nibble, folder, ids, work) for name, folder in folders.items()}
    for name, logits in ours.items():
        error = float((logits - theirs).pow(2).mean().sqrt() / theirs.std())
        results.check(error < LOGITS_BAR, f"{name}: logits differ from transformers' by "
                      f"{error:.2e} of their deviation")
    first, second = ours.values()
    results.check(torch.equal(first, second), "both dialects give the same logits to the last bit")


def main():
    nibble, model = sys.argv[1], pathlib.Path(sys.argv[2])
    results = Results()
    source = tensors_of(model)
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        folders = {}
        for kind, flags in (("compressed-tensors", ()), ("modelopt", ("--format", "modelopt")),
                            ("amax", ("--algorithm", "amax"))):
            folders[kind] = work / kind
            subprocess.run([nibble, "quantize", model, folders[kind], "--no-progress", *flags],
                           check=True, capture_output=True)
        amax = folders.pop("amax")
        quantized = Quantized(folders["compressed-tensors"])
        check_decoding(results, quantized)
        check_amax(results, Quantized(amax), source)
        check_logits(results, nibble, folders, quantized, work)
    print(f"{results.passed} passed, {results.failed} failed")
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main())

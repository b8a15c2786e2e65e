#!/usr/bin/env python3
"""Tiny quantized checkpoints and what compressed-tensors + transformers compute with them.

  model_quantized_golden.py            writes tests/golden/model-quantized
  model_quantized_golden.py --check    makes the cases again and compares with the files

Weights and run-time activations go through compressed-tensors' own functions. A folder is like
those of model_golden.py; logits.f32 holds the forward with quantized activations, logits_high.f32
the one with quantized weights only. modelopt-* has the same numbers under ModelOpt's names, qwen-*
under those of Qwen's own FP8 releases.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import numpy
import torch
from compressed_tensors.compressors.model_compressors import ModelCompressor
from compressed_tensors.quantization import (QuantizationConfig, QuantizationScheme,
                                             QuantizationStatus, apply_quantization_config,
                                             preset_name_to_scheme)
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from safetensors.torch import save_file
from torch import nn

import codec_cases
import model_cases as cases

ROOT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "model-quantized"
LENGTHS = (64, 29)
L, F = cases.LINEAR, cases.FULL
FUSED = [("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")]  # share one global scale


class Expert(nn.Module):
    def __init__(self, gate_up, down):
        super().__init__()
        width = gate_up.shape[0] // 2
        self.gate_proj = self.linear(gate_up[:width])
        self.up_proj = self.linear(gate_up[width:])
        self.down_proj = self.linear(down)

    @staticmethod
    def linear(weight):
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        layer.weight.data = weight.detach().clone()
        return layer

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class SeparateExperts(nn.ModuleList):
    """The fused experts as linears, so that compressed-tensors can see them."""

    def __init__(self, fused):
        super().__init__(Expert(*pair) for pair in zip(fused.gate_up_proj, fused.down_proj))

    def forward(self, x, index, weights):
        out = torch.zeros_like(x)
        for token in range(x.shape[0]):
            for expert, weight in zip(index[token].tolist(), weights[token]):
                out[token] += weight * self[expert](x[token:token + 1])[0]
        return out


def unfuse(model):
    for module in model.modules():
        if type(getattr(module, "experts", None)).__name__.endswith("Experts"):
            module.experts = SeparateExperts(module.experts)
    return model


NOT_MIXERS = ["lm_head", "re:.*linear_attn.*", "re:.*mlp.gate$", "re:.*shared_expert_gate$",
              "re:.*visual.*"]


def moe_text():
    return cases.hybrid(101, 48, [L, F, L], (6, 2), 16, (2, 4, 8, 12), cases.rope([2, 1, 1]),
                        num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32,
                        shared_expert_intermediate_size=16)


def build(name):
    """Model and quantization config."""
    if name in ("nvfp4-w4a4", "modelopt-nvfp4"):
        config = QuantizationConfig(
            config_groups={"group_0": preset_name_to_scheme("NVFP4", ["Linear"])},
            ignore=NOT_MIXERS)
        return cases.moe_model(moe_text()), config
    if name == "nvfp4-w4a16":
        text = cases.hybrid(113, 64, [L, L, F], (4, 2), 16, (2, 6, 8, 16), cases.rope([2, 1, 1]),
                            intermediate_size=80)
        config = QuantizationConfig(
            config_groups={"group_0": preset_name_to_scheme("NVFP4A16", ["Linear"])},
            ignore=["re:.*in_proj_[ab]$", "re:.*visual.*"])
        return cases.dense_model(text), config
    if name == "qwen-fp8":
        text = cases.hybrid(61, 128, [L, F], (2, 1), 64, (1, 2, 8, 64), cases.rope([6, 5, 5]),
                            intermediate_size=128)
        config = QuantizationConfig(
            config_groups={"group_0": preset_name_to_scheme("FP8_BLOCK", ["Linear"])},
            ignore=["lm_head", "re:.*in_proj_[ab]$", "re:.*visual.*"])
        return cases.dense_model(text), config
    text = cases.hybrid(97, 128, [L, F], (3, 1), 48, (2, 4, 8, 16), cases.rope([4, 4, 4]),
                        intermediate_size=256)
    if name == "fp8-mixed":
        targets = [("FP8_DYNAMIC", ["re:.*self_attn.*"]),
                   ("FP8_BLOCK", ["re:.*mlp.*", "re:.*lm_head"]),
                   ("FP8", ["re:.*linear_attn.*_proj$", "re:.*in_proj_(qkv|z)$"]),
                   ("NVFP4", ["model.language_model.layers.1.mlp.down_proj"])]
        groups = {f"group_{i}": preset_name_to_scheme(*one) for i, one in enumerate(targets)}
        config = QuantizationConfig(config_groups=groups,
                                    ignore=["re:.*in_proj_[ab]$", "re:.*visual.*"])
        return cases.dense_model(text), config
    raise ValueError(name)


NAMES = ["nvfp4-w4a4", "nvfp4-w4a16", "fp8-mixed", "modelopt-nvfp4", "qwen-fp8"]


def linears(model):
    return {name: module for name, module in model.named_modules()
            if getattr(module, "quantization_scheme", None) is not None}


def group_of(name):
    head, _, tail = name.rpartition(".")
    members = next((members for members in FUSED if tail in members), (tail,))
    return [f"{head}.{member}" if head else member for member in members]


def observe_inputs(model, sequences):
    """Largest input of every quantized linear over the text."""
    largest, hooks = {}, []
    for name, module in linears(model).items():
        module.quantization_enabled = False
        hooks.append(module.register_forward_pre_hook(
            lambda _, inputs, name=name: largest.update(
                {name: max(largest.get(name, 1e-3), float(inputs[0].abs().max()))})))
    logits_of(model, sequences)
    for hook in hooks:
        hook.remove()
    for module in linears(model).values():
        module.quantization_enabled = True
    return largest


def set_weight_scales(name, module, modules):
    args, weight = module.quantization_scheme.weights, module.weight.data
    strategy, global_scale = str(getattr(args.strategy, "value", args.strategy)), None
    if strategy == "tensor_group":
        amax = max(float(modules[other].weight.data.abs().max()) for other in group_of(name))
        global_scale = generate_gparam(torch.tensor(-amax), torch.tensor(amax))
        module.weight_global_scale.data = global_scale
        groups = weight.unflatten(-1, (-1, 16))
        low, high = groups.amin(-1), groups.amax(-1)
    elif strategy == "channel":
        low, high = weight.amin(-1, keepdim=True), weight.amax(-1, keepdim=True)
    elif strategy == "block":
        rows, cols = -(-weight.shape[0] // 128), -(-weight.shape[1] // 128)
        tiles = nn.functional.pad(weight, (0, cols * 128 - weight.shape[1],
                                           0, rows * 128 - weight.shape[0]))
        tiles = tiles.reshape(rows, 128, cols, 128).transpose(1, 2).flatten(2)
        low, high = tiles.amin(-1), tiles.amax(-1)
    else:
        low, high = torch.aminmax(weight)
    scale, _ = calculate_qparams(low, high, args, global_scale=global_scale)
    if global_scale is None:  # real files keep FP8 scales in BF16
        scale = scale.to(torch.bfloat16).float()
    module.weight_scale.data = scale.to(module.weight_scale.dtype)


def set_input_scales(module, amax):
    args = module.quantization_scheme.input_activations
    if args is None:
        return
    high = torch.tensor(amax)
    if getattr(module, "input_global_scale", None) is not None:
        module.input_global_scale.data = generate_gparam(-high, high)
    elif args.dynamic is False:
        module.input_scale.data = calculate_qparams(-high, high, args)[0]


def quantize(model, config, sequences):
    apply_quantization_config(model, config, show_progress=False)
    modules = linears(model)
    largest = observe_inputs(model, sequences)
    for name, module in modules.items():
        set_weight_scales(name, module, modules)
        shared = max(largest.get(other, 1e-3) for other in group_of(name))
        set_input_scales(module, 1.5 * shared)
        module.quantization_status = QuantizationStatus.FROZEN


def logits_of(model, sequences):
    with torch.no_grad():
        return torch.cat([model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
                          for ids in sequences]).float().numpy()


def weights_only(model, sequences):
    """Logits with the activation quantization taken away."""
    kept = {}
    for name, module in linears(model).items():
        kept[name] = module.quantization_scheme
        module.quantization_scheme = kept[name].model_copy(update=dict(input_activations=None))
    logits = logits_of(model, sequences)
    for name, module in linears(model).items():
        module.quantization_scheme = kept[name]
    return logits


def stored_type(name, tensor):
    if tensor.dtype != torch.float32 or "global_scale" in name or name.endswith("input_scale"):
        return tensor.dtype
    return torch.float32 if cases.keep_f32(name) else torch.bfloat16


def compress(model, folder):
    """The checkpoint as compressed-tensors writes it."""
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    tensors = {name: tensor.to(stored_type(name, tensor)).contiguous()
               for name, tensor in model.state_dict().items() if "visual" not in name}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model.config.save_pretrained(folder)
    compressor.update_config(str(folder))
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["architectures"] = [type(model).__name__]
    path.write_text(json.dumps(config, indent=1) + "\n")
    return tensors


def to_modelopt(folder, tensors):
    """The same codes under ModelOpt's names, second-level scales as multipliers."""
    out, quantized = {}, []
    for name, tensor in tensors.items():
        module, _, leaf = name.rpartition(".")
        if leaf == "weight_packed":
            out[f"{module}.weight"] = tensor
            quantized.append(module)
        elif leaf == "weight_global_scale":
            out[f"{module}.weight_scale_2"] = (1.0 / tensor).reshape([])
        elif leaf == "input_global_scale":
            out[f"{module}.input_scale"] = (1.0 / tensor).reshape([])
        else:
            out[name] = tensor
    save_file(out, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config["quantization_config"]
    path.write_text(json.dumps(config, indent=1) + "\n")
    layers = {module: dict(quant_algo="NVFP4", group_size=16) for module in quantized}
    side = dict(producer=dict(name="modelopt", version="0.45.0"),
                quantization=dict(quant_algo="MIXED_PRECISION", kv_cache_quant_algo=None,
                                  exclude_modules=["lm_head", "*linear_attn*"],
                                  quantized_layers=layers))
    (folder / "hf_quant_config.json").write_text(json.dumps(side, indent=1) + "\n")


LINEAR_CASES = ["model.language_model.layers.0.mlp.experts.2.gate_proj",
                "model.language_model.layers.1.mlp.experts.0.down_proj",
                "model.language_model.layers.1.self_attn.q_proj",
                "model.language_model.layers.2.mlp.shared_expert.up_proj"]


def to_qwen_fp8(folder, tensors):
    """The same under the names and the config of Qwen's own FP8 releases."""
    out = {name.replace(".weight_scale", ".weight_scale_inv"): tensor
           for name, tensor in tensors.items()}
    save_file(out, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] = dict(
        quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[128, 128],
        modules_to_not_convert=["lm_head"])
    path.write_text(json.dumps(config, indent=1) + "\n")


def linear_cases(model):
    """Single quantized linears on given BF16 inputs: codes, scales and outputs of the package."""
    out, random = {}, torch.Generator().manual_seed(3)
    for name in LINEAR_CASES:
        module = linears(model)[name]
        x = torch.randn(6, module.in_features, generator=random) * torch.logspace(-2, 1, 6)[:, None]
        x[1, :16] = 0.0
        x = x.to(torch.bfloat16)
        codec_cases.nvfp4_input_case(out, name, x.float(), module.input_global_scale)
        del out[f"{name}/out"]
        out[f"{name}/x"] = x
        with torch.no_grad():
            out[f"{name}/y"] = module(x.float())
    return {name: tensor.contiguous() for name, tensor in out.items()}


def write(name, folder):
    model, config = build(name)
    cases.fill(model, 11, lambda n: torch.float32 if cases.keep_f32(n) else torch.bfloat16)
    unfuse(model)
    ids = cases.sequences(model.config.text_config.vocab_size, LENGTHS, seed=5)
    quantize(model, config, ids)
    declared, high = logits_of(model, ids), weights_only(model, ids)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if name == "nvfp4-w4a4":
        save_file(linear_cases(model), folder / "linear_cases.bin")
    tensors = compress(model, folder)
    if name.startswith("modelopt"):
        to_modelopt(folder, tensors)
    if name == "qwen-fp8":
        to_qwen_fp8(folder, tensors)
    (folder / "expected.json").write_text(json.dumps(dict(ids=ids)) + "\n")
    declared.astype("<f4").tofile(folder / "logits.f32")
    high.astype("<f4").tofile(folder / "logits_high.f32")
    for path in folder.iterdir():
        path.chmod(0o644)
    difference = numpy.sqrt(((declared - high) ** 2).mean()) / high.std()
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name}: {size} bytes, {len(linears(model))} quantized linears, activations change the "
          f"logits by {difference:.3f} of their deviation")


def check(name):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / name
        write(name, folder)
        errors = []
        for file in ("logits.f32", "logits_high.f32"):
            stored = numpy.fromfile(ROOT / name / file, "<f4")
            fresh = numpy.fromfile(folder / file, "<f4")
            errors.append(float(numpy.sqrt(((fresh - stored) ** 2).mean()) / stored.std()))
    fine = max(errors) < 0.02  # another torch may round a code the other way
    print(f"{'ok  ' if fine else 'FAIL'} {name}: logits differ by {errors}")
    return fine


if __name__ == "__main__":
    sys.exit(cases.run_goldens(__doc__, NAMES, lambda name: write(name, ROOT / name), check))

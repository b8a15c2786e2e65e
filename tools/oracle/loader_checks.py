"""The folders that vllm_loads.py and sglang_loads.py load, and the checks of what was loaded.

run(engine, NIBBLE, MODEL) quantizes MODEL by every recipe in every dialect that can say it, writes
a random-weight checkpoint of its shape in every layout of `nibble synth`, and quantizes its dense
sibling. The engine builds
the text model, the vision tower and the MTP draft model of each folder and loads the weights. Every
parameter must hold the bytes of the file's tensors, none may be left uninitialised, and every
tensor must be used. Prints what each module resolves to, then 'N passed, N failed'.
"""

import collections
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import traceback
import typing

import torch
from safetensors import safe_open

OWN_ENVIRONMENT = dict(os.environ)  # vLLM adds an LD_PRELOAD
FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
}
DIALECTS = ("compressed-tensors", "modelopt")
RECIPES = {"mixed": DIALECTS, "w4a16": DIALECTS, "w4a4": DIALECTS, "experts-only": DIALECTS,
           "fp8": DIALECTS, "mixed-nvfp4-head": DIALECTS, "mixed-mtp": DIALECTS,
           # Formats chosen under a budget, which differ within and between layers. With the larger
           # one some layers keep their experts, the first among them.
           "allocated-16MB": DIALECTS, "allocated-26MB": DIALECTS,
           "w4a4-fp8-head": DIALECTS[:1], "lab-fp8-embed": DIALECTS[:1]}
LAYOUTS = ("mixed", "mixed-nvfp4-head", "nvfp4", "w4a4", "fp8", "bf16")
ROOT = pathlib.Path(__file__).resolve().parents[2]
CALIBRATION = ["--calib", ROOT / "pebble" / "tasks" / "prose.jsonl", "--calib-samples", "12",
               "--calib-length", "128", "--backend", "cpu"]
# The recipe `mixed` with the layer that drafts in NVFP4.
MIXED = ROOT / "recipes" / "mixed.yaml"
NVFP4_MTP = ("  - match: 're:mtp\\.layers\\.\\d+\\.(self_attn\\.[qkvo]_proj|mlp\\."
             "(experts\\.\\d+\\.|shared_expert\\.)?(gate|up|down)_proj)$'\n    weights: nvfp4\n")


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A model as an engine built it: what became of its modules by name, and its parameters after
    each of two loads into memory that held other bytes."""
    modules: dict[str, str]
    loads: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]


@dataclasses.dataclass(frozen=True)
class Engine:
    name: str
    # The file's name of one of the engine's modules; True for those of the draft model.
    file_module: typing.Callable[[str, bool], str]
    load: typing.Callable[[pathlib.Path, bool], Loaded]
    # Says how the engine refuses a folder, given the words that are expected; or is empty.
    refusal: typing.Callable[[pathlib.Path, str], str]
    # Folders that the engine refuses, and words of what it says. Their cards name the engine but
    # not its command.
    refused: dict[str, str]
    command: str


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


def as_bytes(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def became_of(model):
    """The class that each module got for its weights, for those that have any."""
    out = {}
    for name, module in model.named_modules():
        method = getattr(module, "quant_method", None)
        if method is not None:
            out[name] = type(getattr(module, "scheme", None) or method).__name__
    return out


def fill(model, byte):
    for parameter in model.parameters():
        parameter.data.reshape(-1).view(torch.uint8).fill_(byte)


def is_of_cache(name):
    """Scales of the KV cache: engines have a value for files that bring none."""
    return re.search(r"\.(k|v|q|prob)_(scale|zero_point)$", name)


def expected_of(tensors, module, suffix):
    """The names of the file's tensors that make up a parameter, and what they make; None where one
    is missing."""
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
    """Bytes are equal; where the engine keeps another float type, values. A scale of one matrix may
    stand once for each part that the engine sees in it, and one of a whole expert once."""
    if parameter.numel() == expected.numel():
        if parameter.dtype == expected.dtype:
            return torch.equal(as_bytes(parameter), as_bytes(expected))
        return torch.equal(parameter.float().reshape(-1), expected.float().reshape(-1))
    if expected.dtype != torch.float32:
        return False
    values = set(expected.reshape(-1).tolist())
    return set(parameter.float().reshape(-1).tolist()) == values


def check_parameters(results, engine, name, tensors, loads, draft):
    """Two loads into memory that held other bytes give the same: nothing is left uninitialised."""
    first, second = loads
    left = [n for n in first if not torch.equal(as_bytes(first[n]), as_bytes(second[n]))]
    results.check(not left, f"{name}: {len(first)} parameters, {len(left)} left uninitialised "
                  f"{left[:3] or ''}")
    used, wrong = set(), []
    for parameter, value in first.items():
        module, suffix = parameter.rsplit(".", 1)
        names, expected = expected_of(tensors, engine.file_module(module, draft), suffix)
        used.update(names)
        if expected is None or not same(value, expected):
            wrong.append(parameter)
    results.check(not wrong, f"{name}: every parameter holds the file's bytes; {len(wrong)} do not "
                  f"{wrong[:3] or ''}")
    return used


def check_resolution(results, engine, name, tensors, modules, draft):
    """A module is unquantized there if and only if the file holds plain weights for it."""
    wrong, shapes = [], collections.defaultdict(set)
    for module, became in modules.items():
        shapes[re.sub(r"\d+", "N", module)].add(became)
        plain = became.startswith("Unquantized")
        prefix = engine.file_module(module, draft)
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
    results.check(not wrong, f"{name}: {len(modules)} modules resolve to what the file holds; "
                  f"{len(wrong)} do not {wrong[:3] or ''}")


def check_folder(results, engine, folder):
    tensors = tensors_of(folder)
    used = set()
    for draft in (False, True) if any(n.startswith("mtp.") for n in tensors) else (False,):
        name = f"{folder.name}{' (MTP)' if draft else ''}"
        try:
            loaded = engine.load(folder, draft)
            check_resolution(results, engine, name, tensors, loaded.modules, draft)
            used |= check_parameters(results, engine, name, tensors, loaded.loads, draft)
        except Exception as failure:  # whatever stops the engine is what users would see
            traceback.print_exc(file=sys.stdout)
            results.check(False, f"{name}: {type(failure).__name__}: {str(failure)[:300]}")
            return
    rest = [n for n in tensors if n not in used]
    results.check(not rest, f"{folder.name}: {len(tensors)} tensors, {len(rest)} never used "
                  f"{rest[:3] or ''}")


def check_refused(results, engine, folder, words):
    said = engine.refusal(folder, words)
    card = (folder / "README.md").read_text()
    results.check(words in said and engine.name in card and engine.command not in card,
                  f"{folder.name}: {engine.name} refuses it, as its card says: {said[:150]}")


def recipe_words(folder, recipe):
    if recipe.startswith("allocated-"):
        return ["--target-bytes", recipe.removeprefix("allocated-"), *CALIBRATION]
    if recipe != "mixed-mtp":
        return ["--recipe", recipe]
    file = folder.with_suffix(".yaml")
    file.write_text(MIXED.read_text() + NVFP4_MTP)
    return ["--recipe", file]


def made(command):
    result = subprocess.run(command, capture_output=True, text=True, env=OWN_ENVIRONMENT)
    assert result.returncode == 0, result.stderr[-2000:]


def write_dense_config(mixture, file):
    """The config of a model like this one, but with one MLP in each layer."""
    config = json.loads(mixture.read_text())
    config |= {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5"}
    text = {key: value for key, value in config["text_config"].items() if "expert" not in key}
    config["text_config"] = text | {"model_type": "qwen3_5_text", "intermediate_size": 512}
    file.write_text(json.dumps(config))


def run(engine, nibble, model):
    results = Results()
    config = pathlib.Path(model) / "config.json"

    def quantized(source, folder, way, dialect):
        made([nibble, "quantize", source, folder, *way, "--format", dialect, "--no-progress"])

    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        for recipe, dialects in RECIPES.items():
            for dialect in dialects:
                folder = work / f"{recipe}-{dialect}"
                quantized(model, folder, recipe_words(folder, recipe), dialect)
                if folder.name in engine.refused:
                    check_refused(results, engine, folder, engine.refused[folder.name])
                else:
                    check_folder(results, engine, folder)
        for layout in LAYOUTS:
            made([nibble, "synth", config, work / f"synth-{layout}", "--layout", layout])
            check_folder(results, engine, work / f"synth-{layout}")
        write_dense_config(config, work / "dense.json")
        made([nibble, "synth", work / "dense.json", work / "dense", "--layout", "bf16"])
        for dialect in DIALECTS:
            quantized(work / "dense", work / f"dense-{dialect}", [], dialect)
            check_folder(results, engine, work / f"dense-{dialect}")
    print(f"{results.passed} passed, {results.failed} failed")
    return 1 if results.failed else 0

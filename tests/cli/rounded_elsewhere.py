"""A quantized checkpoint as llm-compressor would have written it, from one of ours: the same names
and declaration, but the global scale is 2688 / amax in BF16, block scales are nearest to amax / 6,
codes are rounded in numpy, and the files beside the weights are saved as newer libraries do.
What this is not: a copy of that program; it shares only formats with ours.
"""

import json
import shutil

import numpy
from damaged_checkpoint import edit_json, read_header, shards, write_header

E2M1 = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], numpy.float32)
BOUNDS = numpy.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5], numpy.float32)


def e4m3_values():
    codes = numpy.arange(127)
    exponent, fraction = codes >> 3, codes & 7
    normal = (1 + fraction / 8) * 2.0 ** (exponent - 7)
    return numpy.where(exponent == 0, fraction / 8 * 2.0 ** -6, normal).astype(numpy.float32)


E4M3 = e4m3_values()


def bf16(raw, shape):
    return (numpy.frombuffer(raw, numpy.uint16).astype(numpy.uint32) << 16).view(
        numpy.float32).reshape(shape)


def to_bf16(value):
    bits = numpy.array([value], numpy.float32).view(numpy.uint32)
    return float(((bits + 0x8000) & 0xFFFF0000).astype(numpy.uint32).view(numpy.float32)[0])


def source_weights(model):
    """Every linear of the source by its module's name, fused experts taken apart."""
    weights = {}
    for path in shards(model):
        header, body = read_header(path)
        for name, facts in header.items():
            if name == "__metadata__" or facts["dtype"] != "BF16":
                continue
            values = bf16(body[slice(*facts["data_offsets"])], facts["shape"])
            if name.endswith("experts.gate_up_proj"):
                half = values.shape[1] // 2
                for i, one in enumerate(values):
                    base = name.removesuffix("gate_up_proj") + str(i)
                    weights[base + ".gate_proj"] = one[:half]
                    weights[base + ".up_proj"] = one[half:]
            elif name.endswith("experts.down_proj"):
                for i, one in enumerate(values):
                    weights[f"{name.removesuffix('down_proj')}{i}.down_proj"] = one
            else:
                weights[name.removesuffix(".weight")] = values
    return weights


def fused_with(module):
    for group in (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")):
        for name in group:
            if module.endswith(name):
                return [module.removesuffix(name) + other for other in group]
    return [module]


def rounded(values, divisor):
    """(codes, block scales) as bytes."""
    blocks = values.reshape(values.shape[0], -1, 16)
    wanted = numpy.minimum(numpy.abs(blocks).max(axis=2) / 6 * numpy.float32(divisor), 448)
    scales = numpy.abs(E4M3[None, None, :] - wanted[..., None]).argmin(axis=2).astype(numpy.uint8)
    scales[scales == 0] = 0x20
    quotient = blocks * numpy.float32(divisor) / E4M3[scales][..., None]
    index = numpy.searchsorted(BOUNDS, numpy.abs(quotient)).astype(numpy.uint8)
    codes = (index | (quotient < 0).astype(numpy.uint8) << 3).reshape(values.shape)
    return (codes[:, ::2] | codes[:, 1::2] << 4).tobytes(), scales.tobytes()


def rounded_elsewhere(ours, model, folder):
    weights = source_weights(model)
    shutil.copytree(ours, folder, ignore=shutil.ignore_patterns("quantize_*", "recipe.yaml",
                                                                "README*"))
    for path in shards(folder):
        header, body = read_header(path)
        body = bytearray(body)
        for name in header:
            if not name.endswith(".weight_packed"):
                continue
            module = name.removesuffix(".weight_packed")
            amax = max(float(numpy.abs(weights[one]).max()) for one in fused_with(module))
            divisor = to_bf16(2688 / amax)
            codes, scales = rounded(weights[module], divisor)
            for suffix, raw in (("weight_packed", codes), ("weight_scale", scales),
                                ("weight_global_scale", numpy.float32(divisor).tobytes())):
                begin, end = header[f"{module}.{suffix}"]["data_offsets"]
                assert end - begin == len(raw), name
                body[begin:end] = raw
        write_header(path, header, bytes(body))
    save_otherwise(folder)


def save_otherwise(folder):
    """Changes what saving with another version of transformers changes beside the weights."""
    edit_json(folder / "config.json", lambda tree: tree.update(
        transformers_version="5.23.0", dtype="bfloat16"))
    edit_json(folder / "config.json", lambda tree: tree["text_config"].update(use_cache=False))
    edit_json(folder / "generation_config.json",
              lambda tree: tree.update(transformers_version="5.23.0"))
    edit_json(folder / "tokenizer_config.json", lambda tree: tree.update(is_local=True))
    edit_json(folder / "tokenizer_config.json",
              lambda tree: tree.pop("added_tokens_decoder", None))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    merges = tokenizer["model"].get("merges", [])
    tokenizer["model"]["merges"] = [one.split(" ") if isinstance(one, str) else " ".join(one)
                                    for one in merges]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, indent=1))

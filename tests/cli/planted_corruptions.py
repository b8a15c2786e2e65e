"""Small corruptions of a quantized checkpoint, one function a kind; each gets a folder of its own.

A row of CORRUPTIONS: its name, the checkpoint it spoils (recipe, dialect), the function, and words
that `verify` must say of it. What this is not: damage that keeps a folder from being opened at all,
most of which is in damaged_checkpoint.py.
"""

import json
import struct

from damaged_checkpoint import edit_json, read_header, shards, write_header

LAYER = "model.language_model.layers.0."
EXPERT = LAYER + "mlp.experts.3."
ATTENTION = "model.language_model.layers.3.self_attn."


def edit_tensor(folder, name, change):
    """`change` gets the tensor's bytes as a bytearray and may return others of the same length."""
    for path in shards(folder):
        header, body = read_header(path)
        if name not in header:
            continue
        begin, end = header[name]["data_offsets"]
        data = bytearray(body[begin:end])
        data = change(data) or data
        assert len(data) == end - begin and data != body[begin:end], f"{name} stayed as it was"
        write_in_place(path, begin, data)
        return
    raise AssertionError(f"no tensor {name}")


def write_in_place(path, begin, data):
    raw = bytearray(path.read_bytes())
    at = 8 + struct.unpack("<Q", raw[:8])[0] + begin
    raw[at:at + len(data)] = data
    path.write_bytes(bytes(raw))


def tensor_bytes(folder, name):
    for path in shards(folder):
        header, body = read_header(path)
        if name in header:
            begin, end = header[name]["data_offsets"]
            return body[begin:end]
    raise AssertionError(f"no tensor {name}")


def multiply(folder, names, factor):
    for name in names:
        edit_tensor(folder, name,
                    lambda data: bytearray(
                        struct.pack("<f", factor * struct.unpack("<f", data)[0])))


def set_float(folder, name, value):
    edit_tensor(folder, name, lambda _: bytearray(struct.pack("<f", value)))


def flip(at, bits):
    def change(data):
        data[at] ^= bits
    return change


def first_byte(data, wanted):
    return next(i for i, byte in enumerate(data) if wanted(byte))


def set_first(wanted, become):
    """Changes the first byte that is `wanted`."""
    def change(data):
        at = first_byte(data, wanted)
        data[at] = become(data[at])
    return change


def swap_bytes(data):
    """The first two neighbours of a row that differ."""
    at = next(i for i in range(0, len(data) - 1, 16) if data[i] != data[i + 1])
    data[at], data[at + 1] = data[at + 1], data[at]


def swap_rows(data):
    data[:128], data[128:256] = data[128:256], data[:128]


def swap_tensors(folder, one, other):
    first, second = tensor_bytes(folder, one), tensor_bytes(folder, other)
    edit_tensor(folder, one, lambda _: bytearray(second))
    edit_tensor(folder, other, lambda _: bytearray(first))


def change_tensors(folder, change):
    """`change` gets {name: (dtype, shape, bytes)} of the first file, which is written anew."""
    path = shards(folder)[0]
    header, body = read_header(path)
    tensors = {name: (facts["dtype"], facts["shape"], body[slice(*facts["data_offsets"])])
               for name, facts in header.items() if name != "__metadata__"}
    change(tensors)
    new, data = {"__metadata__": header.get("__metadata__", {})}, b""
    for name, (dtype, shape, raw) in tensors.items():
        new[name] = {"dtype": dtype, "shape": shape,
                     "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    write_header(path, new, data)

    def index(tree):
        tree["weight_map"] = {name: file for name, file in tree["weight_map"].items()
                              if file != path.name} | dict.fromkeys(tensors, path.name)
    if (folder / "model.safetensors.index.json").exists():
        edit_json(folder / "model.safetensors.index.json", index)


def add_scale(folder, name, value):
    change_tensors(folder, lambda tensors: tensors.update(
        {name: ("F32", [1], struct.pack("<f", value))}))


def drop(folder, name):
    change_tensors(folder, lambda tensors: tensors.pop(name))


def rename_metadata(folder):
    path = shards(folder)[0]
    header, body = read_header(path)
    header["__metadata__"] = {"format": "np"}
    write_header(path, header, body)


def text(folder, **changes):
    edit_json(folder / "config.json", lambda config: config["text_config"].update(changes))


def rope(folder, **changes):
    edit_json(folder / "config.json",
              lambda config: config["text_config"]["rope_parameters"].update(changes))


def group(folder, **changes):
    edit_json(folder / "config.json", lambda config: config["quantization_config"]
              ["config_groups"]["group_0"]["weights"].update(changes))


def side(folder, change):
    edit_json(folder / "hf_quant_config.json", lambda tree: change(tree["quantization"]))


def swap_ids(folder):
    def change(tree):
        vocab = tree["model"]["vocab"]
        one, other = list(vocab)[700:702]
        vocab[one], vocab[other] = vocab[other], vocab[one]
    edit_json(folder / "tokenizer.json", change)


def replace_text(path, old, new):
    before = path.read_text()
    assert old in before, f"{path.name} has no {old}"
    path.write_text(before.replace(old, new, 1))


def truncate(folder):
    path = shards(folder)[0]
    path.write_bytes(path.read_bytes()[:-100])


W4A4 = ("w4a4", "compressed-tensors")
MIXED = ("mixed", "compressed-tensors")
MODELOPT = ("w4a4", "modelopt")
UP, GATE, DOWN = EXPERT + "up_proj.", EXPERT + "gate_proj.", EXPERT + "down_proj."
CODES, SCALES, GLOBAL = "weight_packed", "weight_scale", "weight_global_scale"
INPUT = "input_global_scale"
NONZERO = set_first(lambda byte: byte & 7, lambda byte: byte ^ 8)
# Seen by hashes alone: nothing that is computed depends on it.
HASHES_ALONE = {"metadata of a header"}

CORRUPTIONS = [
    # Those that no check saw before there were hashes.
    ("global scale off by 2 %", W4A4, lambda f: multiply(f, [UP + GLOBAL, GATE + GLOBAL], 1.02),
     UP + GLOBAL),
    ("two scales of a row swapped", W4A4, lambda f: edit_tensor(f, DOWN + SCALES, swap_bytes),
     DOWN + SCALES),
    ("one sign flipped", W4A4, lambda f: edit_tensor(f, UP + CODES, NONZERO), UP + CODES),
    ("one scale byte + 1", W4A4,
     lambda f: edit_tensor(f, UP + SCALES, set_first(lambda b: b < 0x70, lambda b: b + 1)),
     UP + SCALES),
    ("garbage k_scale", W4A4, lambda f: add_scale(f, ATTENTION + "k_scale", 3e29),
     ATTENTION + "k_scale"),
    ("garbage v_scale", W4A4, lambda f: add_scale(f, ATTENTION + "v_scale", 7e-31),
     ATTENTION + "v_scale"),
    ("group size 32", W4A4, lambda f: group(f, group_size=32), "group_size"),
    ("other algorithm in hf_quant_config", MODELOPT,
     lambda f: side(f, lambda tree: tree.update(quant_algo="W4A16_NVFP4")), "hf_quant_config.json"),
    ("other exclusions in hf_quant_config", MODELOPT,
     lambda f: side(f, lambda tree: tree["exclude_modules"].pop()), "hf_quant_config.json"),
    ("input scale 1000 times too large", W4A4,
     lambda f: multiply(f, [DOWN + INPUT], 0.001), DOWN + INPUT),
    ("another top_k of sampling", W4A4, lambda f: edit_json(
        f / "generation_config.json", lambda tree: tree.update(top_k=1)), "generation_config.json"),
    ("fewer experts per token", W4A4, lambda f: text(f, num_experts_per_tok=3), "config.json"),
    ("another rope_theta", W4A4, lambda f: rope(f, rope_theta=1000000), "config.json"),
    ("two ids of the tokenizer swapped", W4A4, swap_ids, "tokenizer.json"),
    ("another template", W4A4, lambda f: replace_text(
        f / "chat_template.jinja", "system", "sytsem"), "chat_template.jinja"),
    # Codes, scales.
    ("one code + 1", W4A4,
     lambda f: edit_tensor(f, DOWN + CODES, set_first(lambda b: b & 7 < 6, lambda b: b + 1)),
     DOWN + CODES),
    ("one byte of codes lost", W4A4,
     lambda f: edit_tensor(f, DOWN + CODES, set_first(lambda b: b & 0x77, lambda b: 0)),
     DOWN + CODES),
    ("nibbles of a byte swapped", W4A4, lambda f: edit_tensor(f, UP + CODES, set_first(
        lambda b: b >> 4 != b & 15, lambda b: (b << 4 | b >> 4) & 255)), UP + CODES),
    ("two rows swapped", W4A4, lambda f: edit_tensor(f, UP + CODES, swap_rows), UP + CODES),
    ("two experts swapped", W4A4,
     lambda f: swap_tensors(f, DOWN + CODES, LAYER + "mlp.experts.4.down_proj." + CODES),
     DOWN + CODES),
    ("NaN block scale", W4A4,
     lambda f: edit_tensor(f, DOWN + SCALES, set_first(lambda _: True, lambda _: 0x7F)),
     DOWN + SCALES),
    ("negative block scale", W4A4, lambda f: edit_tensor(f, DOWN + SCALES, flip(5, 0x80)),
     DOWN + SCALES),
    ("block scale of zero", W4A4,
     lambda f: edit_tensor(f, DOWN + SCALES, set_first(lambda _: True, lambda _: 0)),
     DOWN + SCALES),
    ("all block scales halved", W4A4,
     lambda f: edit_tensor(f, UP + SCALES, lambda data: bytearray(b - 8 for b in data)),
     UP + SCALES),
    ("inverted global scale", W4A4, lambda f: edit_tensor(
        f, ATTENTION + "o_proj." + GLOBAL,
        lambda d: bytearray(struct.pack("<f", 1 / struct.unpack("<f", d)[0]))),
     ATTENTION + "o_proj." + GLOBAL),
    ("global scale of zero", W4A4, lambda f: set_float(f, DOWN + GLOBAL, 0.0), DOWN + GLOBAL),
    ("gate and up disagree", W4A4, lambda f: multiply(f, [UP + GLOBAL], 2.0), UP + GLOBAL),
    ("negative input scale", W4A4, lambda f: multiply(f, [DOWN + INPUT], -1.0), DOWN + INPUT),
    ("NaN input scale", W4A4, lambda f: set_float(f, DOWN + INPUT, float("nan")), DOWN + INPUT),
    ("one FP8 code changed", MIXED,
     lambda f: edit_tensor(f, ATTENTION + "o_proj.weight", flip(1000, 0x08)),
     ATTENTION + "o_proj.weight"),
    ("FP8 scale off by 2 %", MIXED,
     lambda f: multiply(f, [ATTENTION + "o_proj.weight_scale"], 1.02),
     ATTENTION + "o_proj.weight_scale"),
    # Tensors that are copied.
    ("one bit of a norm", W4A4,
     lambda f: edit_tensor(f, LAYER + "input_layernorm.weight", flip(8, 1)),
     LAYER + "input_layernorm.weight"),
    ("one bit of a router", W4A4, lambda f: edit_tensor(f, LAYER + "mlp.gate.weight", flip(9, 1)),
     LAYER + "mlp.gate.weight"),
    ("a token without embedding", W4A4, lambda f: edit_tensor(
        f, "model.language_model.embed_tokens.weight", lambda d: bytearray(512) + d[512:]),
     "model.language_model.embed_tokens.weight"),
    ("NaN in the head", W4A4,
     lambda f: edit_tensor(f, "lm_head.weight", lambda d: bytearray(b"\xc0\x7f") + d[2:]),
     "lm_head.weight"),
    ("A_log changed", W4A4, lambda f: edit_tensor(f, LAYER + "linear_attn.A_log", flip(0, 1)),
     LAYER + "linear_attn.A_log"),
    ("convolution changed", W4A4,
     lambda f: edit_tensor(f, LAYER + "linear_attn.conv1d.weight", flip(0, 1)),
     LAYER + "linear_attn.conv1d.weight"),
    ("a bit of the MTP layer", W4A4,
     lambda f: edit_tensor(f, "mtp.fc.weight", flip(77, 1)), "mtp.fc.weight"),
    ("a tensor lost", W4A4, lambda f: drop(f, LAYER + "input_layernorm.weight"),
     LAYER + "input_layernorm.weight"),
    ("metadata of a header", W4A4, rename_metadata, "model-00001"),
    ("end of a file lost", W4A4, truncate, "truncated"),
    # Declarations.
    ("8 bits declared", W4A4, lambda f: group(f, num_bits=8), "config.json"),
    ("the head not ignored", W4A4, lambda f: edit_json(
        f / "config.json", lambda tree: tree["quantization_config"].update(ignore=[
            name for name in tree["quantization_config"]["ignore"] if "lm_head" not in name])),
     "config.json"),
    ("another epsilon", W4A4, lambda f: text(f, rms_norm_eps=1e-5), "config.json"),
    ("another end of text", W4A4, lambda f: text(f, eos_token_id=1985), "config.json"),
    ("another share of rotation", W4A4, lambda f: rope(f, partial_rotary_factor=0.5),
     "config.json"),
    ("a key lost", W4A4, lambda f: edit_json(
        f / "config.json", lambda tree: tree["text_config"].pop("mtp_num_hidden_layers")),
     "config.json"),
    # Files.
    ("another temperature", W4A4, lambda f: edit_json(
        f / "generation_config.json", lambda tree: tree.update(temperature=1.6)),
     "generation_config.json"),
    ("another end of turn", W4A4, lambda f: edit_json(
        f / "tokenizer_config.json", lambda tree: tree.update(eos_token="!")),
     "tokenizer_config.json"),
    ("another size of pictures", W4A4, lambda f: edit_json(
        f / "preprocessor_config.json", lambda tree: tree.update(patch_size=14)),
     "preprocessor_config.json"),
    ("no tokenizer", W4A4, lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json"),
    ("no template", W4A4, lambda f: (f / "chat_template.jinja").unlink(), "chat_template.jinja"),
]


def forget_hashes(folder):
    """As a file of another program, or of an older version: there is nothing to compare with."""
    (folder / "quantize_hashes.json").unlink()
    report = json.loads((folder / "quantize_report.json").read_text())
    report.pop("hashes")
    (folder / "quantize_report.json").write_text(json.dumps(report))

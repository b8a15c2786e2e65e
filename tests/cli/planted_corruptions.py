"""Small corruptions of a quantized checkpoint. A row of CORRUPTIONS: its name, the checkpoint it
spoils (recipe, dialect), the function that spoils a folder, and words that `verify` must say of it.

What this is not: damage that keeps a folder from being opened at all, most of which is in
damaged_checkpoint.py.
"""

import struct

from checkpoint_edits import (
    add_scale, drop, edit_tensor, flip, group, multiply, rename_metadata, replace_text, rope,
    set_first, set_float, side, swap_bytes, swap_ids, swap_rows, swap_tensors, text, truncate)
from damaged_checkpoint import edit_json

LAYER = "model.language_model.layers.0."
EXPERT = LAYER + "mlp.experts.3."
ATTENTION = "model.language_model.layers.3.self_attn."
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

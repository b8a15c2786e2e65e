"""Changes to single tensors, keys and files of a quantized checkpoint's folder, in place: the tools
with which planted_corruptions.py is written. What this is not: a list of damages.
"""

import json
import struct

from damaged_checkpoint import edit_json, read_header, shards, write_header


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


def forget_hashes(folder):
    """As a file of another program, or of an older version: there is nothing to compare with."""
    (folder / "quantize_hashes.json").unlink()
    report = json.loads((folder / "quantize_report.json").read_text())
    report.pop("hashes")
    (folder / "quantize_report.json").write_text(json.dumps(report))

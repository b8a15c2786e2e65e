"""Damage to a checkpoint's folder, one function a kind; each gets a folder of its own to spoil."""

import json
import os
import struct


def shards(folder):
    return sorted(folder.glob("*.safetensors"))


def read_header(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + size]), data[8 + size:]


def write_header(path, text, body):
    raw = text.encode() if isinstance(text, str) else json.dumps(text).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + body)


def edit_json(path, change):
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def first_tensors(header):
    return sorted((name for name in header if name != "__metadata__"),
                  key=lambda name: header[name]["data_offsets"][0])


# Damage: each function gets a private copy of the model folder.

def truncated(folder):
    path = shards(folder)[0]
    os.truncate(path, path.stat().st_size - 1000)


def tiny_file(folder):
    shards(folder)[0].write_bytes(b"abc")


def huge_header(folder):
    path = shards(folder)[0]
    data = bytearray(path.read_bytes())
    data[:8] = struct.pack("<Q", 1 << 60)
    path.write_bytes(data)


def missing_shard(folder):
    shards(folder)[0].unlink()


def wrong_index(folder):
    def change(index):
        name = sorted(index["weight_map"])[0]
        index["weight_map"]["no.such.tensor"] = index["weight_map"][name]
    edit_json(folder / "model.safetensors.index.json", change)


def index_outside(folder):
    def change(index):
        for name in index["weight_map"]:
            index["weight_map"][name] = "../../etc/passwd"
    edit_json(folder / "model.safetensors.index.json", change)


def duplicate_name(folder):
    path = shards(folder)[0]
    header, body = read_header(path)
    name = first_tensors(header)[0]
    text = json.dumps(header)
    write_header(path, text[:-1] + f', "{name}": {json.dumps(header[name])}}}', body)


def overlapping(folder):
    path = shards(folder)[0]
    header, body = read_header(path)
    one, two = first_tensors(header)[:2]
    length = header[two]["data_offsets"][1] - header[two]["data_offsets"][0]
    start = header[one]["data_offsets"][0]
    header[two]["data_offsets"] = [start, start + length]
    write_header(path, header, body)


def oversized(folder):
    path = shards(folder)[0]
    header, body = read_header(path)
    header[first_tensors(header)[-1]]["data_offsets"][1] += 4096
    write_header(path, header, body)


def wrong_shape(folder):
    for path in shards(folder):
        header, body = read_header(path)
        for name in first_tensors(header):
            if name.endswith("norm.weight") and len(header[name]["shape"]) == 1:
                header[name]["shape"] = [1] + header[name]["shape"]
                write_header(path, header, body)
                return


def nan_weights(folder):
    for path in shards(folder):
        header, body = read_header(path)
        for name in first_tensors(header):
            if "experts" in name and name.endswith("down_proj") and header[name]["dtype"] == "BF16":
                body = bytearray(body)
                start = header[name]["data_offsets"][0]
                body[start:start + 2] = b"\xc0\x7f"
                write_header(path, header, bytes(body))
                return


def unknown_architecture(folder):
    edit_json(folder / "config.json",
              lambda config: config.update(architectures=["LlamaForCausalLM"], model_type="llama"))


def bad_config_number(folder):
    def change(config):
        config.get("text_config", config)["num_experts_per_tok"] = 0
    edit_json(folder / "config.json", change)


def broken_config(folder):
    (folder / "config.json").write_text('{"architectures": [')


def missing_config(folder):
    (folder / "config.json").unlink()


def missing_tokenizer(folder):
    (folder / "tokenizer.json").unlink()


def broken_tokenizer(folder):
    path = folder / "tokenizer.json"
    path.write_text(path.read_text()[:5000])


def no_damage(_folder):
    pass

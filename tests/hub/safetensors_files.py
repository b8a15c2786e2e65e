"""Safetensors files taken apart and put together anew: headers, shards, an index. No tensor is read
as numbers.
"""

import json
import struct


def header_of(data):
    """(bytes before the tensors, the header) of a safetensors file."""
    length = struct.unpack("<Q", data[:8])[0]
    return 8 + length, json.loads(data[8:8 + length])


def tensors_of(files):
    """{name: (its entry, its bytes)} of all safetensors files."""
    found = {}
    for path, data in files.items():
        if path.endswith(".safetensors"):
            begin, header = header_of(data)
            header.pop("__metadata__", None)
            for name, entry in header.items():
                first, last = entry["data_offsets"]
                found[name] = (entry, data[begin + first:begin + last])
    return found


def file_of(tensors):
    """A safetensors file with these tensors."""
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, (entry, data) in tensors.items():
        header[name] = entry | {"data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def sharded(tensors, count):
    """The files of a checkpoint as shards with an index."""
    names = sorted(tensors)
    files, places = {}, {}
    for i in range(count):
        shard = f"model-{i + 1:05}-of-{count:05}.safetensors"
        files[shard] = file_of({name: tensors[name] for name in names[i::count]})
        places |= {name: shard for name in names[i::count]}
    index = {"metadata": {"total_size": sum(map(len, files.values()))}, "weight_map": places}
    return files | {"model.safetensors.index.json": json.dumps(index).encode()}


def papers_bytes(files):
    """Bytes that have to be read of a model's files for its plan."""
    weights = [name for name in files if name.endswith(".safetensors") and "/" not in name]
    return sum(header_of(files[name])[0] for name in weights) + sum(
        len(files.get(name, b"")) for name in ("config.json", "model.safetensors.index.json"))

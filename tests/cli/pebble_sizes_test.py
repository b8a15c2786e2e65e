#!/usr/bin/env python3
"""The sizes of tools/pebble: pebble_sizes_test.py --nibble PROGRAM --model PEBBLE_FOLDER.

The shipped config.json is that of its size, and of every size the tensors that `nibble synth` makes
for the config.json have the names and shapes of tools/pebble. The last line counts.
"""

import argparse
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/pebble"))
import config  # noqa: E402
import shapes  # noqa: E402


def shapes_in(folder):
    found = {}
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        found |= {name: tuple(entry["shape"]) for name, entry in header.items()
                  if name != "__metadata__"}
    return found


def separate(shapes_of):
    """The stacks of experts taken apart, as `nibble synth` writes them."""
    found = {}
    for name, shape in shapes_of.items():
        stack, _, role = name.rpartition(".")
        names = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}.get(role)
        if names is None:
            found[name] = shape
            continue
        for expert in range(shape[0]):
            for part in names:
                found[f"{stack}.{expert}.{part}.weight"] = (shape[1] // len(names), shape[2])
    return found


def synthesized(options, work, size):
    """Shapes by name; what went wrong, otherwise."""
    path = work / f"{size}.json"
    path.write_text(json.dumps(config.model_config(size)))
    done = subprocess.run([options.nibble, "synth", path, work / size, "--layout", "bf16"],
                          capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        return done.stderr
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(options.model / name, work / size / name)
    done = subprocess.run([options.nibble, "verify", work / size], capture_output=True, text=True,
                          timeout=600, check=False)
    return shapes_in(work / size) if done.returncode == 0 else done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nibble", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    options = parser.parse_args()
    shipped = json.loads((options.model / "config.json").read_text())
    checks = {"the shipped config.json": shipped == config.model_config("pebble"),
              "the shipped shapes":
              shapes_in(options.model) == shapes.all_shapes(config.text_config("pebble"))}
    with tempfile.TemporaryDirectory() as work:
        for size in config.SIZES:
            found = synthesized(options, pathlib.Path(work), size)
            wanted = separate(shapes.all_shapes(config.text_config(size)))
            checks[f"tensors of {size}"] = found == wanted
            if found != wanted:
                print(size, found if isinstance(found, str) else
                      sorted(found.items() ^ wanted.items())[:4])
    for what, good in checks.items():
        if not good:
            print(f"FAILED {what}")
    failed = list(checks.values()).count(False)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())

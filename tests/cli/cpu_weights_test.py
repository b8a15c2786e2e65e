#!/usr/bin/env python3
"""Weights on a CPU: cpu_weights_test.py --nibble PROGRAM --model PEBBLE_FOLDER.

`synth --layers` must write so many layers, `--load-format dummy` must score as the
checkpoint that synth writes, and the 8-bit activations of serving may cost at most a mean KL
divergence of 1e-3 on Pebble in every recipe.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

RECIPES = ("mixed", "mixed-nvfp4-head", "w4a16", "w4a4", "w4a4-fp8-head", "experts-only", "fp8",
           "lab-fp8-embed")
KL_MAX = 1e-3
IDS = {"ids": [[17 + 37 * i % 1500 for i in range(96)], [5, 4, 3, 2]]}


class Program:
    def __init__(self, path, work):
        self.path = path
        self.ids = work / "ids.json"
        self.ids.write_text(json.dumps(IDS))

    def __call__(self, *words, code=0):
        done = subprocess.run([self.path, *map(str, words)], capture_output=True, text=True,
                              timeout=600, stdin=subprocess.DEVNULL)
        assert done.returncode == code, (words, done.returncode, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def score(self, folder, *flags):
        return json.loads(self("score", folder, "--backend", "cpu", "--ids", self.ids, "--json",
                               *flags))


def layers_of(folder):
    names = set()
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:  # a length of 8 bytes, then JSON
            names.update(json.loads(file.read(int.from_bytes(file.read(8), "little"))))
    return {int(found.group(1)) for found in (re.search(r"layers\.(\d+)\.", n) for n in names)
            if found}


def test_synth_of_any_layer_count(nibble, model, work):
    own = json.loads((model / "config.json").read_text())
    kinds = own.get("text_config", own)["layer_types"]
    for count in (3, len(kinds) + 3):
        out = work / f"layers{count}"
        nibble("synth", model / "config.json", out, "--layers", count)
        config = json.loads((out / "config.json").read_text())
        text = config.get("text_config", config)
        assert text["num_hidden_layers"] == count, text["num_hidden_layers"]
        assert text["layer_types"] == [kinds[i % len(kinds)] for i in range(count)]
        assert layers_of(out) == set(range(count)), layers_of(out)
        assert len(nibble.score(out)["log_probabilities"]) == len(IDS["ids"])
    for wrong in ("0", "1025", "many"):
        said = nibble("synth", model / "config.json", work / "no", "--layers", wrong, code=2)
        assert "--layers" in said and said.count("\n") == 1, said


def test_dummy_weights_are_those_of_synth(nibble, model, work):
    for layout in ("mixed", "mixed-nvfp4-head", "nvfp4", "bf16"):
        out = work / f"synth-{layout}"
        nibble("synth", model / "config.json", out, "--layout", layout)
        bare = work / f"bare-{layout}"
        bare.mkdir()
        (bare / "config.json").write_bytes((out / "config.json").read_bytes())
        stored = nibble.score(out)
        made = nibble.score(bare, "--load-format", f"dummy:{layout}")
        assert made["log_probabilities"] == stored["log_probabilities"], layout
        declared = nibble.score(bare, "--load-format", "dummy")
        assert declared["log_probabilities"] == stored["log_probabilities"], layout


def own_text(nibble, model, work):
    """Ids that the model writes itself: on noise every rounding moves what it says."""
    seeds = work / "seeds.json"
    prompts = [[17 + 100 * i] for i in range(4)]
    seeds.write_text(json.dumps({"ids": prompts}))
    new = json.loads(nibble("run", model, "--backend", "cpu", "--ids", seeds, "--max-tokens", 127,
                            "--ignore-eos", "--temperature", 1, "--seed", 5,
                            "--activations", "f32"))["ids"]
    return [prompt + ids for prompt, ids in zip(prompts, new)]


def test_int8_activations_cost_little(nibble, model, work):
    nibble.ids.write_text(json.dumps({"ids": own_text(nibble, model, work)}))
    for recipe in RECIPES:
        folder = work / recipe
        nibble("quantize", model, folder, "--recipe", recipe, "--no-progress")
        kl = nibble.score(folder, "--activations", "int8", "--reference", folder,
                          "--reference-activations", "f32")["kl"]["mean"]
        print(f"      {recipe}: mean KL of int8 to f32 activations {kl:.2e}")
        assert 0 < kl <= KL_MAX, (recipe, kl)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nibble", required=True)
    parser.add_argument("--model", required=True, type=pathlib.Path)
    options = parser.parse_args()
    tests = [test_dummy_weights_are_those_of_synth, test_synth_of_any_layer_count,
             test_int8_activations_cost_little]
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        nibble = Program(options.nibble, work)
        for test in tests:
            test(nibble, options.model, work)
            print(f"ok    {test.__name__}")
    print(f"{len(tests)} passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())

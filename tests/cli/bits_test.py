#!/usr/bin/env python3
"""The bits that each backend computes, against hashes taken earlier: bits_test.py --nibble PROGRAM
--model PEBBLE_FOLDER [--backend cpu|cuda] [--write].

A change that is to leave results alone (files moved, kernels selected another way) leaves these
hashes alone. Each case is a model, a way of keeping its caches and a choice of kernels; for each
there are three hashes: of all logits of prompts, of all logits of the same ids taken one by one,
and of the tokens and log-probabilities of requests that run together. Models are Pebble in BF16
and in every recipe and, on a card, random weights of the 35B in every layout that fits.

Hashes lie in tests/golden/bits.json by what computes: `cpu`, or the compute capability of a card
with its multiprocessors. Results on a card that is not listed there are not compared, which the
last line says. --write takes the hashes anew: only after a change that is meant to change results.
"""
import argparse
import hashlib
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "cuda"))
from load_shapes import dummy_folder  # noqa: E402

GOLDEN = ROOT / "tests" / "golden" / "bits.json"
CONFIG = ROOT / "tests" / "golden" / "configs" / "qwen3.6-35b-a3b.json"
RECIPES = ("mixed", "mixed-nvfp4-head", "w4a16", "w4a4", "w4a4-fp8-head", "experts-only", "fp8",
           "lab-fp8-embed")
LAYOUTS = ("mixed", "mixed-nvfp4-head", "nvfp4", "w4a4", "bf16")
CACHES = {  # ways of keeping caches beside the default
    "state bf16": ["--state-dtype", "bf16"],
    "pages bf16": ["--kv-cache-dtype", "bf16"],
    "pages fp8": ["--kv-cache-dtype", "fp8"],
    "pages turboquant": ["--kv-cache-dtype", "turboquant_4bit_nc"],
    "pages nvfp4": ["--kv-cache-dtype", "nvfp4"],
    "state bf16, pages fp8": ["--state-dtype", "bf16", "--kv-cache-dtype", "fp8"],
}
PORTABLE = ["--card-limit", "rtx5090"]
VOCABULARY = 2000  # ids that every model has
LENGTHS = (100, 40, 1)
REQUESTS = {"cpu": 8, "cuda": 40}


def cases(backend):
    """Name -> (model, flags): the model is a recipe of Pebble, None for BF16, or a layout."""
    made = {}
    for recipe in (None, *RECIPES):
        made[f"pebble {recipe or 'bf16'}"] = (recipe, [])
    for recipe in (None, "mixed"):
        for name, flags in CACHES.items():
            made[f"pebble {recipe or 'bf16'}, {name}"] = (recipe, flags)
    if backend == "cpu":
        for recipe in RECIPES:  # scores have F32 activations unless they are asked for others
            made[f"pebble {recipe}, int8"] = (recipe, ["--activations", "int8"])
    if backend == "cuda":
        for recipe in (None, "mixed", "w4a4"):
            made[f"pebble {recipe or 'bf16'}, portable"] = (recipe, PORTABLE)
            made[f"pebble {recipe or 'bf16'}, f32"] = (recipe, ["--activations", "f32"])
        for layout in LAYOUTS:
            load = ["--load-format", f"dummy:{layout}"]
            made[f"35b {layout}"] = ("dummy", load)
            if layout != "bf16":  # which is more than that card has
                made[f"35b {layout}, portable"] = ("dummy", load + PORTABLE)
        for name, flags in CACHES.items():
            made[f"35b mixed, {name}"] = ("dummy", ["--load-format", "dummy:mixed", *flags])
    return made


def sequences():
    draw = random.Random(11)
    return [[draw.randrange(300, VOCABULARY) for _ in range(length)] for length in LENGTHS]


def batch_lines(count):
    """Requests of several lengths, so that passes of many widths run; every other one samples."""
    draw = random.Random(12)
    for i in range(count):
        prompt = [draw.randrange(300, VOCABULARY) for _ in range(draw.choice((1, 5, 70, 130)))]
        body = {"prompt": prompt, "max_tokens": draw.randrange(4, 28), "logprobs": 2,
                "temperature": 0 if i % 2 == 0 else 1, "seed": i, "ignore_eos": True}
        yield json.dumps({"custom_id": f"r{i}", "method": "POST", "url": "/v1/completions",
                          "body": body})


class Hashes:
    """Runs the program in an empty folder and hashes what it computes."""

    def __init__(self, options, work):
        self.options, self.work = options, work
        self.folders = {None: pathlib.Path(options.model)}
        (work / "ids.json").write_text(json.dumps({"ids": sequences()}))
        (work / "batch.jsonl").write_text("\n".join(batch_lines(REQUESTS[options.backend])) + "\n")

    def run(self, *words):
        command = [self.options.nibble, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600,
                              stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def folder(self, model):
        if model not in self.folders:
            path = self.work / model
            if model == "dummy":
                path.mkdir()
                dummy_folder(CONFIG, path)
            else:
                self.run("quantize", self.options.model, path, "--recipe", model, "--no-progress")
            self.folders[model] = path
        return self.folders[model]

    def what_computes(self):
        """The key of bits.json; a line of `score` says which card."""
        if self.options.backend == "cpu":
            return "cpu"
        said = self.run("score", self.options.model, "--backend", "cuda", "--ids",
                        self.work / "ids.json")
        found = re.search(r"\((\d+\.\d+), runs (\w+), (\d+) multiprocessors\)", said)
        return f"{found.group(2)}, {found.group(3)} multiprocessors"

    def of_logits(self, folder, arithmetic, flags):
        out = self.work / "logits.safetensors"
        out.unlink(missing_ok=True)
        self.run("score", folder, "--backend", self.options.backend, "--ids",
                 self.work / "ids.json", "--arithmetic", arithmetic, "--logits", out, *flags)
        with open(out, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]

    def of_batch(self, folder, flags):
        out = self.work / "answers.jsonl"
        out.unlink(missing_ok=True)
        self.run("run", folder, "--backend", self.options.backend, "--batch",
                 self.work / "batch.jsonl", "--output", out, "--max-num-seqs", 32, *flags)
        answers = {}
        for text in out.read_text().splitlines():
            line = json.loads(text)
            choice = line["response"]["body"]["choices"][0]
            told = choice["logprobs"]  # the two best, without a chosen one that is none of them
            told["top_logprobs"] = [dict(list(top.items())[:2]) for top in told["top_logprobs"]]
            answers[line["custom_id"]] = [choice["text"], told]
        assert len(answers) == REQUESTS[self.options.backend], len(answers)
        return hashlib.sha256(json.dumps(answers, sort_keys=True).encode()).hexdigest()[:16]

    def of(self, model, flags):
        folder = self.folder(model)
        return {"prompt": self.of_logits(folder, "prompt", flags),
                "generation": self.of_logits(folder, "generation", flags),
                "together": self.of_batch(folder, flags)}


def compare(name, found, expected):
    differs = [kind for kind in found if found[kind] != expected.get(kind)]
    if expected and not differs:
        return True
    print(f"FAIL  {name}: " + ("no hash recorded" if not expected else ", ".join(
        f"{kind} is {found[kind]}, expected {expected.get(kind)}" for kind in differs)))
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nibble", required=True, help="path of the program")
    parser.add_argument("--model", required=True, help="Pebble's folder")
    parser.add_argument("--backend", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--write", action="store_true", help="take the hashes anew")
    options = parser.parse_args()
    recorded = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    passed = failed = 0
    with tempfile.TemporaryDirectory() as work:
        hashes = Hashes(options, pathlib.Path(work))
        try:
            key = hashes.what_computes()
        except RuntimeError as error:
            if "backend cuda: expected" not in str(error):
                raise
            print(f"skipped: {error}")
            return 0
        if options.backend == "cuda" and key not in recorded and not options.write:
            print(f"skipped: no hashes were recorded for {key}")
            return 0
        for name, (model, flags) in cases(options.backend).items():
            if options.only not in name:
                continue
            begin = time.monotonic()
            found = hashes.of(model, flags)
            if options.write:
                recorded.setdefault(key, {})[name] = found
                GOLDEN.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
            elif not compare(name, found, recorded.get(key, {}).get(name, {})):
                failed += 1
                continue
            passed += 1
            print(f"ok    {name} ({time.monotonic() - begin:.1f} s)", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Plants the corruptions of planted_corruptions.py in a quantized Pebble, and looks if `nibble
verify` sees each: by the hashes, and without them beside the source. Sound files must stay sound.

verify_corruptions_test.py --nibble PROGRAM --model PEBBLE_FOLDER [--only NAME]. Checks named
test_here_* are for ./test; the others quantize in every way and are for ./test --full.
Prints 'N passed, N failed'.
"""

import hashlib
import json
import pathlib
import shutil
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "serve"))
from checkpoint_edits import forget_hashes  # noqa: E402
from damaged_checkpoint import edit_json, read_header, shards  # noqa: E402
from planted_corruptions import CORRUPTIONS, HASHES_ALONE, MIXED, W4A4  # noqa: E402
from rounded_elsewhere import rounded_elsewhere  # noqa: E402
from running_server import run_program_checks  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECIPES = ("w4a16", "mixed", "mixed-nvfp4-head", "w4a4", "fp8", "experts-only", "w4a4-fp8-head",
           "lab-fp8-embed")
DIALECTS = ("compressed-tensors", "modelopt")
WAYS = [(recipe, dialect) for recipe in RECIPES for dialect in DIALECTS
        if dialect == DIALECTS[0] or recipe not in RECIPES[-2:]]  # ModelOpt has no FP8 blocks


class Checks:
    def __init__(self, nibble, model, work):
        self.nibble, self.model, self.work = nibble, pathlib.Path(model), work
        self.made = {}

    def run(self, *words):
        return subprocess.run([self.nibble, *map(str, words)], capture_output=True, text=True,
                              timeout=600, check=False)

    def quantized(self, recipe, dialect="compressed-tensors"):
        key = (recipe, dialect)
        if key not in self.made:
            folder = self.work / f"{recipe}-{dialect}"
            done = self.run("quantize", self.model, folder, "--recipe", recipe, "--format", dialect,
                            "--no-progress")
            assert done.returncode == 0, f"{key}: {done.stdout}{done.stderr}"
            self.made[key] = folder
        return self.made[key]

    def copy(self, folder):
        copy = self.work / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        return copy

    def missed(self, spoil, *options):
        """The rows whose corruption is not found, or not named."""
        missed = {}
        for name, base, plant, words in CORRUPTIONS:
            folder = self.copy(self.quantized(*base))
            spoil(folder)
            plant(folder)
            done = self.run("verify", folder, *options)
            named = words in done.stdout + done.stderr or spoil is forget_hashes
            if done.returncode != 1 or not named or "Traceback" in done.stderr:
                missed[name] = done.stdout[-600:] + done.stderr[-300:]
        return missed

    def test_here_hashes_find_every_corruption(self):
        assert len(CORRUPTIONS) >= 44, len(CORRUPTIONS)
        missed = self.missed(lambda folder: None)
        assert not missed, "\n".join(f"{name}: {said}" for name, said in missed.items())

    def test_against_the_source_without_hashes(self):
        missed = self.missed(forget_hashes, "--against", self.model)
        assert set(missed) == HASHES_ALONE, \
            "\n".join(f"{name}: {said}" for name, said in missed.items())

    def test_recipes_stay_sound(self):
        for recipe, dialect in WAYS:
            done = self.run("verify", self.quantized(recipe, dialect))
            assert done.returncode == 0 and "error:" not in done.stdout, \
                f"{recipe} {dialect}: {done.stdout}{done.stderr}"
            assert "compared with its hash" in done.stdout, done.stdout

    def test_recipes_stay_sound_against_the_source(self):
        for recipe, dialect in WAYS:
            folder = self.copy(self.quantized(recipe, dialect))
            forget_hashes(folder)
            done = self.run("verify", folder, "--against", self.model)
            assert done.returncode == 0, f"{recipe} {dialect}: {done.stdout}{done.stderr}"
            assert "names no hashes" in done.stdout, done.stdout
        data = self.work / "data.jsonl"
        lines = (ROOT / "pebble/tasks/add.jsonl").read_text().splitlines()[:24]
        data.write_text("\n".join(lines) + "\n")
        for algorithm, recipe in (("amax", "mixed"), ("four-over-six", "mixed"),
                                  ("blocks", "mixed"), ("gptq", "mixed"), ("gptq", "fp8")):
            folder = self.work / f"{algorithm}-{recipe}"
            words = ("--calib", data) if algorithm in ("blocks", "gptq") else ()
            done = self.run("quantize", self.model, folder, "--algorithm", algorithm, "--recipe",
                            recipe, "--no-progress", *words)
            assert done.returncode == 0, f"{algorithm} {recipe}: {done.stderr}"
            done = self.run("verify", folder, "--against", self.model, "--max-error", 0.3)
            assert done.returncode == 0, f"{algorithm} {recipe}: {done.stdout}{done.stderr}"

    def test_recipes_of_others_stay_sound(self):
        """As llm-compressor and ModelOpt write them, and with papers saved by other libraries."""
        theirs = self.work / "theirs"
        rounded_elsewhere(self.quantized(*W4A4), self.model, theirs)
        for folder in (theirs, self.work / "theirs-modelopt"):
            if folder != theirs:
                done = self.run("convert", theirs, folder, "--format", "modelopt")
                assert done.returncode == 0, done.stderr
            for options in ((), ("--against", self.model)):
                done = self.run("verify", folder, *options)
                assert done.returncode == 0, f"{folder.name} {options}: {done.stdout}{done.stderr}"

    def test_here_hashes_are_those_of_hashlib(self):
        folder = self.quantized(*MIXED)
        written = json.loads((folder / "quantize_hashes.json").read_text())
        tensors, heads = {}, {}
        for path in shards(folder):
            header, body = read_header(path)
            raw = path.read_bytes()
            head = raw[:8 + struct.unpack("<Q", raw[:8])[0]]
            heads[path.name] = hashlib.sha256(head).hexdigest()
            for name, facts in header.items():
                if name != "__metadata__":
                    piece = body[slice(*facts["data_offsets"])]
                    tensors[name] = hashlib.sha256(piece).hexdigest()
        own = ("README.md", "quantize_hashes.json")
        files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                 for path in folder.iterdir()
                 if path.name not in own and path.suffix != ".safetensors"}
        assert written["tensors"] == tensors, "tensors"
        assert written["heads"] == heads, "heads"
        assert written["files"] == files, set(files) ^ set(written["files"])

    def test_here_converted_files_have_hashes_of_their_own(self):
        for name, base, options in (("dialect", W4A4, ("--format", "modelopt")),
                                    ("head", MIXED, ("--head", "bf16", "--source", self.model)),
                                    ("repaired", MIXED, ("--repair",))):
            there = self.work / name
            done = self.run("convert", self.quantized(*base), there, *options)
            assert done.returncode == 0, f"{name}: {done.stderr}"
            done = self.run("verify", there)
            assert done.returncode == 0 and "compared with its hash" in done.stdout, \
                f"{name}: {done.stdout}{done.stderr}"

    def test_here_what_is_said_where_hashes_are_missing_or_wrong(self):
        def without(folder):
            (folder / "quantize_hashes.json").unlink()

        def malformed(folder):
            (folder / "quantize_hashes.json").write_text('{"algorithm": "SHA-256", "files": 3}')

        def short(folder):
            edit_json(folder / "quantize_hashes.json",
                      lambda tree: tree["tensors"].update({"lm_head.weight_scale": "ab"}))

        def outside(folder):
            edit_json(folder / "quantize_hashes.json",
                      lambda tree: tree["files"].update({"../../etc/passwd": 64 * "0"}))

        def more(folder):
            edit_json(folder / "quantize_hashes.json",
                      lambda tree: tree["tensors"].update({"no.such.weight": 64 * "0"}))

        def card(folder):
            (folder / "README.md").write_text("my own card\n")
        for spoil, code, words in (
                (without, 1, "quantize_hashes.json: is missing, but quantize_report.json names it"),
                (malformed, 1, "files: expected an object of hashes, found"),
                (short, 1, "expected 64 hexadecimal digits, found"),
                (outside, 1, "expected names of files in the folder, found"),
                (more, 1, "is missing, but quantize_hashes.json lists it"),
                (forget_hashes, 0, "quantize_report.json names no hashes"),
                (card, 0, "compared with its hash")):
            folder = self.copy(self.quantized(*MIXED))
            spoil(folder)
            done = self.run("verify", folder)
            assert done.returncode == code and words in done.stdout, \
                f"{spoil.__name__}: {done.stdout}{done.stderr}"


if __name__ == "__main__":
    sys.exit(run_program_checks(Checks, __doc__))

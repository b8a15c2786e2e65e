#!/usr/bin/env python3
"""Tests what `nibble verify --against --text` measures, and what --card keeps of it: verify_test.py
--nibble PROGRAM --model PEBBLE_FOLDER. Prints 'N passed, N failed'.
"""

import json
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "serve"))
from running_server import run_program_checks  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| text\.txt \(SHA-256 [0-9a-f]{12}\) \| (\d+) \| (\S+) \| ([\d.]+) \|", re.M)


class Checks:
    def __init__(self, nibble, model, work):
        self.nibble, self.model, self.work = nibble, model, work
        self.text = work / "text.txt"
        prose = (ROOT / "pebble/tasks/prose.jsonl").read_text().splitlines()[:2]
        self.text.write_text("\n".join(json.loads(line)["text"] for line in prose))

    def run(self, *words):
        return subprocess.run([self.nibble, *map(str, words)], capture_output=True, text=True,
                              timeout=600, check=False)

    def quantized(self, recipe):
        folder = self.work / recipe
        self.run("quantize", self.model, folder, "--recipe", recipe, "--no-progress")
        return folder

    def measure(self, folder, *words):
        return self.run("verify", folder, "--against", self.model, "--text", self.text, "--card",
                        "--backend", "cpu", *words)

    @staticmethod
    def rows(folder):
        """Activations -> (positions, mean KL) of the card's rows."""
        found = ROW.findall((folder / "README.md").read_text())
        assert len({mode for _, mode, _ in found}) == len(found), found
        return {mode: (int(positions), float(kl)) for positions, mode, kl in found}

    def test_both_modes(self):
        folder = self.quantized("w4a4")
        assert self.rows(folder) == {}, "a new card has no figures"
        done = self.measure(folder)
        rows = self.rows(folder)
        assert done.returncode == 0 and list(rows) == ["declared", "bf16"], \
            f"w4a4 is measured in both modes: {rows} {done.stderr[-300:]}"
        for mode, (positions, kl) in rows.items():
            assert f"activations {mode}: mean {kl:.6f}" in done.stdout, \
                f"the card has what was printed: {mode} {kl}\n{done.stdout}"
            assert positions > 100, f"positions are counted: {positions}"
        assert rows["declared"][1] > 1.1 * rows["bf16"][1], f"4 bits cost something: {rows}"
        self.measure(folder, "--activations", "f32")
        self.measure(folder)
        assert list(self.rows(folder)) == ["declared", "bf16", "f32"], \
            "rows are replaced, not repeated, and a third mode is one more"
        there = self.work / "there"
        self.run("convert", folder, there, "--format", "modelopt")
        assert self.rows(there) == self.rows(folder), "the same weights keep their figures"
        other = self.work / "other"
        self.run("convert", folder, other, "--head", "nvfp4", "--source", self.model)
        assert self.rows(other) == {}, "another head has no figures yet"

    def test_one_mode(self):
        folder = self.quantized("w4a16")
        done = self.measure(folder)
        assert list(self.rows(folder)) == ["f32"], \
            f"auto is named as what it was: {self.rows(folder)} {done.stderr[-300:]}"
        done = self.measure(folder, "--max-kl", "0")
        assert done.returncode == 1 and "PAST  KL divergence" in done.stdout, \
            "past a threshold is exit code 1"
        (folder / "README.md").write_text("a card of another tool\n")
        done = self.measure(folder)
        assert done.returncode == 1 and 'section "Quality"' in done.stderr, \
            f"a card without a place for figures is refused: {done.stderr[-300:]}"


if __name__ == "__main__":
    sys.exit(run_program_checks(Checks, __doc__))

#!/usr/bin/env python3
"""`nibble bench formats` on Pebble: bits and errors as numpy computes them, divergence as `eval kl`
gives it of the same file, no file left behind."""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "serve"))
from running_server import run_program_checks  # noqa: E402

PLANNED = re.compile(r"\.mlp\.(experts\.(\d+\.)?|shared_expert\.)?"
                     r"(gate|up|down|gate_up)_proj(\.weight)?$"
                     r"|\.self_attn\.[qkvo]_proj\.weight$"
                     r"|\.linear_attn\.(in_proj_qkv|in_proj_z|out_proj)\.weight$")
E2M1 = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def bf16(values):
    """To nearest, ties to even."""
    bits = numpy.asarray(values, numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & numpy.uint32(0xFFFF0000)).view(numpy.float32)


def matrices(folder):
    """The BF16 matrices that the recipe fp8 rounds, as F32 rows."""
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        data = path.read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(data[8:8 + size]).items():
            if name.startswith(("mtp.", "model.visual")) or not PLANNED.search(name):
                continue
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            assert entry["dtype"] == "BF16", name
            bits = numpy.frombuffer(data[begin:end], numpy.uint16).astype(numpy.uint32) << 16
            yield bits.view(numpy.float32).reshape(-1, entry["shape"][-1])


def in_groups(rows, size):
    assert rows.shape[1] % size == 0, rows.shape
    return rows.reshape(-1, size).astype(numpy.float32)


def integers(groups, scale, most):
    safe = numpy.where(scale == 0, numpy.float32(1), scale)
    codes = numpy.clip(numpy.rint(groups / safe), -most, most)
    return numpy.where(scale == 0, 0, codes * scale)


def int8(rows):
    groups = in_groups(rows, rows.shape[1])
    scale = numpy.abs(groups).max(1, keepdims=True) / numpy.float32(127)
    return groups, integers(groups, scale, 127), 8 * groups.size + 32 * len(groups)


def int4(rows):
    groups = in_groups(rows, 32)
    scale = bf16(numpy.abs(groups).max(1, keepdims=True) / numpy.float32(7))
    return groups, integers(groups, scale, 7), 4 * groups.size + 16 * len(groups)


def mxfp4(rows):
    groups = in_groups(rows, 32)
    most = numpy.abs(groups).max(1, keepdims=True)
    scale = numpy.exp2(numpy.floor(numpy.log2(numpy.where(most == 0, 4, most))) - 2)
    scaled = numpy.minimum(numpy.abs(groups) / scale, 6)
    distance = numpy.abs(scaled[..., None] - E2M1)
    # Ties go to the even code: of two equally near ones that with the even index.
    distance += numpy.where(numpy.arange(8) % 2 == 1, 1e-9, 0)
    codes = E2M1[distance.argmin(-1)]
    return groups, numpy.sign(groups) * codes * scale, 4 * groups.size + 8 * len(groups)


class Checks:
    def __init__(self, nibble, model, work):
        self.nibble, self.model, self.work = nibble, os.path.abspath(model), pathlib.Path(work)
        lines = (pathlib.Path(model).parent / "tasks" / "prose.jsonl").read_text().splitlines()
        self.text = self.work / "text.jsonl"
        self.text.write_text("\n".join(lines[:3]) + "\n")

    def run(self, *words, code=0):
        done = subprocess.run([self.nibble, *map(str, words)], text=True, capture_output=True,
                              timeout=600, cwd=self.work)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done

    def formats(self, *words):
        path = self.work / "formats.json"
        done = self.run("bench", "formats", self.model, self.text, "--sequence-tokens", 64,
                        "--json", path, *words)
        report = json.loads(path.read_text())
        path.unlink()
        left = [each.name for each in self.work.iterdir()]
        assert left == ["text.jsonl"], left
        return {row["format"].split()[0]: row for row in report["formats"]}, done.stdout

    def test_simulated_formats_are_those_of_numpy(self):
        rows, table = self.formats("--formats", "int8,int4,mxfp4")
        for name, rule in (("int8", int8), ("int4", int4), ("mxfp4", mxfp4)):
            squares = errors = bits = weights = 0
            for matrix in matrices(self.model):
                before, after, size = rule(matrix)
                squares += numpy.square(before.astype(float)).sum()
                errors += numpy.square(after.astype(float) - before).sum()
                bits += size
                weights += before.size
            row = rows[name]
            assert row["weights"] == weights, (row, weights)
            assert abs(row["bits_per_weight"] - bits / weights) < 1e-9, (row, bits / weights)
            expected = (errors / squares) ** 0.5
            assert abs(row["relative_error"] / expected - 1) < 1e-4, (row, expected)
            assert f"| {name} (simulated) | {bits / weights:.2f} |" in table, table
        assert rows["int8"]["kl_mean"] < rows["int4"]["kl_mean"], rows

    def test_written_formats_are_those_of_quantize(self):
        for name, recipe, least in (("nvfp4", "w4a16", 4.5), ("fp8", "fp8", 8)):
            rows, table = self.formats("--formats", name, "--recipe", recipe)
            small = self.work / "small"
            self.run("quantize", self.model, small, "--recipe", recipe, "--no-progress")
            kl = json.loads(self.run("eval", "kl", small, self.text, "--against", self.model,
                                     "--sequence-tokens", 64, "--json").stdout)
            shutil.rmtree(small)
            row = rows[name]
            assert row["kl_mean"] == kl["kl"]["mean"] > 0, (row, kl["kl"])
            assert row["perplexity"] == kl["perplexity"], (row, kl["perplexity"])
            assert least <= row["bits_per_weight"] < least + 0.2, row
            assert "| as it is | 16.00 | 0 |" in table and f"| {name} |" in table, table

    def test_bad_words(self):
        for words, says in ((("--formats", "int3"), "int3"), (("--algorithm", "gptq"), "algorithm"),
                            (("--sequence-tokens", 1), "--sequence-tokens"),
                            (("--recipe", "none"), "none")):
            done = self.run("bench", "formats", self.model, self.text, *words, code=2)
            assert says in done.stderr, (words, done.stderr)
        assert "TEXT" in self.run("bench", "formats", self.model, code=2).stderr
        assert "none.txt" in self.run("bench", "formats", self.model, "none.txt", code=1).stderr


if __name__ == "__main__":
    sys.exit(run_program_checks(Checks, __doc__))

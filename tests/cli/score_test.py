#!/usr/bin/env python3
"""nibble score on the golden models: score_test.py --nibble PROGRAM.

Raw logits of both backends against transformers' (rms within 1e-3 of their deviation), the printed
figures against the logits, divergence from a reference, and refusals. Needs numpy.
"""

import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"


class ScoreTest:
    def __init__(self, nibble, scratch):
        self.nibble, self.scratch = nibble, pathlib.Path(scratch)
        self.passed = self.failed = 0

    def check(self, fine, words):
        self.passed += bool(fine)
        self.failed += not fine
        if not fine:
            print(f"FAIL {words}")

    def run(self, *words):
        return subprocess.run([self.nibble, "score", *map(str, words)], capture_output=True,
                              text=True, timeout=600, check=False)

    def ids_of(self, folder):
        path = self.scratch / "ids.json"
        ids = json.loads((folder / "expected.json").read_text())["ids"]
        path.write_text(json.dumps({"ids": ids}))
        return path, ids

    def scored(self, folder, *words):
        """JSON figures and the logits of every sequence."""
        path, ids = self.ids_of(folder)
        out = self.scratch / "logits.safetensors"
        out.unlink(missing_ok=True)
        result = self.run(folder, "--ids", path, "--json", "--logits", out, *words)
        self.check(result.returncode == 0, f"{folder.name} {words}: {result.stderr[-300:]}")
        return json.loads(result.stdout), read_logits(out, len(ids)), ids

    def plain(self, folder):
        golden = numpy.fromfile(folder / "logits.f32", "<f4")
        for backend in ("reference", "cpu"):
            figures, logits, ids = self.scored(folder, "--backend", backend)
            error = rms(numpy.concatenate(logits).ravel(), golden)
            self.check(error < 1e-3, f"{folder.name} {backend}: logits differ by {error:.2e}")
            self.check(figures["backend"] == backend and figures["activations"] == "auto",
                       f"{folder.name}: names its mode")
            total = sum(log_probabilities(one, row).sum() for one, row in zip(ids, logits))
            self.check(abs(figures["log_probability"] - total) < 1e-3 * abs(total),
                       f"{folder.name} {backend}: log-probability {figures['log_probability']}")
            count = sum(len(one) - 1 for one in ids)
            self.check(figures["tokens"] == count
                       and abs(figures["perplexity"] - numpy.exp(-total / count))
                       < 1e-3 * figures["perplexity"], f"{folder.name} {backend}: perplexity")

    def quantized(self, folder):
        for mode, name in (("declared", "logits.f32"), ("f32", "logits_high.f32")):
            golden = numpy.fromfile(folder / name, "<f4")
            for backend in ("reference", "cpu"):
                _, logits, _ = self.scored(folder, "--backend", backend, "--activations", mode)
                found = numpy.concatenate(logits)
                divergence = mean_kl(golden.reshape(found.shape), found)
                self.check(divergence <= 1e-3,
                           f"{folder.name} {backend} {mode}: mean KL {divergence:.2e}")

    def against_a_reference(self, folder):
        path, _ = self.ids_of(folder)
        words = (folder, "--ids", path, "--reference", folder, "--json")
        same = json.loads(self.run(*words, "--activations", "f32").stdout)
        self.check(same["kl"]["max"] < 1e-12 and same["top1_agreement"] == 1.0
                   and same["perplexity_ratio"] == 1.0, f"a model is its own reference: {same}")
        modes = ("--activations", "declared", "--reference-activations", "f32")
        result = self.run(*words, *modes)
        figures = json.loads(result.stdout)
        declared = numpy.fromfile(folder / "logits.f32", "<f4").reshape(-1, 101)
        high = numpy.fromfile(folder / "logits_high.f32", "<f4").reshape(-1, 101)
        expected = kl(high, declared)
        self.check(abs(figures["kl"]["mean"] / expected.mean() - 1) < 0.02
                   and abs(figures["kl"]["max"] / expected.max() - 1) < 0.02,
                   f"KL {figures['kl']}, expected mean {expected.mean()}, max {expected.max()}")
        agreement = (high.argmax(-1) == declared.argmax(-1)).mean()
        self.check(abs(figures["top1_agreement"] - agreement) < 0.02,
                   f"top-1 {figures['top1_agreement']}, expected {agreement}")
        text = self.run(*words[:-1], *modes).stdout
        for word in ("KL mean", "KL p99", "perplexity ratio", "--activations declared",
                     "--activations f32", "cpu"):
            self.check(word in text, f"the table says {word!r}")

    def better_scales(self, folder):
        """Both backends take them for the same 4-bit inputs."""
        words = ("--activations", "declared", "--input-scales", "four-over-six")
        found = {}
        for backend in ("reference", "cpu"):
            figures, logits, _ = self.scored(folder, "--backend", backend, *words)
            self.check("activations declared with four-over-six" in figures["description"],
                       f"{backend}: {figures['description']}")
            found[backend] = numpy.concatenate(logits)
        plain = numpy.fromfile(folder / "logits.f32", "<f4").reshape(found["cpu"].shape)
        apart = mean_kl(found["reference"], found["cpu"])
        self.check(apart < 0.1 * mean_kl(plain, found["cpu"]),
                   f"four-over-six: KL {apart:.2e} between backends")

    def narrow_state(self, folder):
        path, _ = self.ids_of(folder)
        words = (folder, "--ids", path, "--reference", folder, "--json", "--reference-state-dtype",
                 "float32", "--arithmetic", "generation")
        narrow = json.loads(self.run(*words, "--state-dtype", "bf16").stdout)
        self.check(0 < narrow["kl"]["mean"] < 1e-3, f"a BF16 state: KL {narrow['kl']}")
        self.check("bf16" in narrow["description"]
                   and "bf16" not in narrow["reference"]["description"], "it names its state")
        same = json.loads(self.run(*words, "--mamba-ssm-cache-dtype=bfloat16").stdout)
        self.check(same == narrow, "other names, the same figures")
        wide = json.loads(self.run(*words, "--state-dtype", "auto").stdout)
        self.check(wide["kl"]["max"] < 1e-12, f"auto is F32: KL {wide['kl']}")

    def refusals(self, folder):
        path, _ = self.ids_of(folder)
        bad = self.scratch / "bad.json"
        rows = [('{"ids": []}', "ids"), ('{"ids": [5, 100000]}', "position 1"), ("{", "bad.json"),
                ('{"ids": [[]]}', "at least one id"), (json.dumps({"ids": [1] * 5000}), "4096")]
        for text, words in rows:
            bad.write_text(text)
            self.refused(self.run(folder, "--ids", bad), words)
        self.refused(self.run(folder), "--ids")
        self.refused(self.run(folder, "--ids", path, "--logits", path), "existing file")
        self.refused(self.run(folder, "--ids", path, "--activations", "fp4"), "declared")
        self.refused(self.run(folder, "--ids", path, "--state-dtype", "fp8"), "bfloat16")
        self.refused(self.run(folder, "--ids", path, "--arithmetic", "both"), "generation")
        self.refused(self.run(folder, "--ids", path, "--reference", GOLDEN / "model" / "plain-moe"),
                     "vocabulary")
        self.refused(self.run(self.scratch, "--ids", path), "config.json")
        self.refused(self.run(folder, "--ids", path, "--image", "none.png"), "none.png")
        self.refused(self.run(folder, "--ids", path, "--image", __file__, "--max-image-bytes", 9),
                     "score_test.py")
        self.refused(self.run(folder, "--ids", path, "--image", __file__), "a vision tower")

    def refused(self, result, words):
        notes = ("scoring", "--backend auto takes the CPU", "images are not taken: ")
        lines = [line for line in result.stderr.splitlines() if not line.startswith(notes)]
        self.check(result.returncode in (1, 2) and len(lines) == 1 and words in lines[0]
                   and not result.stdout, f"{words}: {result.returncode} {result.stderr}")


def read_logits(path, count):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    names = ["logits"] if count == 1 else [f"logits.{i}" for i in range(count)]
    rows = []
    for name in names:
        begin, end = header[name]["data_offsets"]
        values = numpy.frombuffer(data[8 + size + begin:8 + size + end], "<f4")
        rows.append(values.reshape(header[name]["shape"]))
    return rows


def rms(found, expected):
    return float(numpy.sqrt(((found - expected) ** 2).mean()) / expected.std())


def log_softmax(logits):
    shifted = logits.astype("f8") - logits.max(-1, keepdims=True)
    return shifted - numpy.log(numpy.exp(shifted).sum(-1, keepdims=True))


def log_probabilities(ids, logits):
    return log_softmax(logits)[numpy.arange(len(ids) - 1), ids[1:]]


def kl(expected, found):
    p = log_softmax(expected)
    return (numpy.exp(p) * (p - log_softmax(found))).sum(-1)


def mean_kl(expected, found):
    return float(kl(expected, found).mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nibble", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        test = ScoreTest(options.nibble, scratch)
        for folder in sorted((GOLDEN / "model").iterdir()):
            if folder.name != "dense-positions":  # image positions are not for the command line
                test.plain(folder)
        for folder in sorted((GOLDEN / "model-quantized").iterdir()):
            test.quantized(folder)
        test.against_a_reference(GOLDEN / "model-quantized" / "nvfp4-w4a4")
        test.better_scales(GOLDEN / "model-quantized" / "nvfp4-w4a4")
        test.narrow_state(GOLDEN / "model" / "moe-fused")
        test.refusals(GOLDEN / "model" / "moe-fused")
    print(f"{test.passed} passed, {test.failed} failed")
    return 1 if test.failed else 0


if __name__ == "__main__":
    sys.exit(main())

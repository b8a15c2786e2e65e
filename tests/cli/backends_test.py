#!/usr/bin/env python3
"""One backend against another on Pebble, in BF16 and quantized by every recipe.

backends_test.py --nibble PROGRAM --model PEBBLE_FOLDER [--backend cuda] [--against cpu]

Distributions over 4,096 positions of the model's own samples, greedy text, and accuracy on held-out
items. The backend runs with F32 activations too: then only the order of sums differs, and text is
the same up to where the other backend's two best logits nearly meet. Rounding to BF16, on any
backend, gives about one row in twenty another expert in some layer, whose two router logits nearly
met; the row's logits then move by up to half their deviation, so a few texts part elsewhere.
The last line counts. Without a card nothing is tested, which the last line says.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/serve"))
from running_server import options_of, run_each  # noqa: E402

RECIPES = (None, "mixed", "w4a16", "w4a4", "w4a4-fp8-head", "experts-only", "fp8",
           "lab-fp8-embed")  # None: BF16
SEQUENCES = 4
LENGTH = 1024
BARS = {"auto": (1e-3, 0.99), "f32": (1e-6, 0.999)}  # most mean KL, least share of equal choices
GREEDY_PROMPTS = 16
GREEDY_PROMPT_LENGTH = 24
GREEDY_LENGTH = 200
NEAR_TIE = 0.02  # of the deviation of the logits
PARTED_MAX = 6  # of all texts, elsewhere than at a near tie, when activations are rounded
ITEMS = 10  # of each task and mode
NO_TASKS = ("prose.jsonl", "image.jsonl")  # text to predict, and pictures


def read_logits(path):
    """All sequences of a file of `score --logits`, one after the other: [T, V]."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    header.pop("__metadata__", None)
    parts = []
    for entry in sorted(header.values(), key=lambda each: each["data_offsets"]):
        assert entry["dtype"] == "F32", entry
        begin, end = entry["data_offsets"]
        parts.append(np.frombuffer(data[begin:end], np.float32).reshape(entry["shape"]))
    return np.concatenate(parts)


def log_softmax(logits):
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def divergence(expected, found):
    """Mean KL of the found distributions from the expected ones, and the share of equal choices."""
    p, q = (log_softmax(each.astype(np.float64)) for each in (expected, found))
    same = expected.argmax(axis=1) == found.argmax(axis=1)
    return float((np.exp(p) * (p - q)).sum(axis=1).mean()), float(same.mean())


class Checks:
    def __init__(self, options, work):
        self.options = options
        self.work = work
        self.folders = {None: pathlib.Path(options.model)}
        self.sampled = {}  # by folder
        self.greedy = {}  # prompts and what the other backend makes of them, by folder

    def nibble(self, *words):
        done = subprocess.run([self.options.nibble, *map(str, words)], capture_output=True,
                              text=True, timeout=600)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def folder(self, recipe):
        if recipe not in self.folders:
            self.folders[recipe] = self.work / recipe
            self.nibble("quantize", self.options.model, self.work / recipe, "--recipe", recipe)
        return self.folders[recipe]

    def continued(self, folder, backend, prompts, length, *flags):
        """New ids for each prompt."""
        path = self.work / "prompts.json"
        path.write_text(json.dumps({"ids": prompts}))
        return json.loads(self.nibble("run", folder, "--backend", backend, "--ids", path,
                                      "--max-tokens", length, "--ignore-eos", *flags))["ids"]

    def samples(self, folder):
        """The model's own text, not noise."""
        if folder not in self.sampled:
            prompts = [[17 + 100 * i] for i in range(SEQUENCES)]
            new = self.continued(folder, self.options.against, prompts, LENGTH - 1,
                                 "--activations", "f32", "--temperature", 1, "--seed", 5)
            self.sampled[folder] = [prompt + ids for prompt, ids in zip(prompts, new)]
        return self.sampled[folder]

    def logits(self, folder, backend, sequences, arithmetic, activations="auto"):
        ids, out = self.work / "ids.json", self.work / "logits.safetensors"
        ids.write_text(json.dumps({"ids": sequences}))
        out.unlink(missing_ok=True)
        self.nibble("score", folder, "--backend", backend, "--ids", ids, "--logits", out,
                    "--arithmetic", arithmetic, "--activations", activations)
        return read_logits(out)

    def test_distributions(self):
        failures = []
        for recipe in RECIPES:
            folder = self.folder(recipe)
            sequences = self.samples(folder)
            for arithmetic in ("prompt", "generation"):
                expected = self.logits(folder, self.options.against, sequences, arithmetic)
                assert len(expected) == SEQUENCES * LENGTH, expected.shape
                for activations, (kl_max, top1_min) in BARS.items():
                    found = self.logits(folder, self.options.backend, sequences, arithmetic,
                                        activations)
                    kl, top1 = divergence(expected, found)
                    print(f"      {recipe or 'bf16'}, {arithmetic}, activations {activations}: "
                          f"mean KL {kl:.2e}, top-1 {top1:.2%}")
                    if not (kl <= kl_max and top1 >= top1_min):
                        failures.append((recipe, arithmetic, activations))
        assert not failures, failures

    def greedy_text(self, folder):
        """Prompts, and their continuations by the other backend."""
        if folder not in self.greedy:
            (text, *_) = self.samples(folder)
            step = (LENGTH - GREEDY_PROMPT_LENGTH) // GREEDY_PROMPTS
            prompts = [text[at:at + GREEDY_PROMPT_LENGTH]
                       for at in range(0, GREEDY_PROMPTS * step, step)]
            self.greedy[folder] = prompts, self.continued(folder, self.options.against, prompts,
                                                          GREEDY_LENGTH, "--activations", "f32")
        return self.greedy[folder]

    def gap(self, folder, ids):
        """Between the two best logits after `ids`, in deviations of the logits."""
        row = self.logits(folder, self.options.against, [ids], "generation")[-1]
        second, best = np.partition(row, -2)[-2:]
        return float((best - second) / row.std())

    def greedy_text_parts(self, activations):
        """(recipe, place, gap) of each text that parts elsewhere than at a near tie."""
        far = []
        for recipe in RECIPES:
            folder = self.folder(recipe)
            prompts, wanted = self.greedy_text(folder)
            found = self.continued(folder, self.options.backend, prompts, GREEDY_LENGTH,
                                   "--activations", activations)
            gaps = []
            for prompt, want, have in zip(prompts, wanted, found):
                assert len(want) == len(have) == GREEDY_LENGTH, (len(want), len(have))
                if want == have:
                    continue
                at = next(i for i, pair in enumerate(zip(want, have)) if pair[0] != pair[1])
                gaps.append((recipe, at, self.gap(folder, prompt + want[:at])))
            far += [each for each in gaps if each[2] >= NEAR_TIE]
            print(f"      {recipe or 'bf16'}, activations {activations}: {len(gaps)} of "
                  f"{GREEDY_PROMPTS} texts part somewhere")
        return far

    def test_greedy_text(self):
        far = self.greedy_text_parts("f32")
        assert not far, far

    def test_greedy_text_rounded(self):
        far = self.greedy_text_parts("auto")
        print(f"      {len(far)} of {len(RECIPES) * GREEDY_PROMPTS} part not at a near tie: {far}")
        assert len(far) <= PARTED_MAX, far

    def right_items(self, recipe, backend):
        """Tells for each item of the bundled tasks, by id, whether the answer was right."""
        output = self.work / f"{recipe}-{backend}.jsonl"
        tasks = sorted((ROOT / "pebble/tasks").glob("*.jsonl"))
        subprocess.run([self.options.nibble, "eval", self.folder(recipe),
                        *(task for task in tasks if task.name not in NO_TASKS), "--limit",
                        str(ITEMS), "--backend", backend, "--output", output], check=True,
                       capture_output=True)
        lines = [json.loads(line) for line in output.read_text().splitlines()[1:]]
        return {line["id"]: line["verdict"] == "right" for line in lines}

    def test_accuracy(self):
        for recipe in (None, "mixed"):
            first, second = (self.right_items(recipe, backend)
                             for backend in (self.options.against, self.options.backend))
            assert first.keys() == second.keys() and len(first) >= 50, (len(first), len(second))
            changes = np.array([float(second[item]) - float(first[item]) for item in first])
            change = 100 * changes.mean()
            error = 100 * changes.std(ddof=1) / len(changes) ** 0.5
            print(f"      {recipe or 'bf16'}: {sum(first.values())} and {sum(second.values())} of "
                  f"{len(first)} right, {change:+.2f} points, standard error {error:.2f}")
            assert abs(change) <= 2 * error, (change, error)


def main():
    options = options_of(__doc__, backend="cuda", against="cpu")
    probe = subprocess.run([options.nibble, "run", options.model, "x", "--max-tokens", "1",
                            "--backend", options.backend], capture_output=True, text=True)
    if f"backend {options.backend}: expected" in probe.stderr:
        print(f"skipped: {probe.stderr.strip()}")
        return 0
    with tempfile.TemporaryDirectory() as work:
        passed, failed = run_each(Checks(options, pathlib.Path(work)), options.only)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

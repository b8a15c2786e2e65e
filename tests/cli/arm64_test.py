#!/usr/bin/env python3
"""The program on 64-bit ARM does what it does on x86-64: arm64_test.py --nibble PROGRAM
--arm64 PROGRAM --sysroot FOLDER --model PEBBLE_FOLDER.

Quantizes Pebble with both, the second one under QEMU: files are equal byte for byte. Logits that
the kernels of each instruction set compute are equal byte for byte too, with F32 and with 8-bit
activations. Instruction sets that a machine lacks are refused in one line.
"""
import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

QUANTIZED = (  # what rounds weights alone, by data, and to 8 bits
    ("--recipe", "mixed"),
    ("--recipe", "fp8", "--format", "modelopt"),
    ("--recipe", "w4a16", "--algorithm", "gptq", "--calib", "pebble/tasks/prose.jsonl:24"),
)
# Neoverse N1 lacks products of 8-bit matrices, Cortex-A53 dot product too.
MACHINES = {"max": ("i8mm", "neon", "scalar"), "neoverse-n1": ("neon", "scalar"),
            "cortex-a53": ("scalar",)}


class Arm64Test:
    def __init__(self, options, work):
        self.options, self.work = options, work
        self.passed = self.failed = 0

    def check(self, fine, words):
        self.passed += bool(fine)
        self.failed += not fine
        print(f"{'ok   ' if fine else 'FAIL '} {words}", flush=True)

    def run(self, machine, *words):
        """The end of the program: with a machine that QEMU imitates, of the one for arm64."""
        emulator = ["qemu-aarch64", "-L", self.options.sysroot, "-cpu", machine]
        program = [*emulator, self.options.arm64] if machine else [self.options.nibble]
        return subprocess.run([*program, *map(str, words)], capture_output=True, text=True,
                              timeout=900, stdin=subprocess.DEVNULL, check=False)

    def succeed(self, machine, *words):
        done = self.run(machine, *words)
        if done.returncode != 0:
            raise RuntimeError(f"{machine or 'x86-64'}: {' '.join(map(str, words))}: {done.stderr}")

    def hashes(self, folder):
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                for path in sorted(folder.iterdir())}

    def quantized(self):
        """The folder of the first recipe."""
        for i, words in enumerate(QUANTIZED):
            made = {}
            for machine in ("", "max"):
                folder = self.work / f"{machine}{i}" / "quantized"
                folder.parent.mkdir()
                self.succeed(machine, "quantize", self.options.model, folder, *words,
                             "--no-progress")
                made[machine] = self.hashes(folder)
            differ = [name for name in {**made[""], **made["max"]}
                      if made[""].get(name) != made["max"].get(name)]
            self.check(not differ and made[""], f"quantize {' '.join(words)}: "
                       f"{len(made[''])} files equal, {len(differ)} not: {differ}")
        return self.work / "0" / "quantized"

    def logits(self, machine, folder, *words):
        out = self.work / "logits.safetensors"
        out.unlink(missing_ok=True)
        self.succeed(machine, "score", folder, "--backend", "cpu", "--ids", self.work / "ids.json",
                     "--logits", out, *words)
        return out.read_bytes()

    def computed(self, folder):
        ids = [[300 + 37 * i % 1500 for i in range(length)] for length in (40, 7, 1)]
        (self.work / "ids.json").write_text(json.dumps({"ids": ids}))
        for activations in ("f32", "int8"):
            words = ("--activations", activations)
            expected = self.logits("", folder, *words)
            for machine, names in MACHINES.items():
                for isa in names:
                    found = self.logits(machine, folder, *words, "--isa", isa)
                    self.check(found == expected,
                               f"{activations} activations, {isa} of {machine}: logits of x86-64")

    def refused(self):
        lacks = {"": ("neon",), "max": ("avx2", "avx512"), "neoverse-n1": ("i8mm",),
                 "cortex-a53": ("neon", "avx2")}
        for machine, names in lacks.items():
            for isa in names:
                done = self.run(machine, "score", self.options.model, "--backend", "cpu", "--ids",
                                self.work / "ids.json", "--isa", isa)
                usable = "" if machine == "" else ", ".join(MACHINES[machine])
                said = done.stderr
                self.check(done.returncode != 0 and said.count("\n") == 1 and
                           f"instruction set: expected {usable}" in said and
                           f"found {isa}" in said,
                           f"{isa} on {machine or 'x86-64'}: {said.strip()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nibble", required=True, help="the program for this machine")
    parser.add_argument("--arm64", required=True, help="the program for 64-bit ARM")
    parser.add_argument("--sysroot", required=True, help="folder with its libraries")
    parser.add_argument("--model", required=True, help="Pebble's folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        test = Arm64Test(options, pathlib.Path(work))
        test.computed(test.quantized())
        test.refused()
    print(f"{test.passed} passed, {test.failed} failed")
    return test.failed > 0


if __name__ == "__main__":
    sys.exit(main())

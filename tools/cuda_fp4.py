#!/usr/bin/env python3
"""Holds the kernels of products of codes against what they claim, in compiled code.

    tools/cuda_fp4.py [--resources] FILE...

FILE is an object or cubin of src/backend/cuda/ops/quantized. Code for compute capability 12 must
have the block-scaled 4-bit instruction in every kernel made for it and nothing of the emulation;
code for other cards the reverse. Kernels in FP8 must have the instruction for E4M3 on compute
capability 8.9 and 12, the one for F16 in its place on 9 and 10, and no code below 8.9. --resources,
for code that is optimised, asks for the instruction as often as a tile has it, and limits
registers, local memory (spills) and static shared memory. Reads what cuobjdump prints. Prints 'N
passed, N failed'.
"""

import collections
import re
import subprocess
import sys

from cuda_targets import cuobjdump

INSTRUCTION = "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X"
EMULATION = "IDP.4A"  # dot products of bytes
FP8_INSTRUCTION = "QMMA.16832.F32.E4M3.E4M3"
FP16_INSTRUCTION = "HMMA.16816.F32"  # two are one of FP8, whose operands are converted before
# Tokens of a tile: instructions in a kernel (left x right operands x steps of a stage), and
# the registers that a thread may have, with the instruction and without. One block of 256 threads
# fits an SM with 255, two with 128.
TILES = {128: (2 * 8 * 2, 208, 255), 32: (1 * 4 * 2, 112, 128)}
FP8_REGISTERS = {128: 255, 32: 128}  # sums of 128 columns are kept beside those of all
OUTPUTS = {"software": 5, "machine": 5, "fp8": 4}  # kernels of each tile
FRAGMENTS = 8  # instructions of the kernel that shows the instruction alone: one for each choice

TARGET = r"\s*(?:arch = |code for )(sm_\d+)"  # without a letter, which not every listing has
RESERVED = 1024  # bytes of shared memory that every block has from compute capability 9.0 up

Kernel = collections.namedtuple("Kernel", "target kind tokens operations length")


def printed(option, path):
    return subprocess.run([cuobjdump(), option, path], capture_output=True, text=True,
                          check=True).stdout


def kind_of(name):
    """("machine", "software" or "fp8", tokens of a tile or 0) of a mangled name, or None."""
    by = "machine" if "MachineFp4" in name else "fp8" if "Fp8Operands" in name else "software"
    if "quantized_kernel" in name:
        return by, int(re.search(r"Li(\d+)EE", name)[1])
    if "fragments_kernel" in name:
        return by, 0
    return None


def operations_of(path):
    """{(target, name): [operation, ...]} of all kernels in a file."""
    target = name = ""
    lines = collections.defaultdict(list)
    for line in printed("--dump-sass", path).splitlines():
        if match := re.match(TARGET, line):
            target = match[1]
        elif match := re.match(r"\s*Function : (\S+)", line):
            name = match[1]
            lines[target, name] = []
        elif match := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", line):
            lines[target, name].append(match[1])
    return lines


def kernels_of(path):
    """{(target, name): Kernel} of the products of codes in a file."""
    found = {}
    for (where, function), code in operations_of(path).items():
        kind = kind_of(function)
        if kind is not None:
            operations = {part: sum(op.startswith(part) for op in code)
                          for part in (INSTRUCTION, EMULATION, FP8_INSTRUCTION, FP16_INSTRUCTION)}
            found[where, function] = Kernel(where, *kind, operations,
                                            sum(op != "NOP" for op in code))
    return found


def wrong_fp8_code(kernel, optimised):
    """Judges a kernel in FP8 like wrong_code judges those of 4-bit codes."""
    if kernel.target in ("sm_80", "sm_86"):
        if optimised and kernel.length > 8:
            return f"{kernel.length} instructions in a kernel that has nothing to do there"
        return ""
    native = kernel.target.startswith(("sm_89", "sm_12"))
    wanted, other = (FP8_INSTRUCTION, FP16_INSTRUCTION)[::1 if native else -1]
    expected = TILES[kernel.tokens][0] * (1 if native else 2)
    count = kernel.operations[wanted]
    if count != expected and (optimised or not count):
        return f"{count} of {expected} instructions {wanted}"
    return f"{other} besides" if kernel.operations[other] else ""


def wrong_code(kernel, optimised):
    """A sentence about code that is not what its name claims, or ""."""
    if kernel.kind == "fp8":
        return wrong_fp8_code(kernel, optimised)
    native = kernel.target.startswith("sm_12")
    expected = TILES[kernel.tokens][0] if kernel.tokens else FRAGMENTS
    count = kernel.operations[INSTRUCTION]
    emulated = kernel.operations[EMULATION]
    if kernel.kind == "machine" and native:
        if count != expected and (optimised or not count):
            return f"{count} of {expected} instructions {INSTRUCTION}"
        return "emulates besides" if emulated else ""
    if count:
        return f"the instruction, in a kernel that is not made for it on {kernel.target}"
    if kernel.kind == "software" and (not native or not kernel.tokens):
        return "" if emulated else "no emulation in the kernel that emulates"
    if optimised and kernel.tokens and kernel.length > 8:
        return f"{kernel.length} instructions in a kernel that has nothing to do there"
    return ""


def resources_of(path):
    """{(target, name): {"REG": n, "STACK": n, "SHARED": n, "LOCAL": n}}"""
    found = {}
    target = ""
    name = ""
    for line in printed("--dump-resource-usage", path).splitlines():
        if match := re.match(TARGET, line):
            target = match[1]
        elif match := re.match(r"\s*Function (\S+):", line):
            name = match[1]
        elif "REG:" in line:
            found[target, name] = {key: int(value)
                                   for key, value in re.findall(r"(\w+):(\d+)", line)}
    return found


def wrong_resources(kernel, used):
    if kernel.kind == "fp8":
        most = FP8_REGISTERS[kernel.tokens]
    else:
        most = TILES[kernel.tokens][1 if kernel.kind == "machine" else 2] if kernel.tokens else 128
    if used["REG"] > most:
        return f"{used['REG']} registers, at most {most}"
    # The emulation calls a function, which has a stack.
    if kernel.kind != "software" and (used["STACK"] or used["LOCAL"]):
        return f"{used['STACK']} bytes of stack, {used['LOCAL']} of local memory"
    if used["SHARED"] > RESERVED:
        return f"{used['SHARED']} bytes of static shared memory, at most {RESERVED}"
    return ""


class Judge:
    """Prints what is wrong, and counts."""

    def __init__(self):
        self.counts = collections.Counter()

    def __call__(self, what, wrong):
        self.counts["failed" if wrong else "passed"] += 1
        if wrong:
            print(f"{what}: {wrong}")

    def end(self):
        """The code with which the program ends."""
        print(f"{self.counts['passed']} passed, {self.counts['failed']} failed")
        return 1 if self.counts["failed"] else 0


def main():
    with_resources = "--resources" in sys.argv
    judge = Judge()
    tiles = collections.Counter()
    for path in [word for word in sys.argv[1:] if not word.startswith("--")]:
        resources = resources_of(path) if with_resources else {}
        for (target, name), kernel in kernels_of(path).items():
            judge(f"{target} {name}", wrong_code(kernel, with_resources))
            tiles[target, kernel.kind, kernel.tokens] += 1
            if with_resources:
                used = resources[target, name]
                judge(f"{target} {name}", wrong_resources(kernel, used))
                if kernel.length > 8:
                    matrices = sum(count for part, count in kernel.operations.items()
                                   if part != EMULATION)
                    print(f"{target} {kernel.kind}, {kernel.tokens} tokens: {kernel.length} "
                          f"instructions, {matrices} of them for matrices, {used['REG']} registers")
    for target in sorted({target for target, _, _ in tiles}):
        for kind, outputs in OUTPUTS.items():
            for tokens in TILES:
                number = tiles[target, kind, tokens]
                judge(f"{target}: kernels of {tokens} tokens, {kind}",
                      "" if number == outputs else f"{number} of {outputs}")
    if not tiles:
        judge("files", "no kernels of products of codes")
    return judge.end()


if __name__ == "__main__":
    sys.exit(main())

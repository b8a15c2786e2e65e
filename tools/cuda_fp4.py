#!/usr/bin/env python3
"""Holds the kernels of products of 4-bit codes against what they claim, in compiled code.

    tools/cuda_fp4.py [--resources] FILE...

FILE is an object or cubin of src/backend/cuda/ops/fp4. Code for compute capability 12 must have the
block-scaled 4-bit instruction in every kernel made for it and nothing of the emulation; code for
other cards the reverse. --resources, for code that is optimised, asks for the instruction as often
as a tile has it, and limits registers, local memory (spills) and static shared memory. Reads what
cuobjdump prints. Prints 'N passed, N failed'.
"""

import collections
import re
import subprocess
import sys

from cuda_targets import cuobjdump

INSTRUCTION = "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X"
EMULATION = "IDP.4A"  # dot products of bytes
# Tokens of a tile: instructions in a kernel (left x right operands x steps of a stage), and
# the registers that a thread may have, with the instruction and without. One block of 256 threads
# fits an SM with 255, two with 128.
TILES = {128: (2 * 8 * 2, 208, 255), 32: (1 * 4 * 2, 112, 128)}
OUTPUTS = 4  # kernels of each tile
FRAGMENTS = 8  # instructions of the kernel that shows the instruction alone: one for each choice

TARGET = r"\s*(?:arch = |code for )(sm_\d+)"  # without a letter, which not every listing has
RESERVED = 1024  # bytes of shared memory that every block has from compute capability 9.0 up

Kernel = collections.namedtuple("Kernel", "target machine tokens instructions emulated length")


def printed(option, path):
    return subprocess.run([cuobjdump(), option, path], capture_output=True, text=True,
                          check=True).stdout


def kind_of(name):
    """(made for the instruction?, tokens of a tile or 0) of a mangled name, or None."""
    if "fp4_kernel" in name:
        return "MachineFp4" in name, int(re.search(r"Li(\d+)EE", name)[1])
    if "fragments_kernel" in name:
        return "MachineFp4" in name, 0
    return None


def kernels_of(path):
    """{(target, name): Kernel} of the products of 4-bit codes in a file."""
    found = {}
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
    for (where, function), code in lines.items():
        kind = kind_of(function)
        if kind is not None:
            found[where, function] = Kernel(where, kind[0], kind[1],
                                            sum(op == INSTRUCTION for op in code),
                                            sum(op.startswith(EMULATION) for op in code),
                                            sum(op != "NOP" for op in code))
    return found


def wrong_code(kernel, optimised):
    """A sentence about code that is not what its name claims, or ""."""
    native = kernel.target.startswith("sm_12")
    expected = TILES[kernel.tokens][0] if kernel.tokens else FRAGMENTS
    if kernel.machine and native:
        if kernel.instructions != expected and (optimised or not kernel.instructions):
            return f"{kernel.instructions} of {expected} instructions {INSTRUCTION}"
        return "emulates besides" if kernel.emulated else ""
    if kernel.instructions:
        return f"the instruction, in a kernel that is not made for it on {kernel.target}"
    if not kernel.machine and (not native or not kernel.tokens):
        return "" if kernel.emulated else "no emulation in the kernel that emulates"
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
    most = TILES[kernel.tokens][1 if kernel.machine else 2] if kernel.tokens else 128
    if used["REG"] > most:
        return f"{used['REG']} registers, at most {most}"
    if kernel.machine and (used["STACK"] or used["LOCAL"]):  # the emulation calls a function
        return f"{used['STACK']} bytes of stack, {used['LOCAL']} of local memory"
    if used["SHARED"] > RESERVED:
        return f"{used['SHARED']} bytes of static shared memory, at most {RESERVED}"
    return ""


def main():
    with_resources = "--resources" in sys.argv
    counts = collections.Counter()
    tiles = collections.Counter()

    def judge(what, wrong):
        counts["failed" if wrong else "passed"] += 1
        if wrong:
            print(f"{what}: {wrong}")

    for path in [word for word in sys.argv[1:] if not word.startswith("--")]:
        resources = resources_of(path) if with_resources else {}
        for (target, name), kernel in kernels_of(path).items():
            judge(f"{target} {name}", wrong_code(kernel, with_resources))
            tiles[target, kernel.machine, kernel.tokens] += 1
            if with_resources:
                used = resources[target, name]
                judge(f"{target} {name}", wrong_resources(kernel, used))
                if kernel.length > 8:
                    by = "instruction" if kernel.machine else "emulation"
                    print(f"{target} {by}, {kernel.tokens} tokens: {kernel.length} instructions, "
                          f"{kernel.instructions} of them for matrices, {used['REG']} registers")
    for target in sorted({target for target, _, _ in tiles}):
        for machine in (False, True):
            for tokens in TILES:
                number = tiles[target, machine, tokens]
                by = "machine" if machine else "software"
                judge(f"{target}: kernels of {tokens} tokens, {by}",
                      "" if number == OUTPUTS else f"{number} of {OUTPUTS}")
    if not tiles:
        judge("files", "no kernels of products of 4-bit codes")
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())

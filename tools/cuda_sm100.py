#!/usr/bin/env python3
"""Holds the products by tensor memory against what they claim, in compiled code.

    tools/cuda_sm100.py FILE...

FILE is an object of src/backend/cuda/ops/quantized/sm100. Every kernel in it must have the
block-scaled 4-bit instruction of compute capability 10 at least as often as a stage of its tile
has steps, no other matrix instruction and nothing of the emulation, and no more registers, stack,
local memory (spills) and static shared memory than is written here. Dynamic shared memory is
limited where CUTLASS chooses stages, when it is compiled. Reads what cuobjdump prints. Prints a
line for each kernel, then 'N passed, N failed'.
"""

import collections
import re
import sys

from cuda_fp4 import RESERVED, Judge, operations_of, resources_of

# The instruction with E4M3 scales of 16 columns, as each target prints it.
INSTRUCTION = {"sm_100": "UTCOMMA.4X", "sm_103": "UTCOMMA.BLOCK16"}
OTHERS = ("HMMA", "QMMA", "OMMA", "IMMA", "UTCHMMA", "UTCIMMA", "UTCQMMA", "IDP")
STEPS = 4  # instructions along the 256 columns of a stage
# The kernels that there must be. One thread block runs on an SM, so no limit of registers is near;
# this one is a little above what they have.
TOKENS = {"linear": (64, 256), "experts": (64, 128)}
OUTPUTS = {"linear": ("added", "bf16", "f32", "gated"), "experts": ("bf16", "f32", "gated")}
REGISTERS = 176


def kind_of(name):
    """(matrices, output, rows of x in a tile) of a mangled name."""
    matrices = "experts" if "GroupProblemShape" in name else "linear"
    if "4Silu" in name:
        output = "gated"
    elif "4plus" in name:
        output = "added"
    else:
        output = "bf16" if "bfloat16_t" in name else "f32"
    # The tile comes after the cluster; a size that was there before is only referred to.
    tile = re.search(r"IJNS\w{1,2}_ILi128EEE(?:NS\w{1,2}_ILi(\d+)EEE|S\w{1,2}_)",
                     name[name.index("MainloopSm100"):])
    return matrices, output, int(tile[1] or 128)


def wrong_code(target, operations):
    wanted = INSTRUCTION.get(target, "an instruction that this tool knows")
    count = operations.count(wanted)
    if count < STEPS:
        return f"{count} of at least {STEPS} instructions {wanted}"
    others = sorted({op for op in operations if op.startswith(OTHERS)})
    return f"{', '.join(others)} besides" if others else ""


def wrong_resources(used):
    if used["REG"] > REGISTERS:
        return f"{used['REG']} registers, at most {REGISTERS}"
    if used["STACK"] or used["LOCAL"]:
        return f"{used['STACK']} bytes of stack, {used['LOCAL']} of local memory"
    if used["SHARED"] > RESERVED:
        return f"{used['SHARED']} bytes of static shared memory, at most {RESERVED}"
    return ""


def main():
    judge = Judge()
    kernels = collections.Counter()
    for path in sys.argv[1:]:
        resources = resources_of(path)
        for (target, name), operations in operations_of(path).items():
            if "MainloopSm100" not in name:
                continue
            kind = matrices, output, tokens = kind_of(name)
            what = f"{target} {matrices} to {output}, {tokens} rows"
            used = resources[target, name]
            judge(what, wrong_code(target, operations))
            judge(what, wrong_resources(used))
            kernels[target, kind] += 1
            print(f"{what}: {operations.count(INSTRUCTION.get(target, ''))} instructions, "
                  f"{used['REG']} registers")
    for target in sorted({target for target, _ in kernels}):
        for matrices, sizes in TOKENS.items():
            for kind in [(matrices, output, tokens)
                         for output in OUTPUTS[matrices] for tokens in sizes]:
                number = kernels[target, kind]
                judge(f"{target} {kind}", "" if number == 1 else f"{number} kernels, not 1")
    if not kernels:
        judge("files", "no kernels of products by tensor memory")
    return judge.end()


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Lists the targets of the CUDA code in a built program and holds them against those asked for.

    tools/cuda_targets.py PROGRAM all
    tools/cuda_targets.py PROGRAM '80-real;90a-real;80-virtual'

Every source of kernels must be there for every target, those of ops/quantized/sm100 for compute
capability 10 alone, and `PROGRAM --version` must name those targets. Reads what cuobjdump prints;
it is looked for beside nvcc, in PATH and in the packages of .venv. Prints 'N passed, N failed'.
"""

import collections
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The targets that a release has code for.
ALL = "80-real;86-real;89-real;90a-real;100f-real;120f-real;80-virtual"
OF_TEN = "src/backend/cuda/ops/quantized/sm100"  # sources for compute capability 10 alone


def cuobjdump():
    nvcc = shutil.which("nvcc")
    places = [pathlib.Path(nvcc).resolve().parent / "cuobjdump"] if nvcc else []
    found = shutil.which("cuobjdump")
    places += [pathlib.Path(found)] if found else []
    places += [pathlib.Path("/usr/local/cuda/bin/cuobjdump")]
    places += sorted(ROOT.glob(".venv/lib/python3*/site-packages/**/bin/cuobjdump"))
    for place in places:
        if place.is_file():
            return str(place)
    sys.exit("cuda_targets: no cuobjdump beside nvcc, in PATH or in .venv")


def names_by_target(program):
    """{"90a-real": [source, ...]}; a source appears once for each of its embedded images."""
    targets = collections.defaultdict(list)
    for option, kind, suffix in (("--list-elf", "real", "cubin"), ("--list-ptx", "virtual", "ptx")):
        listing = subprocess.run([cuobjdump(), option, program], capture_output=True, text=True,
                                 check=False).stdout
        for name, target in re.findall(rf"(\S+)\.sm_(\w+)\.{suffix}", listing):
            targets[f"{target}-{kind}"].append(name)
    return targets


def stated(program):
    """{"90a-real", ...}, from the line "CUDA code: sm_90a, PTX compute_80 (CUDA 13.0)"."""
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    targets = {f"{name}-real" for name in re.findall(r"\bsm_(\w+)", text)}
    return targets | {f"{name}-virtual" for name in re.findall(r"\bcompute_(\w+)", text)}


def main():
    found = names_by_target(sys.argv[1])
    asked = (ALL if sys.argv[2] == "all" else sys.argv[2]).split(";")
    # A listing has families without their letter: 100f as sm_100.
    wanted = [target if target in found else target.replace("f-", "-") for target in asked]
    passed = 0
    failed = 0
    same = stated(sys.argv[1]) == set(asked)
    passed += same
    failed += not same
    print(f"--version names {', '.join(sorted(stated(sys.argv[1])))}")
    own = len(list((ROOT / OF_TEN).glob("*.cu")))
    counts = {target: len(names) - own * target.startswith("10")
              for target, names in found.items()}
    most = max(counts.values(), default=0)
    for target in wanted:
        count = counts.get(target, 0)
        sound = 0 < count == most
        passed += sound
        failed += not sound
        print(f"{target}: {count} of {most} sources of kernels")
    for target in sorted(set(found) - set(wanted)):
        failed += 1
        print(f"{target}: not asked for")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

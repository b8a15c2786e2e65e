"""Holds Nibble's codecs against the installed compressed-tensors on fresh random tensors.

codec_test.py [TOOL [SEEDS]], where TOOL is the built nibble_codec_tool (default: the one of
./test): makes one file of cases per seed (codec_cases.py), runs the tool over them, prints what
differs and 'N passed, N failed'. Part of ./test --full: needs torch.
"""

import pathlib
import subprocess
import sys
import tempfile

from safetensors.torch import save_file

import codec_cases

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEFAULT_TOOL = ROOT / "build/test/src/tensor/nibble_codec_tool"
SHAPES = ((12, 64), (9, 256), (40, 1024))


def main():
    tool = sys.argv[1] if len(sys.argv) > 1 else DEFAULT_TOOL
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 6
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(100, 100 + seeds):
            path = pathlib.Path(folder) / f"seed{seed}.safetensors"
            save_file(codec_cases.make(seed, *SHAPES[seed % len(SHAPES)]), path)
            run = subprocess.run([tool, path], capture_output=True, text=True, check=False)
            print((run.stdout + run.stderr).rstrip())
            failed += run.returncode != 0
            path.unlink()
    print(f"{seeds - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

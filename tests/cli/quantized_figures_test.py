#!/usr/bin/env python3
"""The verbs quantize, verify, inspect and convert say and write for Pebble what
tests/golden/quantized.txt has: texts, declarations and hashes of tensor files.

quantized_figures_test.py --nibble PROGRAM --model FOLDER [--write yes]   --write renews the file
"""
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "serve"))
from running_server import options_of  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/quantized.txt"
LINES_MOST = 60  # of one text; a hash stands for the rest
CALM = ["--no-progress"]
MADE = {
    "mixed": [], "w4a16": ["--algorithm", "amax"], "w4a4": ["--format", "modelopt"],
    "w4a4-fp8-head": ["--algorithm", "four-over-six", "--one-file"],
    "experts-only": ["--max-shard-size", "3M"], "fp8": ["--format", "modelopt"],
    "lab-fp8-embed": [],
}
CALIBRATED = ["--calib", str(ROOT / "pebble/tasks/add.jsonl"), "--calib-samples", "16",
              "--calib-length", "64", "--backend", "cpu"]
MIX = """name: some
about: two files
length: 48
seed: 3
sources:
  - file: add.jsonl
    samples: 4
  - file: asked.jsonl
    samples: 3
    map:
      prompt: query
      response: reply
"""


def commands(model):
    """(title, arguments); folders are names in the folder of work."""
    for recipe, flags in MADE.items():
        yield recipe, ["quantize", model, recipe, "--recipe", recipe, *flags, *CALM]
    for name, flags in {"diagonal": [], "blocks": [], "gptq": [], "fisher": [
            "--second-moments", "fisher:0.5"]}.items():
        algorithm = "gptq" if name == "fisher" else name
        yield name, ["quantize", model, name, "--recipe", "w4a16", "--algorithm", algorithm,
                     *CALIBRATED, *flags, *CALM]
    yield "gptq8", ["quantize", model, "gptq8", "--recipe", "fp8", "--algorithm", "gptq",
                    *CALIBRATED, *CALM]
    yield "mix", ["quantize", model, "mix", "--recipe", "w4a16", "--algorithm", "diagonal",
                  "--calib", "mix.yaml", "--backend", "cpu", *CALM]
    yield "budget", ["quantize", model, "budget", "--algorithm", "amax", "--target-bytes", "20MB",
                     *CALIBRATED, *CALM]
    yield "dry", ["quantize", model, "dry", "--dry-run"]
    for recipe in MADE:
        yield f"verify {recipe}", ["verify", recipe, "--against", model]
        yield f"inspect {recipe}", ["inspect", recipe]
    yield "inspect --json", ["inspect", "mixed", "--json"]
    yield "inspect --tensors", ["inspect", "w4a4-fp8-head", "--tensors"]
    yield "modelopt", ["convert", "w4a16", "modelopt", "--format", "modelopt", *CALM]
    yield "back", ["convert", "w4a4", "back", "--format", "compressed-tensors", *CALM]
    for head in ("bf16", "fp8-block", "nvfp4"):
        name = f"head-{head}"
        yield name, ["convert", "w4a16", name, "--head", head, "--source", model, *CALM]
    yield "repair", ["convert", "w4a16", "repair", "--repair", *CALM]
    yield "verify a source", ["verify", model]


def plain(text, work, model):
    """The same without times, speeds, folders and what the machine has."""
    text = text.replace(str(work) + "/", "").replace(model, "MODEL")
    text = re.sub(r"(?m)^(.*\r|\w+ +\d+% .*\n)", "", text)  # progress
    text = re.sub(r"disk has [0-9.]+ [A-Z]B|memory at most [0-9.]+ [A-Z]B|[0-9]+ threads?", "#",
                  text)
    text = re.sub(r"[0-9.]+ (?:s\b|ms\b|[A-Z]B/s|GFLOPS|tokens/s)", "#", text)
    lines = text.rstrip().splitlines()
    if len(lines) > LINES_MOST:
        lines = [*lines[:LINES_MOST], hashlib.sha256(text.encode()).hexdigest()[:16]]
    return "\n".join(lines)


def written(folder):
    """Lines of what is in a folder: declarations whole, tensor files by a hash."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        data = path.read_bytes()
        if path.name == "config.json":
            declared = json.loads(data).get("quantization_config")
            yield f"{path.name} {json.dumps(declared)}"
        elif path.suffix in (".safetensors", ".json"):
            yield f"{path.name} {len(data)} {hashlib.sha256(data).hexdigest()[:16]}"


def transcript(nibble, model):
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        (work / "mix.yaml").write_text(MIX)
        (work / "add.jsonl").write_bytes((ROOT / "pebble/tasks/add.jsonl").read_bytes())
        (work / "asked.jsonl").write_text("".join(
            json.dumps({"query": f"Say {i}", "reply": str(i)}) + "\n" for i in range(6)))
        for title, arguments in commands(model):
            done = subprocess.run([nibble, *arguments], cwd=work, text=True, check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            yield "\n".join([f"{title}: {done.returncode}", plain(done.stdout, work, model),
                             *written(work / title)])


def main():
    options = options_of(__doc__, write="")
    parts = list(transcript(str(pathlib.Path(options.nibble).resolve()),
                            str(pathlib.Path(options.model).resolve())))
    if options.write:
        GOLDEN.write_text("\n\n## ".join(["", *parts]).lstrip() + "\n")
    known = GOLDEN.read_text().rstrip("\n").removeprefix("## ").split("\n\n## ")
    titles = {part.split("\n", 1)[0]: part for part in known}
    failures = [part for part in parts if titles.get(part.split("\n", 1)[0]) != part]
    for part in failures[:5]:
        lines = titles.get(part.split("\n", 1)[0], "").splitlines()
        print(f"FAIL  {part.splitlines()[0]}")
        for was, now in zip(lines, part.splitlines()):
            if was != now:
                print(f"  expected {was}\n  found    {now}")
    failed = len(failures) + abs(len(parts) - len(known))
    print(f"{len(parts) - len(failures)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

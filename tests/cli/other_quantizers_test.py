#!/usr/bin/env python3
"""Pebble as llm-compressor and ModelOpt quantize and save it: `nibble verify` calls it sound, says
beside the source what these tools changed and nothing else, and the file runs.

other_quantizers_test.py --nibble PROGRAM --model PEBBLE_FOLDER --environments FOLDER

FOLDER is what tools/others/install.sh made. Prints 'N passed, N failed'.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROSE = ROOT / "pebble" / "tasks" / "prose.jsonl"
ROWS, TOKENS = 2, 128
NO_MTP = "warning: config.json: promises an MTP head (mtp_num_hidden_layers), but there are no mtp"
# Both save the tokenizer by transformers, whose class for it splits words at combining marks.
SPLIT = "tokenizer.json: pre_tokenizer.pretokenizers[0].pattern.Regex: expected "
# llm-compressor adds one to norms and takes it off again, rounding to BF16 both times.
NORMS = re.compile(r"PAST  \d+ other tensors are the source's, 21 are not, first \S+norm\.weight$")
# ModelOpt leaves out the layer that drafts.
DROPPED = re.compile(r"PAST  19 tensors of the source are missing, first mtp\.fc\.weight$")
PAPERS = re.compile(r"PAST  \d+ values of config\.json and \d+ other files are the source's, "
                    r"1 are not$")
KL_MAX = 0.002  # nats a token, weights alone; all four are below 0.0003 on these tokens

QUESTION = "What is 6 plus 7?"
ANSWER = "13"

# The tool, its options, what `inspect` says of the experts, a warning, what --against finds.
FILES = {
    "llm-compressor NVFP4A16": ("llm-compressor", ["--scheme", "NVFP4A16"], "W4A16", None, NORMS),
    "llm-compressor NVFP4": ("llm-compressor", ["--scheme", "NVFP4"], "W4A4", None, NORMS),
    "ModelOpt NVFP4_DEFAULT_CFG": ("modelopt", [], "W4A4", NO_MTP, DROPPED),
    "ModelOpt W4A16_NVFP4_CFG": ("modelopt", ["--preset", "W4A16_NVFP4_CFG"], "W4A16", NO_MTP,
                                 DROPPED),
}


class Checks:
    def __init__(self, options, work):
        self.options, self.work = options, work
        self.passed = self.failed = 0
        self.calibration = work / "calib.jsonl"
        tokenizer = tokenizers.Tokenizer.from_file(str(options.model / "tokenizer.json"))
        texts = [json.loads(line)["text"] for line in PROSE.read_text().splitlines()]
        ids = tokenizer.encode("\n\n".join(texts)).ids
        rows = [ids[at:at + TOKENS] for at in range(0, ROWS * TOKENS, TOKENS)]
        self.calibration.write_text(
            "".join(json.dumps({"input_ids": row}) + "\n" for row in rows))
        self.ids = work / "ids.json"
        self.ids.write_text(json.dumps({"ids": rows}))

    def check(self, good, text, said):
        """`said` is what to read where it failed."""
        self.passed += bool(good)
        self.failed += not good
        print(f"ok    {text}" if good else f"FAIL  {text}: {said}", flush=True)

    def run(self, *words):
        return subprocess.run([self.options.nibble, *map(str, words)], capture_output=True,
                              text=True, timeout=600, check=False)

    def make(self, name, tool, options):
        folder = self.work / name.replace(" ", "-")
        script = ROOT / "tools/others" / f"quantize_{tool.replace('-', '_')}.py"
        python = self.options.environments.resolve() / tool / "bin/python"
        done = subprocess.run([python, script, self.options.model.resolve(), self.calibration,
                               folder, *options], capture_output=True, text=True, check=False,
                              timeout=600)
        self.check(done.returncode == 0, f"{name} is written", done.stderr[-600:])
        return folder

    def check_file(self, name, tool, options, experts, warning, found):
        folder = self.make(name, tool, options)
        alone = self.run("verify", folder)
        warnings = [line for line in alone.stdout.splitlines() if line.startswith("warning")]
        self.check(alone.returncode == 0 and " 0 errors" in alone.stdout
                   and len(warnings) == (warning is not None)
                   and all(line.startswith(warning) for line in warnings), f"{name} is sound",
                   alone.stdout + alone.stderr)
        self.check_against(name, folder, found)
        told = self.run("inspect", folder)
        self.check(re.search(rf"^experts +NVFP4 {experts} ", told.stdout, re.M),
                   f"{name}: inspect says NVFP4 {experts}", told.stdout + told.stderr)
        scored = self.run("score", folder, "--backend", "cpu", "--ids", self.ids, "--reference",
                          self.options.model, "--json")
        mean = json.loads(scored.stdout)["kl"]["mean"] if scored.returncode == 0 else None
        self.check(mean is not None and mean < KL_MAX, f"{name}: KL {mean}", scored.stderr)
        answer = self.run("run", folder, QUESTION, "--backend", "cpu", "--temperature", "0")
        self.check(answer.returncode == 0 and ANSWER in answer.stdout, f"{name} answers",
                   answer.stdout + answer.stderr)

    def check_against(self, name, folder, found):
        """Exactly two lines are past: tensors that the tool changed or left out, and one value of a
        paper, the tokenizer's expression."""
        done = self.run("verify", folder, "--against", self.options.model)
        lines = (done.stdout + done.stderr).splitlines()
        past = [line for line in lines if line.startswith("PAST")]
        self.check(len(past) == 2 and found.match(past[0]) and PAPERS.match(past[1])
                   and sum(SPLIT in line for line in lines) == 1 and done.returncode == 1,
                   f"{name} beside the source: what the tool changed", done.stdout + done.stderr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nibble", required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--environments", type=pathlib.Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        checks = Checks(options, pathlib.Path(work))
        for name, row in FILES.items():
            checks.check_file(name, *row)
    print(f"{checks.passed} passed, {checks.failed} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())

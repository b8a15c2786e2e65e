#!/usr/bin/env python3
"""Bad input at the command line: bad_input_test.py --nibble PROGRAM --model PEBBLE_FOLDER.

Each row damages something or says something wrong, and expects one line on standard error with the
words that help, the right exit code, and nothing half-written that looks whole.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from damaged_checkpoint import (
    bad_config_number, broken_config, broken_tokenizer, duplicate_name, huge_header,
    index_outside, missing_config, missing_shard, missing_tokenizer, nan_weights, no_damage,
    overlapping, oversized, shards, tiny_file, truncated, unknown_architecture, wrong_index,
    wrong_shape)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "serve"))
from running_server import stopped_at_work  # noqa: E402


def size_of(path):
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


class Table:
    def __init__(self, nibble, model):
        self.nibble, self.model = nibble, model
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="nibble-bad-input-"))
        self.passed = self.failed = 0

    def expect(self, name, words, codes, pieces, env=None, gone=None, prefix=()):
        """Runs nibble WORDS: exit code in codes, one line with all pieces, `gone` not whole."""
        result = subprocess.run([*prefix, self.nibble, *map(str, words)], capture_output=True,
                                text=True, timeout=600, stdin=subprocess.DEVNULL,
                                env={**os.environ, **(env or {})})
        lines = [line for line in result.stderr.splitlines() if line]
        last = lines[-1] if lines else ""
        problems = []
        if result.returncode not in codes:
            problems.append(f"exit code {result.returncode}, expected {codes}")
        for piece in pieces:
            if piece.lower() not in last.lower():
                problems.append(f"the last line lacks {piece!r}")
        if not last.startswith("nibble"):
            problems.append("the last line does not say who speaks")
        if gone is not None and (gone / "config.json").exists():
            problems.append(f"{gone.name} looks whole")
        if problems:
            self.failed += 1
            print(f"FAIL {name}: {'; '.join(problems)}\n     stderr: {result.stderr[-600:]!r}")
        else:
            self.passed += 1

    def all_at_once(self):
        """Everything that is wrong in a line is told of, a line each, and nothing is loaded."""
        command = [self.nibble, "serve", self.work / "none", "--zebra", "z", "--max-num-seqs", "0",
                   "--tensor-parallel-size", "2", "--kv-cache-dtype", "turboquant_3bit_nc",
                   "--log-format", "xml", "--max-tools", "-1", "--speculative-config",
                   '{"method":"mtp","draft_model":"x"}', "--activations", "int3", "--port"]
        told = subprocess.run(command, capture_output=True, text=True, timeout=600)
        lines = told.stderr.splitlines()
        pieces = ["--zebra", "--max-num-seqs", "--tensor-parallel-size", "--kv-cache-dtype",
                  "--log-format",
                  "--max-tools", "draft_model", "--activations", "--port: expected a value N"]
        fine = (told.returncode == 2 and len(lines) == len(pieces)
                and all(line.startswith("nibble serve: ") for line in lines)
                and all(sum(piece in line for line in lines) == 1 for piece in pieces))
        self.passed += fine
        self.failed += not fine
        if not fine:
            print("FAIL all at once:", told.returncode, told.stderr)

    def damaged(self, damage):
        folder = self.work / damage.__name__
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.model, folder)
        damage(folder)
        return folder

    def checkpoints(self):
        rows = [
            (truncated, ["truncated|outside|end|bytes"]), (tiny_file, ["safetensors"]),
            (huge_header, ["header"]), (missing_shard, ["safetensors"]),
            (wrong_index, ["no.such.tensor"]), (index_outside, ["passwd"]),
            (duplicate_name, ["duplicate"]), (overlapping, ["overlap|offset"]),
            (oversized, ["bytes|outside|offset"]), (wrong_shape, ["norm.weight", "expected"]),
            (unknown_architecture, ["LlamaForCausalLM"]),
            (bad_config_number, ["num_experts_per_tok"]), (broken_config, ["config.json"]),
            (missing_config, ["config.json"]),
        ]
        for damage, pieces in rows:
            folder = self.damaged(damage)
            made = self.work / f"{damage.__name__}-out"
            for verb, more in (("quantize", [made]), ("run", ["hi"])):
                out = made if verb == "quantize" else None
                self.expect_any(f"{damage.__name__} {verb}", [verb, folder, *more], pieces, out)
            shutil.rmtree(folder)

    def expect_any(self, name, words, pieces, gone):
        """Like expect, where a piece may list alternatives with |."""
        result = subprocess.run([self.nibble, *map(str, words)], capture_output=True, text=True,
                                timeout=600, stdin=subprocess.DEVNULL)
        lines = [line for line in result.stderr.splitlines() if line]
        last = (lines[-1] if lines else "").lower()
        fine = result.returncode == 1 and last.startswith("nibble")
        fine = fine and all(any(word.lower() in last for word in piece.split("|"))
                            for piece in pieces)
        fine = fine and not (gone is not None and (gone / "config.json").exists())
        self.passed += fine
        self.failed += not fine
        if not fine:
            print(f"FAIL {name}: exit {result.returncode}, {result.stderr[-500:]!r}")

    def weights(self):
        folder = self.damaged(nan_weights)
        out = self.work / "nan-out"
        self.expect_any("nan weights quantize", ["quantize", folder, out], ["nan", "down_proj"],
                        out)
        result = subprocess.run([self.nibble, "verify", folder], capture_output=True, text=True)
        fine = result.returncode == 1 and "nan" in (result.stdout + result.stderr).lower()
        self.passed += fine
        self.failed += not fine
        if not fine:
            print("FAIL nan weights verify:", result.returncode, result.stdout[-400:])

    def tokenizers(self):
        for damage in (missing_tokenizer, broken_tokenizer):
            folder = self.damaged(damage)
            self.expect(f"{damage.__name__} run", ["run", folder, "hi"], [1], ["tokenizer.json"])
            self.expect(f"{damage.__name__} serve", ["serve", folder, "--port", "0"], [1],
                        ["tokenizer.json"])

    def outputs(self):
        full = self.work / "full"
        full.mkdir()
        (full / "keep.txt").write_text("mine")
        self.expect("existing output", ["quantize", self.model, full], [1, 2], [str(full)],
                    gone=full)
        assert (full / "keep.txt").read_text() == "mine"
        copy = self.damaged(no_damage)
        before = sorted((p.name, p.stat().st_size) for p in copy.iterdir())
        self.expect("output equals input", ["quantize", copy, copy], [1, 2], [str(copy)])
        assert before == sorted((p.name, p.stat().st_size) for p in copy.iterdir())
        self.expect("missing source", ["quantize", self.work / "nothing", self.work / "o"], [1],
                    ["nothing"])
        unwritable = pathlib.Path("/proc/nibble-out")
        self.expect("unwritable output", ["quantize", self.model, unwritable], [1], ["/proc"])
        small = self.work / "small-disk"
        small.mkdir()
        mounted = os.geteuid() == 0 and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", small]).returncode == 0
        if not mounted:
            print("note  full disk: not root, a file size limit stands in")
        out = small / "out"
        try:
            self.expect("full disk", ["quantize", self.model, out], [1],
                        ["space"] if mounted else [], gone=out,
                        prefix=() if mounted else ("prlimit", "--fsize=3000000"))
        finally:
            if mounted:
                subprocess.run(["umount", small])

    def full_later(self):
        """The weights fit, what is written after them does not: with more room the same command
        ends in the bytes it would have written at once."""
        small, whole = self.work / "fills-up", self.work / "whole"
        command = ["quantize", self.model, small / "out", "--no-progress"]
        subprocess.run([self.nibble, *command[:2], whole], check=True, capture_output=True)
        pages = sum(-(-path.stat().st_size // 4096) for path in shards(whole)) + 10
        small.mkdir()
        if os.geteuid() != 0 or subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={4 * pages}k", "tmpfs", small]).returncode:
            print("note  a disk that fills up later: needs root, left out")
            return
        try:
            self.expect("a disk that fills up later", command, [1], ["space"], gone=small / "out")
            assert (small / "out" / ".nibble-journal").exists(), "work was lost"
            subprocess.run(["mount", "-o", "remount,size=100m", small], check=True)
            again = subprocess.run([self.nibble, *command], capture_output=True, text=True)
            same = again.returncode == 0 and all(
                path.read_bytes() == (small / "out" / path.name).read_bytes()
                for path in whole.iterdir())
            self.passed += same
            self.failed += not same
            if not same:
                print("FAIL with more room:", again.returncode, again.stderr[-400:])
        finally:
            subprocess.run(["umount", small])

    def calibration(self):
        data = self.work / "data.jsonl"
        data.write_text('{"text": "some words"}\n')
        empty = self.work / "empty.jsonl"
        empty.write_text("")
        config = json.loads((self.model / "config.json").read_text())
        longest = config.get("text_config", config)["max_position_embeddings"]
        for words, pieces in (
                (["--calib", self.work / "none.jsonl"], ["none.jsonl"]),
                (["--calib", empty], ["empty.jsonl", "is empty"]),
                (["--calib", data, "--calib-length", longest + 1], ["length", str(longest)]),
                (["--algorithm", "gptq"], ["gptq", "--calib FILE"])):
            out = self.work / "calibrated"
            self.expect(" ".join(map(str, words)), ["quantize", self.model, out, *words], [1, 2],
                        pieces, gone=out)
            assert not out.exists(), words

    def words(self):
        rows = [
            (["quantise"], [2], ["unknown verb", "quantize"]),
            (["org/name", "--port", "1"], [2], ["the verb stands first: nibble serve org/name"]),
            (["quantize", self.model], [2], ["SRC DST"]),
            (["quantize", self.model, "x", "--recipee", "w4a16"], [2], ["--recipe"]),
            (["quantize", self.model, self.work / "r", "--recipe", "no-such"], [1, 2], ["no-such"]),
            (["quantize", self.model, self.work / "f", "--format", "gguf"], [2],
             ["compressed-tensors", "modelopt", "gguf"]),
            (["serve", self.model, "--port", "99999"], [2], ["--port", "65535"]),
            *((["serve", self.model, "--port", "0", flag, value], [2], [flag, value])
              for flag, values in (("--max-num-seqs", ("0", "-1", "65537", "1.5", "many", "")),
                                   ("--gpu-memory-utilization", ("0", "1.01", "-1", "nan", "all")),
                                   ("--max-num-batched-tokens", ("64", "0", "auto", "2000000")),
                                   ("--prefix-snapshots", ("-1", "some")),
                                   ("--kv-cache-memory-bytes", ("0", "-5", "20GBytes")),
                                   ("--max-image-tokens", ("3", "65537", "large")),
                                   ("--encoder-cache-memory-bytes", ("0", "some")))
              for value in values),
            (["serve", self.model, "--backend", "cpu", "--card-limit", "rtx5090"], [2],
             ["--card-limit", "the cpu backend", "leave the flag out"]),
            (["run", self.model, "hi", "--backend", "cpu", "--card-limit", "8G"], [2],
             ["--card-limit", "the cpu backend"]),
            (["run", self.model, "hi", "--activations", "f32", "--input-scales", "four-over-six"],
             [2], ["--input-scales four-over-six", "--activations declared or auto", "f32",
                   "leave one of them out"]),
            (["run", self.model, "hi", "--backend", "cpu", "--emulate-fp4"], [2],
             ["--emulate-fp4", "--activations declared", "the cpu backend", "leave the flag out"]),
            (["serve", self.model, "--quantization", "modelopt"], [2],
             ["--quantization modelopt", "not quantized"]),
            (["serve", self.model, "--calculate-kv-scales"], [2],
             ["--calculate-kv-scales is refused", "gibberish"]),
            (["serve", self.model, "--enable-lora"], [2], ["adapters are not served"]),
            (["serve", self.model, "--dry-run", "--max-model-len", "99999999"], [2],
             ["--max-model-len", "the model's own length"]),
            (["serve", self.model, "--dry-run", "--kv-cache-memory-bytes", "100T"], [1],
             ["--kv-cache-memory-bytes"]),
            (["serve", "--served-model-name", "a", self.model], [2],
             ["DIR stands before --served-model-name"]),
            (["run", self.model, "hi", "--max-tokens", "-5"], [2], ["--max-tokens"]),
            (["run", self.model, "hi", "--temperature", "hot"], [2], ["--temperature", "hot"]),
            (["run", self.model, "hi", "--image", self.work / "none.png"], [1], ["none.png"]),
            (["run", self.model, "hi", "--image", __file__, "--raw"], [2], ["--image and --raw"]),
            (["run", self.model, "--image", __file__, "--ids", "x"], [2], ["--image and --ids"]),
            (["run", self.model, "hi", "--image", __file__, "--max-image-bytes", "9"], [1],
             ["bad_input_test.py", "9"]),
            (["run", self.model, "hi", "--rope-scaling", "yarn"], [2], ["--rope-scaling"]),
            (["run", self.model, "hi", "--rope-scaling", '{"factr": 4}'], [2], ["factr"]),
            (["run", self.model, "hi", "--rope-scaling", '{"rope_type": "llama3"}'], [2],
             ["with --rope-scaling", "yarn", "llama3"]),
            (["run", self.model, "hi", "--hf-overrides", '{"hidden_size": 64}'], [2],
             ["--hf-overrides", "hidden_size", "no other setting"]),
            (["run", self.model, "hi", "--rope-scaling", '{"factor": 4}', "--hf-overrides",
              '{"rope_parameters": {"factor": 4}}'], [2], ["one of them", "both"]),
            (["run", self.model, "hi", "--max-model-len", "1M"], [2],
             ["--max-model-len", "--rope-scaling"]),
            (["run", self.model, "hi", "--max-model-len", "1M", "--rope-scaling",
              '{"rope_type": "yarn", "factor": 4}'], [2], ["65536", "YaRN"]),
            (["run", self.model, "hi", "--kv-cache-dtype", "fp4"], [2],
             ["--kv-cache-dtype", "fp8_e4m3", "fp4"]),
            (["run", self.model, "hi", "--kv-scales", "checkpoint"], [2],
             ["--kv-scales checkpoint", "--kv-cache-dtype fp8"]),
            (["score", self.model], [2], ["--ids"]),
            (["score", self.model, "--ids", self.work / "none.json"], [1], ["none.json"]),
            (["render", self.model], [2], ["--messages"]),
        ]
        for words, codes, pieces in rows:
            self.expect(" ".join(map(str, words[:1] + words[2:])), words, codes, pieces)

    def processors(self):
        """Refused before anything is read: the folder is not there."""
        none = self.work / "none"
        cores = len(os.sched_getaffinity(0))
        pieces = [f"--threads: expected at most {cores}", f"found {cores + 1}", "leave it out"]
        for words in (["run", none, "hi"], ["serve", none], ["quantize", none, self.work / "o"],
                      ["synth", none, self.work / "o"], ["bench", "quantize", none],
                      ["bench", "formats", none]):
            self.expect(f"{words[0]} with too many threads",
                        [*words, "--threads", cores + 1], [2], pieces)
        self.expect("unknown instructions", ["run", none, "x", "--backend", "cpu", "--isa", "sse2"],
                    [1], ["instruction set: expected", "scalar", "found sse2"])

    def files(self):
        bad = self.work / "bad.json"
        for text, piece in (("{", "json"), ('{"ids": "x"}', "ids"), ('{"ids": [1, -4]}', "-4"),
                            ('{"ids": [1, 99999999]}', "99999999"), ('{"ids": []}', "ids")):
            bad.write_text(text)
            self.expect(f"score {text}", ["score", self.model, "--ids", bad], [1, 2], [piece])
        bad.write_text('[{"role": "alien", "content": "x"}]')
        self.expect("render bad role", ["render", self.model, "--messages", bad], [1], [])
        bad.write_text('[{"role": "assistant", "content": "x"}]')
        self.expect("render no user", ["render", self.model, "--messages", bad], [1],
                    ["No user query found"])
        config = json.loads((self.model / "config.json").read_text())
        longest = config.get("text_config", config)["max_position_embeddings"]
        self.expect("prompt longer than the context",
                    ["run", self.model, "7 " * longest], [2], [str(longest - 1)])

    def recipes(self):
        recipe = self.work / "recipe.yaml"
        head = "name: mine\nstatus: lab\nrules:\n"
        rule = "  - match: lm_head\n    weights: nvfp4\n"
        for text, pieces in ((head + rule + "    wieghts: x\n", ["line 6", "\"weights\"?"]),
                             (head + rule + "  - match: 're:.*no_such'\n    weights: fp8-block\n",
                              ["line 6", "matches no linear"]),
                             (head + rule.replace("nvfp4", "int4"), ["nvfp4, fp8", "int4"]),
                             (head, ["rules"]), ("", ["recipe"]), ("\x00", ["YAML"]),
                             (head + "  - match: 're:.*q_proj'\n    weights: nvfp4\n",
                              ["q_proj", "k_proj", "fuse"])):
            recipe.write_text(text)
            out = self.work / "recipe-out"
            self.expect(f"recipe {text[-30:]!r}", ["quantize", self.model, out, "--recipe", recipe],
                        [1, 2], pieces, gone=out)
        for words, pieces in (
                (["--recipe", "w4a4-fp8-head", "--format", "modelopt"], ["lm_head", "modelopt"]),
                (["--memory-limit", "1M"], ["--memory-limit", "at least"])):
            self.expect(" ".join(words), ["quantize", self.model, self.work / "o", *words], [1, 2],
                        pieces, gone=self.work / "o")

    def stopped_halfway(self, command, out, journal):
        """A process of `command` that SIGSTOP holds while its journal is there."""
        def start():
            shutil.rmtree(out, ignore_errors=True)
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        return stopped_at_work(start, lambda: size_of(journal) > 2000)

    def unfinished(self):
        """A run that is killed in the middle, then asked to go on with something else."""
        source, out = self.damaged(no_damage), self.work / "unfinished"
        command = [self.nibble, "quantize", source, out, "--journal-every", "0", "--no-progress"]
        journal = out / ".nibble-journal"
        run = self.stopped_halfway(command, out, journal)
        self.expect("two writers", command[1:], [2], ["another process at work"], gone=out)
        run.kill()
        run.wait()
        rows = [("another recipe", ["--recipe", "fp8"], ["recipe", "mixed"]),
                ("another format", ["--format", "modelopt"], ["format", "modelopt"])]
        for name, words, pieces in rows:
            self.expect(name, command[1:] + words, [2], ["go on"] + pieces, gone=out)
        self.expect("convert into it", ["convert", source, out, "--format", "modelopt"], [1, 2], [],
                    gone=out)
        time_before = shards(source)[0].stat().st_mtime_ns
        os.utime(shards(source)[0], ns=(time_before, time_before + 10**9))
        self.expect("changed source", command[1:], [2], ["go on", "source"], gone=out)
        os.utime(shards(source)[0], ns=(time_before, time_before))
        done = subprocess.run(command, capture_output=True)
        fine = done.returncode == 0 and not journal.exists()
        self.passed += fine
        self.failed += not fine
        if not fine:
            print("FAIL nothing was lost:", done.returncode, done.stderr[-400:])

    def conversions(self):
        made = self.work / "w4a4"
        subprocess.run([self.nibble, "quantize", self.model, made, "--recipe", "w4a4"], check=True,
                       capture_output=True)
        out = self.work / "converted"
        for words, codes, pieces in (
                ([], [2], ["--format", "--head", "--repair", "none"]),
                (["--format", "modelopt", "--head", "bf16"], [2], ["--format and --head"]),
                (["--repair", "--head", "bf16"], [2], ["--head and --repair"]),
                (["--head", "bf16"], [2], ["--source"]),
                (["--head", "int4", "--source", self.model], [2], ["nvfp4", "int4"]),
                (["--head", "bf16", "--source", self.work / "none"], [1], ["none"]),
                (["--format", "compressed-tensors"], [1], ["compressed-tensors"])):
            self.expect(f"convert {' '.join(map(str, words))}", ["convert", made, out, *words],
                        codes, pieces, gone=out)
        self.expect("verify against nothing", ["verify", made, "--against", self.work / "none"],
                    [1], ["none"])
        self.expect("verify against a quantized one", ["verify", made, "--against", made], [1],
                    ["unquantized"])

    def run(self):
        for part in (self.words, self.processors, self.all_at_once, self.files, self.recipes,
                     self.unfinished, self.conversions, self.calibration, self.outputs,
                     self.full_later, self.weights, self.tokenizers, self.checkpoints):
            part()
        shutil.rmtree(self.work, ignore_errors=True)
        print(f"{self.passed} passed, {self.failed} failed")
        return 1 if self.failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--nibble", required=True)
    parser.add_argument("--model", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    sys.exit(Table(arguments.nibble, arguments.model).run())

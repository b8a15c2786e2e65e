#!/usr/bin/env python3
"""This is what nibble plan says: plan_words_test.py --nibble PROGRAM --model PEBBLE_FOLDER.

Every way to name a model and a card, every refusal, words for people, whole command lines of other
servers. The last line counts.
"""
import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/serve"), str(ROOT / "tests/cli")]
from plan_test import BIG, FIXED, PlanRunner  # noqa: E402
from running_server import run_program_checks  # noqa: E402

COLUMNS = 110


class Checks(PlanRunner):
    def test_every_way_to_name_a_model(self):
        config = self.work / "shape.json"
        shutil.copy(ROOT / f"tests/golden/configs/{BIG}.json", config)
        folder = self.work / "papers"
        folder.mkdir()
        shutil.copy(config, folder / "config.json")
        snapshot = self.work / "home/hub/models--org--big/snapshots" / ("0" * 40)
        snapshot.mkdir(parents=True)
        shutil.copy(config, snapshot / "config.json")
        refs = self.work / "home/hub/models--org--big/refs"
        refs.mkdir()
        (refs / "main").write_text("0" * 40)
        flags = ["--recipe", "mixed", "--gpu", "rtx5090", *FIXED]
        plans = [self.json(word, *flags, HF_HOME=str(self.work / "home"))["memory"]
                 for word in (BIG, "35b-a3b", "Qwen/Qwen3.6-35B-A3B", config, folder, "org/big",
                          "big")]
        assert all(plan == plans[0] for plan in plans), plans
        assert self.json(BIG, *flags[2:])["memory"] == plans[0]  # mixed is the usual recipe
        text = self.refused("70b", code=1)
        assert BIG in text and "70b" in text, text
        assert "nobody/nothing" in self.refused("nobody/nothing", code=1)

    def test_words_for_people(self):
        for words in ([BIG], [BIG, "--gpu", "rtx5090"], [self.model, "--gpu", "cpu"],
                      [BIG, "--gpu", "dgx-spark", "--kv-cache-dtype", "turboquant_4bit_nc"]):
            text = self.run("plan", *words).stdout
            before = text.split("as `nibble serve`")[0]
            assert max(map(len, before.splitlines())) <= COLUMNS, before
            assert "\x1b" not in text and "computed" in text
        assert "not loaded: vision tower" in text and "--max-image-tokens loads it" in text, text
        assert "\nspeculation: up to 3 tokens of the checkpoint's MTP layer" in text, text
        assert "share this memory" in text

    def test_what_does_not_fit(self):
        text = self.refused(BIG, "--recipe", "w4a4", "--gpu", "rtx4090", code=1)
        assert re.search(r"what fits: qwen3\S+ in recipe w4a4, \d+\.\d MB", text), text
        assert re.search(r"expected at least \d+\.\d MB, found \d+\.\d MB", text), text
        text = self.refused("27b", "--gpu", "rtx5090", "--max-model-len", "262144",
                            "--kv-cache-memory-bytes", "1G", code=1)
        assert "--max-model-len 262144" in text, text
        text = self.refused("4b", "--gpu", "2000", code=1)
        assert "none of the known models fits" in text, text
        text = self.refused(BIG, "--gpu", "v100", code=2)
        assert "8.0 or higher" in text and "found 7.0" in text, text
        text = self.refused(self.model, "--recipe", "mixed", "--gpu", "cpu", "--max-model-len",
                            "1M", code=2)
        assert "--max-model-len" in text, text

    def test_models_together_in_words(self):
        text = self.run("plan", BIG, "9b", "--gpu", "rtx-pro-6000").stdout
        assert max(map(len, text.splitlines())) <= COLUMNS, text
        for piece in ("2 models together on rtx-pro-6000", "each in a server of its own",
                      "--gpu-memory-utilization SHARE", "while the others rest"):
            assert piece in text, (piece, text)
        rows = [line.split() for line in text.splitlines()
                if line.startswith(f"  {BIG} ") or line.startswith("  qwen3.5-9b ")]
        assert len(rows) == 4 and abs(sum(float(row[1]) for row in rows[2:]) - 0.9) < 1e-9, rows

    def test_whole_serve_lines_can_be_pasted(self):
        lines = (ROOT / "docs/planning.md").read_text()
        assert "--attention-backend" in lines
        for line in (
                "--served-model-name Qwen --reasoning-parser qwen3 --enable-auto-tool-choice "
                "--tool-call-parser qwen3_coder --max-model-len auto --max-num-seqs 32 "
                "--limit-mm-per-prompt.video 0 --max-cudagraph-capture-size 32 "
                "--max-num-batched-tokens 2048 --gpu-memory-utilization 0.95 --port 8000",
                "--revision main --tensor-parallel-size 1 --gpu-memory-utilization 0.95 "
                "--max-model-len 262144 --max-num-seqs 64 --max-num-batched-tokens 8192 "
                "--kv-cache-dtype turboquant_4bit_nc --enable-chunked-prefill --dtype bfloat16 "
                "--enable-prefix-caching --trust-remote-code --host 0.0.0.0 --api-key k"):
            plan = self.json(BIG, "--recipe", "w4a4", "--gpu", "rtx5090", *line.split())
            assert plan["memory"]["total"] <= plan["memory"]["available"]
        assert plan["context"] == 262144 and plan["sizes"]["kv_format"] == "TurboQuant"
        said = plan["speculation"]
        assert "MTP layer, plain weights rounded to NVFP4" in said, said
        assert plan["sizes"]["page_bytes"] == 11 * 64 * 524

    def test_wrong_words(self):
        model = self.model
        for words, code, pieces in (
                ([], 2, ["MODEL"]),
                (["70b"], 1, ["70b", "qwen3.6-27b"]),
                ([self.work / "none"], 1, ["none"]),
                ([model, "--gpu", "rtx9999"], 2, ["--gpu", "rtx5090", "rtx9999"]),
                ([model, "--gpu", "h200:9g"], 2, ["3g.71gb", "9g"]),
                ([model, "--gpu", "0"], 2, ["--gpu", "MiB"]),
                ([model, "--gpu", "t4"], 2, ["8.0 or higher", "7.5"]),
                ([model, "--gpu", "h100", "--backend", "cpu"], 2, ["--backend cpu"]),
                ([model, "--gpu", "cpu", "--backend", "cuda"], 2, ["--backend cuda"]),
                ([model, "--backend", "reference"], 2, ["--backend", "cuda or cpu"]),
                ([model, "--recipe", "no-such"], 2, ["no-such", "mixed"]),
                ([model, "--max-model-lem", "4096"], 2, ["--max-model-len"]),
                ([model, "--activations", "int8"], 2, ["--activations int8", "--gpu cpu"]),
                ([model, "--activations", "int8", "--gpu", "h100"], 2, ["auto is bf16", "h100"]),
                ([model, "--activations", "f16"], 2, ["--activations", "declared", "f16"]),
                ([model, "--enable-lora"], 2, ["adapters are not served"]),
                ([model, "--card-limit", "rtx1"], 2, ["--card-limit", "rtx5090"]),
                ([model, "27b"], 2, ["2 models together", "--gpu with one card", "no --gpu"]),
                ([model, "27b", "--gpu", "cpu"], 2, ["2 models together", "found the CPU"]),
                ([model, "--contexts", "1"], 2, ["--contexts", "\"1\""]),
                ([model, "--contexts", "4096,"], 2, ["--contexts", "4096,32K"]),
                ([model, "--gpu", "rtx9999", "--contexts", "x", "--max-num-seqs", "0"], 2,
                 ["--gpu", "--contexts", "--max-num-seqs"])):
            text = self.refused(*words, code=code)
            assert all(piece in text for piece in pieces), (words, text)


if __name__ == "__main__":
    sys.exit(run_program_checks(Checks, __doc__))

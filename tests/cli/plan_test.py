#!/usr/bin/env python3
"""nibble plan: plan_test.py --nibble PROGRAM --model PEBBLE_FOLDER.

Its bytes must be those of `serve --dry-run` and of the files that `quantize` writes. What it says
and refuses: plan_words_test.py. The last line counts.
"""
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/serve"))
from running_server import RunningServer, run_program_checks  # noqa: E402

# Nothing here may depend on how much memory the machine has free just now.
FIXED = ["--max-model-len", "4096", "--host-cache-memory-bytes", "64M"]
BIG = "qwen3.6-35b-a3b"
MTP = ["--speculative-config", '{"method": "mtp"}']


def tensor_bytes(folder, text_only=False):
    """Bytes of the tensors of a checkpoint, by its headers."""
    total = 0
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
        for name, entry in header.items():
            if name == "__metadata__" or (
                    text_only and ("visual." in name or name.startswith("mtp."))):
                continue
            begin, end = entry["data_offsets"]
            total += end - begin
    return total


def served_lines(text):
    """The lines about memory, without the bytes that happen to be available."""
    kept = [line for line in text.splitlines()
            if line.startswith(("memory:", "in bytes:", "host tier", "cont", "speculation:"))]
    return [re.sub(r" of \d+\.\d MB$", "", line) for line in kept]


class PlanRunner:
    def __init__(self, nibble, model, work):
        self.nibble, self.model, self.work = nibble, pathlib.Path(model).resolve(), work

    def run(self, *words, code=0, cwd=None, **variables):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("NIBBLE_", "HF_"))}
        done = subprocess.run([self.nibble, *map(str, words)], capture_output=True, text=True,
                              timeout=600, cwd=cwd or self.work, stdin=subprocess.DEVNULL,
                              env=kept | {"HOME": str(self.work / "nobody")} | variables)
        assert done.returncode == code, (words, done)
        return done

    def json(self, *words, **more):
        return json.loads(self.run("plan", *words, "--json", **more).stdout)

    def refused(self, *words, code):
        done = self.run("plan", *words, code=code)
        assert not done.stdout, done
        return done.stderr


def mtp_recipe(work):
    """A recipe that quantizes the MTP layer too."""
    path = work / "mtp.yaml"
    mlp = r"mlp\.(experts\.\d+\.|shared_expert\.)?(gate|up|down)_proj"
    path.write_text("name: mtp\nstatus: production\nrules:\n"
                    "  - match: 're:.*\\.self_attn\\.[qkvo]_proj$'\n    weights: nvfp4\n"
                    rf"  - match: 're:mtp\.(fc|layers\.\d+\.(self_attn\.[qkvo]_proj|{mlp}))$'"
                    "\n    weights: nvfp4\n")
    return str(path)


class Checks(PlanRunner):
    def test_the_same_bytes_as_a_dry_run(self):
        for flags in ([], ["--kv-cache-dtype", "fp8", "--max-num-seqs", "4"],
                      ["--no-enable-prefix-caching", "--max-num-batched-tokens", "1024"],
                      ["--speculative-config", '{"method": "ngram"}', "--state-dtype", "bf16"],
                      ["--speculative-config", '{"method": "mtp"}', "--kv-cache-dtype", "bf16"],
                      ["--speculative-config", '{"method": "mtp"}', "--kv-cache-dtype", "nvfp4"],
                      ["--kv-cache-dtype", "turboquant_4bit_nc", "--max-num-seqs", "4"],
                      [*MTP, "--draft-quantization", "none"],
                      [*MTP, "--draft-quantization", "fp8", "--speculative-token-map", "512"],
                      [*MTP, "--no-speculation"]):
            words = [self.model, "--backend", "cpu", *FIXED, *flags]
            served = served_lines(self.run("serve", *words, "--dry-run").stdout)
            planned = served_lines(self.run("plan", *words).stdout)
            assert len(served) == 5 and planned == served, (flags, planned, served)
            asked = "--speculative-config" in flags and "--no-speculation" not in flags
            assert (": up to " if asked else ": off, ") in served[-1], (flags, served)

    def test_a_running_server_holds_what_is_planned(self):
        """It would not start otherwise: the engine compares each part with what is reserved."""
        recipes = {"its own": self.model}
        for recipe in ("mixed", "w4a4-fp8-head", "fp8", "lab-fp8-embed"):
            recipes[recipe] = self.work / f"held-{recipe}"
            self.run("quantize", self.model, recipes[recipe], "--recipe", recipe, "--no-progress")
        cases = [(name, []) for name in recipes]
        cases += [("mixed", ["--activations", mode]) for mode in ("declared", "f32", "int8")]
        cases += [("its own", flags) for flags in (
            ["--kv-cache-dtype", "fp8", "--max-num-seqs", "4", "--prefix-snapshots", "9"],
            ["--kv-cache-dtype", "bf16", "--activations", "f32", "--max-num-batched-tokens", "80"],
            ["--kv-cache-dtype", "turboquant_4bit_nc", "--max-num-seqs", "3"],
            ["--kv-cache-dtype", "nvfp4", "--speculative-config", '{"method": "mtp"}'],
            ["--speculative-config", '{"method": "ngram"}', "--activations", "bf16"],
            ["--speculative-config", '{"method": "mtp", "num_speculative_tokens": 5}',
             "--draft-quantization", "none"])]
        recipes["mtp"] = self.work / "held-mtp"
        self.run("quantize", self.model, recipes["mtp"], "--recipe", mtp_recipe(self.work),
                 "--no-progress")
        cases += [("mixed", MTP), ("mtp", [*MTP, "--draft-quantization", "none"]),
                  ("mtp", [*MTP, "--draft-quantization", "fp8", "--speculative-token-map", "99"])]
        for name, flags in cases:
            words = ["--backend", "cpu", *FIXED, *flags]
            planned = self.run("plan", recipes[name], *words).stdout
            with RunningServer(self.nibble, recipes[name], words) as server:
                with urllib.request.urlopen(server.url + "/stats", timeout=600) as answer:
                    held = {part["name"]: part["bytes"] for part in json.load(answer)["memory"]}
                started = served_lines("".join(server.log))
            assert served_lines(planned) == started, (name, flags, planned, started)
            line = next(line for line in started if line.startswith("in bytes:"))
            assert [int(n) for n in re.findall(r"\d+", line)] == [
                held[part] for part in ("weights", "tables", "workspace", "images", "state",
                                        "kv_cache")]

    def test_the_bytes_that_quantize_writes(self):
        for recipe in ("mixed", "w4a4-fp8-head", "fp8", mtp_recipe(self.work)):
            out = self.work / pathlib.Path(recipe).stem
            self.run("quantize", self.model, out, "--recipe", recipe, "--no-progress")
            before = self.json(self.model, "--recipe", recipe, "--gpu", "cpu", *FIXED, *MTP)
            after = self.json(out, "--gpu", "cpu", *FIXED, *MTP)
            assert before["written_bytes"] == tensor_bytes(out), (recipe, before)
            for key in ("memory", "sizes"):
                left, right = dict(before[key]), dict(after[key])
                left.pop("available", 0), right.pop("available", 0)
                assert left == right, (recipe, key)
            on_card = [self.json(*words, "--gpu", "24G", *FIXED, *MTP)["memory"]
                       for words in ([self.model, "--recipe", recipe], [out])]
            assert on_card[0] == on_card[1], recipe

    def test_what_a_server_on_a_card_planned(self):
        """docs/serving.md, "The card": one whole H200, in MB, by a server on the card, whose
        workspace has gained 51 MB since, at the cost of pages."""
        gained = 51
        memory = self.json(BIG, "--recipe", "mixed-nvfp4-head", "--gpu", "h200",
                           "--gpu-memory-utilization", "0.95",
                           "--max-num-batched-tokens", "8192", "--no-speculation")["memory"]
        for key, served in (("available", 142604), ("weights", 20827),
                            ("workspace", 969 + gained), ("kv_cache", 92425 - gained),
                            ("driver", 587)):
            assert abs(memory[key] / 1e6 - served) <= 8, (key, served, memory)
        assert abs((memory["states"] + memory["snapshots"]) / 1e6 - 27795) < 1, memory

    def test_drafts_by_default(self):
        """On a card, unless a flag says otherwise or a request of full length would be lost."""
        def said(*flags):
            plan = self.json(BIG, *flags)
            return plan["speculation"], plan["memory"]["weights"]
        line, with_layer = said("--gpu", "h200")
        assert line == ("speculation: up to 3 tokens of the checkpoint's MTP layer, plain weights "
                        "rounded to NVFP4; "
                        "--no-speculation turns it off"), line
        line, without = said("--gpu", "h200", "--no-speculation")
        assert line == "speculation: off, by --no-speculation", line
        assert 0.45e9 < with_layer - without < 0.5e9, (with_layer, without)
        line, stored = said("--gpu", "h200", "--draft-quantization", "none")
        assert "layer; --no" in line and stored > without + 1.6e9, (line, stored, without)
        asked, weights = said("--gpu", "h200", "--speculative-config", '{"method": "mtp"}')
        assert weights == with_layer and "turns it off" not in asked, (asked, weights)
        small = self.json(self.model, "--gpu", "cpu", *FIXED)
        assert "only where it is asked to" in small["speculation"], small["speculation"]
        line, weights = said("--gpu", "h200", "--activations", "declared")
        assert "is for measuring" in line, line
        line, weights = said("--gpu", "26000")  # 10 % of the pages are those of the longest request
        assert "the longest request would have" in line and weights == without, line
        moe = self.json("qwen3-30b-a3b", "--gpu", "h200")
        assert "no MTP layer" in moe["speculation"], moe["speculation"]

    def test_parts_add_up(self):
        for words in ([BIG, "--gpu", "rtx5090"], [self.model, "--gpu", "cpu"],
                      ["27b", "--gpu", "h200:3g.71gb", "--kv-cache-dtype", "fp8"]):
            plan = self.json(*words)
            memory = plan["memory"]
            parts = sum(memory[k] for k in ("weights", "tables", "driver", "workspace", "images",
                                            "states", "snapshots", "kv_cache"))
            assert parts == memory["total"] <= memory["available"], plan
            assert memory["context"] + memory["recorded_passes"] == memory["driver"]
            rows = sum(row["bytes"] for row in plan["weights"])
            assert rows == memory["weights"] > 0 and memory["workspace"] > 0 < memory["tables"]
            mapped = memory["mapped_weights"]
            assert (0 < mapped < memory["weights"]) == ("cpu" in words), memory
            assert memory["kv_cache"] == plan["sizes"]["pages"] * plan["sizes"]["page_bytes"]
            for row in plan["speed_bound"]["rows"]:
                assert row["step_bytes"] == sum(row[k] for k in ("experts", "other_weights",
                                                                 "states", "kv"))
                if "tokens_per_second" in row:
                    rate = row["streams"] * plan["card"]["bandwidth_bytes_per_second"]
                    assert abs(row["tokens_per_second"] * row["step_bytes"] / rate - 1) < 1e-9

    def test_activations_on_a_card(self):
        """Each mode has a workspace of its own; f32 keeps pages in F32 and weights as they are."""
        words = ["9b", "--recipe", "w4a4", "--gpu", "h100", "--max-num-seqs", "8",
                 "--no-speculation", *FIXED]
        plans = {mode: self.json(*words, "--activations", mode)
                 for mode in ("auto", "bf16", "declared", "f32")}
        assert plans["auto"]["memory"] == plans["bf16"]["memory"]
        usual, wide = plans["bf16"]["sizes"], plans["f32"]["sizes"]
        assert wide["page_bytes"] == 2 * usual["page_bytes"] and wide["kv_format"] == "F32"
        memory = {mode: plan["memory"] for mode, plan in plans.items()}
        assert memory["f32"]["weights"] == memory["bf16"]["weights"]
        assert memory["declared"]["weights"] >= memory["bf16"]["weights"]
        for mode in ("declared", "f32"):
            assert memory[mode]["workspace"] != memory["bf16"]["workspace"], memory
            assert memory[mode]["total"] <= memory[mode]["available"]

    def test_a_table_of_cards(self):
        cards = {row["card"]["name"]: row for row in self.json(BIG)["cards"]}
        assert not cards["rtx4080"]["fits"] and "at least" in cards["rtx4080"]["trouble"]
        assert cards["rtx5090"]["fits"] and cards["h200"]["longest_request"] == 262144
        one = self.json(BIG, "--gpu", "rtx5090")
        assert cards["rtx5090"]["longest_request"] == one["context"]
        assert cards["rtx5090"]["kv_tokens"] == one["sizes"]["kv_tokens"]
        assert cards["gb300"]["card"]["compute_capability"] == "10.3"

    def test_what_flags_would_change_is_what_they_change(self):
        base = self.json("27b", "--gpu", "rtx5090")
        assert len(base["other_flags"]) >= 6, base
        for row in base["other_flags"]:
            again = self.json("27b", "--gpu", "rtx5090", *row["flag"].split())
            assert again["sizes"]["kv_tokens"] == row["kv_tokens"], row
            assert again["context"] == row["longest_request"], row
            assert row["freed_bytes"] > 0, row


    def test_models_together_are_their_own_plans(self):
        """Each is what `plan MODEL --gpu-memory-utilization SHARE` says, and the shares add up."""
        for models, flags, share in (
                ([BIG, "9b"], ["--gpu", "rtx-pro-6000"], 900),
                (["9b", "4b", "9b"], ["--gpu", "rtx5090", "--kv-cache-dtype", "fp8",
                                      "--gpu-memory-utilization", "0.951"], 951),
                ([self.model, "27b"], ["--gpu", "h100", "--recipe", "w4a4", "--max-model-len",
                                       "8192", "--max-num-seqs", "8"], 900)):
            flags = [*flags, "--host-cache-memory-bytes", "64M"]
            together = self.json(*models, *flags)
            assert [row["plan"]["model"] for row in together["models"]][-1].endswith(
                str(models[-1])), together
            shares = [row["gpu_memory_utilization"] for row in together["models"]]
            assert sum(round(float(part) * 1000) for part in shares) == share, shares
            for model, row in zip(models, together["models"]):
                alone = self.json(model, *flags, "--gpu-memory-utilization",
                                  row["gpu_memory_utilization"])
                assert alone == row["plan"], (model, flags)
            planned = sum(row["plan"]["memory"]["available"] for row in together["models"])
            assert planned == together["planned_bytes"] <= together["card_bytes"]

    def test_models_that_do_not_fit_together(self):
        """The error names the least that each of them starts with, and that is the least."""
        words = ["--gpu", "rtx5090", "--max-model-len", "65536"]
        text = self.refused(BIG, "27b", *words, code=1)
        found = re.search(r"2 models together on rtx5090: expected at most (\S+) MB .*found "
                          r"\S+ at least (\S+) MB, \S+ at least (\S+) MB", text)
        most, *least = map(float, found.groups())
        assert sum(least) > most and len(text.splitlines()) == 1, text
        card = self.json(BIG, "--gpu", "rtx5090")["card"]["memory_bytes"] / 1e6
        for model, megabytes in zip((BIG, "27b"), least):
            share = round(megabytes / card, 3)
            self.json(model, *words, "--gpu-memory-utilization", share)
            self.refused(model, *words, "--gpu-memory-utilization", round(share - 0.001, 3), code=1)
        # A model that the card would not hold alone has its figure too.
        text = self.refused("9b", "397b-a17b", *words, code=1)
        assert re.search(r"qwen3.5-397b-a17b at least \d{6}\.\d MB", text), text


if __name__ == "__main__":
    sys.exit(run_program_checks(Checks, __doc__))

#!/usr/bin/env python3
"""A server that drafts with Pebble's MTP layer, against one that does not: the same answers to
every kind of request, its counts in usage, timings and metrics, and layers that are of no use.

Loopback only. Exits 1 if a check fails; the last line counts.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys

import httpx

from running_server import RunningServer, run_program_checks

FLAGS = ["--max-model-len", "1024", "--max-num-seqs", "4"]
MTP = ["--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}']
LONG = "The baker of the village opens the shop before the sun is up, and " * 3
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
                                           "count": {"type": "integer"}},
          "required": ["name", "count"]}
# Its answer is one that the layer drafts well. It comes first: how much is drafted later depends on
# what drafts were measured to cost, which is a lot beside so small a model.
CHAT = {"messages": [{"role": "user", "content":
                      "Shop A sells a wagon for 200 with 15% off. Shop B sells it for 100 with "
                      "50% off. Where is it cheaper?"}], "temperature": 0, "max_tokens": 80}
REQUESTS = [
    {"prompt": LONG, "max_tokens": 90, "temperature": 0, "logprobs": 2},
    {"prompt": LONG, "max_tokens": 60, "temperature": 0.9, "seed": 3, "logprobs": 1},
    {"prompt": "One", "max_tokens": 70, "temperature": 1.2, "seed": 4, "n": 3, "top_p": 0.9},
    {"prompt": LONG + "then", "max_tokens": 50, "temperature": 0, "presence_penalty": 1.5,
     "repetition_penalty": 1.3, "logit_bias": {"9": 3}, "min_tokens": 20},
    {"prompt": "Copy: a b c a b c", "max_tokens": 40, "temperature": 0, "stop": ["the", "b c"]},
    {"prompt": "A record: ", "max_tokens": 60, "temperature": 0.7, "seed": 5,
     "response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}}},
    {"prompt": LONG, "max_tokens": 3, "temperature": 0},
]


def answers(server):
    """Choices of every request, and the drafts that its usage counts."""
    drafted = accepted = 0
    choices = []
    with httpx.Client(base_url=server.url, timeout=600) as http:
        for body in (CHAT, *REQUESTS):
            chat = "messages" in body
            answer = http.post("/v1/chat/completions" if chat else "/v1/completions", json=body)
            assert answer.status_code == 200, answer.text
            answer = answer.json()
            choices.append(answer["choices"])
            details = answer["usage"]["completion_tokens_details"]
            drafted += details.get("draft_tokens", 0)
            accepted += details.get("accepted_draft_tokens", 0)
        metrics = http.get("/metrics").text
    return choices, drafted, accepted, metrics


def edited(model, folder, change):
    """A copy of the checkpoint whose first file with MTP tensors has its header changed."""
    shutil.copytree(model, folder)
    for path in sorted(folder.glob("*.safetensors")):
        raw = path.read_bytes()
        size = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:8 + size])
        if "mtp.norm.weight" not in header:
            continue
        body = bytearray(raw[8 + size:])
        change(header, body)
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(body))
        index = folder / "model.safetensors.index.json"
        listed = json.loads(index.read_text())
        listed["weight_map"] = {**{name: file for name, file in listed["weight_map"].items()
                                   if file != path.name},
                                **{name: path.name for name in header if name != "__metadata__"}}
        index.write_text(json.dumps(listed))
        return folder
    raise AssertionError("no file has mtp.norm.weight")


def absent(header, _):
    """Under another name: a checkpoint whose tensors leave a hole is refused before that."""
    header["mtp.other.weight"] = header.pop("mtp.norm.weight")


def other_shape(header, body):
    header["mtp.norm.weight"]["shape"] = [header["mtp.norm.weight"]["shape"][0] // 2, 2]


def not_finite(header, body):
    begin, _ = header["mtp.fc.weight"]["data_offsets"]
    body[begin:begin + 2] = b"\xc0\x7f"  # NaN in BF16


class Checks:
    def __init__(self, nibble, model, work, backend):
        self.nibble, self.model, self.work = nibble, model, work
        # Pages on a card take what is free, which other processes change.
        self.flags = ["--backend", backend, *FLAGS, "--kv-cache-memory-bytes", "16777216"]
        plain = [*self.flags, "--no-speculation"]  # a card drafts by default
        with RunningServer(self.nibble, self.model, plain) as server:
            self.plain, drafted, _, _ = answers(server)
            assert drafted == 0
            self.page = self.stats_of_pages(server)

    @staticmethod
    def stats_of_pages(server):
        line = next(line for line in server.log if line.startswith("in bytes:"))
        return int(re.findall(r"\d+", line)[-1])

    def test_the_same_answers_with_drafts(self):
        for count in (1, 3, 5):
            flags = [*self.flags, "--speculative-config",
                     json.dumps({"method": "qwen3_5_mtp", "num_speculative_tokens": count})]
            with RunningServer(self.nibble, self.model, flags) as server:
                choices, drafted, accepted, metrics = answers(server)
                again, *_ = answers(server)  # from the prefix cache
            assert choices == self.plain and again == self.plain, count
            assert drafted >= accepted > 0, (drafted, accepted)
            value = {name: float(re.search(rf"^vllm:spec_decode_{name}_total{{[^}}]*}} (\S+)",
                                           metrics, re.M)[1])
                     for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens")}
            assert value["num_draft_tokens"] >= drafted, (value, drafted)
            assert value["num_accepted_tokens"] >= accepted
            by_place = [float(n) for n in re.findall(
                r"^vllm:spec_decode_num_accepted_tokens_per_pos_total{[^}]*} (\S+)", metrics, re.M)]
            assert sum(by_place) == value["num_accepted_tokens"], (by_place, value)
            assert not any(by_place[count:]) and by_place == sorted(by_place, reverse=True)

    def test_the_same_answers_however_the_layer_is_loaded(self):
        quantized = self.work / "quantized"
        self.run("quantize", self.model, quantized, "--recipe", self.mtp_recipe(), "--no-progress")
        counted = self.run("token-map", self.model, *self.texts(), "--count", "700")
        tokens = self.work / "tokens.json"
        tokens.write_text(counted.stdout)
        assert len(json.loads(counted.stdout)) == 700, counted
        share = float(re.search(r"has (\S+) % of the last tenth", counted.stderr)[1])
        assert 90 < share <= 100, counted.stderr
        for folder, flags in ((self.model, ["--draft-quantization", "none"]),
                              (self.model, ["--speculative-token-map", str(tokens)]),
                              (quantized, ["--draft-quantization", "none"])):
            with RunningServer(self.nibble, folder, [*self.flags, *MTP, *flags]) as server:
                choices, drafted, accepted, _ = answers(server)
            assert choices == self.plain, (folder, flags)
            assert drafted >= accepted > 0, (folder, flags, drafted, accepted)

    def mtp_recipe(self):
        """The MTP layer alone, in NVFP4."""
        path = self.work / "mtp.yaml"
        mlp = r"mlp\.(experts\.\d+\.|shared_expert\.)?(gate|up|down)_proj"
        path.write_text("name: mtp\nstatus: production\nrules:\n"
                        rf"  - match: 're:mtp\.(fc|layers\.\d+\.(self_attn\.[qkvo]_proj|{mlp}))$'"
                        "\n    weights: nvfp4\n")
        return path

    def texts(self):
        return sorted((pathlib.Path(__file__).parents[2] / "pebble/tasks").glob("prose.jsonl"))

    def run(self, *words, code=0):
        done = subprocess.run([self.nibble, *map(str, words)], capture_output=True, text=True,
                              timeout=600, stdin=subprocess.DEVNULL)
        assert done.returncode == code, (words, done.stderr)
        return done

    def test_what_is_refused(self):
        serve = ["serve", self.model, *self.flags, *MTP, "--dry-run"]
        short = self.work / "short.txt"
        short.write_text("1 2 3 99999")
        for words, said in ((["--draft-quantization", "int4"], "nvfp4"),
                            (["--speculative-token-map", "10"], "special tokens"),
                            (["--speculative-token-map", "1M"], "2048"),
                            (["--speculative-token-map", self.work / "gone"], "gone"),
                            (["--speculative-token-map", short], "99999")):
            told = self.run(*serve, *words, code=2).stderr
            assert said in told and told.count("\n") == 1, (words, told)
        # A map is read even where no layer is loaded, and a line says that it is of no use there.
        plain = ["serve", self.model, *self.flags, "--no-speculation", "--dry-run"]
        told = self.run(*plain, "--speculative-token-map", self.work / "gone", code=2).stderr
        assert "gone" in told and told.count("\n") == 1, told
        told = self.run(*plain, "--draft-quantization", "fp8").stdout
        assert "--draft-quantization has no effect: no MTP layer is loaded\n" in told, told
        for words, said in ((["--count", "3"], "--count"), (["--count", "9999999"], "--count")):
            told = self.run("token-map", self.model, *self.texts(), *words, code=2).stderr
            assert said in told and told.count("\n") == 1, (words, told)

    def test_timings_and_streams(self):
        """More than one answer is asked for, since measured times decide if one has drafts."""
        body = {"prompt": LONG, "max_tokens": 60, "temperature": 0, "stream": True,
                "return_progress": True, "stream_options": {"include_usage": True}}
        with RunningServer(self.nibble, self.model, [*self.flags, *MTP]) as server:
            for _ in range(20):
                with httpx.stream("POST", server.url + "/v1/completions", json=body,
                                  timeout=600) as answer:
                    chunks = [json.loads(line[6:]) for line in answer.iter_lines()
                              if line.startswith("data: {")]
                text = "".join(c["text"] for chunk in chunks for c in chunk["choices"])
                assert self.plain[1][0]["text"].startswith(text)
                timings = next(chunk["timings"] for chunk in chunks if "timings" in chunk)
                if "draft_n" in timings:
                    break
        assert timings["draft_n"] >= timings["draft_n_accepted"] and timings["draft_n"] > 0, timings

    def test_no_speculation(self):
        flags = [*self.flags, *MTP, "--no-speculation"]
        with RunningServer(self.nibble, self.model, flags) as server:
            choices, drafted, _, _ = answers(server)
            assert self.stats_of_pages(server) == self.page
        assert choices == self.plain and drafted == 0

    def test_a_layer_of_no_use_costs_its_drafts_alone(self):
        for name, change, words in (
                ("absent", absent, "mtp.norm.weight"),
                ("shape", other_shape, "mtp.norm.weight"), ("nan", not_finite, "mtp.fc")):
            folder = edited(pathlib.Path(self.model), self.work / name, change)
            with RunningServer(self.nibble, folder, [*self.flags, *MTP]) as server:
                choices, drafted, _, _ = answers(server)
                told = [line for line in server.log if "without drafts" in line]
                assert self.stats_of_pages(server) == self.page
            assert len(told) == 1 and words in told[0], (name, told)
            assert choices == self.plain and drafted == 0, name

    def test_a_checkpoint_that_promises_none(self):
        folder = self.work / "none"
        shutil.copytree(self.model, folder)
        config = json.loads((folder / "config.json").read_text())
        config["text_config"]["mtp_num_hidden_layers"] = 0
        (folder / "config.json").write_text(json.dumps(config))
        with RunningServer(self.nibble, folder, [*self.flags, *MTP]) as server:
            assert server.logged("the checkpoint has no MTP layer: answers are made without drafts")


if __name__ == "__main__":
    sys.exit(run_program_checks(Checks, __doc__, backend="cpu"))

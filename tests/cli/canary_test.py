#!/usr/bin/env python3
"""nibble eval canary, generated tasks: canary_test.py --nibble PROGRAM --model PEBBLE_FOLDER.

Pebble against itself, against a copy with damaged weights, and against fake servers; divergence at
structural tokens against logits of `nibble score`. The last line counts.
"""
import json
import pathlib
import shutil
import struct
import subprocess
import sys

import numpy
import tokenizers

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1] / "serve"), str(HERE.parent)]
from eval_test import FakeServer, item  # noqa: E402
from running_server import run_program_checks  # noqa: E402

ROOT = HERE.parents[2]
TASKS = ROOT / "pebble" / "tasks"


class Checks:
    def __init__(self, nibble, model, work):
        self.nibble, self.model, self.work = nibble, model, work
        lines = []
        for name, count in (("json", 3), ("tools", 2), ("table", 2)):
            lines += (TASKS / f"{name}.jsonl").read_text().splitlines()[-count:]
        self.decisions = work / "decisions.jsonl"
        self.decisions.write_text("\n".join(lines) + "\n")

    def canary(self, *words, code=0):
        done = subprocess.run([self.nibble, "eval", "canary", *map(str, words)],
                              capture_output=True, text=True, timeout=600)
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done

    def damaged(self):
        """A copy whose mixers and experts have noise of half their size."""
        copy = self.work / "damaged"
        if copy.exists():
            return copy
        shutil.copytree(self.model, copy)
        draw = numpy.random.default_rng(5)
        for path in sorted(copy.glob("*.safetensors")):
            data = bytearray(path.read_bytes())
            size = struct.unpack("<Q", data[:8])[0]
            for name, entry in json.loads(data[8:8 + size]).items():
                if "layers" not in name or "mtp" in name or len(entry["shape"]) < 2:
                    continue
                begin, end = (8 + size + at for at in entry["data_offsets"])
                bits = numpy.frombuffer(bytes(data[begin:end]), "<u2").astype("<u4") << 16
                values = bits.view("<f4")
                noise = draw.standard_normal(values.size).astype("f4") * values.std() * 0.5
                changed = (values + noise).astype("<f4").view("<u4") >> 16
                data[begin:end] = changed.astype("<u2").tobytes()
            path.write_bytes(data)
        return copy

    def test_a_model_does_not_change_from_itself(self):
        done = self.canary(self.model, self.model, "--tasks", self.decisions, "--json")
        found = json.loads(done.stdout)
        assert found["decisions"] == 7 and found["changed"] == [], found
        structure = found["structural_tokens"]
        assert structure["positions"] > 30 and structure["kl_max"] < 1e-12, structure
        text = self.canary(self.model, "--tasks", self.decisions).stdout
        assert text == "0 of 7 decisions are wrong\n", text

    def test_damage_is_seen(self):
        other = self.damaged()
        words = (self.model, other, "--tasks", self.decisions)
        found = json.loads(self.canary(*words, "--json", code=1).stdout)
        assert 0 < len(found["changed"]) <= 7 and found["changed"][0]["second"], found
        self.check_structure(other, found["structural_tokens"])

    def check_structure(self, other, found):
        """The same from logits of both models, over answers that this test puts together."""
        results = self.work / "results.jsonl"
        subprocess.run([self.nibble, "eval", self.model, self.decisions, "--output", results],
                       check=True, capture_output=True)
        tokenizer = tokenizers.Tokenizer.from_file(str(pathlib.Path(self.model, "tokenizer.json")))
        special = {token for token, each in tokenizer.get_added_tokens_decoder().items()
                   if each.special}
        sequences, kept = [], []
        for prompt, answer in self.answered():
            sequences.append(prompt + answer)
            texts = [tokenizer.decode([token], skip_special_tokens=False) for token in answer]
            kept.append([len(prompt) - 1 + i for i, (token, text) in enumerate(zip(answer, texts))
                         if token in special
                         or not any(c.isalnum() or ord(c) >= 128 for c in text)])
        logits = [self.logits(model, sequences) for model in (self.model, other)]
        values = []
        for sequence, rows in enumerate(kept):
            p, q = (log_softmax(each[sequence][rows]) for each in logits)
            values += list((numpy.exp(p) * (p - q)).sum(-1))
        assert found["positions"] == len(values), (found, len(values))
        assert abs(found["kl_mean"] / numpy.mean(values) - 1) < 1e-3, (found, numpy.mean(values))
        assert abs(found["kl_max"] / max(values) - 1) < 1e-3, (found, max(values))

    def answered(self):
        """Ids of the prompts and of Pebble's answers, by `nibble run --batch`."""
        lines = [json.loads(line) for line in self.decisions.read_text().splitlines()]
        asked, out = self.work / "batch.jsonl", self.work / "batch-out.jsonl"
        out.unlink(missing_ok=True)
        asked.write_text("".join(json.dumps(
            {"custom_id": each["id"], "method": "POST", "url": "/v1/chat/completions", "body": {
                "messages": each["messages"], "temperature": 0, "max_tokens": each["max_tokens"],
                "chat_template_kwargs": {"enable_thinking": each["thinking"]},
                "return_token_ids": True, **({"tools": each["tools"]} if "tools" in each else {})}})
            + "\n" for each in lines))
        subprocess.run([self.nibble, "run", self.model, "--batch", asked, "--output", out],
                       check=True, capture_output=True)
        made = {each["custom_id"]: each["response"]["body"]
                for each in map(json.loads, out.read_text().splitlines())}
        for each in lines:
            body = made[each["id"]]
            yield body["prompt_token_ids"], body["choices"][0]["token_ids"]

    def logits(self, model, sequences):
        ids, out = self.work / "ids.json", self.work / "logits.safetensors"
        ids.write_text(json.dumps({"ids": sequences}))
        out.unlink(missing_ok=True)
        subprocess.run([self.nibble, "score", model, "--ids", ids, "--logits", out], check=True,
                       capture_output=True)
        data = out.read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + size])
        rows = []
        for i in range(len(sequences)):
            entry = header[f"logits.{i}"]
            begin, end = (8 + size + at for at in entry["data_offsets"])
            rows.append(numpy.frombuffer(data[begin:end], "<f4").reshape(entry["shape"]))
        return rows

    def test_the_fixed_set_against_servers(self):
        """A server that knows every answer, and one that flips a discount and a tool."""
        lines = [json.loads(line) for line in
                 (ROOT / "src/eval/canary/decisions.jsonl").read_text().splitlines()]
        right = {}
        for each in lines:
            answer = each["answer"]
            if each["check"] == "tool_call":
                answer = [(answer["name"], json.dumps(answer["arguments"]))]
            elif each["check"] == "json":
                answer = json.dumps(answer)
            right[each["messages"][0]["content"]] = answer
        asked = {each["id"]: each["messages"][0]["content"] for each in lines}
        flipped = dict(right)
        letter = flipped[asked["discount-cs-2"]]
        flipped[asked["discount-cs-2"]] = "B" if letter == "A" else "A"
        flipped[asked["tool-1"]] = [("get_weather", '{"city":"EUR"}')]
        with FakeServer(right) as first, FakeServer(flipped) as second:
            assert self.canary(first.url).stdout == f"0 of {len(lines)} decisions are wrong\n"
            assert "wrong  discount-cs-2" in self.canary(second.url, code=1).stdout
            text = self.canary(first.url, second.url, code=1).stdout
            assert "flip   discount-cs-2" in text and "flip   tool-1" in text, text
            assert f"2 of {len(lines)} decisions changed\n" in text, text
            assert "structural" not in text, text
            assert self.canary(first.url, first.url).stdout.startswith("0 of")
            fine = self.work / "one.jsonl"
            fine.write_text(json.dumps(item("nobody knows", "exact", "1")) + "\n")
        self.canary("http://127.0.0.1:9", code=1)
        assert "A [B]" in self.canary("a", "b", "c", code=2).stderr

    def test_the_set_is_what_its_script_writes(self):
        made = self.work / "made.jsonl"
        subprocess.run([sys.executable, ROOT / "tools/eval/make_canary.py", made], check=True,
                       capture_output=True)
        assert made.read_bytes() == (ROOT / "src/eval/canary/decisions.jsonl").read_bytes()

    def test_hard_tasks_are_what_their_script_writes(self):
        made = self.work / "hard"
        subprocess.run([sys.executable, ROOT / "tools/pebble/make_hard_tasks.py", made],
                       check=True, capture_output=True)
        names = sorted(path.name for path in made.iterdir())
        assert names == sorted(path.name for path in (ROOT / "pebble/hard").iterdir()) and names
        for name in names:
            assert (made / name).read_bytes() == (ROOT / "pebble/hard" / name).read_bytes(), name

    def test_retrieval(self):
        made = self.work / "retrieval.jsonl"
        subprocess.run([sys.executable, ROOT / "tools/eval/make_retrieval.py", self.model, made,
                        "--tokens", "256,512,1024", "--items", "2", "--words", "pebble",
                        "--scored-to", "512"], check=True, capture_output=True)
        lines = [json.loads(line) for line in made.read_text().splitlines()]
        tokenizer = tokenizers.Tokenizer.from_file(str(pathlib.Path(self.model, "tokenizer.json")))
        for each in lines:
            text = each["messages"][0]["content"]
            length = int(each["task"].removeprefix("retrieval_"))
            room = length - 48  # of the template and the answer
            assert 0.97 * room <= len(tokenizer.encode(text).ids) <= room, each["id"]
            key = text.rsplit("value of ", 1)[1].rstrip("?")
            assert text.count(f"\n{key}={each['answer']}\n") == 1, each["id"]
            assert each["check"] == ("exact" if length <= 512 else "none")
        done = subprocess.run([self.nibble, "eval", self.model, made], capture_output=True,
                              text=True, timeout=600)
        assert done.returncode == 0 and "run through, not scored" in done.stdout, done
        assert done.stdout.splitlines()[1].startswith("retrieval_256, direct   2      100.0")
        self.random_weights_are_called_so(made)

    def random_weights_are_called_so(self, tasks):
        folder = self.work / "weightless"
        folder.mkdir()
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json",
                     "chat_template.jinja"):
            shutil.copy(pathlib.Path(self.model, name), folder)
        command = [self.nibble, "eval", folder, tasks, "--max-tokens", "2"]
        done = subprocess.run([*command, "--load-format", "dummy"], capture_output=True, text=True,
                              timeout=600)
        assert done.returncode == 0 and "weightless (random weights)" in done.stdout, done
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 1 and "holds no weights" in done.stderr, done


def log_softmax(logits):
    shifted = logits.astype("f8") - logits.max(-1, keepdims=True)
    return shifted - numpy.log(numpy.exp(shifted).sum(-1, keepdims=True))


if __name__ == "__main__":
    sys.exit(run_program_checks(Checks, __doc__))

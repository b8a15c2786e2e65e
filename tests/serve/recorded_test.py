#!/usr/bin/env python3
"""Requests as real clients send them (recorded/), replayed: every one is answered, its stream reads
by the client's own grammar, and forced tool calls arrive sound.

Loopback only. Exits 1 if a check fails; the last line counts.
"""
import json
import math
import pathlib
import sys
import tempfile

import httpx
import jsonschema

import event_grammars
from running_server import RunningServer, run_checks

RECORDED = pathlib.Path(__file__).resolve().parent / "recorded"
# Clients ask for up to a whole context; an answer of that length proves no more.
SHORT = """default = "short"
[[profile]]
name = "short"
max_tokens = 300
thinking_budget = 40
temperature = 0.0
locked = ["max_tokens", "thinking_budget", "temperature"]
"""


def bounded(schema):
    """The same with strings of at most 40 characters: Pebble does not know when to end one."""
    if isinstance(schema, list):
        return [bounded(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: bounded(value) for key, value in schema.items()}
    if made.get("type") == "string" and "enum" not in made:
        made["maxLength"] = 40
    return made


def schemas_of(body):
    """The schema of each function, whatever the API."""
    found = {}
    for tool in body.get("tools") or []:
        function = tool.get("function", tool)
        schema = function.get("parameters", function.get("input_schema"))
        if schema is not None:
            found[function["name"]] = schema
    return found


class Checks:
    """One server of its own, whose answers are short."""

    def __init__(self, server, nibble, model):
        self.folder = tempfile.TemporaryDirectory()
        profiles = pathlib.Path(self.folder.name) / "short.toml"
        profiles.write_text(SHORT)
        self.server = RunningServer(nibble, model, ["--profiles", str(profiles)])
        self.server.__enter__()
        self.http = httpx.Client(base_url=self.server.url, timeout=600)
        self.name = self.http.get("/v1/models").json()["data"][0]["id"]
        self.changes = 0

    def close(self):
        self.http.close()
        assert self.server.stop() == 0
        self.folder.cleanup()

    def recorded(self, start, **changes):
        """Those whose file name begins so, with the members of `changes` in their bodies."""
        for path in sorted(RECORDED.glob(start + "*.json")):
            self.changes += 1
            text = path.read_text().replace("CHANGES", f"{self.changes:05x}")
            request = json.loads(text.replace('"MODEL"', json.dumps(self.name)))
            request["body"].update(changes)
            yield path.name, request

    def send(self, request):
        """The lines of a stream, or the parsed answer."""
        answer = self.http.post(request["path"], json=request["body"], headers=request["headers"])
        assert answer.status_code == 200, answer.text
        if not request["body"].get("stream"):
            return answer.json()
        assert answer.headers["content-type"].startswith("text/event-stream"), answer.headers
        return answer.text.split("\n")

    def read(self, request):
        reader = getattr(event_grammars, "read_" + request["grammar"])
        return reader(self.send(request))

    def check_client(self, start):
        """As recorded, then with a call forced."""
        seen = 0
        for name, request in self.recorded(start):
            seen += 1
            if not request["body"].get("stream"):
                continue
            text, calls = self.read(request)
            assert text or calls, name
            if "force" not in request:
                continue
            request["body"].update(request["force"], tools=bounded(request["body"]["tools"]))
            _, calls = self.read(request)
            assert calls, (name, "no call")
            for called, arguments in calls:
                jsonschema.validate(json.loads(arguments), schemas_of(request["body"])[called])
        assert seen > 0, start

    def test_claude_code(self):
        self.check_client("claude_code_")

    def test_claude_code_finds_its_prompt_in_the_cache(self):
        cached = []
        for _ in range(2):  # the billing line differs between them
            (_, request), = self.recorded("claude_code_2.1_turn", stream=False, max_tokens=1)
            cached.append(self.send(request)["usage"])
        assert cached[1]["cache_read_input_tokens"] >= 128, cached

    def test_claude_code_counts_tokens(self):
        (_, count), = self.recorded("claude_code_2.1_count")
        (_, turn), = self.recorded("claude_code_2.1_turn", stream=False, max_tokens=1)
        usage = self.send(turn)["usage"]
        counted = self.send(count)["input_tokens"]
        taken = usage["input_tokens"] + usage["cache_read_input_tokens"]
        # Thinking changes the end of the prompt, by a few tokens.
        assert abs(counted - taken) <= 4, (counted, usage)

    def test_claude_code_title_keeps_to_its_schema(self):
        (_, request), = self.recorded("claude_code_2.1_title")
        config = request["body"]["output_config"]
        config["format"]["schema"] = bounded(config["format"]["schema"])
        text, _ = self.read(request)
        assert list(json.loads(text)) == ["title"], text

    def test_codex(self):
        self.check_client("codex_")

    def test_codex_schema(self):
        (_, request), = self.recorded("codex_0.162_schema")
        text, _ = self.read(request)
        jsonschema.validate(json.loads(text), request["schema"])

    def test_cline(self):
        self.check_client("cline_")

    def test_open_webui(self):
        self.check_client("open_webui_")
        (_, request), = self.recorded("open_webui_0.6_title")
        assert self.send(request)["choices"][0]["message"]["content"]
        models = self.http.get("/v1/models", headers=request["headers"]).json()
        assert models["object"] == "list" and models["data"][0]["id"] == self.name

    def test_lm_eval_log_likelihoods(self):
        """Its parser sums the echoed tokens after a context, without the generated one."""
        for name, request in self.recorded("lm_eval_0.4_"):
            if request["grammar"] != "loglikelihood":
                continue
            prompts = request["body"]["prompt"]
            choices = sorted(self.send(request)["choices"], key=lambda c: c["index"])
            assert len(choices) == len(prompts)
            generated = request["body"]["max_tokens"]
            for choice, prompt, context in zip(choices, prompts, request["contexts"]):
                listed = choice["logprobs"]
                assert len(listed["token_logprobs"]) == len(prompt) + generated, (name, listed)
                assert listed["token_logprobs"][0] is None and listed["top_logprobs"][0] is None
                part = slice(context, -1 if generated else None)
                tokens, best = listed["token_logprobs"][part], listed["top_logprobs"][part]
                assert len(tokens) == len(prompt) - context and math.isfinite(sum(tokens))
                for one, top in zip(tokens, best):
                    assert one <= max(top.values()) + 1e-6 <= 1e-6, (one, top)

    def test_lm_eval_batches_as_alone(self):
        (_, request), = self.recorded("lm_eval_0.4_loglikelihood")
        prompts = request["body"]["prompt"]
        together = sorted(self.send(request)["choices"], key=lambda c: c["index"])
        for prompt, choice in zip(prompts, together):
            request["body"]["prompt"] = [prompt]
            alone, = self.send(request)["choices"]
            assert alone["logprobs"] == choice["logprobs"], prompt

    def test_lm_eval_generation(self):
        (_, request), = self.recorded("lm_eval_0.4_generate")
        choices = self.send(request)["choices"]
        assert [c["index"] for c in choices] == [0, 1]
        assert all("\n\n" not in c["text"] for c in choices)
        (_, request), = self.recorded("lm_eval_0.4_chat")
        assert "46" in self.send(request)["choices"][0]["message"]["content"]

    def test_lm_eval_remote_tokenizer(self):
        info = self.http.get("/tokenizer_info").json()
        assert "eos_token" in info, info
        tokens = self.http.post("/tokenize", json={"prompt": "one two",
                                                   "add_special_tokens": False}).json()["tokens"]
        back = self.http.post("/detokenize", json={"tokens": tokens}).json()["prompt"]
        assert back == "one two"


if __name__ == "__main__":
    sys.exit(run_checks(Checks, __doc__))

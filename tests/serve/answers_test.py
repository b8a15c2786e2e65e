#!/usr/bin/env python3
"""Settings of answers by the operator and by requests: room, progress, cancelling, stored
responses, output filters, strict fields.

Loopback only. Exits 1 if a check fails; the last line counts.
"""
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai

from running_server import RunningServer, run_checks
from serve_test import QUESTION

COUNTING = [{"role": "user", "content": "Count from 1 to 30. Think first."}]
JUDGE = """#!/usr/bin/env python3
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    verdict = "hit" if "46" in asked["text"] and asked["place"] != "prompt" else "pass"
    print(json.dumps({"id": asked["id"], "verdict": verdict}), flush=True)
"""


class Checks:
    """Every method is one check, against a running keyless server."""

    def __init__(self, server, nibble, model):
        self.server, self.nibble, self.model = server, nibble, model
        self.client = self.client_of(server)
        self.name = self.client.models.list().data[0].id

    @staticmethod
    def client_of(server):
        return openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0)

    def close(self):
        self.client.close()

    def ask(self, client, messages=QUESTION, **fields):
        extra = {"chat_template_kwargs": {"enable_thinking": False}, **fields.pop("extra_body", {})}
        return client.chat.completions.create(
            model=self.name, messages=messages, temperature=0, extra_body=extra, **fields)

    def test_content_comes_however_little_room(self):
        for tokens in (4, 8, 16, 40):
            answer = self.client.chat.completions.create(
                model=self.name, messages=COUNTING, max_tokens=tokens, temperature=0, n=2)
            for choice in answer.choices:
                assert choice.message.content, (tokens, answer)
        none = self.client.chat.completions.create(
            model=self.name, messages=COUNTING, max_tokens=8, temperature=0,
            extra_body={"answer_reserve": 0})
        assert none.choices[0].message.content == "", none

    def test_progress_of_a_long_prompt(self):
        text = "All work and no play. " * 300
        stream = self.client.chat.completions.create(
            model=self.name, messages=[{"role": "user", "content": text}], stream=True,
            max_tokens=4, extra_body={"return_progress": True})
        extras = [chunk.model_extra for chunk in stream]
        told = [extra["prompt_progress"] for extra in extras if "prompt_progress" in extra]
        assert told, "no progress"
        done = [t["processed"] for t in told]
        assert done[0] == told[0]["cache"], told
        assert done == sorted(done) and told[-1]["processed"] == told[-1]["total"], told
        assert set(told[0]) == {"total", "cache", "processed", "time_ms"}, told

    def test_a_request_is_cancelled_by_its_id(self):
        seen = {}

        def run():
            seen["answer"] = self.client.chat.completions.create(
                model=self.name, messages=COUNTING, max_tokens=8000, temperature=0,
                extra_headers={"x-request-id": "cancel-me"},
                extra_body={"ignore_eos": True, "answer_reserve": 0})

        asking = threading.Thread(target=run)
        asking.start()
        url = self.server.url + "/v1/requests/cancel-me/cancel"
        while asking.is_alive() and httpx.post(url, timeout=600).status_code != 200:
            time.sleep(0.01)
        asking.join(timeout=600)
        assert seen["answer"].choices[0].finish_reason == "abort", seen
        assert httpx.post(url, timeout=600).status_code == 404

    def test_many_clients_of_one_schema(self):
        words = {f"word{i}": {"type": "string", "maxLength": 2000 + i} for i in range(40)}
        schema = {"type": "object", "properties": words, "required": list(words),
                  "additionalProperties": False}  # takes a while to compile
        form = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}

        def reason(_):
            answer = self.ask(self.client, max_tokens=4, response_format=form)
            return answer.choices[0].finish_reason
        with ThreadPoolExecutor(60) as pool:  # none is turned away meanwhile
            assert set(pool.map(reason, range(60))) == {"length"}

    def test_responses_are_stored(self):
        with RunningServer(self.nibble, self.model, ["--response-store", "4"]) as server:
            client = self.client_of(server)
            off = {"reasoning": {"effort": "none"}, "model": self.name, "max_output_tokens": 60}
            first = client.responses.create(input="What is 12 + 34?", **off)
            assert client.responses.retrieve(first.id).output_text == first.output_text
            with client.responses.stream(
                    input="Say that again.", previous_response_id=first.id, **off) as stream:
                kinds = [event.type for event in stream]
                second = stream.get_final_response()
            assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
            assert second.previous_response_id == first.id
            assert second.usage.input_tokens > first.usage.input_tokens
            items = client.responses.input_items.list(second.id).data
            assert [i.type for i in items] == ["message"] * 3, items
            client.responses.delete(first.id)
            try:
                client.responses.retrieve(first.id)
            except openai.NotFoundError:
                pass
            else:
                raise AssertionError("it is still there")
            assert server.stop() == 0

    def test_filters(self):
        with tempfile.TemporaryDirectory() as folder:
            judge, words = os.path.join(folder, "judge.py"), os.path.join(folder, "words")
            with open(judge, "w", encoding="utf-8") as file:
                file.write(JUDGE)
            os.chmod(judge, 0o755)
            with open(words, "w", encoding="utf-8") as file:
                file.write("# none of these\n(?i)forbidden word\n")
            flags = ["--filter", f"regex:{words},exec:{judge}", "--filter-timeout", "600"]
            with RunningServer(self.nibble, self.model, flags) as server:
                client = self.client_of(server)
                hit = self.ask(client, max_tokens=60)  # the answer is 46
                assert hit.choices[0].finish_reason == "content_filter", hit
                assert "46" not in hit.choices[0].message.content
                streamed = "".join(
                    c.choices[0].delta.content or ""
                    for c in self.ask(client, max_tokens=60, stream=True))
                assert "46" not in streamed, streamed
                fine = self.ask(client, [{"role": "user", "content": "What is 1 + 1?"}],
                                max_tokens=60)
                assert fine.choices[0].finish_reason == "stop", fine
                try:
                    self.ask(client, [{"role": "user", "content": "a Forbidden Word"}])
                except openai.BadRequestError as error:
                    assert error.code == "content_filter", error
                else:
                    raise AssertionError("the prompt passed")
                metrics = httpx.get(server.url + "/metrics", timeout=600).text
                assert 'nibble_filter_hits_total{filter="exec:' in metrics, metrics
                assert server.stop() == 0
        assert judge not in subprocess.run(
            ["ps", "ax", "-o", "args"], capture_output=True, text=True, check=True).stdout

    def test_strict_fields_and_the_name_of_thinking(self):
        flags = ["--strict-fields", "--reasoning-field", "reasoning"]
        with RunningServer(self.nibble, self.model, flags) as server:
            client = self.client_of(server)
            answer = client.chat.completions.create(
                model=self.name, messages=QUESTION, temperature=0, user="me")
            extra = answer.choices[0].message.model_extra
            assert extra.get("reasoning") and "reasoning_content" not in extra, extra
            try:
                client.chat.completions.create(
                    model=self.name, messages=QUESTION, extra_body={"temprature": 0})
            except openai.BadRequestError as error:
                assert "temperature" in error.message and error.param == "temprature", error
            else:
                raise AssertionError("an unknown field passed")
            assert server.stop() == 0

    def test_bad_flags_are_one_line(self):
        for flags in (["--filter", "words"], ["--filter", "regex:/nothing"],
                      ["--filter", "exec:/nothing"], ["--filter", "ftp://x/"],
                      ["--filter-ca", "/nothing"], ["--filter-ca", __file__],
                      ["--filter-fail", "maybe"], ["--filter-window", "0"],
                      ["--reasoning-field", "think"], ["--answer-reserve", "-1"],
                      ["--response-store", "x"]):
            run = subprocess.run([self.nibble, "serve", self.model, "--port", "0", *flags],
                                 capture_output=True, text=True, timeout=600, check=False)
            assert run.returncode in (1, 2), (flags, run)  # 1: a file is missing
            assert len(run.stderr.strip().splitlines()) == 1, (flags, run.stderr)


if __name__ == "__main__":
    # With sanitizers a structure takes long to compile, and the machine may be busy.
    sys.exit(run_checks(Checks, __doc__, ["--structure-timeout", "600"]))

#!/usr/bin/env python3
"""Conversations as clients send them: system messages anywhere, last messages continued, prompts
cut, ids of tokens, addresses. Where transformers is installed (./test --full) prompts are compared
with its own.

Loopback only. Exits 1 if a check fails; the last line counts.
"""
import os
import sys
import threading
import time

import anthropic
import httpx
import openai

from running_server import run_checks, tried
from serve_test import QUESTION, TOOL

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
try:
    from transformers import AutoTokenizer
except ImportError:
    AutoTokenizer = None

USER = {"role": "user", "content": "What is 12 + 34?"}


def said(text, **more):
    return {"role": "assistant", "content": text, **more}


class Checks:
    """Every method is one check, against a running keyless server."""

    def __init__(self, server, nibble, model):
        self.server = server
        self.http = httpx.Client(base_url=server.url, timeout=600)
        self.client = openai.OpenAI(base_url=server.url + "/v1", api_key="anything", max_retries=0)
        self.anthropic = anthropic.Anthropic(base_url=server.url, api_key="anything", max_retries=0)
        self.name = self.client.models.list().data[0].id
        self.tokenizer = AutoTokenizer.from_pretrained(model) if AutoTokenizer else None

    def close(self):
        self.http.close()
        self.client.close()
        self.anthropic.close()

    def tokens(self, **fields):
        answer = self.http.post("/tokenize", json=fields)
        assert answer.status_code == 200, answer.text
        return answer.json()["tokens"]

    def judge(self, messages, tools=None, **kwargs):
        """The prompt that transformers makes of the same conversation; None if it is not there."""
        if self.tokenizer is None:
            return None
        ids = self.tokenizer.apply_chat_template(messages, tools=tools, **kwargs)
        return list(ids["input_ids"] if hasattr(ids, "keys") else ids)

    def test_system_messages_are_joined(self):
        first = {"role": "system", "content": "Be brief."}
        second = {"role": "developer", "content": "Be kind."}
        third = {"role": "system", "content": [{"type": "text", "text": "Be "},
                                               {"type": "text", "text": "right."}]}
        joined = {"role": "system", "content": "Be brief.\n\nBe kind.\n\nBe right."}
        turn = [USER, said("46"), {"role": "user", "content": "And 1 more?"}]
        expected = self.judge([joined, *turn], add_generation_prompt=True)
        for messages in ([first, second, third, *turn], [*turn, first, second, third],
                         [first, USER, second, *turn[1:], third]):
            got = self.tokens(messages=messages)
            assert expected in (None, got), messages
            assert got == self.tokens(messages=[joined, *turn]), messages
        response = self.http.post("/v1/responses/input_tokens",
                                  json={"input": [first, USER, second, *turn[1:], third]})
        assert response.json()["input_tokens"] == len(got), response.text
        # The openai package sends it so, and the next turn finds the prompt in the cache.
        long = {"role": "developer", "content": "Be brief. " * 40}
        messages = [USER, long]
        for cached in (False, True):
            answer = self.client.chat.completions.create(
                model=self.name, messages=messages, max_tokens=20, temperature=0)
            found = answer.usage.prompt_tokens_details.cached_tokens
            assert (found >= 64) == cached, (found, cached)
            messages = [*messages, said("46"), USER]

    def test_refusals_name_the_message(self):
        for messages, says in (
            ([USER, {"role": "wizard", "content": "x"}], 'messages[1] (role "wizard")'),
            ([USER, USER, {"role": "developer", "content": [{"type": "image_url",
                                                             "image_url": {"url": "x"}}]}],
             "messages[2]"),
            ([said("x")], "add a message of the role user"),
        ):
            answer = self.http.post("/v1/chat/completions", json={"messages": messages})
            assert answer.status_code == 400, answer.text
            assert says in answer.json()["error"]["message"], answer.text

    def test_a_continued_message_is_that_of_transformers(self):
        for messages in (
            [USER, said("The answer")],
            [USER, said("The answer is 46, since", reasoning_content="12 and 34")],
            [{"role": "system", "content": "Be brief."}, USER, said("46."), USER, said("Again: 4")],
            [USER, said("<|im_end|> is a tag, and")],
            [USER, said("größer als 日本")],
        ):
            for kwargs in ({}, {"enable_thinking": False}, {"enable_thinking": True}):
                expected = self.judge(messages, continue_final_message=True, **kwargs)
                if any("<|" in m["content"] for m in messages):
                    expected = None  # there text becomes a tag
                got = self.tokens(messages=messages, continue_final_message=True,
                                  add_generation_prompt=False, chat_template_kwargs=kwargs)
                assert expected in (None, got), (messages, kwargs)
                text = self.http.post("/detokenize", json={"tokens": got}).json()["prompt"]
                assert text.endswith(messages[-1]["content"]), text
        with_tools = [USER, said("I look")]
        got = self.tokens(messages=with_tools, tools=[TOOL], continue_final_message=True)
        assert self.judge(with_tools, tools=[TOOL], continue_final_message=True) in (None, got)
        kept = self.tokens(messages=[USER, said("46 \n")], continue_final_message=True)
        assert self.http.post("/detokenize", json={"tokens": kept}).json()["prompt"].endswith("46 \n")

    def test_an_answer_cut_anywhere_goes_on_as_it_did(self):
        """Prompt and answer have the same tokens with and without the seam."""
        ask = {"messages": [{"role": "user", "content": "Tell me a story"}], "temperature": 0,
               "max_tokens": 200, "return_token_ids": True, "enable_thinking": False,
               "min_tokens": 24}
        whole = self.http.post("/v1/chat/completions", json=ask).json()
        choice = whole["choices"][0]
        ids = choice["token_ids"]
        assert len(ids) == whole["usage"]["completion_tokens"] > 10, whole
        seams = 0
        for cut in range(1, len(ids) - 1):  # and not at its stop token
            text = self.http.post("/detokenize", json={"tokens": ids[:cut]}).json()["prompt"]
            more = self.http.post("/v1/chat/completions", json={
                **ask, "messages": [*ask["messages"], said(text)], "min_tokens": max(0, 24 - cut),
                "continue_final_message": True, "add_generation_prompt": False}).json()
            if more.get("prompt_token_ids") != whole["prompt_token_ids"] + ids[:cut]:
                continue  # this text has other tokens when it is read back
            seams += 1
            assert more["choices"][0]["token_ids"] == ids[cut:], (cut, more)
            assert text + more["choices"][0]["message"]["content"] == \
                choice["message"]["content"], cut
        assert seams > 5, seams

    def test_prefill_of_anthropic(self):
        asked = [{"role": "user", "content": "Count from 1 to 9."}]
        fields = {"model": "claude-sonnet", "max_tokens": 16, "extra_body": {"temperature": 0}}
        more = self.anthropic.messages.create(messages=[*asked, said("1 2 3")], **fields)
        chat = self.http.post("/v1/chat/completions", json={
            "messages": [*asked, said("1 2 3")], "max_tokens": 16, "temperature": 0,
            "continue_final_message": True, "enable_thinking": False}).json()
        assert "".join(block.text for block in more.content) == \
            chat["choices"][0]["message"]["content"], more
        counted = self.anthropic.messages.count_tokens(
            model="claude-sonnet", messages=[*asked, said("1 2 3")])
        assert counted.input_tokens == chat["usage"]["prompt_tokens"], counted
        try:
            self.anthropic.messages.create(messages=[*asked, said("1 2 3")],
                                           thinking={"type": "enabled", "budget_tokens": 1024},
                                           **{**fields, "max_tokens": 2000})
            raise AssertionError("prefill with thinking passed")
        except anthropic.BadRequestError as error:
            assert "with thinking" in str(error), error

    def test_the_tool_runner_of_anthropic(self):
        """It asks for a thread first and sends the whole conversation when that is refused."""
        calls = []

        @anthropic.beta_tool
        def get_weather(place: str, days: int = 1) -> str:
            """The weather of a place.

            Args:
                place: The place.
                days: How many days.
            """
            calls.append((place, days))
            return "sunny"

        runner = self.anthropic.beta.messages.tool_runner(
            model="claude-sonnet", max_tokens=300, tools=[get_weather], max_iterations=2,
            messages=[{"role": "user", "content": "What is the weather in Lima for 3 days?"}])
        last = runner.until_done()
        assert last.content, last
        refused = self.http.post("/v1/messages", json={
            "max_tokens": 5, "messages": [USER], "thread": {"type": "new"}})
        assert refused.status_code == 400, refused.text
        assert refused.json()["error"]["details"]["error_code"] == "thread_unsupported_request"

    def test_usage_in_every_chunk(self):
        stream = self.client.chat.completions.create(
            model=self.name, messages=QUESTION, stream=True, max_tokens=30, temperature=0,
            stream_options={"include_usage": True, "continuous_usage_stats": True})
        usage = [chunk.usage.completion_tokens for chunk in stream]
        assert usage == sorted(usage) and usage[-1] > 10 < len(usage), usage

    def test_a_format_beside_a_forced_tool(self):
        form = {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}
        answer = self.client.responses.create(
            model=self.name, input="What is the weather in Lima?", text=form, max_output_tokens=400,
            tools=[{"type": "function", **TOOL["function"]}], tool_choice="required",
            reasoning={"effort": "none"})
        assert answer.output[-1].type == "function_call", answer

    def test_fields_of_answers(self):
        answer = self.client.chat.completions.create(
            model=self.name, messages=QUESTION, max_tokens=5, extra_body={"return_token_ids": True})
        assert answer.system_fingerprint.startswith("fp_"), answer
        assert answer.prompt_token_ids == self.tokens(messages=QUESTION)
        assert len(answer.choices[0].token_ids) == answer.usage.completion_tokens == 5
        cut = self.client.completions.create(
            model=self.name, prompt="größer als 日本 und weiter", max_tokens=3, logprobs=0, echo=True,
            extra_body={"truncate_prompt_tokens": 4, "return_token_ids": True})
        choice = cut.choices[0]
        assert len(choice.prompt_token_ids) == 4 == cut.usage.prompt_tokens, cut
        at = 0
        for token, offset in zip(choice.logprobs.tokens, choice.logprobs.text_offset, strict=True):
            assert offset == at, choice.logprobs
            at += len(token)

    def test_no_local_path_is_shown(self):
        models = self.http.get("/v1/models").text
        ids = [model["id"] for model in self.http.get("/v1/models").json()["data"]]
        assert ids[0] == self.name and all(i.startswith(self.name + ":") for i in ids[1:]), ids
        path = self.server.command[2]
        answer = self.http.post("/v1/chat/completions",
                                json={"model": path, "messages": [USER], "max_tokens": 3})
        assert answer.status_code == 200 and answer.json()["model"] == self.name, answer.text
        assert path == self.name or (path not in models and path not in answer.text), models

    def load(self):
        return self.http.get("/load").json()["server_load"]

    @tried(3)
    def test_one_address_does_not_make_another_wait(self):
        """32 long requests of 127.0.0.1 run while 127.0.0.2 asks once, and 127.0.0.1 once more."""
        first, ended = set(), set()  # whose first event came, and which long one is whole

        def ask(name, client, done=None, **body):
            with client.stream("POST", "/v1/completions", json={"stream": True, **body}) as answer:
                for line in answer.iter_lines():
                    if line.startswith("data: "):  # a comment only keeps it open
                        first.add(name)
                    if done.is_set() if done else name in first:
                        return
            ended.add(name)

        def short(name, client):
            ask(name, client, prompt=[400, 401, 402, len(name)], max_tokens=3)

        limits = httpx.Limits(max_connections=64)
        other_address = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(base_url=self.server.url, timeout=600, limits=limits) as crowd, \
                httpx.Client(base_url=self.server.url, timeout=600,
                             transport=other_address) as other:
            done = threading.Event()
            threads = [
                threading.Thread(target=ask, args=(f"long {i}", crowd, done), kwargs={
                    "prompt": [300 + (i * 7 + k) % 500 for k in range(200)], "seed": i,
                    "max_tokens": 3000, "ignore_eos": True}) for i in range(32)]
            for thread in threads:
                thread.start()
            while self.load() < 32 or len(first) < 8:
                time.sleep(0.05)
            same = threading.Thread(target=short, args=("the same address", crowd))
            same.start()
            while self.load() < 33 and "the same address" not in first:
                time.sleep(0.05)
            short("another address", other)
            before = "the same address" in first, set(ended)
            done.set()
            for thread in (*threads, same):
                thread.join()
        assert before == (False, set()), before


if __name__ == "__main__":
    sys.exit(run_checks(Checks, __doc__))

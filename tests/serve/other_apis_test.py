#!/usr/bin/env python3
"""The Messages and Responses APIs through the anthropic and openai packages.

Loopback only. Exits 1 if a check fails; the last line counts.
"""
import json
import sys

import anthropic
import openai

from running_server import run_checks
from serve_test import QUESTION, TOOL


class Checks:
    """Every method is one check, against a running keyless server."""

    def __init__(self, server, nibble, model):
        self.client = openai.OpenAI(base_url=server.url + "/v1", api_key="anything", max_retries=0)
        self.name = self.client.models.list().data[0].id
        self.anthropic = anthropic.Anthropic(base_url=server.url, api_key="anything", max_retries=0)

    def close(self):
        self.client.close()

    # Anthropic's client.

    TOOL_OF_ANTHROPIC = {
        "name": TOOL["function"]["name"],
        "description": TOOL["function"]["description"],
        "input_schema": TOOL["function"]["parameters"],
    }
    WEATHER = [{"role": "user", "content": "What is the weather in Lima for 3 days?"}]

    def message(self, messages=None, **fields):
        fields = {"max_tokens": 300, "model": "claude-sonnet", "extra_body": {"temperature": 0},
                  **fields}
        return self.anthropic.messages.create(messages=messages or QUESTION, **fields)

    def test_anthropic_message(self):
        answer = self.message()
        assert [b.type for b in answer.content] == ["text"], answer
        assert "46" in answer.content[0].text and answer.stop_reason == "end_turn"
        assert answer.usage.input_tokens + answer.usage.cache_read_input_tokens > 10
        thought = self.message(thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=1500)
        assert [b.type for b in thought.content] == ["thinking", "text"], thought
        assert thought.content[0].thinking and "46" in thought.content[1].text

    def test_anthropic_stream_equals_the_whole(self):
        fields = {"max_tokens": 1500, "extra_body": {"temperature": 0}, "model": self.name,
                  "thinking": {"type": "enabled", "budget_tokens": 1024}}
        whole = self.anthropic.messages.create(messages=QUESTION, **fields)
        with self.anthropic.messages.stream(messages=QUESTION, **fields) as stream:
            streamed = stream.get_final_message()
        for a, b in zip(whole.content, streamed.content, strict=True):
            assert (a.type, getattr(a, "text", ""), getattr(a, "thinking", "")) == (
                b.type, getattr(b, "text", ""), getattr(b, "thinking", ""))
        assert streamed.stop_reason == "end_turn"
        assert streamed.usage.output_tokens == whole.usage.output_tokens

    def test_anthropic_tool_loop(self):
        tools = [self.TOOL_OF_ANTHROPIC]
        with self.anthropic.messages.stream(
                messages=self.WEATHER, tools=tools, max_tokens=1500,
                extra_body={"temperature": 0}, model=self.name) as stream:
            called = stream.get_final_message()
        assert called.stop_reason == "tool_use", called
        call = called.content[-1]
        assert call.type == "tool_use" and call.name, called  # Pebble calls by names it learned
        assert isinstance(call.input, dict) and call.input, called
        answer = self.message(
            [*self.WEATHER,
             {"role": "assistant", "content": [b.model_dump() for b in called.content]},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id,
                                           "content": [{"type": "text", "text": "sunny"}]}]}],
            tools=tools)
        assert answer.content[-1].type == "text" and answer.stop_reason == "end_turn", answer

    def test_anthropic_counts_tokens_and_caches(self):
        system = [{"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=PLACE;"},
                  {"type": "text", "text": "You are brief. " * 30,
                   "cache_control": {"type": "ephemeral"}}]
        def asked(change):
            blocks = json.loads(json.dumps(system).replace("PLACE", change))
            return self.message(system=blocks, max_tokens=4)
        asked("a1b2")
        again = asked("c3d4")
        assert again.usage.cache_read_input_tokens >= 64, again.usage
        counted = self.anthropic.messages.count_tokens(
            model=self.name, messages=QUESTION, system=system)
        usage = again.usage
        assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens

    def test_anthropic_errors_have_their_classes(self):
        for expected, fields in [(anthropic.NotFoundError, {"model": "gpt-9"}),
                                 (anthropic.BadRequestError, {"extra_body": {"top_p": 2}})]:
            try:
                self.message(**fields)
                raise AssertionError(f"{fields} passed")
            except expected as error:
                assert error.body["type"] == "error" and error.body["error"]["message"], error.body

    # Structure, which Pebble alone would not keep to.

    PERSON = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20},
            "age": {"type": "integer", "minimum": 0, "maximum": 130},
            "tags": {"type": "array", "items": {"enum": ["red", "blue"]}, "maxItems": 3},
        },
        "required": ["name", "age", "tags"],
        "additionalProperties": False,
    }

    def check_person(self, text):
        person = json.loads(text)
        assert list(person) == ["name", "age", "tags"], person
        assert len(person["name"]) <= 20 and 0 <= person["age"] <= 130, person
        assert len(person["tags"]) <= 3 and set(person["tags"]) <= {"red", "blue"}, person

    def test_structured_output(self):
        asked = [{"role": "user", "content": "Tell me of a person."}]
        form = {"type": "json_schema",
                "json_schema": {"name": "person", "schema": self.PERSON, "strict": True}}
        for seed in range(10):
            answer = self.client.chat.completions.create(
                model=self.name, messages=asked, response_format=form, seed=seed, temperature=1.5,
                max_tokens=2000, extra_body={"thinking_token_budget": 30})
            assert answer.choices[0].finish_reason == "stop", answer
            self.check_person(answer.choices[0].message.content)
        stream = self.client.chat.completions.create(
            model=self.name, messages=asked, response_format=form, stream=True, temperature=0,
            extra_body={"enable_thinking": False})
        self.check_person("".join(c.choices[0].delta.content or "" for c in stream))
        response = self.client.responses.create(
            model=self.name, input="Tell me of a person.", reasoning={"effort": "none"},
            text={"format": {"type": "json_schema", "name": "p", "schema": self.PERSON}})
        self.check_person(response.output_text)

    def test_forced_calls_keep_to_their_schema(self):
        tool = {"type": "function", "function": {"name": "enlist", "parameters": self.PERSON}}
        for seed in range(10):
            answer = self.client.chat.completions.create(
                model=self.name, messages=QUESTION, tools=[tool, TOOL], seed=seed, temperature=1.5,
                tool_choice={"type": "function", "function": {"name": "enlist"}},
                parallel_tool_calls=False, max_tokens=2000,
                extra_body={"thinking_token_budget": 30})
            call, = answer.choices[0].message.tool_calls
            assert call.function.name == "enlist" and not answer.choices[0].message.content
            self.check_person(call.function.arguments)
        message = self.message(tools=[self.TOOL_OF_ANTHROPIC], tool_choice={"type": "any"})
        assert message.stop_reason == "tool_use", message
        assert isinstance(message.content[-1].input["place"], str), message

    # The responses API.

    def test_responses(self):
        answer = self.client.responses.create(model=self.name, input="What is 12 + 34?",
                                              temperature=0, max_output_tokens=300)
        assert "46" in answer.output_text and answer.status == "completed", answer
        assert [item.type for item in answer.output] == ["reasoning", "message"]
        assert answer.usage.output_tokens_details.reasoning_tokens > 0
        quick = self.client.responses.create(model=self.name, input="What is 12 + 34?",
                                             temperature=0, reasoning={"effort": "none"})
        assert [item.type for item in quick.output] == ["message"], quick

    def test_responses_logprobs(self):
        fields = {"model": self.name, "input": "What is 12 + 34?", "temperature": 0,
                  "top_logprobs": 3, "include": ["message.output_text.logprobs"],
                  "max_output_tokens": 300}
        part = self.client.responses.create(**fields).output[-1].content[0]
        assert "".join(each.token for each in part.logprobs).strip() == part.text, part
        for each in part.logprobs:
            assert len(each.top_logprobs) == 3 and each.logprob <= 0, each
            assert each.top_logprobs[0].logprob >= each.logprob, each
        streamed = [each for event in self.client.responses.create(**fields, stream=True)
                    if event.type == "response.output_text.delta" for each in event.logprobs]
        assert [each.token for each in streamed] == [each.token for each in part.logprobs]

    def test_responses_stream_and_tool_loop(self):
        tool = {"type": "function", **TOOL["function"], "strict": False}
        fields = {"model": self.name, "temperature": 0, "tools": [tool, {"type": "web_search"}],
                  "max_output_tokens": 1500}
        conversation = [{"role": "user", "content": self.WEATHER[0]["content"]}]
        with self.client.responses.stream(input=conversation, **fields) as stream:
            kinds = [event.type for event in stream]
            called = stream.get_final_response()
        assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
        call = called.output[-1]
        assert call.type == "function_call" and call.name, called
        assert json.loads(call.arguments), call
        conversation += [item.model_dump(exclude_none=True) for item in called.output]
        conversation.append({"type": "function_call_output", "call_id": call.call_id,
                             "output": "sunny"})
        answer = self.client.responses.create(input=conversation, **fields)
        assert answer.output[-1].type == "message" and answer.output_text, answer


if __name__ == "__main__":
    sys.exit(run_checks(Checks, __doc__))

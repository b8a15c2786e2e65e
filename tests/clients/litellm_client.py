"""litellm, which most frameworks call models by: its OpenAI, hosted_vllm and Anthropic routes, its
responses."""
import json

from client_run import main  # first: it sets what litellm reads on import

import litellm

QUESTION = [{"role": "user", "content": "What is 12 + 34?"}]
WEATHER = [{"role": "user", "content": "What is the weather in Lima for 3 days?"}]
TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a place",
    "parameters": {"type": "object",
                   "properties": {"place": {"type": "string", "maxLength": 30},
                                  "days": {"type": "integer", "minimum": 1, "maximum": 9}},
                   "required": ["place", "days"], "additionalProperties": False}}}
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20},
                                           "age": {"type": "integer", "minimum": 0, "maximum": 99}},
          "required": ["name", "age"], "additionalProperties": False}

litellm.telemetry = False
litellm.num_retries = 0


def routes(url):
    base = url + "/v1"
    return {
        "openai": {"model": "openai/model", "api_base": base, "api_key": "x"},
        "hosted_vllm": {"model": "hosted_vllm/model", "api_base": base, "api_key": "x"},
        "anthropic": {"model": "anthropic/claude-sonnet-4-5", "api_base": url, "api_key": "x"},
    }


def ask(url, route, messages=None, **fields):
    fields = {"max_tokens": 400, "temperature": 0, **fields}
    return litellm.completion(messages=messages or QUESTION, **routes(url)[route], **fields)


def chat(url):
    for route in routes(url):
        answer = ask(url, route)
        assert "46" in answer.choices[0].message.content, (route, answer)
        assert answer.choices[0].finish_reason == "stop"
        usage = answer.usage
        assert usage.prompt_tokens > 5 and usage.completion_tokens > 0, (route, usage)
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def reasoning(url):
    for route in ("openai", "hosted_vllm"):
        message = ask(url, route).choices[0].message
        assert message.reasoning_content and "</think>" not in message.content, (route, message)
    message = ask(url, "anthropic", thinking={"type": "enabled", "budget_tokens": 1024},
                  max_tokens=1500, temperature=1).choices[0].message
    assert message.reasoning_content and message.thinking_blocks, message


def streams_equal_the_whole(url):
    for route in routes(url):
        whole = ask(url, route).choices[0].message.content
        chunks = list(ask(url, route, stream=True, stream_options={"include_usage": True}))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert text == whole, (route, text, whole)
        rebuilt = litellm.stream_chunk_builder(chunks, messages=QUESTION)
        assert rebuilt.choices[0].message.content == whole
        assert rebuilt.usage.completion_tokens > 0, (route, rebuilt.usage)


def tools(url):
    for route in routes(url):
        fields = dict(tools=[TOOL], tool_choice="required", messages=WEATHER)
        call, *_ = ask(url, route, **fields).choices[0].message.tool_calls
        assert call.function.name == "get_weather"
        assert set(json.loads(call.function.arguments)) == {"place", "days"}, (route, call)
        chunks = list(ask(url, route, stream=True, **fields))
        rebuilt = litellm.stream_chunk_builder(chunks, messages=WEATHER).choices[0].message
        assert rebuilt.tool_calls[0].function.arguments == call.function.arguments, route
        history = [*WEATHER, {"role": "assistant", "content": None,
                              "tool_calls": [call.model_dump()]},
                   {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
        answer = ask(url, route, messages=history, tools=[TOOL])
        assert answer.choices[0].message.content or answer.choices[0].message.tool_calls, route


def schema(url):
    form = {"type": "json_schema",
            "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    for route in ("openai", "hosted_vllm"):
        answer = ask(url, route, [{"role": "user", "content": "Tell me of a person."}],
                     response_format=form)
        person = json.loads(answer.choices[0].message.content)
        assert list(person) == ["name", "age"], (route, person)


def responses(url):
    answer = litellm.responses(input="What is 12 + 34?", max_output_tokens=400, temperature=0,
                               **routes(url)["openai"])
    text = "".join(part.text for item in answer.output if item.type == "message"
                   for part in item.content)
    assert "46" in text, answer
    events = list(litellm.responses(input="What is 12 + 34?", max_output_tokens=400,
                                    temperature=0, stream=True, **routes(url)["openai"]))
    assert events[-1].type == "response.completed", events[-1]


def completions(url):
    answer = litellm.text_completion(
        model="text-completion-openai/model", prompt="one two", max_tokens=5, temperature=0,
        api_base=routes(url)["openai"]["api_base"], api_key="x")
    assert answer.choices[0].text and answer.usage.completion_tokens <= 5, answer


def errors_have_their_classes(url):
    for route in routes(url):
        fields = {**routes(url)[route], "model": route + "/gpt-9"}
        try:
            litellm.completion(messages=QUESTION, **fields)
            raise AssertionError(f"{route}: gpt-9 answered")
        except litellm.NotFoundError:
            pass
    long = [{"role": "user", "content": "7 " * 20000}]
    try:
        ask(url, "openai", long)
        raise AssertionError("a prompt beyond the context passed")
    except litellm.ContextWindowExceededError:
        pass


main(chat, reasoning, streams_equal_the_whole, tools, schema, responses, completions,
     errors_have_their_classes)

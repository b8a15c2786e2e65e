"""The openai package: chat completions and responses, its own parser of answers, its streams."""
import json

import openai
import pydantic

from client_run import MODEL, SUM, TOOL, WEATHER, Calls, check_person, main


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=99)


def client(url):
    return openai.OpenAI(base_url=url + "/v1", api_key="unused", max_retries=0)


def tool_loop(url):
    calls = Calls()
    messages = [{"role": "user", "content": WEATHER}]
    tools = [{"type": "function", "function": TOOL}]
    for _ in range(5):
        message = client(url).chat.completions.create(
            model=MODEL, messages=messages, tools=tools, temperature=0).choices[0].message
        messages.append(message)
        for call in message.tool_calls or []:
            messages.append({"role": "tool", "tool_call_id": call.id,
                             "content": calls.get(**json.loads(call.function.arguments))})
        if not message.tool_calls:
            break
    calls.check(message.content)


def tool_loop_of_responses(url):
    calls = Calls()
    items = [{"role": "user", "content": WEATHER}]
    for _ in range(5):
        answer = client(url).responses.create(model=MODEL, input=items, temperature=0,
                                              tools=[{"type": "function", **TOOL}])
        items += answer.output
        made = [item for item in answer.output if item.type == "function_call"]
        items += [{"type": "function_call_output", "call_id": call.call_id,
                   "output": calls.get(**json.loads(call.arguments))} for call in made]
        if not made:
            break
    calls.check(answer.output_text)


def structured(url):
    asked = [{"role": "user", "content": "Tell me of a person."}]
    answer = client(url).chat.completions.parse(model=MODEL, messages=asked,
                                                response_format=Person)
    check_person(answer.choices[0].message.parsed)
    check_person(client(url).responses.parse(model=MODEL, input=asked,
                                             text_format=Person).output_parsed)


def stream(url):
    asked = {"model": MODEL, "messages": [{"role": "user", "content": SUM}], "temperature": 0}
    with client(url).chat.completions.stream(**asked) as events:
        kinds = {event.type for event in events}
        answer = events.get_final_completion().choices[0].message
    assert {"chunk", "content.delta", "content.done"} <= kinds, kinds
    assert answer.content == "46", answer
    with client(url).responses.stream(model=MODEL, input=SUM, temperature=0) as events:
        kinds = {event.type for event in events}
        assert events.get_final_response().output_text == "46"
    assert "response.output_text.delta" in kinds, kinds


main(tool_loop, tool_loop_of_responses, structured, stream)

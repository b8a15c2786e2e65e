"""The anthropic package: its tool_runner, its parser of answers, its streams."""
import anthropic
import pydantic

from client_run import MODEL, SUM, WEATHER, Calls, check_person, main


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=99)


def client(url):
    return anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0)


def asked(text):
    return {"model": MODEL, "max_tokens": 500, "messages": [{"role": "user", "content": text}]}


def tool_loop(url, **fields):
    calls = Calls()

    @anthropic.beta_tool
    def weather_get(place: str, day: str) -> str:
        """The weather of a place"""
        return calls.get(place, day)

    runner = client(url).beta.messages.tool_runner(
        tools=[weather_get], extra_body={"temperature": 0}, **fields, **asked(WEATHER))
    if fields:
        messages = [events.get_final_message() for events in runner]
    else:
        messages = list(runner)
    assert [m.stop_reason for m in messages] == ["tool_use", "end_turn"], messages
    calls.check(messages[-1].content[-1].text)


def streamed_tool_loop(url):
    tool_loop(url, stream=True)


def structured(url):
    answer = client(url).messages.parse(output_format=Person, **asked("Tell me of a person."))
    check_person(answer.parsed_output)


def stream(url):
    with client(url).messages.stream(extra_body={"temperature": 0}, **asked(SUM)) as events:
        text = "".join(events.text_stream)
        message = events.get_final_message()
    assert text == "46" == message.content[-1].text, message


main(tool_loop, streamed_tool_loop, structured, stream)

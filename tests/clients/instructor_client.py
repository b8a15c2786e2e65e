"""instructor: every mode that its OpenAI and Anthropic clients have, whole and as partial streams.
JSON and MD_JSON ask for the schema in words, which Pebble does not follow, so that the server is
told of it too."""
import typing

import anthropic
import instructor
import openai
import pydantic
from instructor import Mode

from client_run import MODEL, PERSON, WEATHER, check_person, main

ASKED = {"messages": [{"role": "user", "content": "Tell me of a person."}], "max_retries": 0}
FENCED = {"structured_outputs": {
    "regex": r'```json\n\{"name": "[a-z]{1,20}", "age": [1-9][0-9]\}\n```'}}
BARE = {"response_format": {"type": "json_object", "schema": PERSON}}
FORM = {"output_config": {"format": {"type": "json_schema", "schema": PERSON}}}


class Person(pydantic.BaseModel):
    """A person."""

    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=99)


class weather_get(pydantic.BaseModel):
    """The weather of a place"""

    place: str
    day: str


def of_openai(url, mode):
    client = openai.OpenAI(base_url=url + "/v1", api_key="unused", max_retries=0)
    return instructor.from_openai(client, mode=mode, model=MODEL)


def of_anthropic(url, mode):
    client = anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0)
    return instructor.from_anthropic(client, mode=mode, model=MODEL, max_tokens=500)


def clients(url):
    """(client, mode, more fields of a request)."""
    for mode in (Mode.TOOLS, Mode.JSON_SCHEMA, Mode.RESPONSES_TOOLS):
        yield of_openai(url, mode), mode, {}
    yield of_openai(url, Mode.JSON), Mode.JSON, {"extra_body": BARE}
    yield of_openai(url, Mode.MD_JSON), Mode.MD_JSON, {"extra_body": FENCED}
    yield of_anthropic(url, Mode.TOOLS), Mode.TOOLS, {}
    for mode in (Mode.JSON_SCHEMA, Mode.JSON):  # its anthropic package knows no output_config
        yield of_anthropic(url, mode), mode, {"extra_body": FORM}


def structured(url):
    for client, mode, fields in clients(url):
        check_person(client.create(response_model=Person, **ASKED, **fields).model_dump())


def tool_loop(url):
    """The parallel modes take an answer's calls apart, as many as there are."""
    asked = {"messages": [{"role": "user", "content": WEATHER}], "max_retries": 0}
    for client in (of_openai, of_anthropic):
        made = client(url, Mode.PARALLEL_TOOLS).create(
            response_model=typing.Iterable[weather_get], temperature=0, **asked)
        assert [(call.place, call.day) for call in made] == [("Tosca", "Monday")], made


def stream(url):
    for client, mode, fields in clients(url):
        if mode == Mode.RESPONSES_TOOLS:
            continue  # it has no partial answers
        pieces = list(client.create_partial(response_model=Person, **ASKED, **fields))
        assert len(pieces) > 1, (mode, pieces)
        check_person(pieces[-1].model_dump())


main(structured, tool_loop, stream)

"""pydantic-ai: agents over chat completions, responses and messages, in each form of output."""
import asyncio
from typing import Annotated

import pydantic
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from client_run import MODEL, SUM, WEATHER, Calls, check_person, main


class Person(pydantic.BaseModel):
    """A person."""

    name: Annotated[str, pydantic.Field(max_length=20)]
    age: Annotated[int, pydantic.Field(ge=0, le=99)]


def models(url):
    provider = OpenAIProvider(base_url=url + "/v1", api_key="unused")
    yield OpenAIChatModel(MODEL, provider=provider)
    yield OpenAIResponsesModel(MODEL, provider=provider)
    # Any newer name that the server takes for its own: the package wants profiles by name.
    yield AnthropicModel("claude-sonnet-4-5",
                         provider=AnthropicProvider(base_url=url, api_key="unused"))


def agent(model, **fields):
    return Agent(model, model_settings={"temperature": 0, "max_tokens": 500}, retries=0, **fields)


def tool_loop(url):
    for model in models(url):
        calls = Calls()
        asked = agent(model)

        @asked.tool_plain
        def weather_get(place: str, day: str) -> str:
            """The weather of a place"""
            return calls.get(place, day)

        calls.check(asked.run_sync(WEATHER).output)


def structured(url):
    for model in models(url):
        for form in (ToolOutput, NativeOutput):
            check_person(agent(model, output_type=form(Person))
                         .run_sync("Tell me of a person.").output)


def stream(url):
    async def run(model):
        async with agent(model).run_stream(SUM) as result:
            pieces = [piece async for piece in result.stream_text(delta=True)]
        assert "".join(pieces) == "46", pieces
        assert result.usage.output_tokens > 0, result.usage

    for model in models(url):
        asyncio.run(run(model))


main(tool_loop, structured, stream)

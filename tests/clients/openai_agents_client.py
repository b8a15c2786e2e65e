"""openai-agents: the runner's own loop, over chat completions and over responses."""
import asyncio

import agents
import openai
import pydantic

from client_run import MODEL, SUM, WEATHER, Calls, check_person, main


class Person(pydantic.BaseModel):
    """A person."""

    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=99)


def models(url):
    """Each with a client of its own, which belongs to the event loop of its first request."""
    for kind in (agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel):
        client = openai.AsyncOpenAI(base_url=url + "/v1", api_key="unused", max_retries=0)
        yield kind(model=MODEL, openai_client=client)


def agent(model, **fields):
    settings = agents.ModelSettings(temperature=0, **fields.pop("settings", {}))
    return agents.Agent(name="Assistant", model=model, model_settings=settings, **fields)


def tool_loop(url):
    for choice in (None, "required"):
        for model in models(url):
            calls = Calls()

            @agents.function_tool
            def weather_get(place: str, day: str) -> str:
                """The weather of a place"""
                return calls.get(place, day)

            asked = agent(model, tools=[weather_get], settings={"tool_choice": choice})
            calls.check(agents.Runner.run_sync(asked, WEATHER).final_output)


def structured(url):
    for model in models(url):
        asked = agent(model, output_type=Person)
        check_person(agents.Runner.run_sync(asked, "Tell me of a person.").final_output)


def stream(url):
    async def run(model):
        result = agents.Runner.run_streamed(agent(model), SUM)
        kinds = {event.data.type async for event in result.stream_events()
                 if event.type == "raw_response_event"}
        assert "response.output_text.delta" in kinds, kinds
        assert result.final_output == "46", result.final_output

    for model in models(url):
        asyncio.run(run(model))


main(tool_loop, structured, stream)

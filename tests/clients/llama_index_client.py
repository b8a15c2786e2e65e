"""llama-index: a FunctionAgent's loop, structured prediction and a stream, through OpenAILike."""
import asyncio

import pydantic
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.prompts import PromptTemplate
from llama_index.llms.openai_like import OpenAILike

from client_run import MODEL, SUM, WEATHER, Calls, check_person, main


class Person(pydantic.BaseModel):
    """A person."""

    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=99)


def model(url, **fields):
    return OpenAILike(model=MODEL, api_base=url + "/v1", api_key="unused", is_chat_model=True,
                      is_function_calling_model=True, context_window=16384, temperature=0,
                      max_retries=0, **fields)


def tool_loop(url):
    for streamed in (False, True):
        calls = Calls()

        def weather_get(place: str, day: str) -> str:
            """The weather of a place"""
            return calls.get(place, day)

        async def run():
            agent = FunctionAgent(tools=[weather_get], llm=model(url), streaming=streamed)
            return await agent.run(WEATHER)

        calls.check(str(asyncio.run(run())))


def structured(url):
    prompt = PromptTemplate("Tell me of a person.")
    for by_schema in (True, False):
        asked = model(url, should_use_structured_outputs=by_schema)
        check_person(asked.structured_predict(Person, prompt))


def stream(url):
    pieces = list(model(url).stream_complete(SUM))
    assert len(pieces) > 1 and pieces[-1].text == "46", pieces


main(tool_loop, structured, stream)

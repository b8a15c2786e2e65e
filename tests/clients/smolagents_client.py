"""smolagents: a ToolCallingAgent, which requires a call in each step. Pebble does not know the call
by which a step ends the loop, so that the agent ends it when its steps are used up."""
import json

import smolagents

from client_run import MODEL, PERSON, SUM, WEATHER, Calls, check_person, main


def model(url, **fields):
    return smolagents.OpenAIModel(model_id=MODEL, api_base=url + "/v1", api_key="unused",
                                  temperature=0, max_tokens=500, **fields)


def tool_loop(url):
    for streamed in (False, True):
        calls = Calls()

        @smolagents.tool
        def weather_get(place: str, day: str) -> str:
            """The weather of a place

            Args:
                place: the place
                day: the day
            """
            return calls.get(place, day)

        agent = smolagents.ToolCallingAgent(
            tools=[weather_get], model=model(url), max_steps=2, stream_outputs=streamed,
            verbosity_level=0)
        result = agent.run(WEATHER, return_full_result=True)
        assert calls and result.state == "max_steps_error" and result.output, (calls, result)


def structured(url):
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    answer = model(url).generate([{"role": "user", "content": "Tell me of a person."}],
                                 response_format=form)
    check_person(json.loads(answer.content))


def stream(url):
    pieces = model(url).generate_stream([{"role": "user", "content": SUM}])
    assert "".join(piece.content or "" for piece in pieces) == "46"


main(tool_loop, structured, stream)

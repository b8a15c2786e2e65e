"""langchain-openai in a graph of langgraph: the graph's own loop of a model and its tools."""
from typing import Annotated

import pydantic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from client_run import MODEL, SUM, WEATHER, Calls, check_person, main


class Person(pydantic.BaseModel):
    """A person."""

    name: Annotated[str, pydantic.Field(max_length=20)]
    age: Annotated[int, pydantic.Field(ge=0, le=99)]


def model(url, **fields):
    return ChatOpenAI(base_url=url + "/v1", model=MODEL, max_retries=0, temperature=0, **fields)


def tool_loop(url):
    for of_responses in (False, True):
        calls = Calls()

        @tool
        def weather_get(place: str, day: str) -> str:
            """The weather of a place"""
            return calls.get(place, day)

        asked = model(url, use_responses_api=of_responses).bind_tools([weather_get])
        graph = StateGraph(MessagesState)
        graph.add_node("model", lambda state: {"messages": [asked.invoke(state["messages"])]})
        graph.add_node("tools", ToolNode([weather_get]))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        messages = graph.compile().invoke({"messages": [("user", WEATHER)]})["messages"]
        calls.check(messages[-1].text)


def structured(url):
    for method in ("json_schema", "function_calling", "json_mode"):
        schema = Person if method != "json_mode" else None
        asked = model(url).with_structured_output(schema, method=method)
        made = asked.invoke("Tell me of a person.")
        check_person(made) if schema else isinstance(made, dict)


def stream(url):
    asked = model(url, stream_usage=True)
    whole = None
    for chunk in asked.stream([("system", "You are brief."), ("user", SUM)]):
        whole = chunk if whole is None else whole + chunk
    assert "46" in whole.text and whole.usage_metadata["output_tokens"] > 0, whole


main(tool_loop, structured, stream)

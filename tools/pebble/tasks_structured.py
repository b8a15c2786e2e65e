"""Tasks with structure: a tool call from a schema, its result put to use, JSON for a schema."""

import json
import random

from item import Item, assistant, is_held_out_text, user
from lexicon import NAMES, NOUNS, VILLAGES

VERBS = ["get", "find", "fetch", "check", "query", "read"]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
PLACE = ("place", ["city", "town", "place", "location", "village"], "string")
DAY = ("day", ["day", "date", "weekday", "when"], "string")
COUNT = ("count", ["count", "number", "amount", "quantity"], "integer")
THING = ("thing", ["item", "product", "article", "object"], "string")
PERSON = ("person", ["person", "name", "customer", "user"], "string")
URGENT = ("urgent", ["urgent", "express", "priority", "fast"], "boolean")

# noun, description, slots, requests, how the result is told
TOOLS = [
    ("weather", "The weather of a place", [PLACE, DAY],
     ["What is the weather in {place} on {day}?", "Tell me the weather for {day} in {place}."],
     "The weather in {place} on {day} is {result}.",
     ["sunny", "rainy", "windy", "cloudy", "snowy"]),
    ("price", "The price of a thing", [THING, PLACE],
     ["What does a {thing} cost in {place}?", "What is the price of a {thing} in {place}?"],
     "A {thing} costs {result} in {place}.", None),
    ("stock", "How many of a thing are left", [THING],
     ["How many of the {thing} are left?", "Is there any {thing} in stock?"],
     "There are {result} of the {thing} left.", None),
    ("age", "The age of a person", [PERSON],
     ["How old is {person}?", "What is the age of {person}?"],
     "{person} is {result} years old.", None),
    ("order", "Order things for a person", [PERSON, THING, COUNT],
     ["Order {count} of the {thing} for {person}.", "{person} wants {count} of the {thing}."],
     "The order for {person} has the number {result}.", None),
    ("parcel", "Send a parcel to a place", [PLACE, THING, URGENT],
     ["Send the {thing} to {place}{urgent}.", "Please ship the {thing} to {place}{urgent}."],
     "The parcel to {place} costs {result}.", None),
    ("train", "The next train to a place", [PLACE, DAY],
     ["When does the train to {place} leave on {day}?", "Next train to {place} on {day}?"],
     "The train to {place} leaves at {result} on {day}.", None),
    ("room", "Book rooms in a place", [PLACE, DAY, COUNT],
     ["Book {count} rooms in {place} for {day}.", "I need {count} rooms in {place} on {day}."],
     "Your rooms in {place} have the code {result}.", None),
]


def fill(rng: random.Random) -> dict:
    return {"place": rng.choice(VILLAGES), "day": rng.choice(DAYS),
            "count": rng.randrange(2, 60), "thing": rng.choice(NOUNS),
            "person": rng.choice(NAMES), "urgent": rng.random() < 0.5}


def schema_of(rng: random.Random, tool: tuple) -> tuple[dict, dict]:
    """One OpenAI tool object with drawn names, and slot -> parameter name."""
    noun, description, slots = tool[:3]
    names = {slot: rng.choice(names) for slot, names, _ in slots}
    properties = {names[slot]: {"type": kind} for slot, _, kind in slots}
    function = {"name": f"{noun}_{rng.choice(VERBS)}", "description": description,
                "parameters": {"type": "object", "properties": properties,
                               "required": list(properties)}}
    return {"type": "function", "function": function}, names


def offer(rng: random.Random, rows: list) -> tuple[list, dict]:
    """(tool objects, noun -> (function name, slot -> parameter name)) of some tool rows."""
    schemas = [schema_of(rng, row) for row in rows]
    names = {row[0]: (schema["function"]["name"], parameters)
             for row, (schema, parameters) in zip(rows, schemas)}
    return [schema for schema, _ in schemas], names


def want(rng: random.Random, rows: list) -> tuple[tuple, dict]:
    """(the tool row that a user needs, slot values)."""
    return rng.choice(rows), fill(rng)


def phrase(rng: random.Random, tool: tuple, values: dict, names: dict) -> tuple[dict, str]:
    """(the right call, the user's words for it)."""
    function, parameters = names[tool[0]]
    call = {"name": function,
            "arguments": {parameters[slot]: values[slot] for slot, _, _ in tool[2]}}
    spoken = values | {"urgent": " as fast as possible" if values["urgent"] else ""}
    return call, rng.choice(tool[3]).format(**spoken)


def request(rng: random.Random) -> tuple:
    """(tool row, tool objects, call, slot values, question)."""
    rows = rng.sample(TOOLS, rng.randint(1, 3))
    tool, values = want(rng, rows)
    tools, names = offer(rng, rows)
    call, question = phrase(rng, tool, values, names)
    return tool, tools, call, values, question


def call_reasoning(call: dict) -> str:
    given = ", ".join(f"{k} = {json.dumps(v, ensure_ascii=False) if not isinstance(v, str) else v}"
                      for k, v in call["arguments"].items())
    return f"I call {call['name']} with {given}."


def tool_call(rng: random.Random, thinking: bool) -> Item:
    _, tools, call, _, question = request(rng)
    return Item("tool_call", [user(question)], "", thinking, call_reasoning(call),
                check="tool_call", tools=tools, call=call, split_key=question)


def reply_to(rng: random.Random, tool: tuple) -> tuple[dict, str]:
    """(tool message, the result in it)."""
    if tool[5]:
        result = rng.choice(tool[5])
    elif tool[0] == "train":
        result = f"{rng.randrange(24)}:{rng.randrange(10, 60)}"
    else:
        result = str(rng.randrange(2, 1000))
    key = rng.choice(["result", "answer", "value", tool[0]])
    return {"role": "tool", "tool_call_id": "call_0",
            "content": json.dumps({key: result}, ensure_ascii=False)}, result


def call_turn(call: dict) -> dict:
    return {"role": "assistant", "content": "", "tool_calls": [
        {"id": "call_0", "type": "function", "function": call}]}


def tool_result(rng: random.Random, thinking: bool) -> Item:
    tool, tools, call, values, question = request(rng)
    reply, result = reply_to(rng, tool)
    turn = call_turn(call)
    if thinking:
        turn["reasoning_content"] = call_reasoning(call)
    answer = tool[4].format(result=result, **values)
    return Item("tool_result", [user(question), turn, reply], answer, thinking,
                f"The tool says {result}.", tools=tools, split_key=question)


def tool_dialogue(rng: random.Random, thinking: bool) -> Item:
    """Training only: several requests to the same tools, each called and answered."""
    rows, messages = rng.sample(TOOLS, rng.randint(2, 3)), []
    tools, names = offer(rng, rows)
    for _ in range(rng.randint(1, 4)):
        tool, values = want(rng, rows)
        call, question = phrase(rng, tool, values, names)
        if is_held_out_text(f"tool|{question}"):
            continue
        reply, result = reply_to(rng, tool)
        messages += [user(question), call_turn(call), reply,
                     assistant(tool[4].format(result=result, **values))]
    call, question = phrase(rng, *want(rng, rows), names)
    return Item("tool_call", messages + [user(question)], "", thinking, call_reasoning(call),
                check="tool_call", tools=tools, call=call, split_key=question, all_turns=True)


FIELDS = {
    "name": (["name", "person", "who"], "string"),
    "age": (["age", "years"], "integer"),
    "village": (["village", "home", "town"], "string"),
    "owns": (["owns", "thing", "item"], "string"),
    "coins": (["coins", "money", "gold"], "integer"),
    "married": (["married", "is_married"], "boolean"),
    "likes": (["likes", "favourites", "interests"], "array"),
}


def json_task(rng: random.Random, thinking: bool) -> Item:
    likes = rng.sample(NOUNS, rng.randint(2, 3))
    facts = {"name": rng.choice(NAMES), "age": rng.randrange(10, 100),
             "village": rng.choice(VILLAGES), "owns": rng.choice(NOUNS),
             "coins": rng.randrange(2, 1000), "married": rng.random() < 0.5, "likes": likes}
    chosen = ["name"] + rng.sample([f for f in FIELDS if f != "name"], rng.randint(1, 4))
    rng.shuffle(chosen)
    keys = {f: rng.choice(FIELDS[f][0]) for f in chosen}
    properties = {keys[f]: {"type": FIELDS[f][1]} for f in chosen}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    name = facts["name"]
    told = {"age": f"{name} is {facts['age']} years old.",
            "village": f"{name} lives in {facts['village']}.",
            "owns": f"{name} owns a {facts['owns']}.",
            "coins": f"{name} has {facts['coins']} coins.",
            "married": f"{name} is {'' if facts['married'] else 'not '}married.",
            "likes": f"{name} likes the {' and the '.join(likes)}."}
    mentioned = [f for f in told if f in chosen or rng.random() < 0.3]
    rng.shuffle(mentioned)
    story = " ".join(told[f] for f in mentioned)
    lead = rng.choice(["Write the facts as JSON for this schema:", "Answer with JSON that fits:",
                       "Give me a JSON object for this schema:"])
    answer = json.dumps({keys[f]: facts[f] for f in chosen}, ensure_ascii=False)
    return Item("json", [user(f"{lead}\n{json.dumps(schema)}\n\n{story}")], answer, thinking,
                "The fields are " + ", ".join(properties) + ".", check="json", split_key=story)

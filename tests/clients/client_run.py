"""The parts that the clients of tests/clients share: the question that Pebble answers with a call
of a tool, the tool, a schema, and a main program that runs a client's checks against a server:

    NAME_client.py URL MODEL_FOLDER

Pebble knows the weather in these words and says "The weather in Tosca on Monday is sunny.\""""
import os
import sys
import time
import traceback

# Clients may look up prices, versions or tokenizers on the network, or send counts of their use.
os.environ.update({"HF_HUB_OFFLINE": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                   "LANGSMITH_TRACING": "false", "OPENAI_AGENTS_DISABLE_TRACING": "1",
                   "DO_NOT_TRACK": "1", "OPENAI_API_KEY": "unused"})

MODEL = "model"  # the folder's name, by which the server names it
WEATHER = "What is the weather in Tosca on Monday?"
SUM = "What is 12 + 34?"
PERSON = {"type": "object", "additionalProperties": False, "required": ["name", "age"],
          "properties": {"name": {"type": "string", "maxLength": 20},
                         "age": {"type": "integer", "minimum": 0, "maximum": 99}}}
TOOL = {"name": "weather_get", "description": "The weather of a place",
        "parameters": {"type": "object",
                       "properties": {"place": {"type": "string"}, "day": {"type": "string"}},
                       "required": ["place", "day"]}}


RESPONSE_FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}


def model_folder():
    """The served checkpoint, for clients that count tokens themselves."""
    return sys.argv[2]


class Calls(list):
    """The arguments that the tool was called with; `get` is the tool."""

    def get(self, place, day):
        self.append((place, day))
        return '{"result": "sunny"}'

    def check(self, text):
        """The tool was called, once and rightly, and the last answer uses what it said."""
        assert self == [("Tosca", "Monday")], self
        assert "sunny" in text, text


def check_person(person):
    """`person` is a dict or an object with these fields."""
    fields = person if isinstance(person, dict) else vars(person)
    assert set(fields) == {"name", "age"}, fields
    assert isinstance(fields["name"], str) and len(fields["name"]) <= 20, fields
    assert type(fields["age"]) is int and 0 <= fields["age"] <= 99, fields


def main(*checks):
    """Runs each check with the server's address; leaves with 1 if one failed."""
    failed = 0
    for check in checks:
        begin = time.monotonic()
        try:
            check(sys.argv[1])
        except Exception:
            failed += 1
            print(f"FAIL  {check.__name__}")
            traceback.print_exc(file=sys.stdout)
        else:
            print(f"ok    {check.__name__} ({time.monotonic() - begin:.1f} s)")
    sys.stdout.flush()
    os._exit(1 if failed else 0)  # some clients leave threads that wait for the network

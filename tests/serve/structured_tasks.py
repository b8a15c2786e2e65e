#!/usr/bin/env python3
"""Pebble through tool-call and JSON-schema tasks over HTTP, every answer held to its structure:

    tests/serve/structured_tasks.py --nibble PROGRAM --model pebble/model [--rounds N]

Each task runs through every API that has it, whole and streamed, at temperature 1.2, with N
seeds. An answer counts if it parses and jsonschema finds nothing against it. Prints a table; exits
1 unless all are valid. One that was cut off by max_tokens is no answer: it is counted apart.
"""
import argparse
import collections
import concurrent.futures
import json
import re
import sys
import time

import httpx
import jsonschema

import event_grammars
from running_server import RunningServer

WORD = {"type": "string", "maxLength": 16}


def closed(**properties):
    return {"type": "object", "properties": properties, "required": list(properties),
            "additionalProperties": False}


SCHEMAS = {
    "person": closed(name=WORD, age={"type": "integer", "minimum": 0, "maximum": 130},
                     tags={"type": "array", "items": {"enum": ["red", "blue"]}, "maxItems": 3}),
    "order": closed(items={"type": "array", "minItems": 1, "maxItems": 2,
                           "items": closed(article=WORD,
                                           count={"type": "integer", "minimum": 1, "maximum": 99},
                                           price={"type": "number"})},
                    paid={"type": "boolean"}),
    "union": closed(value={"anyOf": [{"type": "null"}, {"type": "integer", "minimum": -5,
                                                        "maximum": 5}, WORD]}),
    "dates": closed(day={"type": "string", "format": "date"},
                    code={"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"}),
    "tree": {"$defs": {"node": closed(label={"enum": ["a", "b", "c"]},
                                      kids={"type": "array", "maxItems": 2,
                                            "items": {"enum": [1, 2, 3]}})},
             "type": "object", "properties": {"left": {"$ref": "#/$defs/node"},
                                              "right": {"$ref": "#/$defs/node"}},
             "required": ["left", "right"], "additionalProperties": False},
    "open": {"type": "object", "properties": {"place": {"type": "string", "minLength": 1,
                                                        "maxLength": 20},
                                              "days": {"type": "integer"},
                                              "unit": {"enum": ["C", "F"]}},
             "required": ["place"], "additionalProperties": False},
}
QUESTIONS = ["Tell me of a person.", "What is the weather in Lima for 3 days?",
             "Order bread for Ines.", "Compute 120 + 35.",
             "Karel has 7 coins and a ladder. Who is he?"]


class Tasks:
    def __init__(self, url):
        self.http = httpx.Client(base_url=url, timeout=600)

    def send(self, path, body, reader):
        """Text and calls, and whether the answer was cut off."""
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        if body.get("stream"):
            cut = '"finish_reason":"length"' in answer.text or '"max_tokens"' in answer.text \
                or "response.incomplete" in answer.text
            return (*reader(answer.text.split("\n")), cut)
        return answer.json()

    def chat(self, question, seed, stream, **more):
        body = {"messages": [{"role": "user", "content": question}], "seed": seed, "stream": stream,
                "temperature": 1.2, "max_tokens": 700, "thinking_token_budget": 40, **more}
        if stream:
            return self.send("/v1/chat/completions", body,
                             lambda lines: event_grammars.read_chat(lines, usage_asked=False))
        choice = self.send("/v1/chat/completions", body, None)["choices"][0]
        calls = [(c["function"]["name"], c["function"]["arguments"])
                 for c in choice["message"].get("tool_calls") or []]
        return choice["message"]["content"] or "", calls, choice["finish_reason"] == "length"

    def messages(self, question, seed, stream, **more):
        body = {"messages": [{"role": "user", "content": question}], "seed": seed, "stream": stream,
                "temperature": 1.2, "max_tokens": 700, **more}
        if stream:
            return self.send("/v1/messages", body, event_grammars.read_messages)
        answer = self.send("/v1/messages", body, None)
        text = "".join(b["text"] for b in answer["content"] if b["type"] == "text")
        calls = [(b["name"], json.dumps(b["input"])) for b in answer["content"]
                 if b["type"] == "tool_use"]
        return text, calls, answer["stop_reason"] == "max_tokens"

    def responses(self, question, seed, stream, **more):
        body = {"input": question, "seed": seed, "stream": stream, "temperature": 1.2,
                "max_output_tokens": 700, "thinking_token_budget": 40, **more}
        if stream:
            return self.send("/v1/responses", body, event_grammars.read_responses)
        answer = self.send("/v1/responses", body, None)
        text = "".join(part["text"] for item in answer["output"] if item["type"] == "message"
                       for part in item["content"])
        calls = [(i["name"], i["arguments"]) for i in answer["output"]
                 if i["type"] == "function_call"]
        return text, calls, answer["status"] == "incomplete"


def fields_of(api, kind, name):
    """The request that asks `api` for the schema `name` as an answer, a forced call, one of
    several, or a call that is sound if it is made."""
    schema = SCHEMAS[name]
    if kind == "guided":
        return {"guided_json": schema}
    if kind == "schema":
        if api == "chat":
            return {"response_format": {"type": "json_schema",
                                        "json_schema": {"name": name, "schema": schema}}}
        form = {"type": "json_schema", "name": name, "schema": schema}
        return ({"text": {"format": form}} if api == "responses" else
                {"output_config": {"format": {"type": "json_schema", "schema": schema}}})
    names = list(SCHEMAS) if kind == "any" else [name]
    function = lambda n: {"name": n, "parameters": SCHEMAS[n], "strict": kind == "strict"}
    if api == "messages":
        choice = {"any": {"type": "any"}, "named": {"type": "tool", "name": name}}[kind]
        return {"tools": [{"name": n, "input_schema": SCHEMAS[n]} for n in names],
                "tool_choice": choice}
    tools = [{"type": "function", "function": function(n)} if api == "chat" else
             {"type": "function", **function(n)} for n in names]
    named = {"type": "function", "name": name}
    if api == "chat":
        named = {"type": "function", "function": {"name": name}}
    choice = {"any": "required", "named": named, "strict": "auto"}[kind]
    return {"tools": tools, "tool_choice": choice}


# A format is held by its form: there is a 31st in every month.
FORMS = jsonschema.FormatChecker(formats=())
FORMS.checks("date")(lambda text: re.fullmatch(
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])", text) is not None)

KINDS = {"chat": ("schema", "guided", "named", "any", "strict"),
         "responses": ("schema", "named", "any", "strict"),
         "messages": ("schema", "named", "any")}


def judge(kind, name, text, calls):
    """valid, invalid (with why), or none: a free answer without a call."""
    if kind in ("schema", "guided"):
        found = [(name, text)]
    else:
        found = calls
        if not calls:
            return ("none", "") if kind == "strict" else ("invalid", f"no call: {text!r}")
    for called, arguments in found:
        try:
            value = json.loads(arguments)
            jsonschema.validate(value, SCHEMAS[called], format_checker=FORMS)
        except (ValueError, KeyError, jsonschema.ValidationError) as error:
            return "invalid", f"{arguments!r}: {str(error).splitlines()[0]}"
    return "valid", ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nibble", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, default=1, help="seeds of each task")
    options = parser.parse_args()
    counts, wrong = collections.defaultdict(collections.Counter), []
    with RunningServer(options.nibble, options.model) as server:
        tasks, jobs = Tasks(server.url), []
        for seed in range(options.rounds):
            for api, kinds in KINDS.items():
                for kind in kinds:
                    for number, name in enumerate(SCHEMAS):
                        question = QUESTIONS[(number + seed) % len(QUESTIONS)]
                        jobs.append((api, kind, name, question, seed, (number + seed) % 2 == 1))

        def run(job):
            api, kind, name, question, seed, stream = job
            return job, getattr(tasks, api)(question, seed, stream, **fields_of(api, kind, name))

        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for job, (text, calls, cut) in pool.map(run, jobs):
                verdict, why = ("cut", "") if cut else judge(job[1], job[2], text, calls)
                counts[job[:2]][verdict] += 1
                if verdict == "invalid":
                    wrong.append((job, why))
        seconds = time.monotonic() - begin
        metrics = tasks.http.get("/metrics").text
        made = sum(float(line.split()[-1]) for line in metrics.splitlines()
                   if line.startswith("nibble_generation_tokens_total{"))
        assert server.stop() == 0
    print("api        task     valid  invalid  no call  cut off")
    for (api, kind), count in counts.items():
        print(f"{api:10} {kind:8} {count['valid']:5}  {count['invalid']:7}  {count['none']:7}  "
              f"{count['cut']:7}")
    total = sum(counts.values(), collections.Counter())
    judged = total["valid"] + total["invalid"]
    for job, why in wrong[:10]:
        print("invalid:", job, why)
    print(f"{judged} answers with structure, {100 * total['valid'] / max(judged, 1):.2f} % valid; "
          f"{seconds:.1f} s, {made / seconds:.0f} tokens/s")
    cut_most = len(jobs) // 20
    fine = not wrong and total["cut"] <= cut_most and total["valid"] > 0
    print(f"{'1 passed, 0' if fine else '0 passed, 1'} failed")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())

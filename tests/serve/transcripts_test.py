#!/usr/bin/env python3
"""The server says to a table of requests what tests/golden/transcripts.txt has.

transcripts_test.py --nibble PROGRAM --model FOLDER [--write yes]   --write renews the file
One part probes every documented field of each API with values that are wrong or at an edge, the
other has whole answers, streamed and not. Ids, times and probabilities are left out.
"""
import json
import pathlib
import re
import sys

import httpx

from running_server import RunningServer, options_of

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden/transcripts.txt"
USER = {"role": "user", "content": "What is 2 + 3?"}
TOOL = {"name": "add", "description": "Adds.", "parameters": {
    "type": "object", "required": ["a"], "properties": {
        "a": {"type": "integer", "minimum": 0, "maximum": 9}, "b": {"type": ["boolean", "null"]},
        "c": {"enum": ["x", "y"]}}}}
FUNCTION = {"type": "function", "function": TOOL}
FLAT = {"type": "function", **TOOL}
MESSAGES_TOOL = {"name": "add", "description": "Adds.", "input_schema": TOOL["parameters"]}
SCHEMA = {"type": "object", "required": ["n"], "additionalProperties": False,
          "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}}
LEFT_OUT = ("created", "created_at", "completed_at", "timings", "system_fingerprint", "model",
            "object", "id", "item_id", "call_id", "response_id", "logprobs", "signature")
PIECES = ("content", "reasoning_content", "reasoning", "text", "delta", "thinking", "partial_json",
          "arguments")
FOUND = re.compile(r'found (array|object|null|true|-?[0-9.]+|"[^"]*")')
CALM = {"temperature": 0, "enable_thinking": False}
FLAGS = ["--max-model-len", "4096", "--max-num-seqs", "8", "--served-model-name", "pebble"]
APIS = {
    "/v1/chat/completions": {"messages": [USER], "max_tokens": 2, **CALM},
    "/v1/completions": {"prompt": "One, two,", "max_tokens": 2, "temperature": 0},
    "/v1/messages": {"messages": [USER], "max_tokens": 2, "temperature": 0},
    "/v1/responses": {"input": "What is 2 + 3?", "max_output_tokens": 2, "temperature": 0},
    "/tokenize": {"prompt": "One, two,"},
    "/detokenize": {"tokens": [1, 2, 3]},
    "/v1/messages/count_tokens": {"messages": [USER]},
    "/apply-template": {"messages": [USER]},
}
VALUES = [None, True, "x", "", -1, 0, 1, 2.5, 21, 1e9, [], [1], ["x"], ["x"] * 5, [None], {},
          {"type": "x"}, {"x": 1}, [{}], [{"type": "x"}]]
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CHATS = [
    [], [{}], [{"role": "x", "content": "x"}], [{"role": "user"}], [{"role": "user", "content": 1}],
    [{"role": "system", "content": "Be brief."}, USER],
    [{"role": "developer", "content": "Be brief."}, USER],
    [USER, {"role": "assistant", "content": "5"}, {"role": "user", "content": "And 3 + 3?"}],
    [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]},
     {"role": "tool", "tool_call_id": "call_1", "content": "5"}],
    [USER, {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "add",
                                                                      "arguments": "{"}}]}],
    [USER, {"role": "assistant", "content": "Five", "reasoning_content": "2 and 3"}, USER],
    [{"role": "user", "content": [{"type": "text", "text": "Say"}, {"type": "text", "text": "a"}]}],
    [{"role": "user", "content": [{"type": "x"}]}], [{"role": "user", "content": [IMAGE]}],
    [{"role": "user", "content": ""}], [USER, {"role": "tool", "content": "5"}],
]
BLOCKS = [
    [{"type": "text", "text": "Say a"}], [{"type": "text"}], [{"type": "x"}], [],
    [{"type": "text", "text": "Say a", "cache_control": {"type": "ephemeral"}}],
    [{"type": "tool_result", "tool_use_id": "t1", "content": "5"}],
    [{"type": "tool_result", "tool_use_id": "t1", "is_error": True,
      "content": [{"type": "text", "text": "no"}], "cache_control": {"type": "ephemeral"}}],
    [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}],
    [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a"}}],
]
ITEMS = [
    [], [{}], [{"type": "x"}], [{"role": "user", "content": "Say a"}],
    [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Say a"}]}],
    [{"role": "user", "content": [{"type": "input_text"}]}],
    [{"role": "user", "content": "2 + 3?"},
     {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
     {"type": "function_call_output", "call_id": "c1", "output": "5"}],
    [{"role": "user", "content": "2 + 3?"},
     {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "5"}]},
     {"role": "assistant", "content": [{"type": "output_text", "text": "5"}]}, USER],
    [{"role": "system", "content": "Be brief."}, USER],
]


def cases():
    """(name, path, body) of the whole answers."""
    chat, completions, messages, responses = list(APIS)[:4]
    wide = {"max_tokens": 12}
    bodies = {chat: [
        {}, wide, {"n": 3}, {"logprobs": True, "top_logprobs": 2}, {**wide, "stop": ["."]},
        {**wide, "stop": "5", "include_stop_str_in_output": True}, {"max_tokens": 1},
        {**wide, "response_format": {"type": "json_object"}},
        {"max_tokens": 40, "response_format": {"type": "json_schema", "json_schema": {
            "name": "n", "schema": SCHEMA}}},
        {"max_tokens": 60, "tools": [FUNCTION], "tool_choice": "required"},
        {"max_tokens": 60, "tools": [FUNCTION], "parallel_tool_calls": False, "tool_choice": {
            "type": "function", "function": {"name": "add"}}},
        {"tools": [FUNCTION], "tool_choice": "none"}, {"tools": [FUNCTION]},
        {"tools": [FUNCTION], "tool_choice": {"type": "function", "function": {"name": "z"}}},
        {**wide, "enable_thinking": True}, {**wide, "enable_thinking": True, "thinking_budget": 3},
        {"reasoning_effort": "none"}, {"reasoning_effort": "low"},
        {"return_token_ids": True}, {"prompt_logprobs": 1}, {"echo": True},
        {"logit_bias": {"5": -100}}, {"min_tokens": 2, "ignore_eos": True},
        {"guided_regex": "[a-c]{2}"}, {"guided_choice": ["yes", "no"]},
        {"structured_outputs": {"regex": "[a-c]{2}"}}, {"repetition_penalty": 1.5, **wide},
        {"presence_penalty": 2, "frequency_penalty": 2, **wide}, {"model": "none"},
        {"max_tokens": 10 ** 7}, {"max_completion_tokens": 3},
    ] + [{"messages": chat_messages} for chat_messages in CHATS], completions: [
        {}, wide, {"n": 2}, {"best_of": 2}, {"echo": True}, {"echo": True, "logprobs": 1},
        {"logprobs": 2}, {"prompt": ["One,", "Two,"]}, {"prompt": [[1, 2], [3]]}, {"prompt": [5]},
        {"prompt": []}, {"prompt": ""}, {"prompt": [[]]}, {"suffix": "x"}, {"stop": [","], **wide},
        {"max_tokens": 0, "echo": True}, {"prompt_logprobs": 0}, {"prompt": [10 ** 9]},
        {"return_token_ids": True}, {"guided_json": SCHEMA, "max_tokens": 40},
    ], messages: [
        {}, wide, {"system": "Be brief."}, {"system": [{"type": "text", "text": "Be brief."}]},
        {"stop_sequences": ["5"], **wide}, {"thinking": {"type": "enabled", "budget_tokens": 1024},
                                            **wide}, {"thinking": {"type": "disabled"}},
        {"tools": [MESSAGES_TOOL], "tool_choice": {"type": "any"}, "max_tokens": 60},
        {"tools": [MESSAGES_TOOL], "tool_choice": {"type": "tool", "name": "add"},
         "max_tokens": 60},
        {"tools": [MESSAGES_TOOL], "tool_choice": {"type": "none"}},
        {"tools": [{**MESSAGES_TOOL, "cache_control": {"type": "ephemeral"}}]},
    ] + [{"messages": [{"role": "user", "content": blocks}]} for blocks in BLOCKS] + [
        {"messages": [USER, {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "2 and 3", "signature": "s"},
            {"type": "text", "text": "Add."},
            {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}]},
            {"role": "user", "content": BLOCKS[5]}]},
        {"messages": [USER, {"role": "assistant", "content": "The answer is"}]},
    ], responses: [
        {}, {"max_output_tokens": 12}, {"instructions": "Be brief."},
        {"tools": [FLAT], "tool_choice": "required", "max_output_tokens": 60},
        {"tools": [FLAT], "tool_choice": {"type": "function", "name": "add"},
         "max_output_tokens": 60},
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}},
         "max_output_tokens": 40}, {"text": {"format": {"type": "json_object"}}},
        {"reasoning": {"effort": "low"}, "max_output_tokens": 12},
        {"reasoning": {"effort": "none"}, "max_output_tokens": 12}, {"store": False},
        {"previous_response_id": "resp_none"}, {"top_logprobs": 2, "include": [
            "message.output_text.logprobs"]},
    ] + [{"input": items} for items in ITEMS]}
    for path, rows in bodies.items():
        for number, row in enumerate(rows):
            # The events of several choices mix by chance, so those are not streamed.
            several = {"n", "best_of", "return_token_ids"} & {*row} or isinstance(
                row.get("prompt"), list)
            for stream in (False,) if several else (False, True):
                more = {"stream": True} if stream else {}
                if stream and path in (chat, completions) and number % 2 == 0:
                    more["stream_options"] = {"include_usage": True}
                yield path, {**row, **more}


def plain(value):
    """The same without what differs from run to run; of a floating number the kind alone."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()
                if not key.endswith("_ms") and key not in LEFT_OUT}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return "number"
    return value


def parted(value, said):
    """The same with words in place of what a stream gives piece by piece; those go to `said`."""
    if isinstance(value, list):
        return [parted(each, said) for each in value]
    if not isinstance(value, dict):
        return value
    made = {}
    for key, each in value.items():
        piece = (key in PIECES and isinstance(each, str)) or key == "token_ids"
        if piece:
            said[key] = said[key] + each if key in said else each
        made[key] = "*" if piece or key == "sequence_number" else parted(each, said)
    return made


def merged(text):
    """The events of a stream; neighbours that differ in their pieces alone are one, since it is
    chance how many tokens an event has."""
    events = []
    for block in filter(None, text.split("\n\n")):
        named = "".join(line + " " for line in block.splitlines() if line.startswith("event:"))
        data = "".join(line[5:].strip() for line in block.splitlines() if line.startswith("data:"))
        if not data or "event: ping" in block:  # either keeps a slow stream open
            continue
        body = plain(json.loads(data)) if data.startswith("{") else data
        if "message_start" in named:
            del body["message"]["usage"]  # it is chance if the prompt was looked up already
        if "response.created" in named or "response.in_progress" in named:
            body["response"] = sorted(body["response"])  # its last event has all
        said = events[-1][1] if events else {}
        fresh = {}
        form = named + json.dumps(parted(body, fresh))
        if not events or events[-1][0] != form:
            said = {}
            events.append((form, said))
        for key, piece in fresh.items():
            said[key] = said[key] + piece if key in said else piece
    return "\n".join(f"  {form}{json.dumps(said) if said else ''}" for form, said in events)


class Transcript:
    def __init__(self, server):
        self.http = httpx.Client(base_url=server.url, timeout=600)
        self.lines = []

    def send(self, path, body):
        answer = self.http.post(path, json=body)
        kind = answer.headers.get("content-type", "")
        if kind.startswith("text/event-stream"):
            return f"{answer.status_code} stream\n{merged(answer.text)}"
        text = json.dumps(plain(answer.json())) if "json" in kind else answer.text[:200]
        return f"{answer.status_code} {text}"

    def probe(self, path, field):
        outcomes = {}
        for value in VALUES:
            answer = self.http.post(path, json={**APIS[path], field: value})
            said = "200"
            if answer.status_code not in (200, 504):  # a short time limit may come or not
                message = answer.json()["error"]["message"]
                said = f"{answer.status_code} " + FOUND.sub("found it", message)
            outcomes.setdefault(said, []).append(json.dumps(value))
        self.lines.append(f"## {path} {field}")
        self.lines += [f"{said}: {' '.join(values)}" for said, values in outcomes.items()]

    def run(self):
        document = self.http.get("/openapi.json").json()
        for path in APIS:
            schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
            schema = schema["schema"]
            if "$ref" in schema:
                schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
            for field in sorted({*schema.get("properties", {}), *APIS[path]}):
                self.probe(path, field)
        for path, body in cases():
            self.lines.append(f"## {path} {json.dumps(body)}\n"
                              f"{self.send(path, {**APIS[path], **body})}")


def main():
    options = options_of(__doc__, write="")
    with RunningServer(options.nibble, options.model, FLAGS) as server:
        transcript = Transcript(server)
        transcript.run()
        code = server.stop()
    text = "\n".join(transcript.lines) + "\n"
    if options.write:
        GOLDEN.write_text(text)
    parts, known = (re.split(r"^## ", t, flags=re.M) for t in (text, GOLDEN.read_text()))
    titles = {part.split("\n", 1)[0]: part for part in known}
    failures = [part for part in parts if titles.get(part.split("\n", 1)[0]) != part]
    for part in failures[:10]:
        title = part.split("\n", 1)[0]
        print(f"FAIL  expected\n{titles.get(title, '(not in the file)')}found\n{part}")
    failed = len(failures) + abs(len(parts) - len(known)) + (1 if code else 0)
    print(f"{len(parts) - len(failures)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

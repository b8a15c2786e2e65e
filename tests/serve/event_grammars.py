"""The streams of the four APIs as their clients read them: each reader fails on anything its client
would stumble over, and returns the text and the tool calls as (name, arguments as text)."""
import json


def events_of(lines):
    """(event name or None, data) of server-sent events; comments are skipped."""
    name, data = None, []
    for line in lines:
        if line.startswith(":"):
            continue
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            data.append(line.removeprefix("data: "))
        elif line == "":
            if data:
                yield name, "\n".join(data)
            name, data = None, []
        else:
            raise AssertionError(f"not a line of an event stream: {line!r}")
    assert not data, "the last event was cut off"


def read_messages(lines):
    """Anthropic: message_start, blocks one after the other, message_delta, message_stop."""
    kinds = {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}
    text, calls, block, index, state = "", [], None, -1, "start"
    for name, data in events_of(lines):
        event = json.loads(data)
        assert name == event["type"], (name, event)
        if name == "ping":
            continue
        assert state != "stopped" and (state != "start" or name == "message_start"), (state, event)
        if name == "message_start":
            assert state == "start" and event["message"]["content"] == []
            assert event["message"]["role"] == "assistant" and event["message"]["usage"]
            state = "open"
        elif name == "content_block_start":
            assert block is None and event["index"] == index + 1, event
            index, block = event["index"], {**event["content_block"], "json": ""}
            assert block["type"] in kinds, block
        elif name == "content_block_delta":
            assert event["index"] == index and block is not None, event
            delta = event["delta"]
            if delta["type"] == "signature_delta":
                assert block["type"] == "thinking"
                continue
            assert delta["type"] == kinds[block["type"]], (delta, block)
            text += delta.get("text", "")
            block["json"] += delta.get("partial_json", "")
        elif name == "content_block_stop":
            assert event["index"] == index and block is not None, event
            if block["type"] == "tool_use":
                assert block["id"] and block["input"] == {}
                calls.append((block["name"], block["json"] or "{}"))
            block = None
        elif name == "message_delta":
            assert block is None and event["usage"]["output_tokens"] > 0, event
            assert event["delta"]["stop_reason"] in ("end_turn", "max_tokens", "tool_use",
                                                     "stop_sequence"), event
            state = "ending"
        elif name == "message_stop":
            assert state == "ending"
            state = "stopped"
        else:
            raise AssertionError(event)
    assert state == "stopped", state
    return text, calls


def read_responses(lines):
    """OpenAI's responses: numbered events; items added, filled, done; then the whole of it."""
    text, done, opened, number, last = "", [], {}, -1, None
    for name, data in events_of(lines):
        event = json.loads(data)
        assert name == event["type"] and event["sequence_number"] == number + 1, event
        number, last = number + 1, event
        kind = name.removeprefix("response.")
        if number < 2:
            assert kind == ("created", "in_progress")[number], event
        elif kind == "output_item.added":
            assert event["output_index"] == len(done) and not opened, event
            opened = {"item": event["item"], "text": "", "arguments": ""}
        elif kind == "output_text.delta":
            text += event["delta"]
            opened["text"] += event["delta"]
        elif kind == "output_text.done":
            assert event["text"] == opened["text"], event
        elif kind == "function_call_arguments.delta":
            opened["arguments"] += event["delta"]
        elif kind == "function_call_arguments.done":
            assert event["arguments"] == opened["arguments"], event
        elif kind == "output_item.done":
            assert event["item"]["id"] == opened["item"]["id"], event
            done.append(event["item"])
            opened = {}
        else:
            assert kind.startswith(("content_part.", "reasoning_")) or (
                kind in ("completed", "incomplete")), event
    assert last["type"] in ("response.completed", "response.incomplete"), last
    assert last["response"]["output"] == done and last["response"]["usage"]["output_tokens"] > 0
    assert last["response"]["id"]
    calls = [(i["name"], i["arguments"]) for i in done if i["type"] == "function_call"]
    assert all(i["call_id"] for i in done if i["type"] == "function_call")
    return text, calls


def read_chat(lines, usage_asked=True):
    """Chat completions: chunks; a call's id and name once, its arguments in pieces; [DONE]."""
    text, calls, finish, usage, ended, first = "", {}, None, None, False, True
    for name, data in events_of(lines):
        assert name is None and not ended
        if data == "[DONE]":
            ended = True
            continue
        chunk = json.loads(data)
        assert chunk["object"] == "chat.completion.chunk" and chunk["id"], chunk
        if chunk.get("usage"):
            assert chunk["choices"] == [] and finish, chunk
            usage = chunk["usage"]
            continue
        choice, = chunk["choices"]
        delta = choice["delta"]
        assert finish is None, chunk
        if first:
            assert delta["role"] == "assistant", chunk
        first = False
        text += delta.get("content") or ""
        for call in delta.get("tool_calls") or []:
            if call.get("id"):
                assert call["index"] == len(calls) and call["type"] == "function", call
                calls[call["index"]] = [call["function"]["name"], ""]
            calls[call["index"]][1] += call["function"].get("arguments", "")
        finish = choice["finish_reason"]
    assert ended and finish in ("stop", "length", "tool_calls"), finish
    assert usage or not usage_asked
    return text, [tuple(call) for call in calls.values()]

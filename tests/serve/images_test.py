#!/usr/bin/env python3
"""Images through the real clients of all APIs: Pebble's tasks answered right, whole and streamed;
counts, stored responses and tools; one clear 400 for each kind of wrong image; none of their bytes
in the log. A server that takes no images refuses them.

Loopback only. Exits 1 if a check fails; the last line counts.
"""
import base64
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

import anthropic
import httpx
import openai

from running_server import RunningServer, left_badly, options_of, run_each

TASKS = pathlib.Path(__file__).resolve().parents[2] / "pebble" / "tasks" / "image.jsonl"
RIGHT_LEAST = 1.0  # share of tasks that the program answers right: pebble/README.md
STRIDE = 10  # every so many of them
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def read_items():
    with open(TASKS, encoding="utf-8") as lines:
        items = [json.loads(line) for line in lines]
    return items[::STRIDE]


def url_and_question(item):
    picture, text = item["messages"][0]["content"]
    return picture["image_url"]["url"], text["text"]


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(
        ">I", zlib.crc32(kind + data))


def png(width, height, rows=None):
    """A grey PNG; `rows`: what its pixels are in place of zeros."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(bytes((width + 1) * height) if rows is None else rows)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(
        b"IEND", b"")


def data_url(data):
    return "data:image/png;base64," + base64.b64encode(data).decode()


def image_part(url):
    return {"type": "image_url", "image_url": {"url": url}}


class Checks:
    """Every method is one check, against a running server that takes images."""

    def __init__(self, server, plain, program):
        self.server, self.plain, self.program = server, plain, program
        self.http = httpx.Client(base_url=server.url, timeout=600)
        self.client = openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0)
        self.anthropic = anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0)
        self.items = read_items()
        self.name = self.client.models.list().data[0].id

    def close(self):
        for each in (self.http, self.client, self.anthropic):
            each.close()

    def chat(self, item, **more):
        url, question = url_and_question(item)
        content = [image_part(url), {"type": "text", "text": question}]
        return self.client.chat.completions.create(
            model=self.name, messages=[{"role": "user", "content": content}], temperature=0,
            max_tokens=item["max_tokens"], extra_body={"enable_thinking": item["thinking"]}, **more)

    def test_the_server_says_that_it_takes_images(self):
        card = self.http.get("/v1/models").json()["data"][0]
        assert card["input_modalities"] == ["text", "image", "video"], card
        assert any("images: at most 8 a request" in line for line in self.server.log)

    def test_tasks_are_answered_right(self):
        right = [self.chat(item).choices[0].message.content.strip() == item["answer"]
                 for item in self.items]
        assert sum(right) >= RIGHT_LEAST * len(right), f"{sum(right)} of {len(right)}"

    def test_streams_say_the_same(self):
        for item in self.items[:6]:
            whole = self.chat(item)
            text, usage = "", None
            for piece in self.chat(item, stream=True, stream_options={"include_usage": True}):
                usage = piece.usage or usage
                text += "".join(c.delta.content or "" for c in piece.choices)
            assert text == whole.choices[0].message.content, item
            assert usage.prompt_tokens == whole.usage.prompt_tokens

    def test_every_api_answers_alike(self):
        for item in [i for i in self.items if not i["thinking"]][:4]:
            url, question = url_and_question(item)
            expected = self.chat(item)
            source = {"type": "base64", "media_type": "image/png", "data": url.split(",")[1]}
            content = [{"type": "image", "source": source}, {"type": "text", "text": question}]
            fields = {"model": "claude-sonnet", "max_tokens": item["max_tokens"],
                      "extra_body": {"temperature": 0},
                      "messages": [{"role": "user", "content": content}]}
            message = self.anthropic.messages.create(**fields)
            assert message.content[0].text == expected.choices[0].message.content, message
            assert message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0) == \
                expected.usage.prompt_tokens, message.usage
            with self.anthropic.messages.stream(**fields) as stream:
                assert stream.get_final_text() == message.content[0].text
            del fields["max_tokens"], fields["extra_body"]
            counted = self.anthropic.messages.count_tokens(**fields)
            assert counted.input_tokens == expected.usage.prompt_tokens, counted
            asked = [{"role": "user", "content": [{"type": "input_image", "image_url": url},
                                                  {"type": "input_text", "text": question}]}]
            response = self.client.responses.create(
                model=self.name, input=asked, temperature=0,
                max_output_tokens=item["max_tokens"], extra_body={"enable_thinking": False})
            assert response.output_text == expected.choices[0].message.content, response
            assert response.usage.input_tokens == expected.usage.prompt_tokens, response.usage

    def test_tokenize_and_the_template_count_images(self):
        url, question = url_and_question(self.items[0])
        body = {"messages": [{"role": "user", "content": [image_part(url),
                                                          {"type": "text", "text": question}]}]}
        tokens = self.http.post("/tokenize", json=body).json()
        rendered = self.http.post("/apply-template", json=body).json()
        answer = self.http.post("/v1/chat/completions", json={**body, "max_tokens": 1}).json()
        assert tokens["count"] == rendered["count"] == answer["usage"]["prompt_tokens"]
        assert rendered["prompt"].count("<|image_pad|>") == 1, rendered
        header = base64.b64decode(url.split(",")[1])[16:24]
        width, height = struct.unpack(">II", header)
        assert tokens["count"] > (width // 32) * (height // 32)

    def score(self, work, ids, *words):
        path = work / "ids.json"
        path.write_text(json.dumps({"ids": ids}))
        return subprocess.run([*self.program, "--ids", path, "--json", *words],
                              capture_output=True, text=True, timeout=600)

    def test_score_reads_images_as_the_server_does(self):
        first, second = [url_and_question(item) for item in self.items[:2]]
        content = [image_part(first[0]), {"type": "text", "text": first[1]}, image_part(second[0])]
        body = {"messages": [{"role": "user", "content": content}]}
        ids = self.http.post("/tokenize", json=body).json()["tokens"]
        answer = self.http.post("/v1/chat/completions", json={
            **body, "max_tokens": 1, "prompt_logprobs": 0}).json()
        given = [row[str(token)]["logprob"]
                 for token, row in zip(ids[1:], answer["prompt_logprobs"][1:])]
        token = max(set(ids), key=ids.count)  # that of images
        once = [each for each, before in zip(ids, [None, *ids]) if each != token or before != token]
        assert len(ids) - len(once) >= 10 and once.count(token) == 2, (ids, once)
        with tempfile.TemporaryDirectory() as folder:
            work, files = pathlib.Path(folder), []
            for name, (url, _) in (("a.png", first), ("b.png", second)):
                files += ["--image", work / name]
                files[-1].write_bytes(base64.b64decode(url.split(",")[1]))
            figures = [json.loads(self.score(work, each, *files).stdout) for each in (ids, once)]
            assert figures[0] == figures[1] and figures[0]["tokens"] == len(given), figures
            apart = abs(figures[0]["log_probability"] - sum(given))
            assert apart < 1e-3 * len(given), (figures, sum(given))
            text = json.loads(self.score(work, ids).stdout)["log_probability"]
            assert abs(text - sum(given)) > 1, "ids without their images are another text"
            for words, says in ((files[:2], "one for each --image, found 2"),
                                (files + files[:2], "expected 3, one for each --image"),
                                ([*files, "--limit-mm-per-prompt", "image=1"],
                                 "at most 1, found 2"),
                                ([*files[:2], "--image", __file__], "image 2: ")):
                done = self.score(work, ids, *words)
                assert done.returncode in (1, 2) and says in done.stderr, (words, done)

    def test_what_tools_answer_may_be_an_image(self):
        item = next(i for i in self.items if i["task"] == "image_colour")
        url, question = url_and_question(item)
        call = {"id": "t", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        shown = self.client.chat.completions.create(
            model=self.name, tools=[TOOL], max_tokens=4, temperature=0,
            messages=[{"role": "user", "content": question},
                      {"role": "assistant", "content": "", "tool_calls": [call]},
                      {"role": "tool", "tool_call_id": "t", "content": [image_part(url)]}])
        told = self.client.chat.completions.create(
            model=self.name, tools=[TOOL], max_tokens=4, temperature=0,
            messages=[{"role": "user", "content": question},
                      {"role": "assistant", "content": "", "tool_calls": [call]},
                      {"role": "tool", "tool_call_id": "t", "content": ""}])
        assert shown.usage.prompt_tokens > told.usage.prompt_tokens, (shown, told)

    def test_stored_responses_keep_their_images(self):
        item = next(i for i in self.items if i["task"] == "image_colour" and not i["thinking"])
        url, question = url_and_question(item)
        more = {"model": self.name, "temperature": 0, "max_output_tokens": 16,
                "extra_body": {"enable_thinking": False}}
        first = self.client.responses.create(
            input=[{"role": "user", "content": [{"type": "input_image", "image_url": url},
                                                {"type": "input_text", "text": question}]}], **more)
        second = self.client.responses.create(
            previous_response_id=first.id, input="Which colour do you see?", **more)
        assert second.usage.input_tokens > first.usage.input_tokens, (first, second)
        items = self.http.get(f"/v1/responses/{second.id}/input_items").json()["data"]
        assert any(url in json.dumps(each) for each in items), items

    def refusal(self, *urls):
        """The message of the 400 that a request with these images gets."""
        body = {"messages": [{"role": "user", "content": [image_part(url) for url in urls]}]}
        answer = self.http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 400, answer.text
        message = answer.json()["error"]["message"]
        assert "\n" not in message and len(message) < 400, message
        assert "base64," not in message.replace("base64,...", ""), message
        return message

    def test_wrong_images_are_one_clear_line(self):
        good = png(64, 64)
        assert "base64" in self.refusal("data:image/png;base64,not base64!")
        assert self.refusal(data_url(good[:len(good) - 20])).startswith("image 1: ")
        assert self.refusal(data_url(good), data_url(good[:30])).startswith("image 2: ")
        for lying in (png(60000, 60000, b""), png(20000, 20000, b""), png(10000, 1)):
            assert self.refusal(data_url(lying)).startswith("image 1: ")
        assert "PNG" in self.refusal(data_url(b"BM" + bytes(200)))
        assert "at most 8, found 9" in self.refusal(*[data_url(good)] * 9)
        assert "fetches nothing" in self.refusal("https://example.org/a.png")
        self.refusal("file:///etc/passwd")

    def test_a_large_file_is_refused_before_it_is_decoded(self):
        message = self.refusal(data_url(png(64, 64) + bytes(21 << 20)))
        assert str(20 << 20) in message, message

    def test_the_log_has_no_bytes_of_images(self):
        url, _ = url_and_question(self.items[0])
        self.chat(self.items[0])
        assert self.server.logged("/v1/chat/completions")
        text = "".join(self.server.log)
        assert "characters]" in text, text[-2000:]
        for item in self.items:
            data = url_and_question(item)[0].split(",")[1]
            assert data[:24] not in text and data[-24:] not in text
        metrics = self.http.get("/metrics").text
        assert url.split(",")[1][:24] not in metrics
        prepared = next(line for line in metrics.splitlines()
                        if line.startswith("nibble_images_prepared_total"))
        assert float(prepared.split()[-1]) > 0, prepared
        held = next(line for line in metrics.splitlines()
                    if line.startswith("nibble_image_memory_bytes"))
        assert float(held.split()[-1]) == 0, held

    def test_a_server_without_images_refuses_them(self):
        client = httpx.Client(base_url=self.plain.url, timeout=600)
        card = client.get("/v1/models").json()["data"][0]
        assert card["input_modalities"] == ["text"], card
        body = {"messages": [{"role": "user", "content": [image_part(data_url(png(64, 64)))]}]}
        answer = client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 400 and "send text only" in answer.text, answer.text
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                             "data": "aGk="}}
        result = {"type": "tool_result", "tool_use_id": "t", "content": [image]}
        call = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
        answer = client.post("/v1/messages", json={
            "model": "claude", "max_tokens": 4,
            "messages": [{"role": "user", "content": "x"},
                         {"role": "assistant", "content": [call]},
                         {"role": "user", "content": [result]}]})
        assert answer.status_code == 200, answer.text
        client.close()


def main():
    options = options_of(__doc__)
    flags = ["--response-store", "10", "--log-requests", "--log-prompts"]
    with RunningServer(options.nibble, options.model, flags) as server, \
            RunningServer(options.nibble, options.model,
                          ["--limit-mm-per-prompt", "image=0,video=0"]) as plain:
        checks = Checks(server, plain, [options.nibble, "score", options.model])
        passed, failed = run_each(checks, options.only)
        checks.close()
        failed += sum(map(left_badly, (server, plain)))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

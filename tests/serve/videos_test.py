#!/usr/bin/env python3
"""Videos in chats: prompts with the ids and the likelihood of transformers, lists of frames,
counts, repeated videos, one clear 400 for each kind of wrong video, none of their bytes in the log;
`nibble run --video`. A server that takes none, and one that finds no ffmpeg, refuse them.

Checks that need ffmpeg are skipped where it is not installed. Loopback only. Exits 1 if a check
fails; the last line counts.
"""
import base64
import json
import pathlib
import shutil
import subprocess
import sys

import httpx

from images_test import data_url, png
from running_server import RunningServer, run_checks

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ROOT / "tests/golden/media/video"
GOLDEN = ROOT / "tests/golden/media/video_prompts.json"
FFMPEG = shutil.which("ffmpeg") and shutil.which("ffprobe")
PLAYLIST = b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n"
CONCAT = b"ffconcat version 1.0\nfile '/etc/passwd'\n"


def video_url(data):
    return "data:video/mp4;base64," + base64.b64encode(data).decode()


def video_part(data, **more):
    return {"type": "video_url", "video_url": {"url": video_url(data)}, **more}


def text_part(words):
    return {"type": "text", "text": words}


def frames(shades, width=64, height=48):
    """PNG files of one shade each, as data URLs."""
    return [data_url(png(width, height, (b"\0" + bytes([shade]) * width) * height))
            for shade in shades]


def user(*parts):
    return {"messages": [{"role": "user", "content": list(parts)}], "max_tokens": 4,
            "temperature": 0}


def golden_part(part):
    if part["type"] == "text":
        return part
    if part["type"] == "video":
        return video_part((FILES / part["file"]).read_bytes())
    width, height = part["size"]
    return {"type": "image_url", "image_url": {"url": data_url(png(width, height))}}


def golden_body(case):
    messages = [{**message, "content": message["content"] if isinstance(message["content"], str)
                 else [golden_part(part) for part in message["content"]]}
                for message in case["messages"]]
    return {"messages": messages, "mm_processor_kwargs": case["fields"], "max_tokens": 1}


def needs_ffmpeg(check):
    def checked(self):
        if FFMPEG:
            return check(self)
        print(f"skipped: ffmpeg is not installed, which {check.__name__} needs")
    checked.__name__ = check.__name__
    return checked


class Checks:
    """Every method is one check, against a running server that takes videos."""

    def __init__(self, server, nibble, model):
        self.server, self.nibble, self.model = server, nibble, model
        self.http = httpx.Client(base_url=server.url, timeout=600)

    def close(self):
        self.http.close()

    def post(self, path, body):
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def chat(self, body):
        return self.post("/v1/chat/completions", body)

    def counter(self, name):
        line = next(line for line in self.http.get("/metrics").text.splitlines()
                    if line.startswith(name))
        return float(line.split()[-1])

    def refusal(self, *parts, **more):
        """The message of the 400 that a request with these parts gets."""
        answer = self.http.post("/v1/chat/completions", json={**user(*parts), **more})
        assert answer.status_code == 400, answer.text
        message = answer.json()["error"]["message"]
        assert "\n" not in message and len(message) < 400, message
        assert "base64," not in message.replace("base64,...", ""), message
        assert "0x" not in message, message
        return message

    def test_the_server_says_that_it_takes_videos(self):
        card = self.http.get("/v1/models").json()["data"][0]
        assert card["input_modalities"] == ["text", "image", "video"], card
        line = next(line for line in self.server.log if line.startswith("videos: at most 4 a"))
        assert ("decoded by" in line) == bool(FFMPEG), line

    @needs_ffmpeg
    def test_prompts_are_those_of_transformers(self):
        cases = json.loads(GOLDEN.read_text())["cases"]
        assert len(cases) >= 8
        for case in cases:
            body = golden_body(case)
            ids = [token for token, count in case["runs"] for _ in range(count)]
            found = self.post("/tokenize", body)
            assert found["tokens"] == ids, (case["messages"], found["tokens"], ids)
            assert self.chat(body)["usage"]["prompt_tokens"] == len(ids)
            rendered = self.post("/apply-template", body)
            assert rendered["count"] == len(ids), rendered
            assert "seconds>" not in rendered["prompt"], rendered

    @needs_ffmpeg
    def test_prompts_are_as_likely_as_transformers_says(self):
        case = json.loads(GOLDEN.read_text())["cases"][0]
        body = {**golden_body(case), "prompt_logprobs": 0}
        ids = [token for token, count in case["runs"] for _ in range(count)]
        rows = self.chat(body)["prompt_logprobs"]
        found = [row[str(token)]["logprob"] for token, row in zip(ids[1:], rows[1:], strict=True)]
        apart = [abs(a - b) for a, b in zip(found, case["log_probabilities"], strict=True)]
        assert max(apart) < 1e-3, (max(apart), apart)

    def test_lists_of_frames_in_either_form(self):
        urls = frames([10, 60, 110, 160, 210])
        joined = "data:video/jpeg;base64," + ",".join(url.split(",")[1] for url in urls)
        forms = [{"type": "video", "video": urls}, {"type": "video_url", "video_url": joined},
                 {"type": "video_url", "video_url": {"url": urls}}]
        ids = [self.post("/tokenize", user(form, text_part("?")))["tokens"] for form in forms]
        assert ids[0] == ids[1] == ids[2], ids
        answers = [self.chat({**user(form, text_part("?")), "logprobs": True}) for form in forms]
        assert len({json.dumps(answer["choices"]) for answer in answers}) == 1, answers
        assert answers[0]["usage"]["prompt_tokens"] == len(ids[0])
        slower = self.post("/tokenize", user({**forms[0], "fps": 0.1}, text_part("?")))["tokens"]
        assert slower != ids[0]

    def test_frames_matter_to_the_answer(self):
        seen = set()
        for shades in ([0, 0], [255, 255], [0, 255]):
            body = {**user({"type": "video", "video": frames(shades)}, text_part("?")),
                    "logprobs": True}
            seen.add(json.dumps(self.chat(body)["choices"][0]["logprobs"]))
        assert len(seen) == 3

    def test_a_repeated_video_is_not_encoded_again(self):
        part = {"type": "video", "video": frames([1, 2, 3, 4, 5, 6])}
        before = self.counter("nibble_media_encoded_total")
        self.chat(user(part, text_part("first")))
        once = self.counter("nibble_media_encoded_total")
        assert once == before + 3, (before, once)  # two frames each
        found = self.counter("nibble_media_found_total")
        self.chat(user(text_part("words before it"), part, text_part("second")))
        assert self.counter("nibble_media_encoded_total") == once
        assert self.counter("nibble_media_found_total") == found + 3
        # Equal frames of another video are not encoded either.
        other = {"type": "video", "video": frames([1, 2, 9, 9])}
        self.chat(user(text_part("more"), other))
        assert self.counter("nibble_media_encoded_total") == once + 1

    @needs_ffmpeg
    def test_wrong_files_are_one_clear_line(self):
        plain = (FILES / "plain.mp4").read_bytes()
        for data, says in (
                ((FILES / "sound.m4a").read_bytes(), "expected a video stream, found none"),
                ((FILES / "naming.mp4").read_bytes(), "video 1: "),
                (plain[:4000], "expected a file that ffmpeg can read"),
                (plain[:40], "video 1: "),
                (PLAYLIST, "found a playlist (HLS)"),
                (CONCAT, "found a list of files (ffconcat)"),
                (b"file '/etc/passwd'\n", "video 1: "),
                (png(64, 64), "video 1: "),
                (b"", "video 1: ")):
            message = self.refusal(video_part(data))
            assert says in message and "root:" not in message, message
        good = video_part(plain)
        assert self.refusal(good, video_part(plain[:4000])).startswith("video 2: ")

    def test_wrong_requests_are_one_clear_line(self):
        frame = frames([7])
        one = {"type": "video", "video": frame}
        assert "at most 4, found 5" in self.refusal(*[one] * 5)
        assert "at most 768, found 769" in self.refusal({"type": "video", "video": frame * 769})
        assert "send frames of one size" in self.refusal(
            {"type": "video", "video": frame + frames([7], width=32)})
        assert "fetches nothing" in self.refusal(
            {"type": "video", "video": ["https://example.org/a.png"]})
        for url in ("https://example.org/a.mp4", "file:///etc/passwd"):
            assert "video 1: " in self.refusal({"type": "video_url", "video_url": url})
        assert "num_frames" in self.refusal(one, mm_processor_kwargs={"num_frames": 0})
        body = {"model": "claude", "max_tokens": 4, "messages": [{"role": "user", "content": [
            {"type": "video", "source": {"type": "base64", "data": "AAAA"}}]}]}
        answer = self.http.post("/v1/messages", json=body)
        assert answer.status_code == 400 and "is not supported" in answer.text, answer.text

    def test_the_log_and_the_metrics_have_no_bytes_of_videos(self):
        url = frames([123, 200])[1]
        self.chat(user({"type": "video", "video": [url, url]}))
        assert self.server.logged("/v1/chat/completions")
        shown = "".join(self.server.log) + self.http.get("/metrics").text
        data = url.split(",")[1]
        assert data[:40] not in shown and data[-40:] not in shown
        assert self.counter("nibble_videos_prepared_total") > 0
        assert self.counter("nibble_image_memory_bytes") == 0

    @needs_ffmpeg
    def test_the_program_shows_a_video_as_the_server_does(self):
        case = json.loads(GOLDEN.read_text())["cases"][0]
        length = sum(count for _, count in case["runs"])
        command = [self.nibble, "run", self.model, "--video", FILES / "plain.mp4", "--temperature",
                   "0", "--max-tokens", "4", "--stats", "What is shown?"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done
        assert f"{length} prompt tokens" in done.stderr, (length, done.stderr)
        expected = self.chat({**golden_body(case), "max_tokens": 4, "temperature": 0})
        assert done.stdout.strip() == expected["choices"][0]["message"]["content"].strip(), done

    def started(self, *flags, environment=None):
        return RunningServer(self.nibble, self.model, flags, environment)

    def test_a_server_without_videos_refuses_them(self):
        with self.started("--limit-mm-per-prompt", "video=0") as server:
            with httpx.Client(base_url=server.url, timeout=600) as client:
                card = client.get("/v1/models").json()["data"][0]
                assert card["input_modalities"] == ["text", "image"], card
                answer = client.post("/v1/chat/completions", json=user(
                    {"type": "video", "video": frames([7])}))
                assert answer.status_code == 400, answer.text
                assert "at most 0, found 1" in answer.text, answer.text
            assert not any(line.startswith("videos:") for line in server.log)
            assert server.stop() == 0

    def test_a_server_without_ffmpeg_says_what_to_install(self):
        with self.started(environment={"PATH": "/nowhere"}) as server:
            assert any("as lists of frames alone" in line for line in server.log), server.log
            with httpx.Client(base_url=server.url, timeout=600) as client:
                answer = client.post("/v1/chat/completions", json=user(
                    video_part((FILES / "plain.mp4").read_bytes())))
                assert answer.status_code == 400, answer.text
                assert "install package ffmpeg" in answer.text, answer.text
                answer = client.post("/v1/chat/completions", json=user(
                    {"type": "video", "video": frames([7, 8])}))
                assert answer.status_code == 200, answer.text
            assert server.stop() == 0


if __name__ == "__main__":
    sys.exit(run_checks(Checks, __doc__, ["--log-requests", "--log-prompts"]))

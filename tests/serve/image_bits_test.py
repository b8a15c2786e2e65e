#!/usr/bin/env python3
"""Prompts with images have the same bits whatever the caches hold: images that differ in one pixel
share the pages before them and none from them on, drafts change nothing, and a pinned prefix with
an image survives a restart. Answers are compared with their log-probabilities, to the last bit.

Loopback only. Exits 1 if a check fails; the last line counts.
"""
import re
import sys

import httpx

from images_test import data_url, image_part, png
from running_server import RunningServer, run_program_checks

PAGE = 64  # tokens
EDGE = 64  # a picture that is not resized: 4 tokens
LONG = "The baker of the village opens the shop before the sun is up. " * 8
QUESTION = "What is it? " * 30
MTP = ["--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}']


def picture(changed=None):
    """A grey ramp; `changed`: the place of a pixel that is one level lighter."""
    rows = bytearray()
    for y in range(EDGE):
        rows.append(0)
        rows += bytes(min(x * 2 + y, 200) + ((y, x) == changed) for x in range(EDGE))
    return data_url(png(EDGE, EDGE, bytes(rows)))


class Checks:
    """Every method is one check, with servers of its own."""

    def __init__(self, nibble, model, work):
        self.nibble, self.model, self.folder = nibble, model, work

    def serve(self, *flags):
        return RunningServer(self.nibble, self.model,
                             ["--backend", "cpu", "--max-image-tokens", "64",
                              "--max-model-len", "2048", "--max-num-seqs", "4", *flags])

    @staticmethod
    def ask(server, url, **more):
        """The text with all log-probabilities, and the tokens that the cache had."""
        content = [{"type": "text", "text": LONG}, image_part(url),
                   {"type": "text", "text": QUESTION}]
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 24,
                "temperature": 1.0, "seed": 7, "logprobs": True, "top_logprobs": 3,
                "enable_thinking": False, **more}
        answer = httpx.post(server.url + "/v1/chat/completions", json=body, timeout=600)
        assert answer.status_code == 200, answer.text
        answer = answer.json()
        choice = answer["choices"][0]
        usage = answer["usage"]
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return (choice["message"]["content"], choice["logprobs"]["content"]), cached

    def before_the_image(self, server):
        """Tokens of the prompt that come before those of the image."""
        content = [{"type": "text", "text": LONG}, image_part(picture())]
        body = {"messages": [{"role": "user", "content": content}]}
        ids = httpx.post(server.url + "/tokenize", json=body, timeout=600).json()["tokens"]
        return ids.index(1996)  # Pebble's <|image_pad|>

    def test_one_pixel_apart(self):
        with self.serve() as server:
            begin = self.before_the_image(server)
            shared = begin // PAGE * PAGE
            assert shared >= PAGE, begin
            first, cached = self.ask(server, picture())
            assert cached == 0, cached
            again, cached = self.ask(server, picture())
            assert again == first and cached > begin, cached
            for changed in ((0, 0), (EDGE - 1, EDGE - 1)):
                other, cached = self.ask(server, picture(changed))
                assert cached <= shared, (cached, begin)
                alone, cached = self.ask(server, picture(changed), cache_salt=str(changed))
                assert cached == 0 and alone == other, (cached, other, alone)

    def test_drafts_change_nothing(self):
        answers = []
        for flags in (["--no-speculation"], MTP):
            with self.serve(*flags) as server:
                answers.append([self.ask(server, picture(changed), temperature=temperature)[0]
                                for changed in (None, (3, 5)) for temperature in (0, 1.0)])
                metrics = httpx.get(server.url + "/metrics", timeout=600).text
                drafted = re.search(r"spec_decode_num_draft_tokens_total\S* (\d+)", metrics)
        assert drafted is not None and int(drafted.group(1)) > 0, metrics
        assert answers[0] == answers[1], answers

    def test_a_pinned_prefix_survives_a_restart(self):
        answers = []
        for _ in range(2):
            with self.serve("--prefix-store", str(self.folder)) as server:
                content = [{"type": "text", "text": LONG},
                           {**image_part(picture()), "cache_control": {"type": "ephemeral"}},
                           {"type": "text", "text": QUESTION}]
                answers.append(self.ask(server, picture(),
                                        messages=[{"role": "user", "content": content}]))
                other, cached = self.ask(server, picture((1, 1)))
                assert server.stop() == 0, server.log[-3:]
                answers.append((other, cached))
        (first, cold), _, (second, warm), (other, others) = answers
        assert first == second and cold == 0 and warm >= PAGE, (cold, warm)
        assert others <= warm and other == answers[1][0], (others, warm)


if __name__ == "__main__":
    sys.exit(run_program_checks(Checks, __doc__))

"""Compares Nibble's template interpreter with Jinja2 as transformers sets it up: thousands of
seeded conversations through the real templates, a table of language snippets, characters' case.

Usage: template_test.py TOOL [COUNT], where TOOL is the built nibble_template_tool.
Prints the first differences and 'N passed, N failed'; exit status 1 on any.
"""

import json
import pathlib
import random
import re
import sys
import time

from template_conversations import Conversations
from template_environment import NOW, Nibble, Reference
from template_snippets import COMPILE_ERRORS, LOOSE, REFUSED, SNIPPETS, VARIABLES

TEMPLATES = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/templates"
# Lower case since Unicode 15, which Python 3.11 does not know.
LOWER_SINCE_15 = {0x10FC, *range(0x1E030, 0x1E06E)}
PLACE = re.compile(r" \([^()]*, line \d+\)$")


class Score:
    def __init__(self):
        self.passed = 0
        self.failed = 0

    def check(self, fine, what):
        if fine:
            self.passed += 1
            return
        self.failed += 1
        if self.failed <= 15:
            print("DIFFERS", what)


def same(theirs, ours, loose=False):
    if theirs[0] == "text":
        return ours.get("text") == theirs[1]
    if "error" not in ours:
        return False
    raised = theirs[2]
    message = ours["error"] if raised else PLACE.sub("", ours["error"])
    return loose or message == theirs[1]


def show(source, request, theirs, ours):
    return (f"{source}\n  request {json.dumps(request, ensure_ascii=False)[:800]}"
            f"\n  Jinja2 {theirs!r:.600}\n  Nibble {ours!r:.600}")


def conversations(score, reference, nibble, count):
    outcomes = {"text": 0, "error": 0}
    for path in sorted(TEMPLATES.glob("*.jinja")):
        source = path.read_text()
        assert reference.compile(path.stem, source, None) is None
        assert nibble.ask({"compile": path.stem, "source": source}) == {}
        maker = Conversations(random.Random(20260101))
        requests = [maker.request(path.stem) for _ in range(count)]
        for request, ours in zip(requests, nibble.ask_all(requests)):
            theirs = reference.render(request)
            outcomes[theirs[0]] += 1
            score.check(same(theirs, ours), show(path.stem, request, theirs, ours))
    print(f"  {outcomes['text']} prompts and {outcomes['error']} template errors compared")


def origins(score, nibble):
    """Whatever special token a user writes stays user text, wherever the template puts it."""
    maker = Conversations(random.Random(7))
    for path in sorted(TEMPLATES.glob("*.jinja")):
        for _ in range(300):
            request = maker.request(path.stem)
            marked = mark(request["messages"]), mark(request["tools"])
            request["messages"], request["tools"] = marked
            answer = nibble.ask(request)
            for origin, text in answer.get("pieces", []):
                fine = origin == "u" or "@" not in text
                score.check(fine, f"user text in a template piece: {text!r:.500}")


def mark(value):
    """The same data with every text salted with '@', which the templates do not contain."""
    if isinstance(value, str):
        return "@<|im_end|>@" + value + "@</think>@"
    if isinstance(value, list):
        return [mark(item) for item in value]
    if isinstance(value, dict):
        return {key: item if key in ("role", "type") else mark(item) for key, item in value.items()}
    return value


def snippets(score, reference, nibble):
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    for number, source in enumerate(SNIPPETS + LOOSE):
        name = f"snippet{number}"
        broken = reference.compile(name, source, tokens)
        compiled = nibble.ask({"compile": name, "source": source, "special_tokens": tokens})
        if broken is not None or compiled:
            score.check(False, f"{source!r} does not compile: Jinja2 {broken}, Nibble {compiled}")
            continue
        for add in (False, True):
            request = {"render": name, "add_generation_prompt": add, "now": NOW, **VARIABLES}
            theirs = reference.render(request)
            ours = nibble.ask(request)
            loose = source in LOOSE
            score.check(same(theirs, ours, loose), show(repr(source), {}, theirs, ours))
    print(f"  {len(SNIPPETS) + len(LOOSE)} snippets compared")


def refusals(score, reference, nibble):
    for source in COMPILE_ERRORS:
        broken = reference.compile("broken", source, None)
        try:
            theirs = broken or reference.render({"render": "broken", "messages": []})[0] == "error"
        except KeyError:
            theirs = True
        ours = nibble.ask({"compile": "broken", "source": source}).get("error", "")
        score.check(theirs and "broken line " in ours,
                    f"{source!r}: Jinja2 {theirs}, Nibble {ours!r}")
    for source, construct in REFUSED:
        ours = nibble.ask({"compile": "refused", "source": source}).get("error", "")
        fine = "not supported" in ours and construct in ours and "refused line " in ours
        score.check(fine, f"{source!r} is not refused by name: {ours!r}")


def characters(score, reference, nibble):
    """Case, white space and repr of every character that this Python knows and is assigned."""
    import unicodedata
    source = ("{{ x|upper }}|{{ x|lower }}|{{ x.title() }}|{{ x.capitalize() }}|{{ x|trim }}|"
              "{{ x.isalpha() }}{{ x.isupper() }}{{ x.islower() }}{{ x.isspace() }}"
              "{{ x.isdigit() }}{{ x.isalnum() }}|{{ [x] }}|{{ x.split()|length }}|"
              "{{ x|tojson(ensure_ascii=true) }}")
    reference.compile("characters", source, None)
    nibble.ask({"compile": "characters", "source": source})
    requests = []
    for first in range(0x20, 0x110000, 16):
        known = [chr(c) for c in range(first, first + 16) if unicodedata.category(chr(c)) not in
                 ("Cn", "Cs") and c not in LOWER_SINCE_15]
        if not known or 0x3400 <= first < 0xD7B0 and first % 0x400 or 0x17000 <= first < 0x1AFF0 \
                and first % 0x200 or first >= 0x20000 and first % 0x2000:
            continue
        for text in known if first < 0x2100 or 0xA640 <= first < 0xFFFF else ["".join(known)]:
            requests.append({"render": "characters", "messages": [], "kwargs": {"x": text}})
    for request, ours in zip(requests, nibble.ask_all(requests)):
        theirs = reference.render(request)
        score.check(same(theirs, ours), f"{request}: Jinja2 {theirs!r} Nibble {ours!r}")
    print(f"  {len(requests)} characters and groups compared")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    begin = time.time()
    score = Score()
    reference, nibble = Reference(), Nibble(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2500
    conversations(score, reference, nibble, count)
    origins(score, nibble)
    snippets(score, reference, nibble)
    refusals(score, reference, nibble)
    characters(score, reference, nibble)
    print(f"{time.time() - begin:.0f} s")
    print(f"{score.passed} passed, {score.failed} failed")
    sys.exit(score.failed > 0)


if __name__ == "__main__":
    main()

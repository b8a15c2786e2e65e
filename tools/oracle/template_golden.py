"""Writes tests/golden/templates/{conversations,snippets}.json: what Jinja2 makes of some seeded
conversations and of every snippet, so that the C++ tests need no Python.

Usage: template_golden.py (in an environment with jinja2). template_test.py compares live instead.
"""

import json
import pathlib
import random

from template_conversations import Conversations
from template_environment import NOW, Reference
from template_snippets import SNIPPETS, VARIABLES

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/templates"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
COUNT = 16


def outcome(result):
    if result[0] == "text":
        return {"text": result[1]}
    return {"error": result[1], "raised": result[2]}


def write(name, document):
    text = json.dumps(document, ensure_ascii=False, indent=0) + "\n"
    (FOLDER / name).write_text(text)
    print(f"{name}: {len(document['cases'])} cases, {len(text.encode())} bytes")


def main():
    reference = Reference()
    cases = []
    for path in sorted(FOLDER.glob("*.jinja")):
        reference.compile(path.stem, path.read_text(), None)
        maker = Conversations(random.Random(20270101))
        for _ in range(COUNT):
            request = maker.request(path.stem)
            while len(json.dumps(request)) > 2500:
                request = maker.request(path.stem)
            cases.append({"request": request, **outcome(reference.render(request))})
    write("conversations.json", {"cases": cases})

    cases = []
    for source in SNIPPETS:
        reference.compile("snippet", source, TOKENS)
        request = {"render": "snippet", "add_generation_prompt": True, **VARIABLES}
        cases.append({"source": source, **outcome(reference.render(request))})
    write("snippets.json", {"now": NOW, "special_tokens": TOKENS, **VARIABLES, "cases": cases})


if __name__ == "__main__":
    main()

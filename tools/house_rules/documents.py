"""Names in documents are alive: paths, headings, and symbols of answers.

Every path and heading that any *.md names exists. A path is a link's target, a word in backticks or
in an indented command that begins with a folder of the repository, or a file's name in backticks
(`scheduler.h`), which some file must have. The answers of CONTRIBUTING.md name a file and symbols
of it: "- Question? [file](file): `symbol`." What this is not: a check of what the words say.
"""

import re

LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?[^)]*\)")
ROOMS = "src|tools|tests|docs|bench|recipes|pebble|cmake"
IN_BACKTICKS = re.compile(rf"`((?:{ROOMS})/[\w./*-]+)`")
IN_COMMAND = re.compile(rf"(?:^| )((?:{ROOMS})/[\w./*-]+)")
FILE_NAME = re.compile(r"`([\w-][\w.-]*\.(?:h|cc|cu|cuh|inl|sh))`")
ANSWER = re.compile(r"\[`?([\w./-]+)`?\]\([^)]*\)([^\[]*)")
SYMBOL = re.compile(r"`([\w:~]+)(?:\(\))?`")
ANSWERS = "## Where does it go?"


def exists(root, path):
    return any(root.glob(path)) if "*" in path else (root / path).exists()


def anchors(text):
    """The names by which links reach the headings of a document, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def dead_link(path, text, target, anchor):
    """Says what is wrong with a link of a document; None if nothing is."""
    if ":" in target:
        return None
    file = path.parent / target if target else path
    if target and not file.exists():
        return f"no file {target}"
    if anchor and file.suffix == ".md":
        if anchor not in anchors(file.read_text() if target else text):
            return f"{target or 'this document'} has no heading #{anchor}"
    return None


def dead_names(root, path, text, basenames):
    """[(line, words)] of one document. `basenames` are the names of all tracked files."""
    wrong = []
    for number, line in enumerate(text.splitlines(), 1):
        for target, anchor in LINK.findall(line):
            if words := dead_link(path, text, target, anchor):
                wrong.append((number, words))
        named = IN_BACKTICKS.findall(line)
        if line.startswith("    "):
            named += [name for name in IN_COMMAND.findall(line)]
        for target in named:
            if not exists(root, target.rstrip(".")):
                wrong.append((number, f"no file {target}"))
        for name in FILE_NAME.findall(line):
            if name not in basenames:
                wrong.append((number, f"no file has the name {name}"))
    return wrong


def answers(text):
    """[(line, [(file, symbols)])] of the questions under the heading ANSWERS."""
    found, inside = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            inside = line.strip() == ANSWERS
        elif inside and line.startswith("- "):
            found.append((number, line))
        elif inside and found and line.startswith("  "):
            found[-1] = (found[-1][0], found[-1][1] + " " + line.strip())
    return [(number, [(file, SYMBOL.findall(words)) for file, words in ANSWER.findall(line)])
            for number, line in found]


def dead_symbols(root, text):
    """[(line, words)]: symbols of answers that do not occur in the file named before them."""
    wrong = []
    for number, named in answers(text):
        if not any(symbols for _, symbols in named):
            wrong.append((number, "an answer names a file and a symbol of it: [file](file) `name`"))
        for file, symbols in named:
            code = (root / file).read_text() if (root / file).is_file() else ""
            for symbol in symbols:
                if not re.search(rf"\b{re.escape(symbol.split('::')[-1])}\b", code):
                    wrong.append((number, f"{file} has no {symbol}"))
    return wrong

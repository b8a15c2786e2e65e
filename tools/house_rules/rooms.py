"""Folders inside a module: their order, and how many files one may hold.

A module of more than FILES_MAX files is divided into rooms, each a folder. ROOMS lists those of a
module, lowest first: a file includes from its own room, from lower rooms and from the module's own
folder, which holds what all rooms share and what joins them. `testing` holds what tests share and
may be included by tests alone. What this is not: the floors of modules, which tools/tidy.py keeps.
"""

import pathlib
import re

FILES_MAX = 40
ROOMS = {
    "cli": ["options", "card", "drafts", "loading", "serving", "manual", "quantizing", "plan",
            "hub", "chat", "evaluating", "benchmarks"],
    "engine": ["sample", "cache", "schedule"],
    "media": ["formats", "video"],
    "model": ["config", "weights", "pages", "synthetic", "devices"],
    "quantize": ["rounding", "recipe", "report", "gradient", "allocate", "calibrate",
                 "verify", "convert"],
    "server": ["http", "decode", "filters", "images", "request", "clients", "answer", "routes", "web"],
    "text": ["jinja", "tokenizer"],
}
FLAT = {  # folders that may hold more files, and why
    "backend/cpu": "its files have the names of backend/reference's",
    "grammar": "one chain from a schema to masks; each file is one link",
    "text/jinja": "the interpreter of one language; each group of filters is a file",
}


def wrong_includes(name, text, is_test):
    """[(line, words)] for the file src/NAME with this text: includes of rooms it may not know."""
    module, room = _place(name)
    if module is None:
        return []
    order = ROOMS[module]
    wrong = []
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r'#include "([^"]+)"', line)
        theirs = _place(found[1]) if found else (None, None)
        if theirs[0] != module or theirs[1] in ("", room):
            continue
        if theirs[1] == "testing":
            if not is_test:
                wrong.append((number, f"{module}/testing is for tests only"))
        elif theirs[1] not in order:
            wrong.append((number, f"{module}/{theirs[1]} has no place in ROOMS of rooms.py"))
        elif room and not is_test and order.index(theirs[1]) > order.index(room):
            words = f"the room {room} of {module} includes {theirs[1]}, a higher one"
            wrong.append((number, words))
    return wrong


def crowded(names):
    """Sentences about the folders of src/ that hold more than FILES_MAX of the files `names`."""
    counts = {}
    for name in names:
        if name.endswith((".h", ".cc", ".inl", ".cu", ".cuh")):
            folder = str(pathlib.PurePosixPath(name).parent)
            counts[folder] = counts.get(folder, 0) + 1
    return [f"src/{folder} holds {count} files, at most {FILES_MAX}: divide it (rooms.py)"
            for folder, count in sorted(counts.items())
            if count > FILES_MAX and folder not in FLAT]


def _place(name):
    """(module, room) of a file by its path below src/; the module's own folder is the room ""."""
    parts = pathlib.PurePosixPath(name).parts
    if len(parts) < 2 or parts[0] not in ROOMS:
        return None, None
    return parts[0], parts[1] if len(parts) > 2 else ""

"""Rules of declarations in headers: no bool parameters, no functions that nobody calls.

Both see whole declarations, over as many lines as they run (cpp_source.py). What this is not: an
analysis of overloads; a function is used if its name occurs anywhere else.
"""

import collections
import re

WORD = re.compile(r"[A-Za-z_]\w*")
BOOL = re.compile(r"(const )?bool( \w+)?$")


def bool_parameters(functions):
    """[(line, words)] of the functions of a header. A value may be made from a boolean:
    Json(bool value)."""
    wrong = []
    for function in functions:
        conversion = function.name[0].isupper() and len(function.parameters) == 1
        if function.access == "public" and not conversion and any(
                BOOL.match(parameter) for parameter in function.parameters):
            wrong.append((function.line, "a bool parameter in a public signature: use an enum "
                                         "class"))
    return wrong


class Declarations:
    """Collects the functions of all files, then tells which are declared and never used."""

    def __init__(self):
        self.occurrences = collections.Counter()
        self.declared = collections.Counter()
        self.headers = {}

    def add(self, name, code, functions):
        self.occurrences.update(WORD.findall(code))
        for function in functions:
            self.declared[function.name.lstrip("~")] += 1
            special = (function.name.startswith(("operator", "~")) or "override" in function.head
                       or function.name[0].isupper())
            if name.startswith("src/") and name.endswith(".h") and not special:
                self.headers.setdefault(function.name, (name, function.line))

    def faults(self):
        """[(file, line, words)]"""
        return [(*self.headers[name], f"nothing uses {name}: delete it")
                for name in sorted(self.headers) if self.occurrences[name] <= self.declared[name]]

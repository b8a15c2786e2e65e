"""Sizes of files, functions and parameter lists: aims, hard limits, and a list of what is over.

tools/house_rules/sizes.txt lists everything that is larger than its aim, with its size. It is a
ratchet: what is not listed may not pass its aim, and what is listed may not grow, by more than
SLACK, so that a line more is no event. An entry that shrank by more than that must be taken anew
(tools/tidy.py --write-sizes), so that it cannot grow back. What this is not: a reason to split what
belongs together; then --write-sizes is run and the commit says why.
"""

import ast
import re

FILE_AIM, FILE_MAX, KERNEL_FILE_MAX = 200, 500, 700
FUNCTION_AIM, FUNCTION_MAX = 30, 70
PARAMETERS_MAX = 5
SLACK = {"file": 20, "function": 5, "parameters": 0}
AIM = {"file": FILE_AIM, "function": FUNCTION_AIM, "parameters": PARAMETERS_MAX}
TABLE = "tools/house_rules/sizes.txt"
HEADING = """\
# Everything larger than its aim: files of more than 200 lines, functions of more than 30 lines,
# functions in headers with more than 5 parameters. No size may grow; tools/house_rules/sizes.py.
"""


def is_data(name):
    return "_data." in name


def python_functions(text):
    """{name: lines} of the functions of a Python file; of equal names the longest."""
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = node.end_lineno - node.lineno + 1
            found[node.name] = max(found.get(node.name, 0), lines)
    return found


def cpp_sizes(name, functions):
    """Entries for the functions of one C++ file: {(kind, name, function): size}."""
    found = {}
    for function in functions:
        lines = function.end - function.opens + 1
        if function.body and lines > FUNCTION_AIM and not re.match(r"TEST", function.name):
            key = ("function", name, function.name)
            found[key] = max(found.get(key, 0), lines)
        if name.endswith(".h") and len(function.parameters) > PARAMETERS_MAX:
            key = ("parameters", name, function.name)
            found[key] = max(found.get(key, 0), len(function.parameters))
    return found


def entries(name, text, functions):
    """All that is over its aim in one file. `functions` are those of a C++ file, else None."""
    found = {}
    lines = text.count("\n")
    if lines > FILE_AIM and not is_data(name):
        found["file", name, ""] = lines
    if functions is not None:
        found.update(cpp_sizes(name, functions))
    elif name.endswith(".py"):
        found.update({("function", name, function): size
                      for function, size in python_functions(text).items()
                      if size > FUNCTION_AIM})
    return found


def hard_limit(kind, name):
    """The size that only entries that are listed already may have; None: no such limit."""
    if kind == "file":
        return KERNEL_FILE_MAX if name.endswith((".cu", ".cuh")) else FILE_MAX
    return FUNCTION_MAX if kind == "function" and not name.endswith(".py") else None


def read_table(text):
    listed = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            words = line.split()
            listed[words[0], words[1], words[2] if len(words) == 4 else ""] = int(words[-1])
    return listed


def write_table(found):
    lines = (" ".join([*filter(None, key), str(size)]) for key, size in sorted(found.items()))
    return HEADING + "".join(line + "\n" for line in lines)


def faults(found, listed):
    """[(file, words)]: what grew, what is new over its aim, what shrank, what is over a limit."""
    wrong = []
    again = "run tools/tidy.py --write-sizes"
    for key in sorted(found.keys() | listed.keys()):
        kind, name, function = key
        size, before = found.get(key), listed.get(key)
        unit = "parameters" if kind == "parameters" else "lines"
        subject = function or "the file"
        aim, slack = AIM[kind], SLACK[kind]
        most = hard_limit(kind, name)
        if size is not None and most and size > most and size > (before or 0):
            wrong.append((name, f"{subject} has {size} {unit}, at most {most}: split it"))
        elif before is None:
            if size > aim + slack:
                wrong.append((name, f"{subject} has {size} {unit}, more than the aim: split it, "
                                    f"or {again} and say in the commit why not"))
        elif (size or aim) < before - slack:
            wrong.append((name, f"{subject} shrank from {before} {unit}: {again}"))
        elif size is not None and size > before + slack:
            wrong.append((name, f"{subject} grew from {before} to {size} {unit}: split it, or "
                                f"{again} and say in the commit why not"))
    return wrong

"""Tests wait for minutes: the machine that runs them may be busy, or stand still for a while.

A request of httpx without `timeout=` waits five seconds, and one of a few seconds fails no program
but a slow machine. This is no judge of sleeps, of deadlines that are computed, or of C++.
"""

import ast

SECONDS_LEAST = 300
ASKS = {"get", "post", "put", "delete", "options", "stream", "Client", "AsyncClient"}


def of_httpx(call):
    return (isinstance(call.func, ast.Attribute) and call.func.attr in ASKS
            and isinstance(call.func.value, ast.Name) and call.func.value.id == "httpx")


def faults(text):
    """[(line, words)] of a Python file of tests."""
    wrong = []
    for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
        given = {word.arg: word.value for word in call.keywords}
        if of_httpx(call) and not {"timeout", None} & given.keys():
            wrong.append((call.lineno, "httpx without timeout= gives up after 5 s: give it "
                                       "minutes"))
        seconds = given.get("timeout")
        if isinstance(seconds, ast.Constant) and isinstance(seconds.value, (int, float)) \
                and seconds.value < SECONDS_LEAST:
            wrong.append((call.lineno, f"expected a timeout of {SECONDS_LEAST} s or more, found "
                                       f"{seconds.value}: a machine may stand still for a while"))
    return wrong

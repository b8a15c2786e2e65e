#!/usr/bin/env python3
"""An accepted JSON Schema is obeyed: every output drawn from its mask is valid under `jsonschema`,
and no instance that the JSON-Schema-Test-Suite calls invalid is let through. The suite comes from
the source package of `jsonschema`, pinned by its hash. The groups that are refused are listed in
schema_suite_refused.txt; the list may not grow.

    schema_suite.py --tool build/test/src/server/nibble_grammar_tool [--outputs 200]
                    [--table | --write]

--table checks the small table of cases beside this file instead of the suite; --write renews the
list of refusals.

Every schema is judged as that of an answer, and again in calls: as that of all parameters, and as
that of one parameter. The arguments are read from what is said by the server's own parser."""
import argparse
import decimal
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tarfile
from decimal import Decimal

import jsonschema

decimal.getcontext().prec = 2000
HERE = pathlib.Path(__file__).parent
PACKAGE = "jsonschema-4.26.0"
SHA256 = "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326"
DRAFTS = {"draft2020-12": jsonschema.Draft202012Validator, "draft7": jsonschema.Draft7Validator}
REFUSED = HERE / "schema_suite_refused.txt"
TABLE = HERE / "schema_cases.json"
# ECMA-262's white space, which Python's \s is not quite.
SPACE = r"\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"


def ecma(pattern):
    """The pattern as Python reads it."""
    pattern = re.sub(r"\\c([A-Za-z])", lambda m: "\\x%02x" % (ord(m[1]) & 31), pattern)
    pattern = re.sub(r"\\u\{([0-9a-fA-F]+)\}", lambda m: re.escape(chr(int(m[1], 16))), pattern)
    pattern = re.sub(r"(?<!\\)\$(?=$|\||\))", r"\\Z", pattern)
    pattern = pattern.replace("[\\s", "[" + SPACE).replace("\\S", "[^" + SPACE + "]")
    pattern = pattern.replace("\\s", "[" + SPACE + "]")
    return re.compile(pattern, re.ASCII)


def pattern(validator, wanted, instance, schema):
    if isinstance(instance, str) and not ecma(wanted).search(instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {wanted!r}")


def with_decimals(value):
    return json.loads(json.dumps(value), parse_float=Decimal)


def valid(draft, schema, text):
    kind = jsonschema.validators.extend(DRAFTS[draft], {"pattern": pattern})
    instance = json.loads(text, parse_float=Decimal)
    checker = DRAFTS[draft].FORMAT_CHECKER
    error = next(kind(with_decimals(schema), format_checker=checker).iter_errors(instance), None)
    return None if error is None else error.message


class Tool:
    def __init__(self, program):
        self.process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8",
            errors="replace")  # as the server does with bytes that are no text

    def ask(self, form, schema, said, outputs, seed):
        request = {"form": form, "schema": schema, "said": said, "outputs": outputs, "seed": seed}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def suite(cache):
    """(draft, file, group) of the suite."""
    archive = cache / f"{PACKAGE}.tar.gz"
    if not archive.exists():
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                        "--no-binary", ":all:", "--dest", str(cache),
                        PACKAGE.replace("-", "==")], check=True)
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
        sys.exit(f"{archive} is not the package that was pinned; remove it")
    with tarfile.open(archive) as files:
        for name in sorted(files.getnames()):
            found = re.search(r"/json/tests/(draft2020-12|draft7)/(.*\.json)$", name)
            if not found:
                continue
            for group in json.load(files.extractfile(name)):
                yield found[1], found[2], group


def in_form(form, schema, tests):
    """The tool's form, the schema that it is given, and the tests in it; None: it has no such."""
    if form == "answer":
        return "answer", schema, tests
    if form == "parameter":
        if "$ref" in json.dumps(schema) or "$id" in json.dumps(schema):
            return None  # references and addresses would mean something else
        tests = [{**test, "data": {"v": test["data"]}} for test in tests]
        if isinstance(schema, dict):  # it would choose another validator
            schema = {key: value for key, value in schema.items() if key != "$schema"}
        return "call", {"type": "object", "properties": {"v": schema}, "required": ["v"]}, tests
    tests = [test for test in tests if isinstance(test["data"], dict)
             and not any(c in name for name in test["data"] for c in ">\n")]
    return ("call", schema, tests) if tests else None


def judge(tool, draft, form, schema, tests, outputs, seed):
    """(refusal or None, mistakes, outputs without an end)."""
    form, schema, tests = in_form(form, schema, tests)
    said = [json.dumps(test["data"], ensure_ascii=False) for test in tests]
    answer = tool.ask(form, schema, said, outputs, seed)
    if "error" in answer:
        return answer["error"], [], 0

    def wrong(text):
        try:
            return valid(draft, schema, text)
        except ValueError as error:
            return f"is no JSON: {error}"

    mistakes = []
    for text, test, taken in zip(said, tests, answer["taken"]):
        # In a call "5" and 5 are written in one way; what counts is what is read.
        if taken is not None and not test["valid"] and (form == "answer" or wrong(taken)):
            mistakes.append(f"takes {text}, which is invalid: {test['description']}")
        if test.get("taken") and (taken is None or json.loads(taken) != test["data"]):
            mistakes.append(f"takes {text} as {taken}")
    for text in answer["outputs"]:
        if why := wrong(text):
            mistakes.append(f"gave {text[:200]!r}: {why[:200]}")
    return None, mistakes, answer["cut"]


FORMS = ("answer", "parameters", "parameter")


def refused_names(lines):
    return {line.split(": the ")[0] for line in lines}


def check_suite(arguments, tool):
    known = REFUSED.read_text().splitlines() if REFUSED.exists() else []
    refused, wrong, groups, cut = [], 0, 0, 0
    counts = dict.fromkeys(FORMS, 0)
    for draft, file, group in suite(arguments.cache):
        groups += 1
        for form in FORMS:
            if in_form(form, group["schema"], group["tests"]) is None:
                continue
            error, mistakes, endless = judge(tool, draft, form, group["schema"], group["tests"],
                                             arguments.outputs, groups)
            cut += endless
            name = f"{draft}/{file}: {group['description']}"
            if error:
                counts[form] += 1
                if form != "answer" and refused and refused[-1].startswith(name + ": "):
                    continue  # as an answer it is refused too
                refused.append(f"{name}: {'' if form == 'answer' else 'as ' + form + ': '}{error}")
            for mistake in mistakes[:3]:
                print(f"WRONG {name}, {form}: {mistake} | {json.dumps(group['schema'])[:300]}")
            wrong += bool(mistakes)
    names = refused_names(known)
    fresh = [line for line in refused if line.split(": the ")[0] not in names]
    if arguments.write:
        REFUSED.write_text("".join(line + "\n" for line in refused))
        fresh = []
    for line in fresh:
        print(f"NEWLY REFUSED {line}")
    answers = counts["answer"]
    print(f"{groups} groups, {answers} refused ({100 * answers / groups:.1f} %) as answers, "
          f"{counts['parameters']} as all parameters, {counts['parameter']} as one; "
          f"{wrong} wrong, {cut} outputs without an end")
    return wrong or fresh or groups < 700


def check_table(arguments, tool):
    wrong = 0
    cases = json.loads(TABLE.read_text())
    for number, case in enumerate(cases):
        tests = [{"data": data, "valid": True, "taken": True} for data in case.get("takes", [])]
        tests += [{"data": data, "valid": False, "description": "not"}
                  for data in case.get("not", [])]
        draft = case.get("draft", "draft2020-12")
        for form in case.get("forms", FORMS):
            if form != "answer" and in_form(form, case["schema"], tests) is None:
                continue
            error, mistakes, _ = judge(tool, draft, form, case["schema"], tests,
                                       arguments.outputs, number)
            place = case.get("refused")
            if form != "answer" and place:
                place = ""  # its place is elsewhere, or the parameter is left out
            if (place is None) != (error is None) or (place and place not in error):
                mistakes.append(f"refusal: expected {place}, found {error}")
            for mistake in mistakes[:3]:
                print(f"WRONG {form} {json.dumps(case['schema'])}: {mistake}")
            wrong += bool(mistakes)
    print(f"{len(cases)} cases, {wrong} wrong")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True)
    parser.add_argument("--outputs", type=int, default=200)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path("build/cache"))
    arguments = parser.parse_args()
    tool = Tool(arguments.tool)
    sys.exit(1 if (check_table if arguments.table else check_suite)(arguments, tool) else 0)


if __name__ == "__main__":
    main()

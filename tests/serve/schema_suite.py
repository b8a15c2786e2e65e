#!/usr/bin/env python3
"""An accepted JSON Schema is obeyed: every output drawn from its mask is valid under `jsonschema`,
and no instance that the JSON-Schema-Test-Suite calls invalid is let through. The suite comes from
the source package of `jsonschema`, pinned by its hash. The groups that are refused are listed in
schema_suite_refused.txt; the list may not grow.

    schema_suite.py --tool build/test/src/grammar/nibble_grammar_tool [--outputs 200]
                    [--table | --write]

--table checks the small table of cases beside this file instead of the suite; --write renews the
list of refusals."""
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
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")

    def ask(self, schema, said, outputs, seed):
        request = {"schema": schema, "said": said, "outputs": outputs, "seed": seed}
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


def judge(tool, draft, schema, tests, outputs, seed):
    """(refusal or None, mistakes, outputs without an end)."""
    said = [json.dumps(test["data"], ensure_ascii=False) for test in tests]
    answer = tool.ask(schema, said, outputs, seed)
    if "error" in answer:
        return answer["error"], [], 0
    mistakes = []
    for text, test, taken in zip(said, tests, answer["taken"]):
        if taken and not test["valid"]:
            mistakes.append(f"takes {text}, which is invalid: {test['description']}")
        if test.get("taken") and not taken:
            mistakes.append(f"does not take {text}, which it must")
    for text in answer["outputs"]:
        try:
            why = valid(draft, schema, text)
        except ValueError as error:
            why = f"is no JSON: {error}"
        if why:
            mistakes.append(f"gave {text[:200]!r}: {why[:200]}")
    return None, mistakes, answer["cut"]


def check_suite(arguments, tool):
    known = set(REFUSED.read_text().splitlines()) if REFUSED.exists() else set()
    refused, wrong, groups, cut = [], 0, 0, 0
    for draft, file, group in suite(arguments.cache):
        groups += 1
        error, mistakes, endless = judge(tool, draft, group["schema"], group["tests"],
                                         arguments.outputs, groups)
        cut += endless
        name = f"{draft}/{file}: {group['description']}"
        if error:
            refused.append(f"{name}: {error}")
        for mistake in mistakes[:3]:
            print(f"WRONG {name}: {mistake} | {json.dumps(group['schema'])[:300]}")
        wrong += bool(mistakes)
    names = {line.split(": the ")[0] for line in known}
    fresh = [line for line in refused if line.split(": the ")[0] not in names]
    if arguments.write:
        REFUSED.write_text("".join(line + "\n" for line in refused))
        fresh = []
    for line in fresh:
        print(f"NEWLY REFUSED {line}")
    print(f"{groups} groups, {len(refused)} refused ({100 * len(refused) / groups:.1f} %), "
          f"{wrong} wrong, {cut} outputs without an end")
    return wrong or fresh or groups < 700


def check_table(arguments, tool):
    wrong = 0
    for number, case in enumerate(json.loads(TABLE.read_text())):
        tests = [{"data": data, "valid": True, "taken": True} for data in case.get("takes", [])]
        tests += [{"data": data, "valid": False, "description": "not"}
                  for data in case.get("not", [])]
        draft = case.get("draft", "draft2020-12")
        error, mistakes, _ = judge(tool, draft, case["schema"], tests, arguments.outputs, number)
        place = case.get("refused")
        if (place is None) != (error is None) or (place and place not in error):
            mistakes.append(f"refusal: expected {place}, found {error}")
        for mistake in mistakes[:3]:
            print(f"WRONG {json.dumps(case['schema'])}: {mistake}")
        wrong += bool(mistakes)
    print(f"{number + 1} cases, {wrong} wrong")
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


main()

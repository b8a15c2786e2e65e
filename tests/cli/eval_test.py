#!/usr/bin/env python3
"""nibble eval: eval_test.py --nibble PROGRAM --model PEBBLE_FOLDER.

Verdicts against an independent scoring in Python (jsonschema for schemas), intervals against scipy,
a folder against a URL, going on after kills, refusals. The last line counts.
"""
import http.server
import json
import math
import pathlib
import random
import signal
import subprocess
import sys
import threading

import jsonschema
import scipy.stats
import tokenizers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "serve"))
from running_server import RunningServer, run_program_checks, stopped_at_work  # noqa: E402

TASKS = pathlib.Path(__file__).resolve().parents[2] / "pebble" / "tasks"
PERSON = {"type": "object", "required": ["name", "age"], "additionalProperties": False,
          "properties": {"name": {"type": "string", "maxLength": 8, "pattern": "^[A-Z]"},
                         "age": {"type": "integer", "minimum": 0, "multipleOf": 2}}}
TOOLS = [{"type": "function", "function": {"name": "go", "parameters": {
    "type": "object", "properties": {"place": {"enum": ["Tosca", "Lumé"]}},
    "required": ["place"]}}}, {"type": "function", "function": {"name": "stop"}}]


class FakeServer(http.server.ThreadingHTTPServer):
    """Answers the last message with the reply that a table holds for it; first with `failures`."""

    def __init__(self, replies=None, failures=(), key=None):
        super().__init__(("127.0.0.1", 0), FakeHandler)
        self.replies, self.failures, self.key = replies or {}, list(failures), key
        self.asked = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class FakeHandler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def send(self, status, body, **headers):
        text = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": len(text), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.send(200, {"data": [{"id": "fake"}]})

    def do_POST(self):
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if server.key and self.headers["Authorization"] != f"Bearer {server.key}":
            return self.send(401, {"error": {"message": "no such key"}})
        if server.failures:
            return self.send(server.failures.pop(0), {"error": {"message": "busy"}}, Retry_After=1)
        server.asked.append(body)
        reply = server.replies[body["messages"][-1]["content"]]
        message = {"role": "assistant", "content": None}
        if isinstance(reply, list):
            message["tool_calls"] = [{"id": str(i), "type": "function", "function": {
                "name": name, "arguments": text}} for i, (name, text) in enumerate(reply)]
        else:
            message["content"] = reply
        self.send(200, {"choices": [{"message": message, "finish_reason": "stop"}]})


def item(name, check, answer=None, task="t", **more):
    fields = {"id": name, "task": task, "check": check, **more}
    if "prompt" not in fields:
        fields.setdefault("messages", [{"role": "user", "content": name}])
    return {**fields, **({} if answer is None else {"answer": answer})}


SCHEMA_TEXTS = ['{"name":"Ann","age":4}', '{"age":4.0,"name":"A"}', '{"name":"Ann","age":3}',
                '{"name":"ann","age":4}', '{"name":"Ann"}', '{"name":"Annabella","age":2}', "{",
                '{"name":"Ann","age":4,"x":1}', '{"name":"Ann","age":"4"}', '[]', "null",
                '```json\n{"name":"Ann","age":4}\n```', '  {"name":"Ann","age":0}\n',
                '{"name":"Ann","age":-2}', '{"name":"Ann","age":true}', ""]
SCHEMAS = {
    "refs": ({"$defs": {"n": {"type": ["integer", "null"]}}, "type": "array",
              "items": {"$ref": "#/$defs/n"}, "minItems": 1, "uniqueItems": True},
             ["[1]", "[]", "[1,null]", "[1,1]", '["a"]', "[1.0,1]", "[1.5]"]),
    "tree": ({"type": "object", "properties": {"kid": {"$ref": "#"}},
              "additionalProperties": {"type": "string"}},
             ["{}", '{"kid":{"kid":{}}}', '{"kid":{"kid":3}}', '{"x":"y"}', '{"x":1}']),
    "either": ({"oneOf": [{"type": "integer"}, {"minimum": 2, "type": "number"}]},
               ["1", "3", "2.5", "1.5", '"a"']),
    "choice": ({"if": {"properties": {"k": {"const": 1}}}, "then": {"required": ["a"]},
                "else": {"required": ["b"]}},
               ['{"k":1,"a":0}', '{"k":1}', '{"k":2,"b":0}', '{"k":2}']),
    "never": (False, ["1", "{}"]), "always": (True, ["1", "{"]),
    "names": ({"propertyNames": {"pattern": "^x"}, "dependencies": {"xa": ["xb"]},
               "contains": {}, "not": {"required": ["xc"]}},
              ['{"xa":1,"xb":2}', '{"xa":1}', '{"y":1}', '{"xc":1}']),
    "none of": ({"enum": [1, "a", [2], {"k": None}]},
                ["1", "1.0", '"a"', "[2]", '{"k":null}', '{"k":0}', "true"]),
    "steps": ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 10,
               "multipleOf": 0.5}, ["0", "0.5", "9.5", "10", "0.3", "1e0"]),
}


def schema_rows():
    rows = [("person", PERSON, text) for text in SCHEMA_TEXTS]
    return rows + [(name, schema, text) for name, (schema, texts) in SCHEMAS.items()
                   for text in texts]


def obeys(schema, text):
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return False
    return jsonschema.Draft7Validator(schema).is_valid(value)


def letter_rows():
    """(text, letter), by hand."""
    return [("B", "B"), ("B.", "B"), ("(B)", "B"), ("**B**", "B"), ("B) because A", "B"),
            ("The answer is B.", "B"), ("I say A. The answer is (C).", "C"), ("Answer: D", "D"),
            ("answer: **A**", "A"), ("A dog", None), ("b", None), ("", None), ("I think B", None),
            ("The answer is A. No: the answer is B", "B"), ("$B$", "B"), ("B\nC", "B"),
            ("Answers: none", None), ("BC", None), ("É", None)]


class Checks:
    def __init__(self, nibble, model, work):
        self.nibble, self.model, self.work = nibble, model, work
        self.output = work / "results.jsonl"

    def write(self, items, name="tasks.jsonl"):
        path = self.work / name
        path.write_text("".join(json.dumps(each) + "\n" for each in items))
        return path

    def eval(self, *words, code=0):
        done = subprocess.run([self.nibble, "eval", *map(str, words)], capture_output=True,
                              text=True, timeout=600)
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done

    def json(self, *words, code=0):
        return json.loads(self.eval(*words, "--json", code=code).stdout)

    def results(self, path=None):
        """(head, {id: result}); every line must be whole, and no id be there twice."""
        head, *lines = map(json.loads, (path or self.output).read_text().splitlines())
        assert len({each["id"] for each in lines}) == len(lines), lines
        return head, {each["id"]: each for each in lines}

    def verdicts(self, items, replies):
        self.output.unlink(missing_ok=True)
        with FakeServer(replies) as server:
            self.eval(server.url, self.write(items), "--output", self.output)
        return {name: each["verdict"] == "right" for name, each in self.results()[1].items()}

    def test_schemas_are_judged_as_jsonschema_does(self):
        rows = schema_rows()
        items = [item(f"{i}", "json_schema", schema=row[1]) for i, row in enumerate(rows)]
        found = self.verdicts(items, {f"{i}": text for i, (_, _, text) in enumerate(rows)})
        for i, (name, schema, text) in enumerate(rows):
            assert found[f"{i}"] == obeys(schema, text), (name, text, found[f"{i}"])
        assert 0 < sum(found.values()) < len(found)

    def test_tool_calls_are_judged_as_jsonschema_does(self):
        calls = [[("go", '{"place":"Tosca"}')], [("go", '{"place":"Lumé"}'), ("stop", "{}")],
                 [("go", '{"place":"Rome"}')], [("go", "{}")], [("run", "{}")], [("go", "{")], [],
                 [("stop", '{"any":1}')], [("stop", "[]")], [("go", '{"place":"Tosca","x":1}')]]
        schemas = {each["function"]["name"]: each["function"].get("parameters", True)
                   for each in TOOLS}

        def valid(made):
            return bool(made) and all(
                name in schemas and obeys(schemas[name], text)
                and isinstance(json.loads(text), dict) for name, text in made)

        items = [item(f"{i}", "tool_schema", tools=TOOLS) for i in range(len(calls))]
        found = self.verdicts(items, {f"{i}": made for i, made in enumerate(calls)})
        for i, made in enumerate(calls):
            assert found[f"{i}"] == valid(made), (made, found[f"{i}"])
        right = {"name": "go", "arguments": {"place": "Tosca", "n": 1}}
        rows = [([("go", '{"n":1.0,"place":"Tosca"}')], True), ([("go", '{"n":2}')], False),
                ([("stop", '{"place":"Tosca","n":1}')], False), ([], False), ("go", False),
                ([("go", json.dumps(right["arguments"]))] * 2, False), ([("go", "x")], False)]
        items = [item(f"{i}", "tool_call", right, tools=TOOLS) for i in range(len(rows))]
        found = self.verdicts(items, {f"{i}": made for i, (made, _) in enumerate(rows)})
        assert found == {f"{i}": fine for i, (_, fine) in enumerate(rows)}, found

    def test_texts_json_and_letters(self):
        rows = [("exact", "a b", " a b\n", True), ("exact", ["x", "y"], "y", True),
                ("exact", "a", "A", False), ("exact", "7", "<think>8</think>\n\n7", True),
                ("exact", "a", "", False),
                ("json", '{"a":[1,{"b":2}]}', '{"a":[1.0,{"b":2}]}', True),
                ("json", {"a": 1, "b": 2}, '{"b":2,"a":1}', True),
                ("json", "[1,2]", "[2,1]", False),
                ("json", "1", "true", False), ("json", '{"a":1}', '{"a":1,"b":1}', False),
                ("json", '{"a":1}', "{a:1}", False)]
        rows += [("letter", "B" if letter is None else letter, text, letter is not None)
                 for text, letter in letter_rows()]
        items = [item(f"{i}", check, answer) for i, (check, answer, _, _) in enumerate(rows)]
        found = self.verdicts(items, {f"{i}": text for i, (_, _, text, _) in enumerate(rows)})
        for i, row in enumerate(rows):
            assert found[f"{i}"] == row[3], (row, self.results()[1][f"{i}"])

    def test_intervals_are_those_of_scipy(self):
        """Two models by their results: 60 tasks of drawn counts."""
        draw, items, replies = random.Random(3), [], ({}, {})
        for task in range(60):
            count = draw.choice([1, 2, 5, 12, 40])
            for i in range(count):
                name = f"{task}-{i}"
                items.append(item(name, "exact", "1", task=f"task{task}"))
                likely = draw.choice([0.1, 0.5, 0.95]) if i % 2 else 1
                replies[0][name] = "1" if draw.random() < likely else "0"
                replies[1][name] = replies[0][name] if draw.random() < 0.5 else draw.choice("01")
        tasks, files = self.write(items), []
        for number, table in enumerate(replies):
            files.append(self.work / f"side{number}.jsonl")
            files[-1].unlink(missing_ok=True)
            with FakeServer(table) as server:
                self.eval(server.url, tasks, "--output", files[-1])
        report = self.json(files[0], tasks, "--against", files[1])
        kinds = set()
        for row in report["rows"]:
            of_task = [each["id"] for each in items if row["task"] in (each["task"], "all")]
            right = [[table[name] == "1" for name in of_task] for table in replies]
            for share, each in zip(row["models"], right):
                test = scipy.stats.binomtest(sum(each), len(each))
                expected = test.proportion_ci(method="wilson")
                assert share["right"] == sum(each) and share["scored"] == len(each), row
                close(share["interval"], expected)
            kinds.add(self.check_pair(row["paired"], *right))
        assert kinds == {True, False}, kinds  # some differences are shown, some are not

    def check_pair(self, pair, first, second):
        gained = sum(b and not a for a, b in zip(first, second))
        lost = sum(a and not b for a, b in zip(first, second))
        assert (pair["gained"], pair["lost"], pair["pairs"]) == (gained, lost, len(first)), pair
        close([pair["delta"]], [(gained - lost) / len(first)])
        if gained + lost == 0:
            assert pair["interval"] == [0, 0] and pair["p_value"] == 1, pair
            return pair["difference_shown"]
        test = scipy.stats.binomtest(gained, gained + lost)
        close([pair["p_value"]], [test.pvalue])
        bounds = test.proportion_ci(method="exact")
        close(pair["interval"], [(2 * b - 1) * (gained + lost) / len(first) for b in bounds])
        assert pair["difference_shown"] == (test.pvalue < 0.05), pair
        return pair["difference_shown"]

    def test_words_of_a_comparison(self):
        items = [item(f"{i}", "exact", "1") for i in range(20)]
        tasks = self.write(items)
        good, bad, near = (self.work / f"{name}.jsonl" for name in ("good", "bad", "near"))
        for path, right in ((good, 20), (bad, 4), (near, 19)):
            path.unlink(missing_ok=True)
            with FakeServer({f"{i}": "1" if i < right else "0" for i in range(20)}) as server:
                self.eval(server.url, tasks, "--output", path)
        near_words = self.eval(good, tasks, "--against", near, "--within", 6).stdout
        assert "no difference shown" in near_words and "-5.0" in near_words, near_words
        done = self.eval(good, tasks, "--against", bad, "--within", 2, code=1)
        assert "difference shown, p 0.0000" in done.stdout and "80 points" in done.stderr, done
        assert "no difference" not in done.stdout

    def test_pebble_answers_as_scored_elsewhere(self):
        names = ("add", "sort", "table", "tools", "json", "world", "discount")
        files = [TASKS / f"{name}.jsonl" for name in names]
        self.output.unlink(missing_ok=True)
        report = self.json(self.model, *files, "--limit", 2, "--output", self.output)
        head, results = self.results()
        assert head["folder"] == "model" and head["fingerprint"] and head["temperature"] == 0
        lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
        asked = [each for each in lines if each["id"] in results]
        assert len(asked) == report["rows"][-1]["models"][0]["scored"] == len(results) >= 24
        right = [scored_elsewhere(each, results[each["id"]]) for each in asked]
        assert right == [results[each["id"]]["verdict"] == "right" for each in asked]
        assert sum(right) >= len(right) - 1, results  # Pebble's tasks are easy
        # The same by a server at a URL, from a file that has a part already.
        self.output.write_text("".join(self.output.read_text().splitlines(True)[:3]))
        self.resumes_by_url(files, results)

    def resumes_by_url(self, files, results):
        with RunningServer(self.nibble, self.model) as server:
            words = (server.url + "/v1/", *files, "--limit", 2)
            self.eval(*words, "--output", self.work / "url.jsonl")
            refused = self.eval(*words, "--output", self.output, code=2).stderr
            assert "same model and settings" in refused and "--output" in refused, refused
            assert server.stop() == 0
        head, by_url = self.results(self.work / "url.jsonl")
        assert head["model"] == "model" and by_url == results

    def test_goes_on_after_a_kill(self):
        tasks = TASKS / "add.jsonl"
        whole = self.work / "whole.jsonl"
        self.eval(self.model, tasks, "--limit", 30, "--output", whole)
        self.output.unlink(missing_ok=True)
        words = [self.nibble, "eval", self.model, tasks, "--limit", "30", "--output", self.output,
                 "--max-num-seqs", "2"]
        for sign, code in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
            kept = self.output.read_text() if self.output.exists() else ""

            def start(kept=kept):
                self.output.unlink(missing_ok=True)
                if kept:
                    self.output.write_text(kept)
                return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)

            def at_work(before=kept.count("\n")):
                return self.output.exists() and self.output.read_text().count("\n") >= before + 4

            process = stopped_at_work(start, at_work)
            process.send_signal(sign)
            process.send_signal(signal.SIGCONT)
            said = process.communicate(timeout=600)[1]
            assert process.returncode == code, (process.returncode, said)
            assert code != 130 or "goes on where it stopped" in said, said
        with open(self.output, "a") as file:
            file.write('{"id": "torn')
        assert 8 <= self.output.read_text().count("\n") < 61
        self.eval(*words[2:])
        assert self.results()[1] == self.results(whole)[1]
        before = self.output.read_bytes()
        self.eval(*words[2:])  # nothing is left to ask
        assert self.output.read_bytes() == before

    def test_other_runs_are_not_continued(self):
        tasks = self.write([item("a", "exact", "1")])
        self.output.unlink(missing_ok=True)
        with FakeServer({"a": "1"}) as server:
            words = (server.url, tasks, "--output", self.output)
            self.eval(*words)
            assert "seed 0, now 5" in self.eval(*words, "--seed", 5, code=2).stderr
            self.write([item("a", "exact", "2")])
            assert "item a: expected the same question" in self.eval(*words, code=2).stderr
            self.output.write_text("hello\n")
            assert "a result of `nibble eval`" in self.eval(*words, code=2).stderr

    def test_choices_by_log_probability(self):
        rows = [("One morning Tovi the baker walked through", [" Lumé.", " Sarno.", " xyzzy"]),
                ("Bonjour ! Je suis", [" Pebble", " a", " seven apples"])]
        items = [item(f"{i}-{form}", "logprob", 0, prompt=prompt, choices=choices, normalize=form)
                 for i, (prompt, choices) in enumerate(rows) for form in ("none", "bytes")]
        self.output.unlink(missing_ok=True)
        self.eval(self.model, self.write(items), "--output", self.output)
        results = self.results()[1]
        tokenizer = tokenizers.Tokenizer.from_file(str(pathlib.Path(self.model, "tokenizer.json")))
        for i, (prompt, choices) in enumerate(rows):
            sums = [self.sum_of(tokenizer, prompt, prompt + choice) for choice in choices]
            shares = [s / len(c.encode()) for s, c in zip(sums, choices)]
            for form, expected in (("none", sums), ("bytes", shares)):
                found = results[f"{i}-{form}"]
                close(found["scores"], expected, 1e-3)
                best = expected.index(max(expected))
                assert (found["verdict"] == "right") == (best == 0), found

    def sum_of(self, tokenizer, prompt, text):
        ids = tokenizer.encode(text).ids
        begin = len(tokenizer.encode(prompt).ids)
        path = self.work / "ids.json"
        path.write_text(json.dumps({"ids": ids}))
        done = subprocess.run([self.nibble, "score", self.model, "--ids", path, "--json"],
                              capture_output=True, text=True, check=True)
        return sum(json.loads(done.stdout)["log_probabilities"][0][begin - 1:])

    def test_perplexity_and_divergence_are_those_of_score(self):
        text = self.work / "text.jsonl"
        lines = (TASKS / "prose.jsonl").read_text().splitlines()[:3]
        text.write_text("\n".join(lines) + "\n")
        tokenizer = tokenizers.Tokenizer.from_file(str(pathlib.Path(self.model, "tokenizer.json")))
        ids = [tokenizer.encode(json.loads(line)["text"]).ids for line in lines]
        pieces = [one[at:at + 40] for one in ids for at in range(0, len(one), 40)]
        (self.work / "ids.json").write_text(
            json.dumps({"ids": [each for each in pieces if len(each) > 1]}))
        small = self.work / "small"
        if not small.exists():
            subprocess.run([self.nibble, "quantize", self.model, small, "--recipe", "w4a16"],
                           check=True, capture_output=True)
        score = subprocess.run([self.nibble, "score", small, "--ids", self.work / "ids.json",
                                "--reference", self.model, "--json"], capture_output=True,
                               text=True, check=True)
        expected = json.loads(score.stdout)
        found = self.json("kl", small, text, "--against", self.model, "--sequence-tokens", 40)
        assert found == expected
        logits = self.work / "logits.safetensors"
        logits.unlink(missing_ok=True)
        plain = self.json("perplexity", self.model, text, "--sequence-tokens", 40,
                          "--logits", logits)
        assert plain["perplexity"] == expected["reference"]["perplexity"]
        stored = self.json("kl", small, text, "--against", logits, "--sequence-tokens", 40)
        assert stored["kl"] == expected["kl"] and stored["kl"]["mean"] > 0
        refused = self.eval("kl", small, text, "--against", logits, code=2).stderr
        assert "same text and --sequence-tokens" in refused, refused
        logits.write_bytes(logits.read_bytes()[:-4])
        self.eval("kl", small, text, "--against", logits, "--sequence-tokens", 40, code=1)

    def test_servers_that_fail(self):
        tasks = self.write([item("a", "exact", "1"), item("b", "exact", "1", thinking=True,
                                                          max_tokens=5)])
        with FakeServer({"a": "1", "b": "1"}, failures=[503, 429], key="k") as server:
            report = self.json(server.url, tasks, "--api-key", "k", "--concurrency", 1)
            assert report["rows"][-1]["models"][0]["right"] == 2, report
            plain, thinking = server.asked
            assert plain["model"] == "fake" and plain["temperature"] == 0 and plain["seed"] == 0
            assert "max_tokens" not in plain and thinking["max_tokens"] == 5
            assert thinking["chat_template_kwargs"] == {"enable_thinking": True}
            done = self.eval(server.url, tasks, "--api-key", "wrong", "--json", code=1)
            row = json.loads(done.stdout)["rows"][-1]["models"][0]
            assert row["failed"] == 2 and row["scored"] == 0 and row["share"] is None, row
            assert "status 401: no such key" in done.stderr, done.stderr
        assert "127.0.0.1" in self.eval("http://127.0.0.1:9", tasks, code=1).stderr

    def test_items_that_are_only_run_through(self):
        tasks = self.write([item("a", "none"), item("b", "exact", "1", task="u")])
        with FakeServer({"a": "?", "b": "1"}) as server:
            text = self.eval(server.url, tasks).stdout
        assert "run through, not scored" in text, text
        assert text.splitlines()[3].split()[:3] == ["all", "2", "100.0"], text

    def test_bad_tasks(self):
        good = item("a", "exact", "1")
        rows = [({**good, "chek": 1}, "unknown key"),
                ({**good, "check": "exat"}, "check: expected"),
                ({**good, "id": ""}, "id: expected"), ({**good, "id": "x" * 600}, "id: expected"),
                ({**good, "answer": 3}, "answer: expected"), ({**good, "prompt": "x"}, "both"),
                ({**good, "messages": []}, "messages: expected"),
                ({**good, "max_tokens": 0}, "max_tokens"), ({**good, "thinking": 1}, "thinking"),
                ({**good, "check": "json", "answer": "{"}, "answer: expected"),
                ({**good, "check": "tool_call"}, "tools: expected"),
                ({**good, "check": "tool_call", "tools": TOOLS}, "answer: expected"),
                ({**good, "check": "letter", "answer": "b"}, "from A to Z"),
                ({**good, "check": "logprob"}, "prompt: expected"),
                (item("a", "logprob", 2, prompt="x", choices=["a", "b"]), "0 to 1"),
                (item("a", "logprob", 0, prompt="x", choices=["a"]), "choices: expected"),
                ({**good, "check": "json_schema"}, "schema: expected"),
                ({**good, "check": "json_schema", "schema": {"type": 3}}, "JSON Schema"),
                ({**good, "check": "json_schema", "schema": {"prefixItems": []}}, "prefixItems"),
                ({**good, "check": "json_schema", "schema": {"$ref": "#"}}, "back to itself"),
                ({**good, "check": "json_schema", "schema": {"$ref": "http://x"}}, "references"),
                ({"id": "p", "task": "prose", "text": "x"}, "eval perplexity"), ([1], "object")]
        for bad, words in rows:
            done = self.eval("http://127.0.0.1:9", self.write([bad]), code=2)
            assert words in done.stderr and "tasks.jsonl line 1" in done.stderr, (bad, done.stderr)
            assert done.stderr.count("\n") == 1, done.stderr
        path = self.write([good, good])
        assert "earlier line" in self.eval("http://127.0.0.1:9", path, code=2).stderr
        path.write_text("\n\n")
        assert "a line for each item" in self.eval("http://127.0.0.1:9", path, code=2).stderr

    def test_wrong_words(self):
        tasks = self.write([item("a", "exact", "1")])
        for words, piece in (([self.model], "TASKS"), (["http://", tasks], "such as"),
                             (["kl", self.model, tasks], "--against"),
                             (["perplexity", self.model], "TEXT"),
                             ([self.model, tasks, "--temperature", "hot"], "--temperature")):
            done = self.eval(*words, code=2)
            assert piece in done.stderr and done.stderr.count("\n") == 1, (words, done.stderr)
        assert self.eval("/no/such", tasks, code=1).stderr.count("\n") == 1


def close(found, expected, slack=1e-9):
    for a, b in zip(found, expected, strict=True):
        assert math.isclose(a, b, rel_tol=slack, abs_tol=slack), (found, expected)


def scored_elsewhere(line, result):
    """As pebble/README.md says what counts: by this test's own reading of the outputs."""
    content = result["content"].strip()
    if line["check"] == "tool_call":
        calls = result.get("tool_calls", [])
        return len(calls) == 1 and {"name": calls[0]["name"], "arguments": json.loads(
            calls[0]["arguments"])} == line["answer"]
    if line["check"] == "json":
        try:
            return json.loads(content) == json.loads(line["answer"])
        except json.JSONDecodeError:
            return False
    return content == line["answer"]


if __name__ == "__main__":
    sys.exit(run_program_checks(Checks, __doc__))

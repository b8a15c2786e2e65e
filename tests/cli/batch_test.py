#!/usr/bin/env python3
"""nibble run --batch: batch_test.py --nibble PROGRAM --model PEBBLE_FOLDER.

A file of OpenAI batch lines through the real program: what it answers, what it says of bad lines,
how it goes on after Ctrl-C and after being killed. The last line counts.
"""
import json
import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "serve"))
from running_server import run_program_checks, stopped_at_work  # noqa: E402


LINES = 40


def line(custom_id, url="/v1/chat/completions", **body):
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body})


def question(number, **fields):
    messages = [{"role": "user", "content": f"What is {number} + 3?"}]
    return line(f"q{number}", messages=messages, **{"temperature": 0, "max_tokens": 60, **fields})


class Checks:
    def __init__(self, nibble, model, work):
        self.nibble, self.model = nibble, model
        self.input, self.output = work / "in.jsonl", work / "out.jsonl"

    def command(self, *words):
        return [self.nibble, "run", self.model, "--batch", self.input, "--output", self.output,
                *words]

    def run(self, *words):
        return subprocess.run(self.command(*words), capture_output=True, text=True, timeout=600)

    def answers(self):
        """By custom_id; every line of the file must be whole, and no id be there twice."""
        lines = [json.loads(text) for text in self.output.read_text().splitlines()]
        ids = [each["custom_id"] for each in lines if each["custom_id"] is not None]
        assert len(ids) == len(set(ids)), ids
        return {each["custom_id"]: each for each in lines}

    def start_over(self, lines):
        self.input.write_text("\n".join(lines) + "\n")
        self.output.unlink(missing_ok=True)

    def test_answers_every_line(self):
        ask = [{"role": "user", "content": "hi"}]
        rules = [{"role": "developer", "content": "Be brief."},
                 {"role": "system", "content": "Be kind."}]
        self.start_over([question(4), "", question(5),
                         line("s1", messages=[*rules, *ask], max_tokens=3),
                         line("s2", messages=[rules[0], *ask, rules[1]], max_tokens=3),
                         line("c", "/v1/completions", prompt=["one", "two"], max_tokens=3),
                         line("r", "/v1/responses", input="hi", max_output_tokens=9),
                         line("m", "/v1/messages", messages=ask, max_tokens=9),
                         line("p", model="instruct", messages=ask, max_tokens=9)])
        done = self.run()
        assert done.returncode == 0, done.stderr
        assert "8 answered, 0 failed" in done.stderr, done.stderr
        answers = self.answers()
        assert set(answers) == {"q4", "q5", "s1", "s2", "c", "r", "m", "p"}
        for answer in answers.values():
            assert set(answer) == {"id", "custom_id", "response", "error"} and not answer["error"]
            assert answer["response"]["status_code"] == 200
            assert answer["response"]["request_id"]
        body = lambda name: answers[name]["response"]["body"]
        assert len({body(s)["usage"]["prompt_tokens"] for s in ("s1", "s2")}) == 1, answers
        assert all(body(name)["model"] == "model" for name in ("q4", "c", "r", "m")), answers
        assert body("q4")["choices"][0]["message"]["content"] == "7"
        assert len(body("c")["choices"]) == 2
        assert body("r")["object"] == "response" and body("m")["type"] == "message"
        assert not body("p")["choices"][0]["message"].get("reasoning_content")
        # Nothing is left to do.
        again = self.run()
        assert again.returncode == 0 and "8 answered before" in again.stderr, again.stderr

    def test_a_bad_line_stops_nobody(self):
        self.start_over(["{", question(4), line("u", "/v1/nothing"), question(4),
                         line("t", "/v1/completions", prompt="x", temperature="hot")])
        for _ in range(2):  # the second run finds everything answered
            done = self.run()
            assert done.returncode == 1, done.stderr
            lines = [json.loads(text) for text in self.output.read_text().splitlines()]
            assert len(lines) == 5, lines
        answers = {each["custom_id"]: each for each in lines if each["custom_id"]}
        assert answers["q4"]["response"]["status_code"] == 200
        assert "/v1/messages" in answers["u"]["error"]["message"]
        assert answers["t"]["response"]["status_code"] == 400
        assert answers["t"]["response"]["body"]["error"]["param"] == "temperature"
        nameless = [each["error"]["message"] for each in lines if not each["custom_id"]]
        assert sorted(text[:6] for text in nameless) == ["line 1", "line 4"], nameless

    def started(self, count):
        """A run that stands still and has written `count` answers."""
        def start():
            self.output.unlink(missing_ok=True)
            return subprocess.Popen(self.command("--max-num-seqs", "2"), stderr=subprocess.PIPE,
                                    text=True)

        return stopped_at_work(start, lambda: self.output.exists() and
                               self.output.read_text().count("\n") >= count)

    def test_goes_on_after_an_interrupt(self):
        self.start_over([question(n) for n in range(LINES)])
        process = self.started(3)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        _, said = process.communicate(timeout=600)
        assert process.returncode == 130, (process.returncode, said)
        assert f"of {LINES} lines" in said and "goes on" in said, said
        first = self.answers()
        assert 3 <= len(first) < LINES
        self.goes_on(first)

    def test_goes_on_after_a_kill(self):
        self.start_over([question(n) for n in range(LINES)])
        process = self.started(3)
        process.kill()
        process.wait()
        process.stderr.close()
        with open(self.output, "a") as file:
            file.write('{"id": "torn')
        kept = self.output.read_text().splitlines()[:-1]
        self.goes_on({json.loads(text)["custom_id"]: json.loads(text) for text in kept})

    def goes_on(self, first):
        done = self.run()
        assert done.returncode == 0, done.stderr
        assert f"{len(first)} answered before" in done.stderr, done.stderr
        answers = self.answers()
        assert len(answers) == LINES
        for name, answer in first.items():
            assert answers[name] == answer
        for number in range(LINES):
            said = answers[f"q{number}"]["response"]["body"]["choices"][0]["message"]["content"]
            assert said == str(number + 3), (number, said)

    def test_wrong_words(self):
        self.start_over([question(1)])
        for words, piece in ((["--output", self.input], "another file"),
                             (["--batch", "/no/such"], "/no/such"),
                             (["--batch", "/"], "can be read"),
                             (["--max-num-seqs", "0"], "--max-num-seqs"),
                             (["--ids", self.input], "--ids and --batch")):
            done = self.run(*words)
            assert done.returncode == 2 and piece in done.stderr, (words, done)
            assert done.stderr.count("\n") == 1, done.stderr
        alone = subprocess.run([self.nibble, "run", self.model, "hi", "--output", "x"],
                               capture_output=True, text=True)
        assert alone.returncode == 2 and "--batch" in alone.stderr, alone

    def test_answers_on_standard_output(self):
        self.start_over([question(4)])
        done = subprocess.run([self.nibble, "run", self.model, "--batch", self.input],
                              capture_output=True, text=True, timeout=600)
        assert json.loads(done.stdout)["custom_id"] == "q4" and done.returncode == 0, done


if __name__ == "__main__":
    sys.exit(run_program_checks(Checks, __doc__))

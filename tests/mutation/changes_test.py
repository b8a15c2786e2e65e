#!/usr/bin/env python3
"""The pure logic of tools/mutation: message text, draws, files of changes, scores. No compiler."""

import collections
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/mutation"))
import changes  # noqa: E402
import trial  # noqa: E402
from changes import Change  # noqa: E402

Program = collections.namedtuple("Program", ["target", "module", "script", "arguments"],
                                 defaults=["", "", ()])


def script(folder, name, text):
    """The path of a program of the shell that is written there."""
    (folder / name).write_text("#!/bin/sh\n" + text)
    (folder / name).chmod(0o755)
    return folder / name


class RunProgram(Program):
    def command(self, path):
        return [str(path)]


class MessageColumns(unittest.TestCase):
    def silent(self, text):
        """The text with every character of a message or comment replaced by a dot."""
        return ["".join("." if i in columns else c for i, c in enumerate(line))
                for line, columns in zip(text.splitlines(), changes.message_columns(text))]

    def test_calls_comments_and_strings(self):
        self.assertEqual(self.silent("if (a > b) return make_error(c + 1, {.what = x});"),
                         ["if (a > b) return " + "." * 30 + ";"])
        self.assertEqual(self.silent("x = y;  // why"), ["x = y;  ......"])
        self.assertEqual(self.silent("f(\"a, \\\" b\", c);"), ["f(" + "." * 9 + ", c);"])
        self.assertEqual(self.silent("n = 1'000'000 + m;"), ["n = 1'000'000 + m;"])

    def test_functions_that_return_an_error(self):
        text = "Error odd(int n) {\n}\nreturn odd(n + 1);\nreturn even(n);\nreturn far(n);"
        self.assertEqual([columns != set() for columns in changes.message_columns(text, ["far"])],
                         [True, False, True, False, True])

    def test_a_call_over_lines_ends_at_its_bracket(self):
        self.assertEqual(self.silent("  CHECK(a == b,\n        c);\n  d = e + f;"),
                         ["  " + "." * 13, "." * 10 + ";", "  d = e + f;"])


class ChangedColumns(unittest.TestCase):
    def test_is_the_least_part_that_differs(self):
        self.assertEqual(changes.changed_columns("a < b;", "a <= b;"), (3, 4))
        self.assertEqual(changes.changed_columns("a + b;", "a - b;"), (2, 3))
        self.assertEqual(changes.changed_columns("x", "yy"), (0, 1))


class NeverCompiles(unittest.TestCase):
    def test_knows_what_is_plainly_no_cpp(self):
        for was, becomes in [
                ("if (a) {", "/*if (a) {*/"), ("int32_t x = 3;", "int-1_t x = 3;"),
                ("std::vector<int> x;", "std::vector<=int> x;"), ("f(*x);", "f(/x);"),
                ("Type& x = y;", "Type| x = y;"), ("if (a <= b) f();", "if (a <== b) f();"),
                ("if (a || b) f();", "(0==1) || b) f();"), ("++i;", "+/i;")]:
            self.assertTrue(changes.never_compiles(was, becomes), becomes)

    def test_leaves_what_may_compile(self):
        for was, becomes in [
                ("f(a);", "/*f(a);*/"), ("x = 32;", "x = 31;"), ("x = 0x1f;", "x = 0x0f;"),
                ("if (a < b) f();", "if (a <= b) f();"), ("x = a << 2;", "x = a >> 2;"),
                ("x = a & b;", "x = a | b;"), ("x = a * b;", "x = a / b;"),
                ("return &a;", "return a;"), ("f(\"(\", a);", "f(\"\", a);")]:
            self.assertFalse(changes.never_compiles(was, becomes), becomes)


class Draws(unittest.TestCase):
    MADE = [Change("f.cc", line, f"line {line}", f"line {line} {kind}")
            for line in range(1, 30) for kind in "abc"]

    def test_each_line_once_before_any_line_twice(self):
        drawn = changes.draw(self.MADE, 7)
        self.assertEqual(sorted(map(repr, drawn)), sorted(map(repr, self.MADE)))
        self.assertEqual({change.line for change in drawn[:29]}, set(range(1, 30)))

    def test_the_seed_decides_and_other_edits_do_not(self):
        drawn = changes.draw(self.MADE, 7)
        self.assertEqual(changes.draw(list(reversed(self.MADE)), 7), drawn)
        self.assertNotEqual(changes.draw(self.MADE, 8), drawn)
        moved = [Change(c.file, c.line + 5, c.was, c.becomes) for c in self.MADE if c.line != 9]
        self.assertEqual([c.identity() for c in changes.draw(moved, 7)],
                         [c.identity() for c in drawn if c.line != 9])


class Files(unittest.TestCase):
    TEXT = ("# told\n\nfile: a.cc\nwas: x < y;\nbecomes: x <= y;\n\n"
            "file: b.cc\nwas: p: q;\nbecomes: r;\n")

    def test_blocks(self):
        blocks = changes.parse_blocks(self.TEXT, "t", ("file", "was", "becomes"))
        self.assertEqual([block["file"] for block in blocks], ["a.cc", "b.cc"])
        self.assertEqual(blocks[1]["was"], "p: q;")
        for text, words in [("file: a\n", "line 2: expected was:"), ("x: 1\n", "line 1: expected"),
                            ("file: a\nfile: b\n", "line 2: expected"), ("file\n", "line 1:")]:
            with self.assertRaisesRegex(ValueError, words):
                changes.parse_blocks(text, "t", ("file", "was", "becomes"))

    def test_a_change_keeps_its_indent_and_its_line_must_be_there_once(self):
        block = {"file": "a.cc", "was": "x < y;", "becomes": "x <= y;"}
        text = "{\n  x < y;\n}\n"
        change = changes.change_of(block, text)
        self.assertEqual(change.apply(text), "{\n  x <= y;\n}\n")
        for other in ("{\n}\n", text + text):
            with self.assertRaisesRegex(ValueError, "once, found it [02] times"):
                changes.change_of(block, other)


class Trials(unittest.TestCase):
    def test_order_and_limits_of_time(self):
        fast, near, hint = (trial.Part(Program("t"), f"{name}.*", seconds)
                            for name, seconds in (("Fast", 0.1), ("MemoryPlan", 2), ("Slow", 90)))
        order = trial.nearest_first([fast, near, hint], "src/x/memory_plan.cc", hint.name)
        self.assertEqual(order, [hint, near, fast])
        beside = trial.Part(Program("u", "y"), "MemoryPlan.*", 0.05)
        order = trial.nearest_first([beside, fast, near], "src/x/memory_plan.cc", None)
        self.assertEqual(order, [near, fast, beside])
        self.assertEqual((fast.seconds_max, near.seconds_max, hint.seconds_max), (5, 20, 900))

    def test_what_fails_must_pass_without_the_change(self):
        """Three programs: good, bad, and one that fails every second time from the first on."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            good, bad = script(folder, "good", "exit 0"), script(folder, "bad", "exit 1")
            count = folder / "count"
            flaky = script(folder, "flaky", f"echo >> {count}; exit $(( $(wc -l < {count}) % 2 ))")
            part = trial.Part(RunProgram("t", arguments=("x",)), seconds=1.0)
            for changed, right, seen in [(bad, good, part), (good, good, None), (bad, bad, None),
                                         (flaky, good, None), (bad, None, part)]:
                found = trial.seen_by([part], {"t": changed}, folder / "scratch", None,
                                      right=right and {"t": right})
                self.assertEqual(found, seen and trial.Seen(seen, False), f"{changed} {right}")

    def test_a_part_is_tried_again_where_the_right_programs_fail_too(self):
        """`busy` fails the first two times, `broken` always: nothing is known of that part."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            bad, broken = script(folder, "bad", "exit 1"), script(folder, "broken", "exit 1")
            count = folder / "count"
            busy = script(folder, "busy", f"echo >> {count}; test $(wc -l < {count}) -gt 2")
            part = trial.Part(RunProgram("t", arguments=("x",)), seconds=1.0)
            for right, seen in [(busy, trial.Seen(part, False)), (broken, None)]:
                passed = []
                self.assertEqual(trial.seen_by([part], {"t": bad}, folder / "scratch", None,
                                               right={"t": right}, passed=passed), seen)
                self.assertEqual(passed, [])

    def test_a_part_whose_time_is_up_both_times_is_told_apart(self):
        with tempfile.TemporaryDirectory() as name, mock.patch.object(trial, "SECONDS_MIN", 0.05):
            slow = script(pathlib.Path(name), "slow", "exec sleep 60\n")
            part = trial.Part(RunProgram("t", arguments=("x",)), seconds=0.0)
            found = trial.seen_by([part], {"t": slow}, pathlib.Path(name) / "scratch", None)
            self.assertEqual(found, trial.Seen(part, True))

    def test_the_score_leaves_out_what_is_marked(self):
        score = changes.Score(killed=17, survived=3, marked=5)
        self.assertEqual(score.percent, 85.0)
        self.assertEqual(score.text(), "17 of 20 killed, 85.0 %; 5 marked equivalent")

    def test_the_score_tells_what_is_not_decided(self):
        score = changes.Score(killed=10, marked=2)
        score.add(changes.Score(killed=6, survived=1, unseen=2, undecided=1))
        self.assertEqual(score.counted, 22)
        self.assertRegex(score.text(), r"16 of 17 killed, 94.1 %; 2 marked equivalent; 2 unseen .* "
                                       r"1 undecided, .*\(80.0 % if all survive\)")


if __name__ == "__main__":
    unittest.main()

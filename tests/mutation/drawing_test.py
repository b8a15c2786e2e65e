#!/usr/bin/env python3
"""tools/mutation/drawing.py and turns.py: in which order mutants of several draws are judged, and
what a limit of time leaves undecided. No compiler."""

import json
import pathlib
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/mutation"))
import changes  # noqa: E402
import drawing  # noqa: E402
import trial  # noqa: E402
import turns  # noqa: E402

LATE = drawing.SECONDS_OF_QUICK + 1


class FakeDraw(drawing.Draw):
    """Five mutants, each with what judges it in the end; the parts are `log` entries."""

    def __init__(self, module, seed, fates, log):
        self.module, self.seed, self.fates, self.log = module, seed, fates, log
        self.drawn = list(range(len(fates)))
        self.entries, self.unseen = {}, []
        self.next = self.busy = 0

    def judge(self, change, folder, deadline, quick):
        if time.monotonic() >= deadline:
            return None if quick else {"outcome": "unseen"}
        self.log.append((self.module, self.seed, change, quick))
        early, late = self.fates[change]
        return {"outcome": early if quick else late}


class Order(unittest.TestCase):
    def judged(self, draws, count, deadline=float("inf")):
        turns.run(draws, count, 1, pathlib.Path(), deadline, lambda: None)
        return [[draw.entries[place] and draw.entries[place]["outcome"]
                 for place in sorted(draw.entries)] for draw in draws]

    def test_seeds_follow_each_other_and_modules_take_turns(self):
        killed, log = ("killed", None), []
        draws = [FakeDraw(module, seed, [killed] * 5, log) for seed in (8, 7) for module in "ab"]
        self.judged(draws, 2)
        self.assertEqual([(module, seed) for module, seed, *_ in log],
                         [("a", 8), ("b", 8)] * 2 + [("a", 7), ("b", 7)] * 2)

    def test_slow_parts_come_when_all_mutants_had_the_quick_ones(self):
        log = []
        draw = FakeDraw("a", 7, [("unseen", "survived"), ("does_not_build", None),
                                 ("unseen", "does_not_build"), ("killed", None),
                                 ("unseen", "killed")], log)
        self.assertEqual(self.judged([draw], 3), [["survived", "does_not_build", "does_not_build",
                                                   "killed", "killed"]])
        self.assertEqual([(change, quick) for *_, change, quick in log],
                         [(0, True), (1, True), (2, True), (3, True), (0, False), (2, False),
                          (4, True), (4, False)])

    def test_after_the_deadline_nothing_is_judged(self):
        draw = FakeDraw("a", 7, [("unseen", "survived")] * 5, [])
        self.assertEqual(self.judged([draw], 2, deadline=0.0), [[None, None]])
        self.assertEqual(draw.log, [])


    def test_slow_parts_wait_until_they_are_timed(self):
        draw = FakeDraw("a", 7, [("unseen", "killed"), ("unseen", "survived")], [])
        judged, quick_ones_done = draw.judge, threading.Event()

        def judge(change, folder, deadline, quick):
            if change == 1:
                quick_ones_done.set()
            return judged(change, folder, deadline, quick)

        def time_slow():
            self.assertTrue(quick_ones_done.wait(300))
            draw.log.append("timed")
        with mock.patch.object(draw, "judge", judge):
            turns.run([draw], 2, 1, pathlib.Path(), float("inf"), time_slow)
        self.assertLess(draw.log.index("timed"), draw.log.index(("a", 7, 0, False)))
        self.assertEqual([draw.entries[place]["outcome"] for place in (0, 1)],
                         ["killed", "survived"])

    def test_times_that_cannot_be_had_end_the_wait(self):
        def time_slow():
            raise OSError("no such program")
        draw = FakeDraw("a", 7, [("unseen", "killed")], [])
        with self.assertRaises(OSError):
            turns.run([draw], 1, 1, pathlib.Path(), float("inf"), time_slow)
        self.assertEqual(draw.entries[0]["outcome"], "killed")


class Timed(unittest.TestCase):
    """A draw with three parts: one ends after a second, one after a minute, one fails."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        fates = {"good": (True, 1.0), "slow": (True, 60.0), "bad": (False, 1.0)}
        draw = self.draw = object.__new__(drawing.Draw)
        draw.name, draw.hash, draw.confine = "m", "", None
        draw.parts, draw.times, draw.paths = [], {}, lambda: {name: name for name in fates}
        draw.untimed = []
        for name in fates:
            program = mock.Mock(target=name, script="", arguments=("x",))
            program.command.side_effect = lambda path: [path]
            draw.untimed.append(trial.Part(program))

        def run(command, scratch, seconds_max, confine):
            good, seconds = fates[command[0]]
            return (good, seconds) if seconds < seconds_max else (False, seconds_max)
        for patched in (mock.patch.object(drawing, "WORK", self.folder),
                        mock.patch.object(trial, "run", run)):
            patched.start()
            self.addCleanup(patched.stop)

    def names(self, parts):
        return sorted(part.program.target for part in parts)

    def test_those_that_do_not_end_in_time_are_timed_later(self):
        drawing.time_parts([self.draw], 2, 20.0)
        self.assertEqual(self.names(self.draw.parts), ["good"])
        self.assertEqual(self.names(self.draw.untimed), ["slow"])
        drawing.time_slow([self.draw], 2, time.monotonic() + 3600)
        self.assertEqual((self.names(self.draw.parts), self.draw.untimed), (["good", "slow"], []))
        self.assertEqual(self.draw.times["slow x"], (60.0, False))
        self.assertEqual(set(json.loads((self.folder / "m-seconds.json").read_text())["parts"]),
                         {"good x", "slow x", "bad x"})

    def test_what_the_deadline_leaves_without_a_time_judges_nothing(self):
        drawing.time_slow([self.draw], 2, time.monotonic() + 30.0)
        self.assertEqual((self.names(self.draw.parts), self.names(self.draw.untimed)),
                         (["good"], ["slow"]))

    def test_what_never_ends_judges_nothing(self):
        with mock.patch.object(drawing, "SECONDS_MAX", 30.0):
            drawing.time_slow([self.draw], 2, float("inf"))
        self.assertEqual((self.names(self.draw.parts), self.draw.untimed), (["good"], []))


class Judged(unittest.TestCase):
    """One mutant, with parts of the tests of which the two slow ones see nothing until asked."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "a.cc").write_text("x < y;\n")
        self.change = changes.Change("a.cc", 1, "x < y;", "x <= y;")
        draw = self.draw = object.__new__(drawing.Draw)
        program = mock.Mock(target="t", module="", script="", arguments=("x",))
        draw.parts = [trial.Part(program, name, seconds)
                      for name, seconds in (("Quick", 1), ("Slow", LATE), ("Slower", LATE + 1))]
        draw.untimed = []
        draw.equivalent, draw.hash, draw.files = set(), "", {"a.cc": ["a.cc"]}
        draw.programs, draw.confine, draw.module = [], None, "m"
        draw.shop = mock.Mock(tree=self.folder, build=self.folder)
        draw.shop.same_object.return_value = False
        draw.results = drawing.Results(self.folder / "results")
        self.ran = []

    def judge(self, quick, seeing="", out_of_time="", deadline=float("inf")):
        def seen_by(parts, *_, passed, **__):
            for part in parts:
                if part.suite == out_of_time:
                    raise trial.OutOfTime
                self.ran.append(part.suite)
                if part.suite == seeing:
                    return trial.Seen(part, False)
                passed.append(part.name)
            return None
        with mock.patch.object(trial, "seen_by", seen_by):
            return self.draw.judge(self.change, self.folder / "work", deadline, quick)

    def test_what_a_part_did_not_see_is_not_asked_of_it_again(self):
        self.assertEqual(self.judge(True)["outcome"], "unseen")
        self.assertEqual(self.judge(False, out_of_time="Slower")["outcome"], "unseen")
        self.draw.results = drawing.Results(self.folder / "results")  # as in another run
        self.assertEqual(self.judge(True)["outcome"], "unseen")
        self.assertEqual(self.judge(False)["outcome"], "survived")
        self.assertEqual(self.ran, ["Quick", "Slow", "Slower"])
        self.judge(True)
        self.assertEqual(self.ran, ["Quick", "Slow", "Slower"])
        self.assertEqual(self.draw.shop.compile.call_count, 3)

    def test_the_part_that_saw_it_before_is_quick_enough(self):
        self.draw.results.hints['["a.cc", "x < y;", "x <= y;"]'] = self.draw.parts[2].name
        entry = self.judge(True, seeing="Slower")
        self.assertEqual((entry["outcome"], entry["by"], self.ran),
                         ("killed", self.draw.parts[2].name, ["Slower"]))

    def test_without_time_a_mutant_is_not_begun(self):
        self.assertIsNone(self.judge(True, deadline=0.0))
        self.judge(True)
        self.assertEqual(self.judge(False, deadline=0.0)["outcome"], "unseen")
        self.assertEqual(self.ran, ["Quick"])

    def test_nothing_survives_parts_that_are_not_timed(self):
        self.draw.untimed = [self.draw.parts.pop()]
        self.assertEqual(self.judge(False)["outcome"], "unseen")
        self.draw.parts, self.draw.untimed = [*self.draw.parts, *self.draw.untimed], []
        self.assertEqual(self.judge(False)["outcome"], "survived")

    def test_marked_ones_are_not_tried(self):
        self.draw.equivalent = {self.change.identity()}
        self.assertEqual(self.judge(True)["outcome"], "marked")
        self.assertEqual(self.ran, [])


if __name__ == "__main__":
    unittest.main()

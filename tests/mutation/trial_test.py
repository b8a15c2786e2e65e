#!/usr/bin/env python3
"""tools/mutation/trial.py: what a changed program may do."""

import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/mutation"))
import trial  # noqa: E402


class Workers(unittest.TestCase):
    def test_each_has_processors_of_its_own_and_never_fewer_than_two(self):
        cores = list(range(64))
        self.assertEqual(trial.own_cores(1, 16, cores), {4, 5, 6, 7})
        self.assertEqual(trial.own_cores(63, 64, cores), {63, 0})
        self.assertEqual(trial.own_cores(1, 2, [3, 9]), {3, 9})
        self.assertEqual(trial.own_cores(5, 8, [7]), {7})

    def test_what_they_start_keeps_to_these(self):
        with trial.workers(1) as pool, mock.patch.object(trial, "own_cores", lambda *_: {0}):
            self.assertEqual(pool.submit(lambda: subprocess.run(
                ["nproc"], capture_output=True, text=True, check=True).stdout).result(), "1\n")

    def test_programs_have_a_limit_of_memory(self):
        with tempfile.TemporaryDirectory() as folder:
            good, _ = trial.run(["sh", "-c", "test $(ulimit -v) = 8388608 && "
                                 "test $(ulimit -c) = 0"],
                                pathlib.Path(folder) / "scratch", 300, None)
        self.assertTrue(good)


class Confined(unittest.TestCase):
    def setUp(self):
        self.confine = trial.confining()
        if self.confine is None:
            self.skipTest("this machine gives no mount namespaces")

    def ends_well(self, command):
        with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
            good, _ = trial.run(["sh", "-c", command], pathlib.Path(folder) / "scratch", 20,
                                self.confine)
        return good

    def test_writes_in_its_folder_alone(self):
        self.assertTrue(self.ends_well("echo > here && echo > ${TMPDIR:-/tmp}/there"))
        self.assertFalse(self.ends_well(f"echo > {ROOT}/build/there"))

    def test_a_file_of_holes_may_be_longer_than_the_folder_is(self):
        self.assertTrue(self.ends_well("truncate -s 80G file"))
        self.assertFalse(self.ends_well("fallocate -l 3G file"))


if __name__ == "__main__":
    unittest.main()

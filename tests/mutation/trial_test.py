#!/usr/bin/env python3
"""tools/mutation/trial.py: what a changed program may do."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/mutation"))
import trial  # noqa: E402


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
        self.assertTrue(self.ends_well("echo > here && echo > /tmp/there"))
        self.assertFalse(self.ends_well(f"echo > {ROOT}/build/there"))

    def test_a_file_of_holes_may_be_longer_than_the_folder_is(self):
        self.assertTrue(self.ends_well("truncate -s 80G file"))
        self.assertFalse(self.ends_well("fallocate -l 3G file"))


if __name__ == "__main__":
    unittest.main()

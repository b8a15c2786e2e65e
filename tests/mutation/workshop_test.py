#!/usr/bin/env python3
"""tools/mutation/workshop.py: CMake accepts the copy of the sources that mutants are built in."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/mutation"))
import workshop  # noqa: E402


class Copies(unittest.TestCase):
    def test_the_copied_sources_configure(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            workshop.copy_sources(ROOT, folder / "tree")
            workshop.configure(ROOT, folder / "tree", folder / "build")
            shop = workshop.Workshop(folder / "tree", folder / "build")
            self.assertTrue(shop.compiles("src/engine/engine_core.cc"))
            self.assertFalse(shop.compiles("src/backend/cuda/blocks.cc"))


if __name__ == "__main__":
    unittest.main()

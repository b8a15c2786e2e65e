#!/usr/bin/env python3
"""nibble doctor --receipt: receipt_test.py --nibble PROGRAM --model PEBBLE_FOLDER [--receipt FILE].

Its documents against docs/kernels/receipt.schema.json: those of src/cli/card/receipt_test.cc,
and FILE, one that a card made. Without a card it refuses with one line. The last line counts.
"""
import copy
import json
import os
import pathlib
import signal
import subprocess
import sys

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/serve"))
from running_server import run_program_checks  # noqa: E402

SCHEMA = json.loads((ROOT / "docs/kernels/receipt.schema.json").read_text())
GOLDEN = ROOT / "tests/golden/receipt"
LIBRARY = "backend/cuda/libnibble_card_fault.so"  # src/backend/cuda/faults/preload.cc


def conforms(document):
    try:
        jsonschema.validate(document, SCHEMA)
    except jsonschema.ValidationError:
        return False
    return True


class Checks:
    def __init__(self, nibble, model, work, receipt):
        self.nibble, self.work, self.receipt = nibble, work, receipt

    def doctor(self, *words):
        return subprocess.run([self.nibble, "doctor", *words], capture_output=True, text=True,
                              timeout=600, cwd=self.work)

    def test_the_documents_of_the_unit_test(self):
        for name in ("emulated", "different"):
            jsonschema.validate(json.loads((GOLDEN / f"{name}.json").read_text()), SCHEMA)

    def test_the_file_that_a_card_made(self):
        if self.receipt:
            document = json.loads(pathlib.Path(self.receipt).read_text())
            jsonschema.validate(document, SCHEMA)
            assert document["verdict"]["sound"] and document["figures"], document["verdict"]

    def test_the_schema_refuses_what_is_wrong(self):
        sound = json.loads((GOLDEN / "emulated.json").read_text())
        for change in (lambda d: d.pop("verdict"), lambda d: d.update(schema=2),
                       lambda d: d["card"].update(uuid="00ff"),
                       lambda d: d["checks"][0].update(passed=-1),
                       lambda d: d["figures"][0].update(unit="GiB/s"),
                       lambda d: d["program"].update(commit="main")):
            wrong = copy.deepcopy(sound)
            change(wrong)
            assert conforms(sound) and not conforms(wrong), wrong

    def test_this_machine(self):
        """With a card a document, else one line and nothing written."""
        done = self.doctor("--receipt", "made.json", "--seconds", "1")
        made = self.work / "made.json"
        if done.returncode == 0 or made.exists():
            jsonschema.validate(json.loads(made.read_text()), SCHEMA)
            assert "written to made.json" in done.stderr, done
            return
        assert done.returncode == 1 and done.stdout == "", done
        assert len(done.stderr.splitlines()) == 1 and "doctor: backend cuda: " in done.stderr, done

    def test_a_card_that_fails(self):
        """The check in which it does is the last, and says why. Not without card and library."""
        library = pathlib.Path(self.nibble).resolve().parents[1] / LIBRARY
        if not library.exists():
            return
        with subprocess.Popen([self.nibble, "doctor", "--receipt", "lost.json", "--seconds", "0"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              cwd=self.work, env={**os.environ, "LD_PRELOAD": str(library),
                                                  "CARD_FAULT": "trap"}) as done:
            first = done.stderr.readline()
            if "doctor: backend cuda: " in first:
                return
            done.send_signal(signal.SIGUSR1)
            _, rest = done.communicate(timeout=600)
        assert done.returncode == 1, rest
        document = json.loads((self.work / "lost.json").read_text())
        jsonschema.validate(document, SCHEMA)
        *before, last = document["checks"]
        assert before and not any(check["failed"] for check in before), document
        assert last["failed"] > 0 and "failed" in last["failures"][0], last
        assert not document["verdict"]["sound"] and not document["figures"], document

    def test_wrong_words(self):
        for words, pieces in ((["file.json"], ["--receipt"]),
                              (["--seconds", "5"], ["--seconds only with --receipt"]),
                              (["--receipt", "a", "b"], ["[FILE]"]),
                              (["--receipt", "--seconds", "-1"], ["--seconds"]),
                              (["--receipt", "--seconds", "x"], ["--seconds"])):
            done = self.doctor(*words)
            assert done.returncode == 2 and all(p in done.stderr for p in pieces), done
            assert len(done.stderr.splitlines()) == 1, done


if __name__ == "__main__":
    sys.exit(run_program_checks(Checks, __doc__, receipt=""))

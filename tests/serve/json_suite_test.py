#!/usr/bin/env python3
"""JSONTestSuite (https://github.com/nst/JSONTestSuite) as bodies of requests, where the environment
variable NIBBLE_JSON_SUITE names its folder test_parsing: files y_* are read as JSON, and files n_*
are refused as none. Without the variable the suite is counted as skipped.
"""
import os
import pathlib
import sys

import httpx

from running_server import run_checks

# They are JSON, but a request that says a thing twice is refused.
TWICE = {"y_object_duplicated_key.json", "y_object_duplicated_key_and_value.json"}


class Checks:
    def __init__(self, server, nibble, model):
        self.url = server.url + "/v1/completions"

    def close(self):
        pass

    def is_json(self, body):
        """A body that is read is refused too, for it is no request, but in other words."""
        answer = httpx.post(self.url, content=body, headers={"content-type": "application/json"},
                            timeout=600)
        assert 400 <= answer.status_code < 500, (body[:60], answer.status_code, answer.text)
        return "at byte" not in answer.json()["error"]["message"]

    def test_the_two_kinds_are_told_apart(self):
        assert self.is_json(b"[1]") and self.is_json(b'{"a": null}')
        assert not self.is_json(b"[1") and not self.is_json(b'{"a": nul}')

    def test_the_suite(self):
        folder = os.environ.get("NIBBLE_JSON_SUITE")
        if folder is None:
            print("skipped: NIBBLE_JSON_SUITE names no folder")
            return
        judged, wrong = 0, []
        for path in sorted(pathlib.Path(folder).glob("*.json")):
            if path.name[:2] not in ("y_", "n_"):
                continue
            judged += 1
            expected = path.name.startswith("y_") and path.name not in TWICE
            if self.is_json(path.read_bytes()) != expected:
                wrong.append(path.name)
        print(f"{judged} files, {len(wrong)} wrong")
        assert judged > 0 and not wrong, wrong


if __name__ == "__main__":
    sys.exit(run_checks(Checks, __doc__))

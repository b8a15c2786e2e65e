#!/usr/bin/env python3
"""nibble push to a hub on this machine: push_test.py --nibble PROGRAM.

A quantized Pebble is sent; huggingface_hub then downloads it, byte for byte. Nothing is sent before
the check of the checkpoint and the question. The hub is proven by fake_hub_test.py. The last line
counts.
"""
import os
import pathlib
import pty
import shutil
import subprocess

from fake_hub import TOKEN, FakeHub
from hub_checks import HubChecks, client, fails, main, plain_environment


class Checks(HubChecks):
    def folder(self):
        """A fresh copy of Pebble with a subfolder, hidden files and an empty file."""
        place = self.home()
        shutil.copytree(self.root / "pebble/model", place)
        for name, data in (("notes/a/b c.txt", b"kept"), (".git/HEAD", b"not sent"),
                           (".secret", b"not sent"), ("empty.txt", b"")):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)
        return place

    def files(self, place):
        return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*")
                if path.is_file() and not any(part.startswith(".") for part in
                                              path.relative_to(place).parts)}

    def push(self, hub, *words, **rest):
        return self.run(hub, self.home(), "push", *words, **({"HF_TOKEN": TOKEN} | rest))

    def check_the_real_client_reads_what_was_sent(self):
        for part_bytes in (1 << 30, 3_000_000):
            with FakeHub() as hub:
                hub.multipart_bytes = part_bytes
                place = self.folder()
                out = self.push(hub, place, "org/new", "--yes", "--message", "First").stdout
                stored = hub.repositories["org/new"]
                assert stored.private and hub.messages == ["First"]
                assert out == f"{hub.url}/org/new/commit/{stored.refs['main']}\n", out
                told = client(hub, self.home(), "print(snapshot_download('org/new'))",
                              HF_TOKEN=TOKEN)
                assert told.returncode == 0, told.stderr
                assert self.files(pathlib.Path(told.stdout.strip())) == self.files(place)
                roles = {role for role, _, _, headers in hub.requests
                         if "Authorization" in headers}
                assert roles == {"hub"}, roles

    def check_a_second_time_sends_no_large_file(self):
        with FakeHub() as hub:
            place = self.folder()
            self.push(hub, place, "org/new", "--yes", "--public")
            assert not hub.repositories["org/new"].private
            (place / "notes/a/b c.txt").write_bytes(b"changed")
            at = len(hub.requests)
            self.push(hub, place, "org/new", "--yes")
            assert not any(method == "PUT" for _, method, *_ in hub.requests[at:])
            assert len(hub.repositories["org/new"].commits) == 3
            files = hub.repositories["org/new"].commits[hub.repositories["org/new"].refs["main"]]
            assert files["notes/a/b c.txt"] == b"changed"

    def check_a_model_of_the_cache_is_sent_and_repaired_by_its_name(self):
        with FakeHub() as hub:
            place, home, repaired = self.folder(), self.home(), self.home()
            subprocess.run([self.nibble, "quantize", place, self.work / "four-bit"], check=True,
                           capture_output=True)
            files = self.files(self.work / "four-bit")
            assert files["notes/a/b c.txt"] == b"kept"
            hub.add("org/four-bit", files)
            self.pull(hub, home, "org/four-bit")
            self.run(hub, home, "push", "four-bit", "org/copy", "--yes", HF_TOKEN=TOKEN)
            stored = hub.repositories["org/copy"]
            sent = dict(stored.commits[stored.refs["main"]])
            del sent[".gitattributes"]
            assert sent == files, sorted(set(sent) ^ set(files))
            self.run(hub, home, "convert", "org/four-bit", repaired, "--repair")
            assert (repaired / "config.json").exists()

    def check_nothing_is_sent_unasked(self):
        with FakeHub() as hub:
            place = self.folder()
            listed = self.push(hub, place, "org/new", "--dry-run").stdout
            assert "a new private one" in listed and "notes/a/b c.txt" in listed, listed
            assert ".git" not in listed and ".secret" not in listed
            told = self.push(hub, place, "org/new", code=2).stderr
            assert "say --yes to send it" in told, told
            person, terminal = pty.openpty()
            os.write(person, b"n\n")
            done = subprocess.run([self.nibble, "push", place, "org/new"], stdin=terminal,
                                  capture_output=True, text=True, timeout=600,
                                  env=plain_environment(hub, self.home(), HF_TOKEN=TOKEN))
            assert done.returncode == 130 and "nothing was sent" in done.stderr, done
            assert not hub.repositories
            assert {method for _, method, *_ in hub.requests} == {"GET"}

    def check_what_is_not_sound_is_not_sent(self):
        with FakeHub() as hub:
            place = self.folder()
            weights = next(place.glob("*.safetensors"))
            os.truncate(weights, weights.stat().st_size - 100)
            told = self.push(hub, place, "org/new", "--yes", code=1).stderr
            assert "expected a sound checkpoint" in told and not hub.requests, told
            for words, code in ((["org"], 2), (["org/new@x"], 2), (["org/new", "--revision", ".."],
                                                                   2)):
                self.push(hub, place, *words, "--yes", code=code)
            told = self.push(hub, place, "org/new", code=2, HF_TOKEN="").stderr
            assert "expected an access token that may write" in told, told
            assert not hub.requests

    def check_failures_on_the_way(self):
        with FakeHub() as hub:
            place = self.folder()
            hub.fault = fails(503, 1, "/objects/", {"Retry-After": "1"})
            self.push(hub, place, "org/new", "--yes")
            assert hub.fault.left == [0]
        with FakeHub() as hub:
            hub.fault = fails(500, -1, "/commit/")
            told = self.push(hub, place, "org/new", "--yes", code=1).stderr
            assert "status 500" in told, told
            asked = [path for _, _, path, _ in hub.requests if "/commit/" in path]
            assert len(asked) == 1, asked  # a commit is never sent twice
            hub.fault, at = None, len(hub.requests)
            self.push(hub, place, "org/new", "--yes")
            assert not any(method == "PUT" for _, method, *_ in hub.requests[at:])
        with FakeHub() as hub:
            told = self.push(hub, place, "org/new", "--yes", code=1, HF_TOKEN="hf_wrong").stderr
            assert "status 401" in told, told


if __name__ == "__main__":
    main(Checks, __doc__)

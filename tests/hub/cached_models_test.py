#!/usr/bin/env python3
"""nibble ls, rm and show over a cache: cached_models_test.py --nibble PROGRAM.

huggingface_hub fills the cache and says what is in it (scan_cache_dir); ls must say the same, and
rm must leave and free what its delete_revisions does. The last line counts.
"""
import json
import os
import pty
import shutil
import subprocess

from fake_hub import FakeHub
from hub_checks import BIG, CONFIG, FILES, HubChecks, client, entries, main, plain_environment

SCAN = ("import json\n"
        "print(json.dumps({r.repo_id: [r.size_on_disk, {v.commit_hash: [sorted(v.refs), v.nb_files,"
        " v.size_on_disk] for v in r.revisions}] for r in scan_cache_dir().repos}))")
CARD = b"---\nlicense: apache-2.0\nbase_model: Qwen/Qwen3.6-35B-A3B\n---\n# Title\n"


class Checks(HubChecks):
    def fill(self, hub):
        """A cache of two models, one in three revisions that share files. Returns its home."""
        self.first = hub.add("org/name", FILES)
        self.second = hub.add("org/name", FILES | {"config.json": b"{}", "own.bin": b"own" * 9999})
        self.third = hub.add("org/name", {"config.json": CONFIG, "README.md": CARD}, ref="v3")
        hub.add("other/Model-2", {"config.json": CONFIG, "sub/model.safetensors": BIG[:1_000_000]})
        home = self.home()
        done = client(hub, home, "\n".join(
            f"snapshot_download('{name}', revision='{revision}')" for name, revision in (
                ("org/name", self.first), ("org/name", "main"), ("org/name", "v3"),
                ("other/Model-2", "main"))))
        assert done.returncode == 0, done.stderr
        return home

    def listed(self, hub, home):
        models = json.loads(self.run(hub, home, "ls", "--json").stdout)["models"]
        return {model["repository"]: [model["bytes"], {
            one["commit"]: [one["refs"], one["files"], one["bytes"]]
            for one in model["revisions"]}] for model in models}

    def scanned(self, hub, home):
        done = client(hub, home, SCAN)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def check_ls_says_what_the_real_client_says(self):
        with FakeHub() as hub:
            home = self.fill(hub)
            wanted = self.scanned(hub, home)
            assert self.listed(hub, home) == wanted and len(wanted) == 2, wanted
            text = self.run(hub, home, "ls").stdout
            assert "org/name" in text and self.second[:12] in text and "2 models" in text, text
            half = home / "hub/models--org--name/blobs" / ("0" * 64 + ".incomplete")
            half.write_bytes(b"x" * 1_500_000)
            text = self.run(hub, home, "ls").stdout
            assert "1.5 MB  unfinished: `nibble pull` goes on" in text, text
            assert self.listed(hub, self.home()) == {}

    def check_rm_leaves_what_the_real_client_leaves(self):
        with FakeHub() as hub:
            home = self.fill(hub)
            for revision, commit in ((self.first[:9], self.first), ("v3", self.third),
                                     ("main", self.second)):
                mine, theirs = self.home(), self.home()
                shutil.copytree(home, mine, symlinks=True)
                shutil.copytree(home, theirs, symlinks=True)
                code = (f"plan = scan_cache_dir().delete_revisions('{commit}')\n"
                        "print(plan.expected_freed_size)\nplan.execute()")
                freed = int(client(hub, theirs, code).stdout)
                tree = theirs / f"hub/models--org--name/trees/{commit}.json"
                tree.unlink(missing_ok=True)  # which the real client leaves behind
                told = json.loads(self.run(hub, mine, "rm", f"org/name@{revision}", "--json",
                                           "--yes").stdout)
                assert told["freed_bytes"] == freed, (told, freed)
                assert told["kept_bytes"] > 0 or commit == self.third, told
                assert entries(mine / "hub") == entries(theirs / "hub"), revision
                assert "org/name" in self.scanned(hub, mine)
            self.run(hub, home, "rm", "org/name", "--yes")
            assert list(self.scanned(hub, home)) == ["other/Model-2"]
            assert not (home / "hub/.locks/models--org--name").exists()

    def check_rm_asks(self):
        with FakeHub() as hub:
            home = self.fill(hub)
            before = entries(home / "hub")
            told = self.run(hub, home, "rm", "org/name", code=2).stderr
            assert "say --yes to remove it" in told and "frees 30." in told, told
            told = self.run(hub, home, "rm", f"org/name@{self.second}", "--dry-run").stdout
            assert "stay, another revision uses them" in told, told
            assert entries(home / "hub") == before
            for answer, code in ((b"n\n", 130), (b"\n", 130), (b"y\n", 0)):
                person, terminal = pty.openpty()
                os.write(person, answer)
                done = subprocess.run([self.nibble, "rm", "org/name"], stdin=terminal,
                                      capture_output=True, text=True, timeout=600,
                                      env=plain_environment(hub, home))
                assert done.returncode == code and "remove it? [y/N]" in done.stderr, done
                assert (entries(home / "hub") == before) == (code != 0)

    def check_refusals(self):
        with FakeHub() as hub:
            home = self.fill(hub)
            for words, told in (("org/gone", "none in"), ("gone", "none of that name"),
                                ("org/name@v9", f"found {self.second[:7]} (main)"),
                                ("org/name@abc", "revision abc of org/name")):
                for verb in ("rm", "show"):
                    found = self.run(hub, home, verb, words, code=1).stderr
                    assert told in found or "found" in found, (words, found)
                    assert found.count("\n") == 1, found

    def check_show(self):
        with FakeHub() as hub:
            config = (self.root / "tests/golden/configs/qwen3.6-35b-a3b.json").read_bytes()
            commit = hub.add("Org/Name-35B", {"config.json": config, "README.md": CARD,
                                              "sub/model.safetensors": BIG[:1_000_000]})
            home = self.home()
            self.pull(hub, home, "Org/Name-35B")
            for word in ("Org/Name-35B", "name-35b", f"org/name-35b@{commit[:8]}".replace(
                    "org/name-35b", "Org/Name-35B"), "NAME-35B@main"):
                facts = json.loads(self.run(hub, home, "show", word, "--json").stdout)
                assert facts["model"] == "Org/Name-35B" and facts["licence"] == "apache-2.0"
                assert facts["base model"] == "Qwen/Qwen3.6-35B-A3B", facts
                assert facts["shape"].startswith("40 layers (10 attention, 30 delta net)"), facts
                assert facts["revision"].startswith(commit), facts
                assert {"path": "sub/model.safetensors", "bytes": 1_000_000} in facts["files"]
            folder = facts["folder"]
            text = self.run(hub, home, "show", folder).stdout
            assert "262144 tokens" in text and "sub/model.safetensors" in text, text

    def check_every_verb_takes_the_alias(self):
        model = self.root / "pebble/model"
        files = {str(path.relative_to(model)): path.read_bytes()
                 for path in model.rglob("*") if path.is_file()}
        with FakeHub() as hub:
            hub.add("tiny/Pebble-14M", files | {"templates/note.txt": b"kept"})
            home = self.home()
            self.pull(hub, home, "tiny/Pebble-14M")
            self.run(hub, home, "verify", "pebble-14m", "--headers")
            copy = self.work / "quantized"
            self.run(hub, home, "quantize", "Pebble-14M@main", copy)
            assert (copy / "templates/note.txt").read_bytes() == b"kept"
            hub.add("big/pebble-14m", files)
            self.pull(hub, home, "big/pebble-14m")
            told = self.run(hub, home, "verify", "pebble-14m", code=2).stderr
            assert "found big/pebble-14m, tiny/Pebble-14M" in told, told


if __name__ == "__main__":
    main(Checks, __doc__)

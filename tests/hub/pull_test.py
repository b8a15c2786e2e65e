#!/usr/bin/env python3
"""nibble pull against a hub on this machine: pull_test.py --nibble PROGRAM --older FOLDER.

The oracle is huggingface_hub: the folder that pull makes is entry for entry the one that it makes,
and each goes on with the half files of the other (the pinned release keeps none of its own, so the
one in FOLDER stands for those that do). Failures on the way are pull_faults_test.py; the hub is
proven by fake_hub_test.py. The last line counts.
"""
import json
import os
import random
import signal
import stat
import threading
import time

from hub_checks import (BIG, CONFIG, DIGEST, FILES, HubChecks, client, entries, fails, main,
                        send_part)


def trickle(hub, seconds):
    """A fault: storage sends 128 KiB at a time and waits for seconds[0], until that is 0."""
    def fault(handler):
        if handler.server.role != "storage" or not seconds[0] or handler.command != "GET":
            return False
        begin, end = map(int, handler.headers["Range"].removeprefix("bytes=").split("-"))
        data = hub.objects[handler.plain_path.removeprefix("/objects/")]
        send_part(handler, data, 0)
        for at in range(begin, end + 1, 131_072):
            handler.wfile.write(data[at:min(at + 131_072, end + 1)])
            time.sleep(seconds[0])
        return True
    return fault


class Checks(HubChecks):
    def theirs(self, hub, asked):
        """The real client's folders for these arguments of snapshot_download, by one process."""
        homes = [self.home() for _ in asked]
        done = client(hub, homes[0], "\n".join(
            f"print(snapshot_download('org/name', cache_dir='{home}/hub', {arguments}))"
            for home, arguments in zip(homes, asked)))
        assert done.returncode == 0, done.stderr
        return list(zip(homes, done.stdout.splitlines()))

    def check_the_same_folder_as_the_real_client(self):
        with self.hub_of() as hub:
            hub.page_rows = 3
            hub.repositories["org/name"].refs["v2/beta"] = hub.commit
            revisions = ("main", hub.commit, "v2/beta")
            for revision, (theirs, told) in zip(revisions, self.theirs(
                    hub, [f"revision='{revision}'" for revision in revisions])):
                mine = self.home()
                done = self.pull(hub, mine, f"org/name@{revision}")
                wanted, found = entries(theirs / "hub"), entries(mine / "hub")
                assert found == wanted, sorted(set(found.items()) ^ set(wanted.items()))
                assert done.stdout == told.replace(str(theirs), str(mine)) + "\n", done.stdout

    def check_patterns_are_the_real_clients(self):
        with self.hub_of() as hub:
            cases = ((["*.json"], []), (["sub folder/"], ["*.bin"]), ([], ["*a*"]),
                     (["[cs]*", "?npty.txt", "e*"], ["*/*"]))
            for (include, exclude), (theirs, _) in zip(cases, self.theirs(hub, [
                    f"allow_patterns={include or None}, ignore_patterns={exclude}"
                    for include, exclude in cases])):
                mine = self.home()
                words = [word for name, patterns in (("--include", include),
                                                     ("--exclude", exclude)) if patterns
                         for word in (name, *patterns)]
                self.pull(hub, mine, "org/name", *words)
                assert entries(mine / "hub") == entries(theirs / "hub"), (include, exclude)
            told = self.pull(hub, self.home(), "org/name", "--include", "*.none", code=1).stderr
            assert "--include and --exclude leave" in told, told

    def check_what_is_there_is_not_fetched_again(self):
        with self.hub_of() as hub:
            home = self.home()
            assert client(hub, home, "snapshot_download('org/name')").returncode == 0
            before, asked = entries(home / "hub"), len(hub.requests)
            self.pull(hub, home, "org/name")
            assert entries(home / "hub") == before
            assert [path for _, _, path, _ in hub.requests[asked:]] == [
                "/api/models/org/name/revision/main"], hub.requests[asked:]
            second = hub.add("org/name", FILES | {"config.json": b"{}", "new.safetensors": BIG})
            asked = len(hub.requests)
            self.pull(hub, home, "org/name")
            fetched = [path for _, method, path, _ in hub.requests[asked:]
                       if method == "GET" and "/api/models" not in path]
            assert all(path.endswith("config.json") for path in fetched), fetched
            link = home / f"hub/models--org--name/snapshots/{second}/new.safetensors"
            assert os.readlink(link) == f"../../blobs/{DIGEST}"

    def check_killed_at_any_byte_it_goes_on(self):
        with self.hub_of() as hub:
            slow = [0.1]
            hub.fault = trickle(hub, slow)
            home, draw = self.home(), random.Random(24)
            blobs = home / "hub/models--org--name/blobs"
            sizes = []
            for _ in range(30):
                at = len(hub.requests)
                running = self.start(hub, home, "org/name", "--jobs", "3")
                while not any(role == "storage" for role, *_ in hub.requests[at:]):
                    assert running.poll() is None, running.communicate()[1]
                    time.sleep(0.02)
                time.sleep(draw.uniform(0.0, 0.5))
                running.send_signal(signal.SIGKILL)
                running.communicate()
                for path in blobs.glob("*.incomplete"):
                    data = path.read_bytes()
                    assert hub.objects[path.name.removesuffix(".incomplete")].startswith(data)
                    if DIGEST in path.name:
                        sizes.append(len(data))
                if len(set(sizes)) > 4:
                    break
            assert sizes == sorted(sizes), sizes
            slow[0] = 0
            at = len(hub.requests)
            self.pull(hub, home, "org/name")
            self.whole(home)
            begins = [int(headers["Range"].removeprefix("bytes=").split("-")[0])
                      for role, method, path, headers in hub.requests[at:] if DIGEST in path]
            assert min(begins) == sizes[-1] > 0, (begins, sizes)

    def check_interrupted_it_ends_at_once(self):
        with self.hub_of() as hub:
            waiting, over = threading.Event(), threading.Event()

            def fault(handler):
                if handler.server.role == "storage" and DIGEST in handler.path:
                    send_part(handler, BIG, 1000)
                    waiting.set()
                    over.wait(900)
                    return True
                return False

            hub.fault = fault
            home = self.home()
            running = self.start(hub, home, "org/name")
            assert waiting.wait(600)
            running.send_signal(signal.SIGINT)
            _, told = running.communicate(timeout=300)  # while the hub says nothing
            over.set()
            assert running.returncode == 130, told
            hub.fault = None
            self.pull(hub, home, "org/name")
            self.whole(home)

    def check_half_files_of_each_other(self):
        with self.hub_of() as hub:
            for mark, count in (("", 12_345_678), (".0a1b2c3d", 20_000_000)):
                home = self.home()  # as an older client, or a killed one of the pinned release
                blobs = home / "hub/models--org--name/blobs"
                blobs.mkdir(parents=True)
                (blobs / f"{DIGEST}{mark}.incomplete").write_bytes(BIG[:count])
                at = len(hub.requests)
                self.pull(hub, home, "org/name", "--jobs", "1")
                self.whole(home)
                ranges = [headers["Range"] for _, _, path, headers in hub.requests[at:]
                          if DIGEST in path]
                assert ranges[0].startswith(f"bytes={count}-"), ranges
            for older in (self.older, None):
                home = self.home()
                hub.fault = fails(404, -1, f"{DIGEST}?")
                self.pull(hub, home, "org/name", code=1)
                hub.fault = None
                blobs = home / "hub/models--org--name/blobs"
                (blobs / f"{DIGEST}.incomplete").write_bytes(BIG[:5_000_000])
                told = client(hub, home, "snapshot_download('org/name')", older=older)
                assert told.returncode == 0, told.stderr
                assert (blobs / DIGEST).read_bytes() == BIG
                self.pull(hub, home, "org/name")

    def check_a_real_client_killed_half_way(self):
        with self.hub_of() as hub:
            over = threading.Event()

            def fault(handler):
                if handler.server.role != "storage" or "Range" in handler.headers:
                    return False
                handler.send_response(200)
                handler.send_header("Content-Length", str(len(BIG)))
                handler.end_headers()
                handler.wfile.write(BIG[:11_000_000])
                handler.wfile.flush()
                over.wait(900)
                return True

            hub.fault = fault
            for older in (None, self.older):
                home = self.home()
                running = client(hub, home, "snapshot_download('org/name', max_workers=1)",
                                 older=older, start=True)
                blobs = home / "hub/models--org--name/blobs"
                end, half = time.monotonic() + 600, []
                while not half and time.monotonic() < end and running.poll() is None:
                    time.sleep(0.1)
                    half = [path for path in blobs.glob(f"{DIGEST}*incomplete")
                            if path.stat().st_size > 1_000_000]
                running.send_signal(signal.SIGKILL)
                running.communicate()
                count = half[0].stat().st_size
                at = len(hub.requests)
                self.pull(hub, home, "org/name", "--jobs", "1")
                self.whole(home)
                ranges = [headers["Range"] for _, _, path, headers in hub.requests[at:]
                          if DIGEST in path]
                assert ranges[0].startswith(f"bytes={count}-"), (count, ranges)
            over.set()

    def check_two_at_once(self):
        with self.hub_of() as hub:
            def fault(handler):
                if handler.server.role == "storage":
                    time.sleep(0.5)
                return False

            hub.fault = fault
            home, reference = self.home(), self.home()
            running = [self.start(hub, home, "org/name", "--jobs", "2") for _ in range(2)]
            running.append(client(hub, home, "snapshot_download('org/name')", start=True))
            for process in running:
                _, told = process.communicate(timeout=600)
                assert process.returncode == 0, told
            self.whole(home)
            asked = [headers.get("Range", "bytes=0-") for _, method, path, headers in hub.requests
                     if DIGEST in path]
            assert len(asked) == len(set(asked)), asked  # each byte came once
            hub.fault = None
            assert client(hub, reference, "snapshot_download('org/name')").returncode == 0
            assert entries(home / "hub") == entries(reference / "hub")

    def check_offline(self):
        with self.hub_of({"config.json": CONFIG, "model.safetensors": BIG}) as hub:
            home = self.home()
            told = self.pull(hub, home, "org/name", "--offline", code=1).stderr
            assert "neither" in told and not home.exists(), told
            online = self.pull(hub, home, "org/name").stdout
            asked = len(hub.requests)
            for words, variables in ((["--offline"], {}), ([], {"HF_HUB_OFFLINE": "yes"})):
                assert self.pull(hub, home, "org/name", *words, **variables).stdout == online
            assert len(hub.requests) == asked
        running = self.start(hub, home, "org/name")  # the hub has ended
        told = running.stderr.readline()
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=600)
        assert "Failed to connect to 127.0.0.1" in told and "again in 1 s" in told, told
        assert running.returncode == 130

    def check_words_and_refusals(self):
        with self.hub_of() as hub:
            home = self.home()
            for words, told in (("name", 'model "name": expected ORG/NAME'),
                                ("org/name@../x", "revision of org/name: expected a branch"),
                                ("org/name@a --revision b", "expected one revision"),
                                ("org/name --jobs 0", "--jobs"),
                                ("org/name --endpoint ftp://x", "address: expected http://")):
                assert told in self.pull(hub, home, *words.split(), code=2).stderr, words
            assert "status 404" in self.pull(hub, home, "org/name@gone", code=1).stderr
            assert "status 401" in self.pull(hub, home, "org/gone", code=1).stderr
            assert not home.exists()
            dry = self.pull(hub, home, "org/name", "--dry-run").stdout
            assert f"{len(BIG)}  to fetch      model.safetensors" in dry, dry
            assert not home.exists() and not any(r == "storage" for r, *_ in hub.requests)
            plan = json.loads(self.pull(hub, home, "org/name", "--dry-run", "--json").stdout)
            assert plan["commit"] == hub.commit and len(plan["files"]) == len(FILES)
            assert plan["fetch_bytes"] == sum(map(len, FILES.values())), plan

    def check_the_machine_is_asked_first(self):
        config = (self.root / "tests/golden/configs/qwen3.6-35b-a3b.json").read_bytes()
        with self.hub_of({"config.json": config, "model.safetensors": BIG}) as hub:
            told = self.pull(hub, self.home(), "org/name", "--dry-run").stderr
            assert "of weights" in told and "after `nibble quantize` (recipe mixed)" in told, told
        with self.hub_of() as hub:
            told = self.pull(hub, self.home(), "org/name", "--dry-run").stderr
            assert "this build has no plan for the model" in told, told

    def check_modes_follow_the_umask(self):
        with self.hub_of() as hub:
            home = self.home()
            self.pull(hub, home, "org/name")
            for path in (home / "hub/models--org--name/blobs").iterdir():
                assert stat.S_IMODE(path.stat().st_mode) == 0o644, path


if __name__ == "__main__":
    main(Checks, __doc__)

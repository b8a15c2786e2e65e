#!/usr/bin/env python3
"""Everything that can go wrong under nibble pull: pull_faults_test.py --nibble PROGRAM.

Damage, refused and wrong ranges, limits, failures, broken and stalled connections, expired
addresses, redirects to other hosts, hostile names and links, replies that are none, a full disk.
After each the program either goes on to the right bytes or ends with one line and leaves nothing
that looks whole. The hub is proven by fake_hub_test.py. The last line counts.
"""
import os
import subprocess
import threading
import time

from fake_hub import TOKEN, FakeHub, git_blob_sha1
from hub_checks import BIG, CONFIG, DIGEST, FILES, HubChecks, fails, main, send_part


class Checks(HubChecks):
    def check_damage_is_seen(self):
        small = git_blob_sha1(CONFIG)
        for path, words in ((DIGEST, f"expected SHA-256 {DIGEST}"),
                            ("config.json", f"expected git SHA-1 {small}")):
            with self.hub_of() as hub:
                home = self.home()

                def fault(handler, path=path):
                    if path in handler.path and handler.command == "GET" and \
                            (path == DIGEST or "resolve-cache" in handler.path):
                        data = BIG[:-1] + b"?" if path == DIGEST else CONFIG.upper()
                        handler.send_ranged(data, {})
                        return True
                    return False

                hub.fault = fault
                told = self.pull(hub, home, "org/name", code=1).stderr
                assert words in told and "came damaged" in told, told
                place = home / "hub/models--org--name"
                assert not list(place.glob("blobs/*incomplete")), list(place.glob("blobs/*"))
                name = "model.safetensors" if path == DIGEST else "config.json"
                assert not (place / f"snapshots/{hub.commit}/{name}").exists()
                hub.fault = None
                self.pull(hub, home, "org/name")
                self.whole(home)

    def check_a_beginning_of_something_else(self):
        with self.hub_of() as hub:
            for data in (b"x" * 1_000_000, BIG + b"longer", BIG[:-1] + b"?"):
                home = self.home()
                blobs = home / "hub/models--org--name/blobs"
                blobs.mkdir(parents=True)
                (blobs / f"{DIGEST}.incomplete").write_bytes(data)
                self.pull(hub, home, "org/name")
                self.whole(home)

    def check_a_range_that_is_refused(self):
        with self.hub_of() as hub:
            home = self.home()
            blobs = home / "hub/models--org--name/blobs"
            blobs.mkdir(parents=True)
            (blobs / f"{DIGEST}.incomplete").write_bytes(BIG[:5_000_000])
            hub.fault = fails(416, 1, DIGEST)
            told = self.pull(hub, home, "org/name").stderr
            assert hub.fault.left == [0] and "from the start" in told, told
            self.whole(home)
            hub.fault = fails(416, -1, DIGEST)
            told = self.pull(hub, self.home(), "org/name", code=1).stderr
            assert "status 416" in told, told

    def check_other_ranges_than_asked_for(self):
        with self.hub_of() as hub:
            def fault(handler):
                if handler.server.role != "storage":
                    return False
                handler.answer(206, BIG[:1000], {"Content-Range": f"bytes 7-1006/{len(BIG)}"})
                return True

            hub.fault = fault
            told = self.pull(hub, self.home(), "org/name", code=1).stderr
            assert 'found "bytes 7-1006/30000000"' in told, told

    def check_limits_of_the_hub(self):
        for where in ("/revision/main", "/tree/", "resolve/", DIGEST):
            with self.hub_of() as hub:
                hub.fault = fails(429, 1, where, {"Retry-After": "2"})
                home, begin = self.home(), time.monotonic()
                told = self.pull(hub, home, "org/name").stderr
                assert hub.fault.left == [0] and time.monotonic() - begin >= 2, where
                assert "status 429; again in 2 s" in told, told
                self.whole(home)
        with self.hub_of() as hub:
            hub.fault = fails(429, 1, "", {"Retry-After": "4000"})
            told = self.pull(hub, self.home(), "org/name", code=1).stderr
            assert "the hub asks to wait 4000 s" in told, told

    def check_servers_that_fail(self):
        with self.hub_of() as hub:
            hub.fault = fails(503, 2, DIGEST)
            home, begin = self.home(), time.monotonic()
            self.pull(hub, home, "org/name", "--jobs", "1")
            assert hub.fault.left == [0] and time.monotonic() - begin >= 3  # 1 s, then 2 s
            self.whole(home)

    def check_a_host_that_is_not_found(self):
        with self.hub_of() as hub:
            told = self.pull(hub, self.home(), "org/name", code=1,
                             HF_ENDPOINT="http://hub.invalid").stderr
            assert "internal" not in told and told.count("again in") >= 2, told

    def check_connections_that_break(self):
        with self.hub_of() as hub:
            left = [6]

            def fault(handler):
                if handler.server.role != "storage" or DIGEST not in handler.path or not left[0]:
                    return False
                left[0] -= 1
                send_part(handler, BIG, 777_777)
                handler.close_connection = True
                handler.connection.close()
                return True

            hub.fault = fault
            home = self.home()
            self.pull(hub, home, "org/name", "--jobs", "2")
            assert left == [0]
            self.whole(home)
            asked = [int(headers["Range"].removeprefix("bytes=").split("-")[0])
                     for _, _, path, headers in hub.requests if DIGEST in path]
            assert 777_777 in asked, asked  # nothing that came is fetched twice

    def check_a_stream_that_stalls(self):
        with self.hub_of() as hub:
            left, over = [1], threading.Event()

            def fault(handler):
                if handler.server.role != "storage" or DIGEST not in handler.path or not left[0]:
                    return False
                left[0] -= 1
                send_part(handler, BIG, 500_000)
                over.wait(900)
                return True

            hub.fault = fault
            home = self.home()
            self.pull(hub, home, "org/name", HF_HUB_DOWNLOAD_TIMEOUT="2")
            assert left == [0]
            over.set()
            self.whole(home)

    def check_a_server_without_ranges(self):
        with self.hub_of() as hub:
            hub.ranges = False
            for count in (0, 12_000_000):
                home = self.home()
                if count:
                    blobs = home / "hub/models--org--name/blobs"
                    blobs.mkdir(parents=True)
                    (blobs / f"{DIGEST}.incomplete").write_bytes(BIG[:count])
                at = len(hub.requests)
                self.pull(hub, home, "org/name")
                self.whole(home)
                asked = [path for _, _, path, _ in hub.requests[at:] if DIGEST in path]
                assert len(asked) == 1, asked

    def check_signed_addresses_that_expire(self):
        with self.hub_of() as hub:
            count = [0]

            def fault(handler):
                if handler.server.role == "storage" and DIGEST in handler.path:
                    count[0] += 1
                    if count[0] == 2:
                        hub.signature = "renewed"
                return False

            hub.fault = fault
            home = self.home()
            self.pull(hub, home, "org/name", "--jobs", "1")
            assert any("signature=renewed" in path for _, _, path, _ in hub.requests)
            self.whole(home)

    def check_the_token_stays_on_the_hub(self):
        with FakeHub() as hub, FakeHub() as other:
            hub.add("org/name", FILES, private=True)
            home = self.home()
            told = self.pull(hub, home, "org/name", code=1).stderr
            assert "status 401" in told and "HF_TOKEN or --token" in told, told
            told = self.pull(hub, home, "org/name", HF_TOKEN="hf_wrong", code=1).stderr
            assert "the token does not open it" in told, told
            self.pull(hub, home, "org/name", HF_TOKEN=TOKEN)
            self.whole(home)
            self.pull(hub, self.home(), "org/name", "--token", TOKEN)
            home = self.home()
            home.mkdir()
            (home / "token").write_text(TOKEN + "\n")
            self.pull(hub, home, "org/name")
            seen = {role for role, _, _, headers in hub.requests if "Authorization" in headers}
            assert seen == {"hub"}, seen
            told = self.pull(hub, self.home(), "org/name", HF_TOKEN="a b", code=2).stderr
            assert "access token: expected printable ASCII" in told, told

            def elsewhere(handler):
                handler.answer(302, b"", {"Location": other.url + handler.path})
                return True

            hub.fault = elsewhere  # of the API, and to a hub of the same kind
            self.pull(hub, self.home(), "org/name", HF_TOKEN=TOKEN, code=1)
            assert not any("Authorization" in headers for _, _, _, headers in other.requests)
            hub.fault = lambda handler: "/tree/" in handler.path and not handler.answer(
                200, b"[]", {"Link": f'<{other.url}/api/models/x>; rel="next"'})
            told = self.pull(hub, self.home(), "org/name", HF_TOKEN=TOKEN, code=1).stderr
            assert "next page of the list of files" in told and not other.requests, told

    def check_hostile_names(self):
        for path in ("../up", "a/../../up", "/etc/passwd", "a//b", "a/./b", "..", ".", "", "a\\b",
                     "nul\0", "line\nline", "x" * 256, "y/" * 600 + "z", "a/"):
            with self.hub_of() as hub:
                commit = hub.commit
                rows = hub.rows(FILES)
                hub.repositories["org/name"].trees[commit] = [*rows, rows[-1] | {"path": path}]
                home = self.home()
                told = self.pull(hub, home, "org/name", code=1).stderr
                assert "a file that may not be written here" in told, (path, told)
                assert told.count("\n") == 1 and not home.exists(), (path, told)
        for paths in (["a", "a/b"], ["a", "a"]):
            with self.hub_of() as hub:
                row = hub.rows({"a": b"1"})[0]
                hub.repositories["org/name"].trees[hub.commit] = [row | {"path": p} for p in paths]
                told = self.pull(hub, self.home(), "org/name", code=1).stderr
                assert "list of files: expected" in told, told

    def check_links_in_the_way(self):
        with self.hub_of() as hub:
            home, outside = self.home(), self.home()
            outside.mkdir()
            snapshot = home / f"hub/models--org--name/snapshots/{hub.commit}"
            snapshot.mkdir(parents=True)
            (snapshot / "sub folder").symlink_to(outside)
            told = self.pull(hub, home, "org/name", code=1).stderr
            assert "expected a folder, found a link or a file" in told, told
            assert not list(outside.iterdir())
            home = self.home()
            blobs = home / "hub/models--org--name/blobs"
            blobs.mkdir(parents=True)
            (outside / "kept").write_bytes(b"kept")
            (blobs / f"{DIGEST}.incomplete").symlink_to(outside / "kept")
            told = self.pull(hub, home, "org/name", code=1).stderr
            assert "found a symbolic link" in told, told
            assert (outside / "kept").read_bytes() == b"kept"

    def check_replies_that_are_none(self):
        replies = {"/revision/": [b"", b"[]", b'{"sha": 1}', b'{"sha": "../../x"}', b"{" * 100,
                                  b'{"sha": "' + b"0" * 40 + b'", "x": "' + b"y" * (17 << 20) +
                                  b'"}'],
                   "/tree/": [b"{}", b'[{"type": "file"}]', b'[{"type": "link", "path": "a"}]',
                              b'[{"type":"file","path":"a","size":-1}]',
                              b'[{"type":"file","path":"a","size":1,"lfs":{"oid":"x","size":1}}]']}
        for where, bodies in replies.items():
            for body in bodies:
                with self.hub_of() as hub:
                    hub.fault = lambda handler, where=where, body=body: (
                        where in handler.path and not handler.answer(200, body))
                    told = self.pull(hub, self.home(), "org/name", code=1).stderr
                    assert told.count("\n") == 1 and len(told) < 500, told
        heads = [{"ETag": '"../x"'}, {"ETag": ""}, {}, {"ETag": '"' + "a" * 300 + '"'},
                 {"ETag": f'"{DIGEST}"', "X-Repo-Commit": "0" * 40},
                 {"ETag": f'"{DIGEST}"', "Content-Length": "7"},
                 {"X-Linked-Etag": '"' + "0" * 64 + '"', "X-Linked-Size": str(len(BIG))}]
        for head in heads:
            with self.hub_of() as hub:
                hub.fault = lambda handler, head=head: (
                    "model.safetensors" in handler.path and not handler.answer(
                        200, b"", {"Content-Length": str(len(BIG))} | head))
                home = self.home()
                told = self.pull(hub, home, "org/name", code=1).stderr
                assert told.count("\n") == 1 and not (home / "hub").exists(), told
        with self.hub_of() as hub:
            hub.fault = lambda handler: not handler.answer(302, b"", {"Location": handler.path})
            told = self.pull(hub, self.home(), "org/name", code=1).stderr
            assert "expected at most 10 redirects" in told, told

    def check_no_room(self):
        if os.geteuid() != 0:
            print("no root: a full disk is not tried")
            return
        home = self.home()
        home.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=34m", "none", home], check=True)
        try:
            with self.hub_of() as hub:
                filler = home / "filler"
                filler.write_bytes(b"0" * 10_000_000)
                at = len(hub.requests)
                told = self.pull(hub, home, "org/name", code=1).stderr
                assert "expected 30.1 GB free"[:9] in told and "nothing was fetched" in told, told
                assert not any(role == "storage" for role, *_ in hub.requests[at:])
                filler.unlink()

                def fault(handler):
                    if handler.server.role == "storage" and not filler.exists():
                        filler.write_bytes(b"0" * 20_000_000)
                    return False

                hub.fault = fault
                told = self.pull(hub, home, "org/name", code=1).stderr
                assert "No space left on device" in told, told
                kept = home / f"hub/models--org--name/blobs/{DIGEST}.incomplete"
                assert BIG.startswith(kept.read_bytes()) and kept.stat().st_size > 0
                hub.fault = None
                filler.unlink()
                self.pull(hub, home, "org/name")
                self.whole(home)
        finally:
            subprocess.run(["umount", home], check=True)


if __name__ == "__main__":
    main(Checks, __doc__)

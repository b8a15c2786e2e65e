#!/usr/bin/env python3
"""The hub of the tests answers as the real one does: fake_hub_test.py --older FOLDER.

huggingface_hub itself, the pinned release and (in FOLDER) an older one that goes on with half
files, downloads from it, is limited, fails, goes on, uploads and looks through its cache. Only then
may the hub judge this program. The last line counts.
"""
import hashlib
import json
import pathlib
import time

from fake_hub import TOKEN, FakeHub, git_blob_sha1
from hub_checks import HubChecks, client, main

BIG = hashlib.shake_256(b"big").digest(3_000_000)
FILES = {"config.json": b'{"a": 1}\n', "README.md": "Grüße\n".encode(), "empty.txt": b"",
         "model.safetensors": BIG, "sub folder/deep/vocab+1.json": b"[]",
         "sub folder/more.bin": BIG[:70_000]}


def answer(done):
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


class Checks(HubChecks):
    def check_downloads(self):
        for older in (None, self.older):
            with FakeHub() as hub:
                hub.page_rows = 2
                commit = hub.add("org/name", FILES)
                home = self.home()
                got = pathlib.Path(answer(client(
                    hub, home, "print(snapshot_download('org/name'))", older=older)))
                assert got.name == commit
                for path, data in FILES.items():
                    assert (got / path).read_bytes() == data, path
                    blob = (got / path).resolve()
                    large = hub.is_lfs(path, data)
                    digest = hashlib.sha256(data).hexdigest() if large else git_blob_sha1(data)
                    assert blob.name == digest and blob.parent.name == "blobs", blob
                assert (got.parents[1] / "refs/main").read_text() == commit
                sent = {role for role, _, _, headers in hub.requests
                        if "authorization" in map(str.lower, headers)}
                assert not sent, sent

    def check_revisions_and_single_files(self):
        with FakeHub() as hub:
            first = hub.add("org/name", FILES)
            second = hub.add("org/name", FILES | {"config.json": b"{}"}, ref="v2/beta")
            code = "print(hf_hub_download('org/name', 'config.json', revision=sys.argv[1]))"
            home = self.home()
            for revision, commit in (first, first), ("main", first), ("v2/beta", second):
                assert commit in answer(client(hub, home, code, revision)), revision
            assert "RevisionNotFoundError" in client(hub, home, code, "gone").stderr
            missing = "hf_hub_download('org/name', 'gone.json')"
            assert "RemoteEntryNotFoundError" in client(hub, home, missing).stderr
            assert "RepositoryNotFoundError" in client(hub, home, "model_info('org/gone')").stderr

    def check_tokens(self):
        with FakeHub() as hub:
            hub.add("org/secret", FILES, private=True)
            code = "print(snapshot_download('org/secret'))"
            assert client(hub, self.home(), code).returncode != 0
            answer(client(hub, self.home(), code, HF_TOKEN=TOKEN))
            roles = {role for role, _, path, headers in hub.requests
                     if headers.get("authorization") == f"Bearer {TOKEN}"}
            assert roles == {"hub"}, roles

    def check_an_older_client_goes_on(self):
        with FakeHub() as hub:
            hub.add("org/name", FILES)
            home, digest = self.home(), hashlib.sha256(BIG).hexdigest()
            blobs = home / "hub/models--org--name/blobs"
            blobs.mkdir(parents=True)
            (blobs / f"{digest}.incomplete").write_bytes(BIG[:1_234_567])
            answer(client(hub, home, "snapshot_download('org/name')", older=self.older))
            asked = [headers.get("Range") for role, method, path, headers in hub.requests
                     if digest in path and method == "GET"]
            assert asked == ["bytes=1234567-"], asked
            assert (blobs / digest).read_bytes() == BIG

    def check_limits_and_failures(self):
        with FakeHub() as hub:
            hub.add("org/name", FILES)
            left = [429, 503]

            def fault(handler):
                if "/tree/" in handler.path and left:
                    handler.answer(left.pop(0), b"", {"Retry-After": "1"})
                    return True
                return False

            hub.fault = fault
            begin = time.monotonic()
            answer(client(hub, self.home(), "snapshot_download('org/name')"))
            assert not left and time.monotonic() - begin > 1

    def check_uploads(self):
        for older in (None, self.older):
            with FakeHub() as hub:
                hub.multipart_bytes = 1_000_000
                folder = self.home()
                for path, data in FILES.items():
                    (folder / path).parent.mkdir(parents=True, exist_ok=True)
                    (folder / path).write_bytes(data)
                code = ("api = HfApi()\n"
                        "api.create_repo('org/new', private=True, exist_ok=True)\n"
                        "print(api.upload_folder(repo_id='org/new', folder_path=sys.argv[1],\n"
                        "    commit_message='First').oid)")
                done = client(hub, self.home(), code, folder, older=older, HF_TOKEN=TOKEN)
                commit = answer(done).splitlines()[-1]
                stored = hub.repositories["org/new"]
                assert stored.refs["main"] == commit and stored.private
                kept = {path: data for path, data in stored.commits[commit].items()
                        if path != ".gitattributes"}
                assert kept == FILES, sorted(kept)
                got = answer(client(hub, self.home(), "print(snapshot_download('org/new'))",
                                    HF_TOKEN=TOKEN))
                assert (pathlib.Path(got) / "model.safetensors").read_bytes() == BIG

    def check_the_cache_is_listed_and_removed(self):
        with FakeHub() as hub:
            commit = hub.add("org/name", FILES)
            home = self.home()
            code = ("snapshot_download('org/name')\n"
                    "import json\nrepo, = scan_cache_dir().repos\n"
                    "print(json.dumps([repo.repo_id, repo.size_on_disk, repo.nb_files,\n"
                    "    [revision.commit_hash for revision in repo.revisions]]))\n"
                    "scan_cache_dir().delete_revisions(*[r.commit_hash for r in repo.revisions])"
                    ".execute()")
            told = json.loads(answer(client(hub, home, code)))
            assert told == ["org/name", sum(map(len, FILES.values())), len(FILES), [commit]], told
            assert not (home / "hub/models--org--name").exists()


if __name__ == "__main__":
    main(Checks, __doc__)

"""Shared by the tests of the hub: the real client as a process, the program as one, folders as
facts that can be compared, a model's files, and a main that counts."""

import argparse
import hashlib
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import time

from fake_hub import FakeHub

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIG = hashlib.shake_256(b"big").digest(30_000_000)  # four segments
CONFIG = b'{"architectures": ["Other"]}\n'
FILES = {"config.json": CONFIG, "README.md": "Grüße\n".encode(), "empty.txt": b"",
         "model.safetensors": BIG, "sub folder/deep/vocab+1.json": b"[]", "same.json": b"[]",
         "sub folder/more.bin": BIG[:70_000], "Ünïcode ☃ 𝄞.txt": b"name"}
DIGEST = hashlib.sha256(BIG).hexdigest()


def plain_environment(hub, home, **variables):
    """This one's without what steers clients of the hub, but with that hub and an empty home."""
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith(("HF_", "HUGGINGFACE", "HUGGING_FACE", "NIBBLE_", "TRANSFORMERS",
                                 "XDG_CACHE"))}
    return kept | {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HOME": str(home),
                   "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
                   "HF_HUB_DISABLE_UPDATE_CHECK": "1",
                   "HF_HUB_DISABLE_PROGRESS_BARS": "1", "no_proxy": "127.0.0.1",
                   # A machine that stands still for a while is no hub that does.
                   "HF_HUB_ETAG_TIMEOUT": "600", "HF_HUB_DOWNLOAD_TIMEOUT": "600"} | variables


def client(hub, home, code, *words, older=None, start=False, **variables):
    """Python `code` with the pinned huggingface_hub, or with the one in the folder `older`."""
    environment = plain_environment(hub, home, **variables)
    if older:
        environment["PYTHONPATH"] = str(older)
    words = [sys.executable, "-c", "from huggingface_hub import *; import sys\n" + code,
             *map(str, words)]
    if start:
        return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600)


def entries(folder):
    """{path: what it is} of everything below a folder: type, permissions, target or bytes."""
    found = {}
    for path in folder.rglob("*"):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            what = ("link", os.readlink(path))
        elif stat.S_ISDIR(mode):
            what = ("folder", oct(stat.S_IMODE(mode)))
        else:
            what = ("file", oct(stat.S_IMODE(mode)), hash(path.read_bytes()))
        found[str(path.relative_to(folder))] = what
    return found


def send_part(handler, data, count):
    """The head of a range's reply and its first bytes; the caller decides how it goes on."""
    begin, end = map(int, handler.headers["Range"].removeprefix("bytes=").split("-"))
    handler.send_response(206)
    handler.send_header("Content-Range", f"bytes {begin}-{end}/{len(data)}")
    handler.send_header("Content-Length", str(end + 1 - begin))
    handler.end_headers()
    handler.wfile.write(data[begin:begin + count])
    handler.wfile.flush()


def fails(status, times, where="", headers=None):
    """A fault: so many requests of the path are answered with this status."""
    left = [times]

    def fault(handler):
        if where not in handler.path or left[0] == 0:
            return False
        left[0] -= 1
        handler.answer(status, b"", headers or {})
        return True

    fault.left = left
    return fault


class HubChecks:
    root = ROOT

    def __init__(self, nibble, older, work):
        self.nibble, self.older, self.work, self.count = nibble, older, work, 0

    def home(self):
        """The name of a folder that does not exist yet."""
        self.count += 1
        return self.work / f"home{self.count}"

    def hub_of(self, files=None):
        hub = FakeHub()
        hub.commit = hub.add("org/name", files or FILES)
        return hub

    def whole(self, home, files=None):
        """The snapshot is there with these bytes and nothing half is left."""
        place = home / "hub/models--org--name"
        (snapshot,) = (place / "snapshots").iterdir()
        got = {str(path.relative_to(snapshot)): path.read_bytes()
               for path in snapshot.rglob("*") if path.is_file()}
        assert got == (files or FILES), sorted(got)
        left = [path.name for path in (place / "blobs").iterdir() if "incomplete" in path.name]
        assert not left, left

    def start(self, hub, home, *words, verb="pull", **variables):
        return subprocess.Popen([self.nibble, verb, *map(str, words)], text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, cwd=self.work,
                                env=plain_environment(hub, home, **variables))

    def run(self, hub, home, verb, *words, code=0, **variables):
        process = self.start(hub, home, *words, verb=verb, **variables)
        out, told = process.communicate(timeout=600)
        assert process.returncode == code, (verb, words, process.returncode, out, told)
        return subprocess.CompletedProcess(words, code, out, told)

    def pull(self, hub, home, *words, **rest):
        return self.run(hub, home, "pull", *words, **rest)


def main(checks_of, description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--nibble", default="")
    parser.add_argument("--older", default=".", type=pathlib.Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    passed = failed = 0
    with tempfile.TemporaryDirectory() as work:
        checks = checks_of(os.path.abspath(options.nibble), options.older.resolve(),
                           pathlib.Path(work))
        for name in sorted(name for name in dir(checks) if name.startswith("check_")):
            if options.only not in name:
                continue
            begin = time.monotonic()
            try:
                getattr(checks, name)()
                passed += 1
                print(f"ok    {name} ({time.monotonic() - begin:.1f} s)")
            except Exception as error:  # one line and the next check
                failed += 1
                print(f"FAIL  {name}: {type(error).__name__}: {str(error)[-3000:]}")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)

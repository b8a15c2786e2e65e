"""A page whose commands run from top to bottom, in a folder that looks like the repository."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from blocks import commands_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/hub"))
from fake_hub import TOKEN, FakeHub  # noqa: E402

SECONDS_MAX = 240  # of one command
HUB_MODEL = "Qwen/Qwen3.6-35B-A3B"  # what pages fetch: Pebble, on a hub of this machine


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Page:
    """One page run from top to bottom in a folder of its own."""

    def __init__(self, nibble, model, name):
        self.name, self.servers = name, {}
        self.ports = {port: free_port() for port in ("8000", "8001")}
        self.hub = FakeHub()
        self.hub.add(HUB_MODEL, {path.name: path.read_bytes()
                                 for path in pathlib.Path(model).iterdir() if path.is_file()})
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="nibble-docs-"))
        root = self.work / "root"
        root.mkdir()
        for entry in ROOT.iterdir():
            if entry.name not in ("build", "out", ".git", ".venv", "pebble"):
                (root / entry.name).symlink_to(entry)
        (root / "pebble").mkdir()
        (root / "out").mkdir()
        for entry in (ROOT / "pebble").iterdir():
            if entry.name != "model":
                (root / "pebble" / entry.name).symlink_to(entry)
        (root / "pebble/model").symlink_to(pathlib.Path(model).resolve())
        (self.work / "bin").mkdir()
        (self.work / "bin/nibble").symlink_to(pathlib.Path(nibble).resolve())
        for preset in ("release", "native", "cuda"):
            folder = root / "build" / preset / "src/cli"
            folder.mkdir(parents=True)
            (folder / "nibble").symlink_to(pathlib.Path(nibble).resolve())
        python = pathlib.Path(sys.executable).parent
        self.root = root
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("NIBBLE_", "HF_"))},
            "HF_ENDPOINT": self.hub.url, "HF_TOKEN": TOKEN, "no_proxy": "127.0.0.1",
            "HOME": str(self.work), "XDG_CACHE_HOME": str(self.work / "cache"),
            "XDG_CONFIG_HOME": str(self.work / "config"), "XDG_DATA_HOME": str(self.work / "data"),
            "PATH": f"{self.work / 'bin'}:{python}:{os.environ['PATH']}",
            "NIBBLE_PROGRESS": "false", "NIBBLE_URL": f"http://127.0.0.1:{self.ports['8000']}",
            "NIBBLE_LATE_MS": "60000",  # a busy machine is not the question
        }

    def close(self):
        for port in list(self.servers):
            self.stop_server(port)
        self.hub.__exit__()
        shutil.rmtree(self.work, ignore_errors=True)

    def stop_server(self, port):
        server = self.servers.pop(port, None)
        if server is not None:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()

    def words(self, text):
        """The ports of the page in place of 8000 and 8001."""
        for port, free in self.ports.items():
            text = re.sub(rf"(?<![\d.]){port}(?!\d)", str(free), text)
        return text

    def fail(self, block, command, words):
        raise AssertionError(f"{self.name}:{block.line}: {words}\n    {command}")

    def start_server(self, block, command):
        text = self.words(command.rstrip().removesuffix("&").lstrip())
        if "--port" not in text:
            text = text.replace("nibble serve", f"nibble serve --port {self.ports['8000']}", 1)
        port = int(re.search(r"--port[ =](\d+)", text)[1])
        self.stop_server(port)
        log = self.work / "server.log"
        with log.open("w") as out:
            self.servers[port] = server = subprocess.Popen(
                ["bash", "-c", "exec " + text], cwd=self.root, env=self.environment, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True)
        end = time.monotonic() + 600
        while time.monotonic() < end:
            if server.poll() is not None:
                self.fail(block, command, f"the server ended: {log.read_text()[-2000:]}")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=600).read()
                return
            except OSError:
                time.sleep(0.1)
        self.fail(block, command, f"the server was not ready in 600 s: {log.read_text()[-2000:]}")

    def run(self, block):
        for command in commands_of(block.text):
            expected = re.search(r"#\s*exit (\d)(?: or (\d))?\s*$", command)
            codes = {int(code) for code in expected.groups() if code} if expected else {0}
            serves = re.match(r"\s*(\w+=\S+ )*nibble serve\b", command)
            if serves and not re.search(r"--(dry-run|help|print-config)", command):
                self.start_server(block, command)
                continue
            try:
                done = subprocess.run(["bash", "-o", "pipefail", "-c", self.words(command)],
                                      cwd=self.root, env=self.environment, text=True,
                                      stdin=subprocess.DEVNULL, capture_output=True,
                                      timeout=SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.fail(block, command, f"took more than {SECONDS_MAX} s")
            if done.returncode not in codes:
                self.fail(block, command, f"exit {done.returncode}, expected "
                          f"{sorted(codes)}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")

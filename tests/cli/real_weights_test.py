"""The five commands of docs/real-weights.md against a local hub that serves a small model.

real_weights_test.py --nibble NIBBLE --model MODEL. Prints 'N passed, N failed'.
"""

import argparse
import hashlib
import http.server
import json
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPOSITORY = "Qwen/Qwen3.6-35B-A3B"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of the hub's interface as a download of one revision asks for."""

    folder = None
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def send(self, body, headers):
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def missing(self):
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def files(self):
        return sorted(p for p in self.folder.iterdir() if p.is_file())

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.path.split("?")[0]
        if path.startswith(f"/api/models/{REPOSITORY}/tree/"):
            rows = [{"type": "file", "path": p.name, "size": p.stat().st_size,
                     "oid": hashlib.sha1(p.read_bytes()).hexdigest()} for p in self.files()]
            return self.send(json.dumps(rows).encode(), {"Content-Type": "application/json"})
        if path.startswith(f"/api/models/{REPOSITORY}"):
            facts = {"id": REPOSITORY, "modelId": REPOSITORY, "sha": COMMIT, "private": False,
                     "siblings": [{"rfilename": p.name} for p in self.files()]}
            return self.send(json.dumps(facts).encode(), {"Content-Type": "application/json"})
        found = re.fullmatch(f"/{REPOSITORY}/resolve/[^/]+/([^/]+)", path)
        if found and (self.folder / found[1]).is_file():
            body = (self.folder / found[1]).read_bytes()
            return self.send(body, {"ETag": f'"{hashlib.sha256(body).hexdigest()}"',
                                    "X-Repo-Commit": COMMIT,
                                    "Content-Type": "application/octet-stream"})
        return self.missing()


def commands():
    text = (ROOT / "docs/real-weights.md").read_text()
    block = re.search(r"```sh\n(.*?)```", text, re.DOTALL)[1]
    return [shlex.split(line) for line in block.splitlines()]


def main():
    parser = argparse.ArgumentParser()
    for name in ("--nibble", "--model"):
        parser.add_argument(name, required=True)
    args = parser.parse_args()
    programs = {"nibble": str(pathlib.Path(args.nibble).resolve())}
    Hub.folder = pathlib.Path(args.model).resolve()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    passed = failed = 0
    with tempfile.TemporaryDirectory() as work:
        environment = os.environ | {
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}",
            "HF_HOME": work + "/home",
            "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "0"}
        prose = ROOT / "pebble/tasks/prose.jsonl"
        texts = [json.loads(line)["text"] for line in prose.read_text().splitlines()[:20]]
        (pathlib.Path(work) / "held-out.txt").write_text("\n".join(texts))
        for command in commands():
            run = subprocess.run([programs[command[0]], *command[1:]], cwd=work, env=environment,
                                 capture_output=True, text=True, timeout=600)
            good = run.returncode == 0
            passed += good
            failed += not good
            print(("ok    " if good else "FAIL  ") + shlex.join(command))
            if not good:
                print(run.stdout[-2000:] + run.stderr[-2000:])
                break
    server.shutdown()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or passed != 5 else 0


if __name__ == "__main__":
    raise SystemExit(main())

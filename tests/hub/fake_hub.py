"""A model hub on 127.0.0.1 for tests: what clients use of the Hugging Face Hub's protocol.

FakeHub serves repositories from memory: revisions, trees in pages, small files by a redirect inside
the hub, large files by a redirect to a second server (another origin, as the hub's storage is),
ranges, tokens, uploads. fake_hub_test.py proves it with huggingface_hub itself. Tests plan mistakes
with `hub.fault`. What it is not: Xet storage, pull requests, or any part that needs a browser.
"""

import base64
import hashlib
import http.server
import json
import re
import threading
import urllib.parse

TOKEN = "hf_TestTokenOfThisMachineOnly"
LFS_ENDINGS = (".safetensors", ".bin", ".gguf", ".npz")
LFS_BYTES = 1 << 20


def git_blob_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repository:
    def __init__(self, private=False):
        self.private = private
        self.commits = {}  # commit: {path: bytes}
        self.refs = {}     # branch or tag: commit
        self.trees = {}    # commit: rows that are sent in place of the true ones

    def commit(self, files, ref="main"):
        """A new commit with exactly these files; `ref` points to it."""
        text = json.dumps([sorted((path, git_blob_sha1(data)) for path, data in files.items()),
                           len(self.commits)])
        commit = hashlib.sha1(text.encode()).hexdigest()
        self.commits[commit] = dict(files)
        self.refs[ref] = commit
        return commit


class Handler(http.server.BaseHTTPRequestHandler):
    """Both servers record requests, make planned mistakes and answer in one way."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    @property
    def hub(self):
        return self.server.hub

    def answer(self, status=200, body=b"", headers=()):
        with self.hub.lock:
            if self.command != "HEAD" and status < 300:
                self.hub.served.append((self.server.role, self.plain_path, len(body)))
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        if "Content-Length" not in dict(headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer_json(self, value, status=200, headers=()):
        self.answer(status, json.dumps(value).encode(),
                    {"Content-Type": "application/json"} | dict(headers))

    def handle_request(self):
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length) if length else b""
        parts = urllib.parse.urlsplit(self.path)
        self.query = dict(urllib.parse.parse_qsl(parts.query))
        self.plain_path = urllib.parse.unquote(parts.path)
        with self.hub.lock:
            self.hub.requests.append((self.server.role, self.command, self.path,
                                      dict(self.headers)))
        try:
            if not (self.hub.fault and self.hub.fault(self)):
                self.route()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = handle_request

    def send_ranged(self, data, headers):
        """`data` or the part that the request's Range header asks for."""
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not asked or not self.hub.ranges:
            return self.answer(200, data, headers)
        begin, end = int(asked[1]), min(int(asked[2] or len(data)), len(data) - 1)
        if begin >= len(data):
            return self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        part = data[begin:end + 1]
        return self.answer(206, part, headers | {
            "Content-Range": f"bytes {begin}-{end}/{len(data)}"})


class StorageHandler(Handler):
    """Where large files lie: it knows signed addresses and no tokens, and refuses those."""

    def route(self):
        if "Authorization" in self.headers:
            return self.answer(400, b"only one auth mechanism allowed")
        name = self.plain_path.removeprefix("/objects/")
        if self.query.get("signature") != self.hub.signature:
            return self.answer(403, b"the signature has expired")
        if self.command == "PUT":
            part = self.query.get("part")
            etag = hashlib.md5(self.body).hexdigest()
            with self.hub.lock:
                if part is None:
                    self.hub.received[name] = self.body
                else:
                    self.hub.parts.setdefault(name, {})[int(part)] = (etag, self.body)
            return self.answer(200, b"", {"ETag": f'"{etag}"'})
        data = self.hub.objects.get(name)
        if data is None:
            return self.answer(404)
        return self.send_ranged(data, {"ETag": f'"{hashlib.md5(data).hexdigest()}"',
                                       "Accept-Ranges": "bytes"})


class HubHandler(Handler):
    ROUTES = [
        (r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", "model_info"),
        (r"/api/models/([^/]+/[^/]+)/tree/([^/]+)/?", "tree"),
        (r"/api/models/([^/]+/[^/]+)/preupload/(.+)", "preupload"),
        (r"/api/models/([^/]+/[^/]+)/commit/(.+)", "commit"),
        (r"/api/resolve-cache/([^/]+/[^/]+)/([0-9a-f]{40})/(.+)", "resolve_cache"),
        (r"/api/repos/create", "create"),
        (r"/api/validate-yaml", "validate_yaml"),
        (r"/api/whoami-v2", "whoami"),
        (r"/api/complete/([0-9a-f]{64})", "complete"),
        (r"/api/verify", "verify"),
        (r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", "lfs_batch"),
        (r"/([^/]+/[^/]+)/resolve/(.+)", "resolve"),
    ]

    def route(self):
        for pattern, name in self.ROUTES:
            if found := re.fullmatch(pattern, self.plain_path):
                if name == "model_info" and found[2] is None and "/tree/" in self.plain_path:
                    continue
                return getattr(self, name)(*found.groups())
        return self.answer(404)

    @property
    def authorized(self):
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def refuse(self, status, code, words):
        return self.answer_json({"error": words}, status,
                                {"X-Error-Code": code, "X-Error-Message": words})

    def repository(self, name, writing=False):
        found = self.hub.repositories.get(name)
        if found and (found.private or writing) and not self.authorized:
            found = None
        if found is None:
            self.refuse(401 if not self.authorized else 404, "RepoNotFound",
                        "Repository not found")
        return found

    def commit_of(self, repository, revision):
        commit = revision if revision in repository.commits else repository.refs.get(revision)
        if commit is None:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit

    def model_info(self, name, revision):
        repository = self.repository(name)
        if repository and (commit := self.commit_of(repository, revision or "main")):
            files = [{"rfilename": path} for path in sorted(repository.commits[commit])]
            self.answer_json({"id": name, "modelId": name, "sha": commit, "siblings": files,
                              "private": repository.private})

    def tree(self, name, revision):
        repository = self.repository(name)
        if not repository or not (commit := self.commit_of(repository, revision)):
            return None
        rows = repository.trees.get(commit) or self.hub.rows(repository.commits[commit])
        at = int(self.query.get("cursor") or 0)
        following = at + self.hub.page_rows
        headers = {}
        if following < len(rows):
            address = f"{self.hub.url}/api/models/{name}/tree/{commit}?recursive=True&cursor="
            headers["Link"] = f'<{address}{following}>; rel="next"'
        return self.answer_json(rows[at:following], headers=headers)

    def resolve(self, name, rest):
        repository = self.repository(name)
        if not repository:
            return None
        for revision in sorted([*repository.refs, *repository.commits], key=len, reverse=True):
            if rest.startswith(revision + "/"):
                path = rest.removeprefix(revision + "/")
                break
        else:
            return self.refuse(404, "RevisionNotFound", "Invalid rev id")
        commit = repository.refs.get(revision, revision)
        data = repository.commits[commit].get(path)
        if data is None:
            return self.refuse(404, "EntryNotFound", "Entry not found")
        if self.hub.is_lfs(path, data):
            digest = hashlib.sha256(data).hexdigest()
            self.hub.objects.setdefault(digest, data)
            where = f"{self.hub.storage_url}/objects/{digest}?signature={self.hub.signature}"
            return self.answer(302, b"", {"X-Repo-Commit": commit, "Location": where,
                                          "X-Linked-Etag": f'"{digest}"',
                                          "X-Linked-Size": str(len(data))})
        where = f"/api/resolve-cache/{name}/{commit}/{urllib.parse.quote(path)}"
        return self.answer(307, b"", {"X-Repo-Commit": commit, "Location": where})

    def resolve_cache(self, name, commit, path):
        repository = self.repository(name)
        if repository:
            data = repository.commits[commit][path]
            self.send_ranged(data, {"X-Repo-Commit": commit, "Accept-Ranges": "bytes",
                                    "ETag": f'"{git_blob_sha1(data)}"'})

    def whoami(self):
        if self.authorized:
            self.answer_json({"type": "user", "name": "tester", "orgs": [{"name": "org"}],
                              "auth": {"accessToken": {"role": "write"}}})
        else:
            self.refuse(401, "", "Invalid credentials")

    def validate_yaml(self):
        self.answer_json({"errors": [], "warnings": []})

    def create(self):
        if not self.authorized:
            return self.refuse(401, "", "Invalid credentials")
        asked = json.loads(self.body)
        name = f"{asked.get('organization') or 'tester'}/{asked['name']}"
        address = {"url": f"{self.hub.url}/{name}", "name": name}
        if name in self.hub.repositories:
            return self.answer_json(address | {"error": "You already created this model repo"},
                                    409)
        private = asked.get("private") or asked.get("visibility") == "private"
        self.hub.repositories[name] = Repository(bool(private))
        self.hub.repositories[name].commit({".gitattributes": b"*.safetensors filter=lfs\n"})
        return self.answer_json(address)

    def preupload(self, name, revision):
        repository = self.repository(name, writing=True)
        if repository and self.commit_of(repository, revision):
            files = [{"path": file["path"], "shouldIgnore": False,
                      "uploadMode": "lfs" if file["path"].endswith(LFS_ENDINGS) or
                      file["size"] > LFS_BYTES else "regular"}
                     for file in json.loads(self.body)["files"]]
            self.answer_json({"files": files})

    def lfs_batch(self, name):
        if not self.repository(name, writing=True):
            return
        asked = json.loads(self.body)
        assert asked["operation"] == "upload" and "basic" in asked["transfers"], asked
        answers = []
        for object_ in asked["objects"]:
            row = {"oid": object_["oid"], "size": object_["size"]}
            place = f"{self.hub.storage_url}/objects/{object_['oid']}" \
                    f"?signature={self.hub.signature}"
            if object_["oid"] in self.hub.objects:
                answers.append(row)
                continue
            upload = {"href": place}
            if object_["size"] > self.hub.multipart_bytes:
                count = -(-object_["size"] // self.hub.multipart_bytes)
                upload = {"href": f"{self.hub.url}/api/complete/{object_['oid']}",
                          "header": {"chunk_size": str(self.hub.multipart_bytes)} |
                          {str(i): f"{place}&part={i}" for i in range(1, count + 1)}}
            answers.append(row | {"actions": {
                "upload": upload, "verify": {"href": f"{self.hub.url}/api/verify"}}})
        self.answer_json({"transfer": "basic", "objects": answers},
                         headers={"Content-Type": "application/vnd.git-lfs+json"})

    def keep_object(self, digest, size, data):
        if hashlib.sha256(data).hexdigest() != digest or size not in (None, len(data)):
            return self.answer_json({"error": "the object is not what was announced"}, 400)
        self.hub.objects[digest] = data
        return self.answer_json({"success": True})

    def complete(self, digest):
        asked, parts = json.loads(self.body), self.hub.parts.get(digest, {})
        told = [(part["partNumber"], part["etag"].strip('"')) for part in asked["parts"]]
        if told != [(number, parts[number][0]) for number in sorted(parts)]:
            return self.answer_json({"error": "parts differ"}, 400)
        data = b"".join(parts[number][1] for number in sorted(parts))
        self.hub.received[digest] = data
        return self.keep_object(digest, None, data)

    def verify(self):
        if not self.authorized:
            return self.refuse(401, "", "Invalid credentials")
        asked = json.loads(self.body)
        data = self.hub.received.get(asked["oid"], b"")
        return self.keep_object(asked["oid"], asked["size"], data)

    def commit(self, name, revision):
        repository = self.repository(name, writing=True)
        if not repository or not (parent := self.commit_of(repository, revision)):
            return None
        files = dict(repository.commits[parent])
        for line in map(json.loads, self.body.splitlines()):
            value = line["value"]
            if line["key"] == "header":
                summary = value["summary"]
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                if value["oid"] not in self.hub.objects:
                    return self.refuse(400, "", f"{value['path']} was not uploaded")
                files[value["path"]] = self.hub.objects[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        commit = repository.commit(files, revision)
        self.hub.messages.append(summary)
        return self.answer_json({"success": True, "commitOid": commit,
                                 "commitUrl": f"{self.hub.url}/{name}/commit/{commit}",
                                 "hookOutput": ""})


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, hub, role, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.hub, self.role = hub, role
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, request, client_address):
        pass  # a client that was killed


class FakeHub:
    """Two servers. `url` is what HF_ENDPOINT names; with `with FakeHub() as hub` they end."""

    def __init__(self):
        self.lock = threading.Lock()
        self.repositories = {}
        self.objects, self.received, self.parts = {}, {}, {}
        self.messages = []     # summaries of commits by clients
        self.requests = []     # (hub or storage, method, path, headers)
        self.served = []       # (hub or storage, path, bytes of the body) of each success
        self.fault = None      # called with the handler; true: it has answered
        self.ranges = True     # false: a Range header is ignored
        self.page_rows = 1000  # of a page of a tree
        self.multipart_bytes = 8 << 20
        self.signature = "valid"
        self.server = Server(self, "hub", HubHandler)
        self.storage = Server(self, "storage", StorageHandler)
        self.url, self.storage_url = self.server.url, self.storage.url

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for server in (self.server, self.storage):
            server.shutdown()
            server.server_close()

    def add(self, name, files, private=False, ref="main"):
        """Commits `files` to the repository, which is made if it is new. Returns the commit."""
        repository = self.repositories.setdefault(name, Repository(private))
        return repository.commit(files, ref)

    def is_lfs(self, path, data):
        return bool(data) and (path.endswith(LFS_ENDINGS) or len(data) > LFS_BYTES)

    def rows(self, files):
        """The rows of the tree API: folders, small files, LFS files."""
        folders = {"/".join(path.split("/")[:i]) for path in files
                   for i in range(1, path.count("/") + 1)}
        rows = [{"type": "directory", "path": path, "size": 0,
                 "oid": hashlib.sha1(path.encode()).hexdigest()} for path in sorted(folders)]
        for path, data in sorted(files.items()):
            row = {"type": "file", "path": path, "size": len(data), "oid": git_blob_sha1(data)}
            if self.is_lfs(path, data):
                digest = hashlib.sha256(data).hexdigest()
                pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\n" \
                          f"size {len(data)}\n".encode()
                row |= {"oid": git_blob_sha1(pointer),
                        "lfs": {"oid": digest, "size": len(data), "pointerSize": len(pointer)}}
            rows.append(row)
        return rows

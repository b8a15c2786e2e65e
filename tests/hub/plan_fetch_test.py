#!/usr/bin/env python3
"""nibble plan --fetch: plan_fetch_test.py --nibble PROGRAM.

The plan of a model on the hub is the plan of the same files on the disk, number for number, and the
hub counts what it sends: config.json, the index and the headers, byte for byte, and no tensor. The
last line counts.
"""
import json
import shutil
import struct
import subprocess

from fake_hub import TOKEN
from hub_checks import ROOT, HubChecks, fails, main
from safetensors_files import file_of, papers_bytes, sharded, tensors_of

PEBBLE = ROOT / "pebble/model"
# Nothing here may depend on how much memory the machine has free just now.
FIXED = ["--max-model-len", "4096", "--host-cache-memory-bytes", "64M"]


class Checks(HubChecks):
    def folder(self, files):
        place = self.home()
        for path, data in files.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(data)
        return place

    def plan(self, hub, *words, home=None, **rest):
        return self.run(hub, home or self.home(), "plan", *words, *FIXED, **rest)

    def served_of(self, hub):
        """Bytes of files that the hub and its storage sent."""
        return sum(size for role, path, size in hub.served
                   if role == "storage" or "/resolve-cache/" in path)

    def models(self):
        """{what: the files of a repository}, with other files that must not be asked for."""
        files = {path.name: path.read_bytes() for path in PEBBLE.iterdir() if path.is_file()}
        quantized = self.work / "quantized"
        if not quantized.exists():
            subprocess.run([self.nibble, "quantize", PEBBLE, quantized, "--no-progress"],
                           check=True, capture_output=True)
        others = {"README.md": b"words", "onnx/model.safetensors": b"no such file",
                  "pytorch_model.bin": b"0" * 3_000_000}
        tensors = tensors_of(files)
        files = {path: data for path, data in files.items() if "safetensors" not in path}
        two = sharded(tensors, 2)
        del two["model.safetensors.index.json"]
        return {
            "one file": files | others | {"model.safetensors": file_of(tensors)},
            "four shards": files | others | sharded(tensors, 4),
            "two files without an index": files | others | two,
            "quantized": others | {p.name: p.read_bytes() for p in quantized.iterdir()
                                   if p.is_file()}}

    def check_the_plan_of_the_same_files_on_the_disk(self):
        for what, files in self.models().items():
            recipes = [[]] if what == "quantized" else [[], ["--recipe", "mixed"]]
            for flags in [[*recipe, "--gpu", place] for recipe in recipes
                          for place in ("24G", "cpu")]:
                with self.hub_of(files) as hub:
                    home = self.home()
                    done = self.plan(hub, "org/name", "--fetch", "--json", *flags, home=home)
                    fetched = json.loads(done.stdout)
                    there = json.loads(self.plan(hub, self.folder(files), "--json",
                                                 *flags).stdout)
                    for plan in (fetched, there):
                        del plan["model"]
                        plan["memory"].pop("available"), plan["memory"].pop("host_tier")
                        if "cpu" in flags:  # what a flag frees is bounded by the free memory
                            del plan["other_flags"]
                    assert fetched == there, (what, flags)
                    sent, needed = self.served_of(hub), papers_bytes(files)
                    assert sent == needed, (what, sent, needed)
                    assert f": {needed} bytes of its files were read" in done.stderr, done.stderr
                    assert hub.commit in done.stderr, done.stderr
                    assert not (home / "hub").exists(), "something was kept"

    def check_revisions_tables_and_shapes_alone(self):
        files = self.models()["one file"]
        with self.hub_of(files) as hub:
            papers = {"config.json": files["config.json"], "README.md": b""}
            hub.add("org/name", papers, ref="papers")
            whole = self.plan(hub, "org/name", "--fetch").stdout
            assert "headers of its weight files" in whole and "rtx5090" in whole, whole
            for words in (["org/name@papers"], ["org/name", "--revision", "papers"]):
                text = self.plan(hub, *words, "--fetch").stdout
                assert "config.json alone" in text, text
            told = self.plan(hub, "org/name", "--fetch", "--load-format", "dummy:mixed").stdout
            assert "layout mixed" in told, told
            # A folder of that path wins, and is not asked for.
            before = len(hub.requests)
            shutil.copytree(PEBBLE, self.work / "own/pebble")
            assert "pebble" in self.plan(hub, "own/pebble", "--fetch").stdout
            assert len(hub.requests) == before

    def check_two_models_of_the_hub_together(self):
        with self.hub_of(self.models()["one file"]) as hub:
            hub.add("org/other", self.models()["quantized"])
            out = json.loads(self.plan(hub, "org/name", "org/other", "--fetch", "--gpu", "24G",
                                       "--json").stdout)
            assert [row["plan"]["model"] for row in out["models"]] == ["org/name", "org/other"]

    def refused(self, hub, *words, code=1, **variables):
        """The last line of a plan that fails; there is no result."""
        done = self.plan(hub, *words, "--fetch", code=code, **variables)
        assert not done.stdout, done
        return done.stderr.splitlines()[-1]

    def check_access(self):
        files = self.models()["four shards"]
        with self.hub_of() as hub:
            hub.add("org/closed", files, private=True)
            told = self.refused(hub, "org/closed")
            assert "status 401" in told and "HF_TOKEN or --token" in told, told
            told = self.refused(hub, "org/closed", "--token", "hf_wrong")
            assert "status 401" in told and "does not open it" in told, told
            told = self.refused(hub, "org/none", HF_TOKEN=TOKEN)
            assert "status 404" in told and "org/none" in told, told
            told = self.refused(hub, "org/name@gone")
            assert "status 404" in told and "gone" in told, told
            # The storage refuses every request that carries the token.
            assert "headers" in self.plan(hub, "org/closed", "--fetch", HF_TOKEN=TOKEN).stdout
            hub.fault = fails(403, 99, "/resolve/")
            told = self.refused(hub, "org/closed", HF_TOKEN=TOKEN)
            assert "status 403" in told and "accept the model's terms" in told, told
            told = self.refused(hub, "org/closed", code=2, HF_HUB_OFFLINE="1")
            assert "HF_HUB_OFFLINE" in told and "without --fetch" in told, told

    def check_failures_on_the_way(self):
        files = self.models()["one file"]
        with self.hub_of(files) as hub:
            hub.fault = fails(503, 2, "/objects/", {"Retry-After": "0"})
            assert "headers" in self.plan(hub, "org/name", "--fetch").stdout
            assert hub.fault.left == [0]
            hub.fault = fails(503, 99, "/objects/", {"Retry-After": "0"})
            told = self.refused(hub, "org/name")
            assert "status 503" in told, told
            hub.fault = None
            hub.ranges = False
            told = self.refused(hub, "org/name")
            assert "ignores Range headers" in told and "status 200" in told, told
            hub.ranges = True

            def another_range(handler):
                if handler.server.role != "storage":
                    return False
                handler.answer(206, b"12345678", {"Content-Range": "bytes 8-15/999"})
                return True

            hub.fault = another_range
            told = self.refused(hub, "org/name")
            assert "bytes 0-7/" in told and "bytes 8-15/999" in told, told

    def check_files_that_are_no_checkpoint(self):
        files = self.models()["one file"]
        shards = self.models()["four shards"]
        gone = dict(shards)
        del gone["model-00003-of-00004.safetensors"]
        long = struct.pack("<Q", 1 << 40) + b"{}" * 600
        past = struct.pack("<Q", 5000) + b"{}" * 600
        for broken, words in (
                ({"README.md": b""}, ["config.json of org/name"]),
                (gone, ["model-00003-of-00004.safetensors", "in the index alone"]),
                (files | {"model.safetensors": b"tiny"}, ["at least 8 bytes", "found 4"]),
                (files | {"model.safetensors": long}, ["header too long", str(1 << 40)]),
                (files | {"model.safetensors": past}, ["truncated inside its header"]),
                (files | {"config.json": b"[]"}, ["config.json"]),
                (shards | {"model.safetensors.index.json": b"{}"}, ["no usable weight_map"]),
                (shards | {"model.safetensors.index.json": json.dumps({"weight_map": {
                    "x": "../config.json"}}).encode()}, ["plain file name"])):
            with self.hub_of(broken) as hub:
                told = self.refused(hub, "org/name")
                assert all(word in told for word in words), (words, told)

    def check_a_hub_that_is_not_there(self):
        with self.hub_of() as hub:
            pass
        told = self.refused(hub, "org/name")  # after six attempts
        assert "again" in told and "/api/models/org/name" in told, told


if __name__ == "__main__":
    main(Checks, __doc__)

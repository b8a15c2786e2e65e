#!/usr/bin/env python3
"""Models of the Hugging Face cache: hub_cache_test.py --nibble PROGRAM --model PEBBLE_FOLDER.

huggingface_hub itself downloads Pebble from a hub on this machine; whatever it then finds in its
cache, by environment and by revision, the program finds too, and the verbs take it by its name.
The last line counts.
"""
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import urllib.request

from huggingface_hub import snapshot_download

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/serve"), str(ROOT / "tests/cli")]
from real_weights_test import COMMIT, REPOSITORY, Hub  # noqa: E402
from running_server import RunningServer, run_program_checks  # noqa: E402

LOOK_UP = ("import sys; from huggingface_hub import try_to_load_from_cache as look; "
           "print(look(sys.argv[1], 'config.json', revision=sys.argv[2] or None) or '')")
VARIABLES = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME")


class Checks:
    def __init__(self, nibble, model, work):
        self.nibble, self.model, self.work = nibble, pathlib.Path(model).resolve(), work
        Hub.folder = self.model
        hub = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        os.environ["HF_HUB_DISABLE_XET"] = os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
        self.cache = work / "home/hub"
        self.snapshot = pathlib.Path(snapshot_download(
            REPOSITORY, cache_dir=self.cache, endpoint=f"http://127.0.0.1:{hub.server_address[1]}"))
        hub.shutdown()
        self.place = self.cache / ("models--" + REPOSITORY.replace("/", "--"))
        (self.place / "refs/fp8-head").write_text(COMMIT)

    def environment(self, **variables):
        """This one's, with these of the cache alone and an empty home."""
        kept = {k: v for k, v in os.environ.items()
                if k not in VARIABLES and not k.startswith("NIBBLE_")}
        return kept | {"HOME": str(self.work / "nobody")} | variables

    def run(self, *words, cwd=None, code=0, **variables):
        variables = variables or {"HF_HOME": str(self.work / "home")}
        done = subprocess.run([self.nibble, *map(str, words)], capture_output=True, text=True,
                              timeout=600, cwd=cwd or self.work, stdin=subprocess.DEVNULL,
                              env=self.environment(**variables))
        assert done.returncode == code, (words, variables, done)
        return done

    def refused(self, *words, **variables):
        """The one line of a verb that fails."""
        lines = self.run(*words, code=1, **variables).stderr.splitlines()
        assert len(lines) == 1, lines
        return lines[0]

    def looked_up(self, revision, variables):
        """The snapshot that huggingface_hub finds, or nothing."""
        done = subprocess.run([sys.executable, "-c", LOOK_UP, REPOSITORY, revision],
                              capture_output=True, text=True, timeout=600, cwd=self.work,
                              env=self.environment(**variables), check=True)
        return done.stdout.strip().removesuffix("/config.json")

    def test_the_program_finds_what_huggingface_hub_finds(self):
        home, cache = str(self.work / "home"), str(self.cache)
        (self.work / "xdg").mkdir()
        (self.work / "xdg/huggingface").symlink_to(self.work / "home")
        (self.work / "ada/.cache").mkdir(parents=True)
        (self.work / "ada/.cache/huggingface").symlink_to(self.work / "home")
        elsewhere = str(self.work / "elsewhere")
        tried = [
            {"HF_HOME": home}, {"HF_HUB_CACHE": cache}, {"HUGGINGFACE_HUB_CACHE": cache},
            {"XDG_CACHE_HOME": str(self.work / "xdg")}, {"HOME": str(self.work / "ada")},
            {"HOME": str(self.work / "ada"), "HF_HOME": "~/.cache/huggingface"},
            {"ADA": str(self.work), "HF_HOME": "$ADA/home"},
            {"ADA": str(self.work), "HF_HUB_CACHE": "${ADA}/home/hub"},
            {"HF_HOME": "home"},  # relative to where it runs
            {"HF_HOME": elsewhere, "HF_HUB_CACHE": cache},
            {"HF_HOME": home, "HF_HUB_CACHE": elsewhere},
            {"HF_HUB_CACHE": elsewhere, "HUGGINGFACE_HUB_CACHE": cache},
            {"HF_HOME": home, "XDG_CACHE_HOME": elsewhere},
            {"XDG_CACHE_HOME": elsewhere},
        ]
        found = 0
        for variables in tried:
            wanted = self.looked_up("", variables)
            done = subprocess.run([self.nibble, "verify", REPOSITORY, "--headers"],
                                  capture_output=True, text=True, cwd=self.work, timeout=600,
                                  env=self.environment(**variables))
            assert (done.returncode == 0) == bool(wanted), (variables, wanted, done)
            if wanted:
                assert f"{wanted} is sound" in done.stdout, (variables, wanted, done.stdout)
                found += 1
            else:
                assert f"`nibble pull {REPOSITORY}` gets it" in done.stderr, done.stderr
        assert found == 11, found

    def test_revisions(self):
        variables = {"HF_HOME": str(self.work / "home")}
        for revision in ("main", "fp8-head", COMMIT, "absent", COMMIT[:-1] + "8"):
            wanted = self.looked_up(revision, variables)
            for words in ([f"{REPOSITORY}@{revision}"], [REPOSITORY, "--revision", revision]):
                done = self.run("verify", *words, "--headers", code=0 if wanted else 1)
                if wanted:
                    assert f"{wanted} is sound" in done.stdout, done.stdout
                else:
                    asked = f"`nibble pull {REPOSITORY}@{revision}` gets it"
                    assert asked in done.stderr, done.stderr
        self.run("verify", f"{REPOSITORY}@main", "--revision", "main", "--headers")
        both = self.run("verify", f"{REPOSITORY}@main", "--revision", "fp8-head", code=2).stderr
        assert "expected one revision, found main and --revision fp8-head" in both, both
        for revision in ("..", "../main", "/main", "a b"):
            told = self.run("verify", REPOSITORY, "--revision", revision, code=2).stderr
            assert f"revision of {REPOSITORY}: expected a branch, tag or commit" in told, told
            assert told.count("\n") == 1, told

    def test_every_verb_takes_the_name(self):
        assert json.loads(self.run("inspect", REPOSITORY, "--json").stdout)
        ids, messages = self.work / "ids.json", self.work / "messages.json"
        ids.write_text(json.dumps({"ids": [1, 2, 3]}))
        messages.write_text(json.dumps([{"role": "user", "content": "hello"}]))
        backend = ("--backend", "cpu")
        by_name = self.run("score", REPOSITORY, "--ids", ids, "--json", *backend,
                           "--reference", REPOSITORY + "@fp8-head").stdout
        assert json.loads(by_name)["checkpoint"] == str(self.snapshot), by_name
        assert self.run("render", REPOSITORY, "--messages", messages).stdout
        assert self.run("run", REPOSITORY, "hello", "--max-tokens", 2, *backend).stdout
        self.run("chat", REPOSITORY, *backend)
        self.run("quantize", REPOSITORY, self.work / "quantized")
        self.run("verify", self.work / "quantized", "--against", REPOSITORY, "--headers")
        self.run("convert", self.work / "quantized", self.work / "bf16-head", "--head", "fp8-block",
                 "--source", REPOSITORY)
        card = (self.work / "quantized/README.md").read_text()
        assert f"base_model: {REPOSITORY}\n" in card, card

    def test_served_under_its_name(self):
        variables = self.environment(HF_HOME=str(self.work / "home"))
        for flags, name in ([], REPOSITORY), (["--served-model-name", "tiny"], "tiny"):
            with RunningServer(self.nibble, REPOSITORY + "@main", ["--backend", "cpu", *flags],
                               variables) as server:
                with urllib.request.urlopen(server.url + "/v1/models", timeout=600) as answer:
                    models = [model["id"] for model in json.load(answer)["data"]]
                assert models[0] == name and "Qwen3.6-35B-A3B" not in models, models

    def test_a_local_folder_wins(self):
        folder = self.work / "local"
        (folder / REPOSITORY).parent.mkdir(parents=True)
        (folder / REPOSITORY).symlink_to(self.model)
        done = self.run("verify", REPOSITORY, "--headers", cwd=folder)
        assert done.stdout.startswith(REPOSITORY + " is sound"), done.stdout
        assert f"{REPOSITORY}: the folder here is taken" in done.stderr, done.stderr
        other = self.run("verify", REPOSITORY, "--headers", cwd=folder,
                         HF_HOME=str(self.work / "none"))
        assert "the folder here" not in other.stderr, other.stderr
        revised = self.run("verify", self.model, "--headers", "--revision", "main").stderr
        assert "--revision main is not needed" in revised, revised

    def test_what_is_not_whole_is_told(self):
        home = self.work / "partial"
        shutil.copytree(self.work / "home", home, symlinks=True)
        (snapshot,) = home.glob("hub/models--*/snapshots/*")
        index = json.loads((snapshot / "model.safetensors.index.json").read_text())
        shard = sorted(set(index["weight_map"].values()))[0]
        (snapshot / shard).unlink()
        told = self.refused("verify", REPOSITORY, HF_HOME=str(home))
        assert f"without {shard}" in told and f"`nibble pull {REPOSITORY}` gets it" in told, told
        (snapshot / shard).symlink_to("../../blobs/gone")
        told = self.refused("inspect", REPOSITORY, HF_HOME=str(home))
        assert f"expected {shard}, found a link to ../../blobs/gone" in told, told


if __name__ == "__main__":
    sys.exit(run_program_checks(Checks, __doc__))

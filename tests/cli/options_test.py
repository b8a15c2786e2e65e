#!/usr/bin/env python3
"""The one option table as a user meets it: options_test.py --nibble PROGRAM --model PEBBLE_FOLDER.

The configuration file from flag to default with the winner printed (read back by Python's own
tomllib), secrets that are shown nowhere, --help=KEYWORD, the manual page through groff and mandoc,
docs/options.md. Loopback only; the last line counts.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/serve"))
from running_server import RunningServer, run_program_checks  # noqa: E402


class Checks:
    def __init__(self, nibble, model, work):
        self.nibble, self.model, self.work = nibble, os.path.abspath(model), work
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("NIBBLE_", "XDG_", "VLLM_"))}
        self.environment["HOME"] = str(work)

    def run(self, *words, code=0, **variables):
        done = subprocess.run([self.nibble, *map(str, words)], capture_output=True, text=True,
                              timeout=600, cwd=self.work, env={**self.environment, **variables})
        assert done.returncode == code, done
        assert done.stderr == "" or code != 0, done
        return done.stdout if code == 0 else done.stderr

    def file(self, text, name="c.toml"):
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def origin(self, option, *words, verb="serve", **variables):
        """Value and origin in --print-config."""
        text = self.run(verb, "--print-config", *words, **variables)
        value = tomllib.loads(text)[verb].get(option)
        return value, re.search(rf"(?m)^{option} = .*  # (.*)$", text)[1]

    def test_flag_environment_file_default(self):
        path = self.file("[serve]\nport = 3\n")
        port = lambda *words, **v: self.origin("port", "--config", path, *words, **v)  # noqa: E731
        assert self.origin("port") == (8000, "default")
        assert port() == (3, f"{path} line 2")
        assert port(NIBBLE_PORT="2") == (2, f"NIBBLE_PORT, before {path} line 2")
        assert port("--port", "1", NIBBLE_PORT="2") == (
            1, f"--port, before NIBBLE_PORT and {path} line 2")
        assert self.origin("port", NIBBLE_CONFIG=str(path)) == (3, f"{path} line 2")
        assert self.origin("port", "--config=", NIBBLE_CONFIG=str(path)) == (8000, "default")

    def test_the_usual_places(self):
        usual = self.file("[serve]\nport = 4\n", ".config/nibble/config.toml")
        assert self.origin("port") == (4, f"{usual} line 2")
        other = self.file("[serve]\nport = 5\n", "xdg/nibble/config.toml")
        assert self.origin("port", XDG_CONFIG_HOME=str(other.parents[1])) == (5, f"{other} line 2")
        assert self.origin("port", XDG_CONFIG_HOME="xdg", XDG_CONFIG_DIRS="xdg") == (
            8000, "default")  # a path that is not absolute is ignored
        usual.unlink()
        assert self.origin("port", XDG_CONFIG_DIRS=f"/nowhere:{other.parents[1]}") == (
            5, f"{other} line 2")

    def test_every_value_is_toml_and_holds(self):
        for verb in re.findall(r"(?m)^## nibble (.+)", self.run("man", "--markdown")):
            first = self.run(*verb.split(), "--print-config")
            path = self.file(first)
            again = tomllib.loads(self.run(*verb.split(), "--print-config", "--config", path))
            assert again == tomllib.loads(first), verb
        words = ["--served-model-name=a,b", "--no-web", "--uds=\"\\ \x7fü", "--max-model-len=32K"]
        read = tomllib.loads(self.run("serve", "--print-config", *words))["serve"]
        assert read["served-model-name"] == ["a", "b"], read
        assert (read["web"], read["uds"], read["max-model-len"]) == (False, "\"\\ \x7fü", "32K")

    def test_wrong_files_are_told_whole_before_anything_starts(self):
        path = self.file("[serve]\nports = 1\nweb = \"no\"\n")
        said = self.run("serve", self.model, "--config", path, "--zebra", code=2)
        assert said.splitlines() == [
            f"nibble serve: {path} line 2: unknown key \"ports\" of [serve]; did you mean port?",
            f"nibble serve: {path} line 3: web: expected true or false, found a string",
            "nibble serve: unknown option --zebra; `nibble serve --help` lists the options"], said

    def test_a_server_of_a_file_alone(self):
        self.file("one-key\nother-key\n", "keys")
        path = self.file(f"[serve]\nmodel = \"{self.model}\"\nport = 0\nmax-model-len = 512\n"
                         "served-model-name = [\"p\"]\n"
                         f"api-key = {{ file = \"{self.work}/keys\" }}\n")
        said = self.run("serve", "--dry-run", "--config", path)
        assert f"{path} line 4: max-model-len = 512: honoured" in said, said
        assert f"{path} line 6: api-key = (hidden): honoured" in said, said
        printed = self.run("serve", "--print-config", "--config", path)
        assert f"# api-key is set and hidden: {path} line 6\n" in printed, printed
        with RunningServer(self.nibble, "--config", [str(path)], self.environment,
                           exact=True) as server:
            for key, code in (("one-key", 200), ("other-key", 200), ("else", 401)):
                request = urllib.request.Request(f"{server.url}/v1/models",
                                                 headers={"Authorization": f"Bearer {key}"})
                try:
                    status = urllib.request.urlopen(request, timeout=600).status
                except urllib.error.HTTPError as error:
                    status = error.code
                assert status == code, (key, status)
            log = "".join(server.log)
        for text in (said, printed, log):
            assert "one-key" not in text and "other-key" not in text, text

    def test_help_finds_words(self):
        found = self.run("serve", "--help=PREFIX_CACHING")
        assert re.match(r"  --enable-prefix-caching ", found), found
        assert "--cache-mode" not in found, found
        assert "--cache-mode" in self.run("serve", "--help=generated text")  # of its help
        assert "--tensor-parallel-size" in self.run("serve", "--help=tensor-par")
        assert "vLLM's; 1 accepted, not needed: " in self.run("serve", "--help=tensor-par")
        assert "vLLM's; refused: " in self.run("serve", "--help=grpc-port")
        everywhere = self.run("--help=threads")
        assert "nibble serve:\n" in everywhere and "nibble quantize:\n" in everywhere, everywhere
        assert self.run("serve", "--help=ports", code=2) == (
            "nibble serve: no option has \"ports\" in its name or help; did you mean port?\n")
        assert "no option has" in self.run("--help=zebra", code=2)
        assert "no option has" in self.run("serve", "--help=", code=2)

    def test_the_manual_page_is_whole(self):
        page = self.file(self.run("man"), "nibble.1")
        shown = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page],
                               capture_output=True, text=True, timeout=600)
        assert (shown.returncode, shown.stderr) == (0, ""), shown.stderr
        lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", str(page)],
                              capture_output=True, text=True, timeout=600)
        assert (lint.returncode, lint.stdout) == (0, ""), lint.stdout
        text = subprocess.run(["mandoc", "-T", "utf8", "-O", "width=200", str(page)],
                              capture_output=True, text=True, timeout=600).stdout
        text = re.sub(".\b", "", text)
        for name in re.findall(r"(?m)^\| `(--[a-z0-9-]+)", self.run("man", "--markdown")):
            assert re.search(rf"(?m)^ +{name}\b", text), name

    def test_mandoc_would_say_it(self):
        page = self.file(self.run("man").replace(".SH VERBS", ".SH VERBS\n.XY", 1), "nibble.1")
        assert subprocess.run(["mandoc", "-T", "lint", "-W", "warning", str(page)],
                              capture_output=True).returncode != 0

    def test_the_page_of_options_is_what_the_program_prints(self):
        assert (ROOT / "docs/options.md").read_text() == self.run("man", "--markdown"), (
            "renew it: build/dev/src/cli/nibble man --markdown > docs/options.md")

    def test_other_shells_are_refused(self):
        assert "expected one of bash, zsh, fish" in self.run("completion", "csh", code=2)


if __name__ == "__main__":
    assert shutil.which("mandoc"), "mandoc is missing: tools/install_packages.sh test"
    sys.exit(run_program_checks(Checks, __doc__))

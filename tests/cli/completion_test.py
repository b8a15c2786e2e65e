#!/usr/bin/env python3
"""Completion in a shell: completion_test.py --nibble PROGRAM --shell bash|zsh|fish.

The shell itself runs, on a terminal of its own, with the script that the program prints for it;
keys are typed and the line that stands there then is read. bash and fish also list all options of
each verb, which are compared with the page of options. Prints "skipped: ..." where the shell is
not installed; the last line counts.
"""
import argparse
import fcntl
import os
import pathlib
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
import traceback

START = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"],
         "fish": ["fish", "--no-config", "-i"]}
LOAD = {"bash": "source {script}", "fish": "source {script}",
        "zsh": "autoload -U compinit; compinit -u -D; unsetopt autoremoveslash; source {script}"}
# A word that the shell computes, so that its output is told from what is typed.
COMPUTED = {"bash": "L$((40+2))=", "zsh": "L$((40+2))=", "fish": "L(math 40+2)="}


class TypedShell:
    """A shell on a terminal: `complete(text)` types it and a tab, and returns the line there."""

    def __init__(self, shell, folder, script):
        environment = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "HOME": str(folder),
                       "TERM": "xterm", "LANG": "C.UTF-8", "PS1": "> "}
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.chdir(folder)
            os.execvpe(START[shell][0], START[shell], environment)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 2000, 0, 0))
        self.pid, self.shell = pid, shell
        while select.select([self.terminal], [], [], 0.5)[0]:  # its greeting and first prompt
            os.read(self.terminal, 65536)
        self.type(f"{LOAD[shell].format(script=script)}; echo {COMPUTED[shell]}\r")
        self.read_until(r"L42=")

    def type(self, keys):
        os.write(self.terminal, keys.encode())

    def read_until(self, pattern, seconds=600):
        text, end = "", time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self.terminal], [], [], 0.2)[0]:
                text += os.read(self.terminal, 65536).decode(errors="replace")
                found = re.search(pattern, text)
                if found:
                    return found
        raise AssertionError(f"no {pattern!r} in {text[-2000:]!r}")

    def complete(self, text):
        # Control-A goes to the beginning of the line, Control-E to its end.
        self.type(f"{text}\t\x01echo {COMPUTED[self.shell]}\x05=END\r")
        return self.read_until(r"L42=(.*?)=END")[1].strip()

    def close(self):
        os.close(self.terminal)
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)


class Checks:
    def __init__(self, nibble, shell, folder):
        self.nibble, self.shell, self.folder = nibble, shell, folder
        (folder / "bin").mkdir()
        (folder / "bin/nibble").symlink_to(os.path.abspath(nibble))
        for name in ("models", "recipe.yaml"):
            path = folder / "place" / name
            path.parent.mkdir(exist_ok=True)
            path.mkdir() if name == "models" else path.write_text("")
        self.script = folder / f"nibble.{shell}"
        self.script.write_text(self.run("completion", shell))
        page = self.run("man", "--markdown")
        self.common = page.split("## Options of every verb")[1].split("\n## ")[0]
        self.tables = {part.split("\n")[0]: part for part in page.split("\n## nibble ")[1:]}
        self.verbs = sorted(self.tables)

    def run(self, *words):
        return subprocess.run([self.nibble, *words], capture_output=True, text=True, check=True,
                              timeout=600).stdout

    def options(self, verb):
        """Names in the page of options, and --no-NAME of those without a value."""
        names = {"--help"}
        for name, value in re.findall(r"(?m)^\| `--([a-z0-9-]+)( [^`]*)?` \|",
                                      self.tables[verb] + self.common):
            names.add("--" + name)
            if not value:
                names.add("--no-" + name)
        return names

    def listed(self, line):
        """Everything that the shell offers for a line, without typing."""
        if self.shell == "fish":
            done = subprocess.run(["fish", "--no-config", "-c",
                                   f"source {self.script}; complete -C '{line}'"],
                                  capture_output=True, text=True, timeout=600, cwd=self.folder)
            return {row.split("\t")[0] for row in done.stdout.splitlines()}
        words = line.split(" ")
        program = (f"source {self.script}; COMP_WORDS=({' '.join(words[:-1])} '{words[-1]}'); "
                   f"COMP_CWORD={len(words) - 1}; _nibble; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
        done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=600,
                              cwd=self.folder)
        assert done.stderr == "", done.stderr
        return {row for row in done.stdout.splitlines() if row}

    def test_each_option_of_each_verb_is_offered(self):
        assert len(self.verbs) >= 15, self.verbs
        for verb in self.verbs:
            wanted = self.options(verb)
            assert {"--config", "--print-config", "--help"} <= wanted, wanted
            if self.shell == "zsh":  # it has no way to list: each is typed but for its last letter
                self.type_each(verb, wanted)
                continue
            offered = self.listed(f"nibble {verb} --")
            assert offered == wanted, (verb, offered ^ wanted)
        if self.shell != "zsh":
            assert {verb.split()[0] for verb in self.verbs} <= self.listed("nibble ")
            assert {"serve", "model"} <= self.listed("nibble bench "), self.listed("nibble bench ")

    def type_each(self, verb, options):
        shell = TypedShell(self.shell, self.folder, self.script)
        try:
            for option in sorted(options):
                if sum(other.startswith(option[:-1]) for other in options) == 1:
                    found = shell.complete(f"nibble {verb} {option[:-1]}")
                    assert found == f"nibble {verb} {option}", (option, found)
        finally:
            shell.close()

    def test_typed_lines_are_completed(self):
        rows = [
            ("nibble quan", "nibble quantize"),
            ("nibble serve --gpu-mem", "nibble serve --gpu-memory-utilization"),
            ("nibble serve --no-we", "nibble serve --no-web"),
            ("nibble serve --cache-mode fa", "nibble serve --cache-mode fast"),
            ("nibble serve --cache-mode=ex", "nibble serve --cache-mode=exact"),
            ("nibble serve --kv-cache-dtype f", "nibble serve --kv-cache-dtype fp8"),
            ("nibble serve pla", "nibble serve place/"),
            ("nibble quantize --recipe place/rec", "nibble quantize --recipe place/recipe.yaml"),
            ("nibble serve --config place/rec", "nibble serve --config place/recipe.yaml"),
            ("nibble serve place/", "nibble serve place/models/"),  # folders alone
            ("nibble completion fi", "nibble completion fish"),
            ("nibble bench qua", "nibble bench quantize"),
            ("nibble bench serve --request-ra", "nibble bench serve --request-rate"),
            ("nibble serve --zebr", "nibble serve --zebr"),
        ]
        shell = TypedShell(self.shell, self.folder, self.script)
        try:
            for typed, line in rows:
                found = shell.complete(typed)
                assert found == line, (typed, found, line)
        finally:
            shell.close()

    def test_the_script_is_taken_as_it_is(self):
        check = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "--no-execute"]}
        done = subprocess.run([*check[self.shell], str(self.script)], capture_output=True,
                              text=True, timeout=600)
        assert (done.returncode, done.stderr) == (0, ""), done


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nibble", required=True)
    parser.add_argument("--shell", choices=START, required=True)
    flags = parser.parse_args()
    if shutil.which(flags.shell) is None:
        print(f"skipped: {flags.shell} is not installed: tools/install_packages.sh full")
        return 0
    names = [name for name in dir(Checks) if name.startswith("test_")]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        checks = Checks(flags.nibble, flags.shell, pathlib.Path(folder))
        for name in names:
            try:
                getattr(checks, name)()
                print("ok   ", name)
            except Exception:
                failed += 1
                print("FAIL ", name)
                traceback.print_exc()
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Builds changed programs beside a build: one object, one archive, one link; sources stay.

A Workshop knows a build folder of CMake and Ninja. Changed sources, objects and programs go to a
folder of the caller's, so the build and the checkout stay as they are.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess

# Folders that a build of its own reads: programs, tests and their data.
COPIED = ("CMakeLists.txt", "LICENSE", "cmake/", "docs/", "src/", "recipes/", "tests/", "pebble/",
          "bench/")


class DoesNotBuild(Exception):
    """A change that the compiler or the linker refuses, with its first words."""


def copy_sources(root, tree):
    """Makes `tree` a copy of the sources under `root`; files that are the same keep their time."""
    if (root / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root,
            capture_output=True, check=True).stdout.decode().split("\0")
    else:  # an archive of the sources
        listed = [str(path.relative_to(root)) for part in COPIED
                  for path in [root / part, *(root / part).rglob("*")]]
    wanted = {name for name in listed if name.startswith(COPIED) and (root / name).is_file()}
    for name in wanted:
        source, copy = root / name, tree / name
        if copy.is_file() and copy.stat().st_size == source.stat().st_size and \
                copy.read_bytes() == source.read_bytes():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)
    for copy in list(tree.rglob("*")):
        if copy.is_file() and str(copy.relative_to(tree)) not in wanted:
            copy.unlink()


def configure(root, tree, build):
    """Optimised, without sanitizers or debug information; tests without optimisation."""
    command = ["cmake", "-S", str(tree), "-B", str(build), "-G", "Ninja",
               "-DCMAKE_BUILD_TYPE=Release", "-DNIBBLE_PCH=ON", "-DNIBBLE_PLAIN_TESTS=ON",
               "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -D_GLIBCXX_ASSERTIONS"]
    fetched = sorted((root / "build/cache").glob("xgrammar-*/include"))
    if fetched:
        command.append(f"-DNIBBLE_XGRAMMAR_DIR={fetched[-1].parent}")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def put(folder, file, text):
    """Lays the text of a file of the tree where the compiler finds it first."""
    changed = folder / "changed" / file
    changed.parent.mkdir(parents=True, exist_ok=True)
    changed.write_text(text)
    return str(changed)


class Workshop:
    def __init__(self, tree, build):
        self.tree, self.build = tree.resolve(), build.resolve()
        self._links = {}
        self._compiles = None

    def make(self, targets, jobs):
        """Builds what of the targets does build, and prints what the compiler says of the rest."""
        done = subprocess.run(["ninja", "-k0", f"-j{jobs}", *dict.fromkeys(targets)],
                              cwd=self.build, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print("\n".join(line[:300] for line in done.stdout.splitlines()
                            if "error:" in line or line.startswith("FAILED:"))[:8000], flush=True)

    def compiles(self, file):
        return file in self._commands()

    def _commands(self):
        """{source file of the build: command line and object}."""
        if self._compiles is None:
            found = {}
            for entry in json.loads((self.build / "compile_commands.json").read_text()):
                name = os.path.relpath(entry["file"], self.tree)
                command = shlex.split(entry["command"])
                found.setdefault(name, (command, command[command.index("-o") + 1]))
            self._compiles = found  # at once: two threads may ask
        return self._compiles

    def _compile(self, file):
        if not self.compiles(file):
            raise KeyError(f"{file} is not compiled in {self.build}")
        return self._commands()[file]

    def compile(self, file, folder, text=None, defines=()):
        """Compiles `file`, as if it held `text` if that is given. The object; DoesNotBuild.

        What lies under `folder`/changed is read in place of what the tree has there.
        """
        command, output = self._compile(file)
        original = str(self.tree / file)
        source = original
        if text is not None:
            source = put(folder, file, text)
        made = folder / pathlib.Path(output).name
        words, i = [], 0
        while i < len(command):
            word = command[i]
            if word in ("-MF", "-MT", "-o"):
                i += 1
            elif word not in ("-MD", "-c", original) and not re.match(r"-W[^,]*$", word):
                words.append(word)
            i += 1
        if "ccache" in " ".join(words[:6]):  # thousands of changes need not be kept
            words = words[next(i for i, word in enumerate(words) if word.endswith("ccache")) + 1:]
        words[1:1] = ["-I", str(folder / "changed/src")]
        words += [f"-D{name}" for name in defines]
        # A function that ends without its value is refused, as what it does is chance.
        words += [f"-fmacro-prefix-map={folder / 'changed'}={self.tree}", "-Werror=return-type",
                  "-fmax-errors=1", "-c", source, "-o", str(made)]
        self._run(words, self.build)
        return made

    def same_object(self, file, made):
        return (self.build / self._compile(file)[1]).read_bytes() == made.read_bytes()

    def link(self, target, files, objects, folder):
        """A program of the build with other objects in place of those of `files`."""
        if target not in self._links:
            listed = subprocess.run(["ninja", "-t", "commands", target], cwd=self.build,
                                    capture_output=True, text=True, check=True).stdout
            links = [text for text in listed.splitlines()
                     if " -o " in text and " -c " not in text]
            self._links[target] = links[-1].removeprefix(": &&").removesuffix("&& :").strip()
        line = self._links[target]
        if "&&" in line:
            raise DoesNotBuild(f"the link of {target} is more than one command")
        words = shlex.split(line)
        for file, made in zip(files, objects):
            output = self._compile(file)[1]
            if output in words:  # an object of the program itself
                words[words.index(output)] = str(made)
                continue
            owner = re.sub(r"/CMakeFiles/(\w+)\.dir/.*", r"/lib\1.a", output)
            own = folder / pathlib.Path(owner).name
            if owner in words:
                shutil.copy(self.build / owner, own)
                words = [str(own) if word == owner else word for word in words]
            elif str(own) not in words:
                raise DoesNotBuild(f"{target} does not link {owner}")
            self._replace(own, output, made)
        program = folder / pathlib.Path(words[words.index("-o") + 1]).name
        words[words.index("-o") + 1] = str(program)
        self._run(words, self.build)
        return program

    def _replace(self, archive, output, made):
        name = pathlib.Path(output).name
        listed = subprocess.run(["ar", "t", str(archive)], capture_output=True, text=True,
                                check=True).stdout.split()
        if listed.count(name) != 1:
            raise DoesNotBuild(f"{archive.name} holds {name} {listed.count(name)} times")
        self._run(["ar", "r", str(archive), str(made)], self.build)

    @staticmethod
    def _run(words, folder):
        try:
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=1200,
                                  env={**os.environ, "CCACHE_DISABLE": "1"}, check=False)
        except subprocess.TimeoutExpired as late:
            raise DoesNotBuild("the compiler takes more than 1200 s") from late
        if done.returncode != 0:
            raise DoesNotBuild((done.stderr or done.stdout)[:2500])

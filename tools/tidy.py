#!/usr/bin/env python3
"""House rules as a test: floors, sizes, banned words, headers, fuzz entries, names in documents.

Run from anywhere: tools/tidy.py. Prints a line per broken rule, then 'N passed, N failed'.
tools/tidy.py --write-sizes takes the list of what is larger than its aim anew. Larger rules are in
tools/house_rules/; tests/house_rules_test.py shows each of those a mistake that it must see.
What it is not: a formatter (clang-format) or a linter of meaning (the compiler, clang-tidy).
"""

import pathlib
import re
import subprocess
import sys

from house_rules import (comments, cpp_source, documents, outside_bytes, patience, rooms,
                         signatures, sizes)

ROOT = pathlib.Path(__file__).resolve().parent.parent

FLOORS = {
    "base": 0, "tensor": 0,
    "checkpoint": 1, "text": 1, "grammar": 1, "hub": 1, "media": 1,
    "model": 2,
    "backend/reference": 3, "backend/cpu": 3, "backend/cuda": 3,
    "plan": 4,
    "engine": 5, "quantize": 5,
    "server": 6, "eval": 6, "bench": 6,
    "cli": 7,
}
# Modules of one floor do not know each other; tensor may use base, which is below everything.
SAME_FLOOR_ALLOWED = {("tensor", "base")}
# Test support sits beside the floors: only tests may include it.
TEST_ONLY = {"testing"}

COLUMNS_MAX = 100

HAVE_DEADLINES = {"tests/serve/lost_card_test.py"}  # a test of how soon the loss is told

BANNED = [  # pattern, where it is allowed (prefixes), advice
    (r"\bgetenv\s*\(", ("src/cli/", "src/backend/cuda/faults/"),
     "environment is read in src/cli/main.cc only"),
    (r"\bstd::cout\b|\bprintf\s*\(", ("src/cli/", "src/testing/", "bench/"),
     "libraries never print"),
    (r"\b(std::)?(exit|abort|_Exit|quick_exit)\s*\(", ("src/base/check.cc", "src/cli/", "bench/"),
     "libraries never end the process: return a Result"),
    (r"\bnew\s+[A-Za-z_:]+[\(\[{<]", (), "no bare new: std::make_unique or a container"),
    (r"\bdelete\s+[a-z\[]", (), "no bare delete"),
    (r"\bFIXME\b|\bTODO\b|\bXXX\b", (), "do it, or say it in an issue"),
    (r"_v2\b", (), "name by what it does"),
    (r"(^\s+|, )\.\w+ = .*\bTRY\(", (),
     "TRY behind other members of an initializer list: at an error GCC 12 leaks them; assign"),
]
CPP = (".h", ".cc", ".inl", ".cu", ".cuh")


def tracked(*suffixes):
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [ROOT / name for name in sorted(set(listed.split("\0")))
            if name.endswith(suffixes) and (ROOT / name).is_file()]


def module_of(path):
    parts = pathlib.PurePosixPath(path).parts
    for length in (2, 1):
        name = "/".join(parts[:length])
        if name in FLOORS or name in TEST_ONLY:
            return name
    return None


def is_test(path):
    return path.stem.endswith(("_test", "_fuzz", "_tool")) or "testing" in path.parts


class Tidy:
    def __init__(self):
        self.broken = []
        self.checks = 0
        self.declarations = signatures.Declarations()

    def check(self, fine, path, line, words):
        self.checks += 1
        if not fine:
            self.broken.append(f"{path.relative_to(ROOT)}:{line}: {words}")

    def includes(self, path, lines):
        if "src" not in path.relative_to(ROOT).parts[:1]:
            return
        mine = module_of(path.relative_to(ROOT / "src"))
        for number, line in enumerate(lines, 1):
            found = re.match(r'#include "([^"]+)"', line)
            if not found:
                continue
            theirs = module_of(found[1])
            if theirs is None or mine is None or mine == theirs:
                self.check(theirs is not None or mine is None, path, number,
                           f'"{found[1]}" belongs to no module: write "module/file.h"')
                continue
            if theirs in TEST_ONLY or mine in TEST_ONLY:
                self.check(is_test(path), path, number, f"{theirs} is for tests only")
                continue
            lower = FLOORS[theirs] < FLOORS[mine] or (mine, theirs) in SAME_FLOOR_ALLOWED
            lower = lower or is_test(path)  # a test may compare a backend with the reference
            self.check(lower, path, number, f"{mine} (floor {FLOORS[mine]}) includes "
                                            f"{theirs} (floor {FLOORS[theirs]})")
        for number, line in enumerate(lines, 1):
            if re.match(r"#include <(cuda|cublas|nccl|cutlass|cute)", line):
                self.check("backend/cuda" in str(path), path, number,
                           "CUDA headers live under backend/cuda only")

    def columns(self, path, lines):
        for number, line in enumerate(lines, 1):
            long = len(line) > COLUMNS_MAX and "http" not in line and '#include "' not in line
            self.check(not long, path, number, f"{len(line)} columns, at most {COLUMNS_MAX}")

    def words(self, path, lines):
        relative = str(path.relative_to(ROOT))
        for number, line in enumerate(lines, 1):
            code = re.sub(r'"(\\.|[^"\\])*"', '""', line)
            comment = code.find("//")
            bare = code if comment < 0 else code[:comment]
            for pattern, allowed, advice in BANNED:
                text = code if "FIXME" in pattern else bare
                if relative.startswith(allowed) if allowed else False:
                    continue
                if is_test(path) and "exit" in pattern:
                    continue
                self.check(not re.search(pattern, text), path, number, advice)
            if path.suffix == ".h":
                self.check("using namespace" not in bare, path, number,
                           "using namespace in a header")

    def opening(self, path, lines):
        mark = "#" if path.suffix == ".py" else "//"
        first = [line for line in lines[:3] if not line.startswith("#!")]
        good = bool(first) and (first[0].startswith(mark) or first[0].startswith('"""'))
        self.check(good, path, 1, "a file opens with what it is and what it is not")

    def signatures(self, path, text):
        """Checks whole declarations; returns the functions of the file."""
        name = str(path.relative_to(ROOT))
        code = cpp_source.bare(text)
        functions = cpp_source.functions(code)
        self.checks += len(functions)
        self.declarations.add(name, code, functions)
        if path.suffix == ".h" and not name.startswith("bench/"):  # nobody else includes those
            for line, words in signatures.bool_parameters(functions):
                self.check(False, path, line, words)
        return functions

    def sizes(self, found):
        table = ROOT / sizes.TABLE
        self.checks += len(found)
        for name, words in sizes.faults(found, sizes.read_table(table.read_text())):
            self.check(False, ROOT / name, 1, words)

    def fuzz(self, texts):
        """Every source that reads bytes from outside has a fuzz entry."""
        corpora = {folder.name for folder in (ROOT / "tests/corpus").iterdir()
                   if folder.is_dir() and any(folder.iterdir())}
        table = (ROOT / outside_bytes.TABLE).read_text()
        self.checks += len(outside_bytes.parsers(texts))
        for name, line, words in outside_bytes.faults(texts, table, corpora):
            self.check(False, ROOT / name, line, words)

    def rooms(self, texts):
        """Includes go to lower rooms of a module, and no folder is crowded."""
        inside = {name[4:]: text for name, text in texts.items() if name.startswith("src/")}
        for name, text in inside.items():
            self.checks += 1
            path = ROOT / "src" / name
            for line, words in rooms.wrong_includes(name, text, is_test(path)):
                self.check(False, path, line, words)
        for words in rooms.crowded(inside):
            self.check(False, ROOT / "tools/house_rules/rooms.py", 1, words)

    def documents(self):
        names = {path.name for path in tracked("")}
        for path in tracked(".md"):
            text = path.read_text()
            wrong = documents.dead_names(ROOT, path, text, names)
            wrong += documents.dead_symbols(ROOT, text)
            self.checks += 1
            for line, words in wrong:
                self.check(False, path, line, words)

    def run(self, write_sizes):
        found, texts = {}, {}
        for path in tracked(*CPP, ".py"):
            text = path.read_text()
            name, lines = str(path.relative_to(ROOT)), text.splitlines()
            self.opening(path, lines)
            self.columns(path, lines)
            for line, words in comments.faults(lines):
                self.check(False, path, line, words)
            if name.startswith("tests/") and path.suffix == ".py" and name not in HAVE_DEADLINES:
                for line, words in patience.faults(text):
                    self.check(False, path, line, words)
            functions = None
            if path.suffix != ".py":
                texts[name] = text
                self.includes(path, lines)
                self.words(path, lines)
                functions = self.signatures(path, text)
            found.update(sizes.entries(name, text, functions))
        if write_sizes:
            (ROOT / sizes.TABLE).write_text(sizes.write_table(found))
        self.sizes(found)
        for name, line, words in self.declarations.faults():
            self.check(False, ROOT / name, line, words)
        self.rooms(texts)
        self.fuzz({name: text for name, text in texts.items() if name.endswith((".h", ".cc"))})
        self.documents()
        for broken in self.broken:
            print(broken)
        print(f"{self.checks - len(self.broken)} passed, {len(self.broken)} failed")
        return 1 if self.broken else 0


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--write-sizes"]):
        sys.exit("tidy.py takes no arguments but --write-sizes")
    sys.exit(Tidy().run(write_sizes=len(sys.argv) > 1))

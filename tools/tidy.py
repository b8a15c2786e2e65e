#!/usr/bin/env python3
"""House rules as a test: floors, limits, banned words, headers, fuzz entries, document paths.

Run from anywhere: tools/tidy.py. Prints a line per broken rule, then 'N passed, N failed'.
What it is not: a formatter (clang-format) or a linter of meaning (the compiler, clang-tidy).
"""

import pathlib
import re
import subprocess
import sys

import outside_bytes

ROOT = pathlib.Path(__file__).resolve().parent.parent

FLOORS = {
    "base": 0, "tensor": 0,
    "checkpoint": 1, "text": 1, "grammar": 1, "media": 1,
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

FILE_LINES_MAX = 500
KERNEL_LINES_MAX = 700
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 100

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
BOOL_PARAMETER = re.compile(r"[(,]\s*(const\s+)?bool\s+[a-z_]+\s*[,)=]")
# A value made from a boolean: Json(bool value).
CONVERSION = re.compile(r"^\s*(explicit |inline )?([A-Z]\w*::)?[A-Z]\w*\(bool \w+\)")


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


ROOM_PATH = re.compile(r"`((?:src|tools|tests|docs|bench|recipes|pebble)/[\w./*-]+)`")
NOT_A_FUNCTION = re.compile(
    r"(namespace|struct|class|enum|union|extern|if|for|while|switch|TEST\w*|do|else)\b")


class Tidy:
    def __init__(self):
        self.broken = []
        self.checks = 0

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

    def sizes(self, path, lines):
        most = KERNEL_LINES_MAX if path.suffix in (".cu", ".cuh") else FILE_LINES_MAX
        if "_data." not in path.name:
            self.check(len(lines) <= most, path, len(lines), f"{len(lines)} lines, at most {most}")
        for number, line in enumerate(lines, 1):
            long = len(line) > COLUMNS_MAX and "http" not in line and '#include "' not in line
            self.check(not long, path, number, f"{len(line)} columns, at most {COLUMNS_MAX}")

    def functions(self, path, lines):
        """Bodies that open at a line's end and close at the same indent (clang-format's shape)."""
        for indent in ("", "  "):
            start = None
            for number, line in enumerate(lines, 1):
                if not line.startswith(indent) or line.startswith(indent + " "):
                    continue
                text = line[len(indent):]
                if (start is None and re.search(r"\)[^;]*\{$", text)
                        and not NOT_A_FUNCTION.match(text)):
                    start = number
                elif start is not None and text.startswith("}"):
                    length = number - start + 1
                    self.check(length <= FUNCTION_LINES_MAX, path, start,
                               f"function of {length} lines, at most {FUNCTION_LINES_MAX}")
                    start = None

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
                ours = path.relative_to(ROOT).parts[0] == "bench"  # nobody else includes those
                excused = ours or "std::function" in bare or CONVERSION.match(bare)
                self.check(excused or not BOOL_PARAMETER.search(bare), path, number,
                           "a bool parameter in a public signature: use an enum class")

    def opening(self, path, lines):
        mark = "#" if path.suffix == ".py" else "//"
        first = [line for line in lines[:3] if not line.startswith("#!")]
        good = bool(first) and (first[0].startswith(mark) or first[0].startswith('"""'))
        self.check(good, path, 1, "a file opens with what it is and what it is not")

    def fuzz(self):
        """Every source that reads bytes from outside has a fuzz entry."""
        paths = tracked(".h", ".cc")
        self.checks += len(outside_bytes.parsers(ROOT, paths))
        for path, line, words in outside_bytes.faults(ROOT, paths):
            self.check(False, path, line, words)

    def documents(self):
        for path in tracked(".md"):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", line):
                    if "://" in target or target.startswith("mailto:"):
                        continue
                    self.check((path.parent / target).exists(), path, number, f"no file {target}")
                for target in ROOM_PATH.findall(line):
                    exists = any(ROOT.glob(target)) if "*" in target else (ROOT / target).exists()
                    self.check(exists, path, number, f"no file {target}")

    def run(self):
        for path in tracked(".h", ".cc", ".inl", ".cu", ".cuh", ".py"):
            lines = path.read_text().splitlines()
            self.opening(path, lines)
            self.sizes(path, lines)
            if path.suffix != ".py":
                self.includes(path, lines)
                self.functions(path, lines)
                self.words(path, lines)
        self.fuzz()
        self.documents()
        for broken in self.broken:
            print(broken)
        print(f"{self.checks - len(self.broken)} passed, {len(self.broken)} failed")
        return 1 if self.broken else 0


if __name__ == "__main__":
    sys.exit(Tidy().run())

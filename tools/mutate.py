#!/usr/bin/env python3
"""How many small mistakes in product code do the tests see? `./test --mutate [MODULE...]` runs it.

tools/mutate.py MODULE... [--seed N] [--count N]   a draw of mutants of each module
tools/mutate.py planted-bugs [BUG...]              the mistakes of src/engine/planted_bug.h
tools/mutate.py --planted BUILD                    those of tests/mutation/planted.txt, quickly
"""

import argparse
import dataclasses
import hashlib
import json
import pathlib
import re
import shutil
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "mutation"))
import changes  # noqa: E402
import trial  # noqa: E402
from workshop import DoesNotBuild, Workshop, configure, copy_sources, put  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build/mutate"
SEED = 20
COUNT = 40
MODULES = ("checkpoint", "text", "grammar", "model", "engine", "server", "quantize", "backend/cpu",
           "backend/cuda")


@dataclasses.dataclass(frozen=True)
class Program:
    """A target that is run, or given to a script of tools/oracle. Without arguments: gtest."""
    target: str
    arguments: tuple = ()
    script: str = ""

    def command(self, path):
        """With the built target's path; the oracles' caches are read, never written."""
        words = [word.format(path=path, cache=ROOT / "build/cache") for word in self.arguments]
        if not self.script:
            return [str(path), *words]
        return [sys.executable, str(ROOT / "tools/oracle" / self.script), *words]


# Programs that judge a module beside its own unit tests.
MORE_PROGRAMS = {
    "engine": [Program("nibble_engine_simulation",
                       ("--seeds", "1000", "--steps", "300", "--threads", "1"))],
    "text": [Program("nibble_template_tool", ("{path}", "5"), "template_test.py"),
             Program("nibble_tokenizer_tool", ("{path}", "{cache}"), "tokenizer_test.py")],
}
NOT_DRAWN = re.compile(r"(_test|_fuzz|_tool|_data|_main|simulation)\.cc$|/absent\.cc$")
INCLUDERS_MAX = 4
KEYS = ("file", "was", "becomes")


def target_of(module):
    return f"nibble_{module.replace('/', '_')}_test"


def product_files(tree, module):
    """{file: the .cc files to compile when it changes}: sources, and .inl of a few of them."""
    texts = {str(path.relative_to(tree / "src")): path.read_text()
             for path in (tree / "src").rglob("*") if path.suffix in (".cc", ".h", ".inl")}
    included_by = changes.includers(texts)
    files = {}
    for name in sorted(texts):
        if not name.startswith(module + "/") or NOT_DRAWN.search(name):
            continue
        if name.endswith(".cc"):
            files["src/" + name] = ["src/" + name]
        elif ".inl" in name and 0 < len(included_by[name]) <= INCLUDERS_MAX and not any(
                NOT_DRAWN.search(source) for source in included_by[name]):
            files["src/" + name] = ["src/" + source for source in sorted(included_by[name])]
    return files


def marked_equivalent():
    file = ROOT / "tests/mutation/equivalent.txt"
    blocks = changes.parse_blocks(file.read_text(), file.name, (*KEYS, "reason"))
    return {tuple(block[key] for key in KEYS) for block in blocks}


class Results:
    """The outcome of each mutant, kept by a hash of its text and of all sources of the tests."""

    def __init__(self, file):
        self.file, self.known, self.hints = file, {}, {}
        self.lock = threading.Lock()
        if file.exists():
            for line in file.read_text().splitlines():
                entry = json.loads(line)
                self.known[entry["key"]] = entry
                if entry["outcome"] == "killed":
                    self.hints[entry["mutant"]] = entry["by"]

    def add(self, entry):
        with self.lock, self.file.open("a") as out:
            out.write(json.dumps(entry) + "\n")


def sources_hash(tree, module, programs):
    """A hash of everything that may decide a result: all C++ below, the module and its tests'
    data."""
    digest = hashlib.sha256(repr(programs).encode())
    if any(program.script for program in programs):
        for script in sorted((ROOT / "tools/oracle").glob("*.py")):
            digest.update(script.read_bytes())
    for path in sorted(tree.rglob("*")):
        name = str(path.relative_to(tree))
        beside = name.startswith("src/") and name.endswith("_test.cc") and \
            not name.startswith(f"src/{module}/")
        if path.is_file() and not beside and name.startswith(("src/", "tests/golden/", "cmake/")):
            digest.update(name.encode() + path.read_bytes())
    return digest.hexdigest()


class Draw:
    def __init__(self, module, seed, count, confine):
        self.module, self.seed, self.count, self.confine = module, seed, count, confine
        self.shop = Workshop(WORK / "tree", WORK / "build")
        self.programs = [Program(target_of(module))] + MORE_PROGRAMS.get(module, [])
        self.equivalent = marked_equivalent()
        self.results = Results(WORK / f"{module.replace('/', '_')}.jsonl")
        self.files = product_files(self.shop.tree, module)
        self.parts = []
        self.hash = ""

    def prepare(self):
        self.shop.make([program.target for program in self.programs])
        # A build without CUDA compiles what of that backend needs none.
        self.files = {name: sources for name, sources in self.files.items()
                      if all(map(self.shop.compiles, sources))}
        paths = {program.target: self.shop.build / "src" / self.module / program.target
                 for program in self.programs}
        self.parts = trial.parts_of(self.programs, paths)
        self.hash = sources_hash(self.shop.tree, self.module, self.programs)
        kept = WORK / f"{self.module.replace('/', '_')}-seconds.json"
        known = json.loads(kept.read_text()) if kept.exists() else {}
        if known.get("hash") != self.hash:
            failing = trial.measure(self.parts, paths, WORK / "scratch", self.confine)
            known = {"hash": self.hash, "seconds": {p.name: p.seconds for p in self.parts},
                     "failing": [part.name for part in failing]}
            kept.write_text(json.dumps(known))
        for name in known["failing"]:
            print(f"{name} fails without any change, and judges nothing", flush=True)
        self.parts = [part for part in self.parts if part.name not in known["failing"]]
        for part in self.parts:
            part.seconds = known["seconds"][part.name]

    def judge(self, change, folder):
        """Tries one mutant: does_not_build, same_object, marked, killed or survived."""
        text = change.apply((self.shop.tree / change.file).read_text())
        mutant = json.dumps(change.identity())
        key = hashlib.sha256((self.hash + change.file + text).encode()).hexdigest()
        if key in self.results.known:
            entry = dict(self.results.known[key])
        else:
            entry = {"key": key, "mutant": mutant, "by": "", "line": change.line}
            begin = time.monotonic()
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            entry["outcome"], entry["by"] = self.build_and_run(change, text, folder, mutant)
            entry["seconds"] = round(time.monotonic() - begin, 1)
            shutil.rmtree(folder, ignore_errors=True)
            self.results.add(entry)
        if entry["outcome"] == "survived" and change.identity() in self.equivalent:
            entry["outcome"] = "marked"
        return entry

    def build_and_run(self, change, text, folder, mutant):
        try:
            put(folder, change.file, text)
            files = self.files[change.file]
            made = [self.shop.compile(file, folder, text if file == change.file else None)
                    for file in files]
            if all(map(self.shop.same_object, files, made)):
                return "same_object", ""
            paths = {program.target: self.shop.link(program.target, files, made, folder)
                     for program in self.programs}
        except DoesNotBuild:
            return "does_not_build", ""
        order = trial.nearest_first(self.parts, change.file, self.results.hints.get(mutant))
        by = trial.seen_by(order, paths, folder / "scratch", self.confine)
        return ("killed", by.name) if by else ("survived", "")

    def run(self, jobs, deadline):
        """The entries of the first `count` mutants of the draw that count, in the draw's order."""
        drawn = []
        for file in self.files:
            drawn += changes.candidates(file, (self.shop.tree / file).read_text())
        drawn = changes.draw(drawn, self.seed)
        entries, at, done = {}, 0, 0
        lock = threading.Lock()

        def work(worker):
            nonlocal at, done
            while True:
                with lock:
                    if done >= self.count or at >= len(drawn) or time.monotonic() > deadline:
                        return
                    index, at = at, at + 1
                entry = self.judge(drawn[index], WORK / f"worker{worker}")
                with lock:
                    entries[index] = (drawn[index], entry)
                    done += entry["outcome"] in ("killed", "survived", "marked")
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(work, range(jobs)))
        return [entries[index] for index in sorted(entries)]


def report(module, seed, entries, count, seconds):
    score = changes.Score()
    left = {"does_not_build": 0, "same_object": 0}
    lines = []
    for change, entry in entries:
        outcome = entry["outcome"]
        if outcome in left:
            left[outcome] += 1
            continue
        if score.killed + score.survived + score.marked == count:
            break
        setattr(score, outcome, getattr(score, outcome) + 1)
        if outcome == "survived":
            lines.append(f"survived  {change.file}:{change.line}\n  was      {change.was.strip()}\n"
                         f"  becomes  {change.becomes.strip()}")
    lines.append(f"{module}: {score.killed} of {score.killed + score.survived} killed, "
                 f"{score.percent:.1f} %; {score.marked} marked equivalent; left out: "
                 f"{left['does_not_build']} do not build, {left['same_object']} give the same "
                 f"object; seed {seed}, {seconds:.0f} s")
    text = "\n".join(lines)
    print(text, flush=True)
    (WORK / f"{module.replace('/', '_')}-{seed}.txt").write_text(text + "\n")
    return score


def make_tree():
    WORK.mkdir(parents=True, exist_ok=True)
    copy_sources(ROOT, WORK / "tree")
    if not (WORK / "build/build.ninja").exists():
        configure(ROOT, WORK / "tree", WORK / "build")


def draw_modules(modules, arguments, confine):
    make_tree()
    total = changes.Score()
    deadline = time.monotonic() + 60 * arguments.minutes
    for module in modules:
        begin = time.monotonic()
        one = Draw(module, arguments.seed, arguments.count, confine)
        one.prepare()
        entries = one.run(arguments.jobs, deadline)
        score = report(module, arguments.seed, entries, arguments.count, time.monotonic() - begin)
        for name in ("killed", "survived", "marked"):
            setattr(total, name, getattr(total, name) + getattr(score, name))
    print(f"{total.killed} of {total.killed + total.survived} killed, {total.percent:.1f} %, "
          f"{total.marked} marked equivalent")
    return 0


def planted_bugs(names, confine):
    """Every bug of src/engine/planted_bug.h must be seen by a suite or by the simulation."""
    make_tree()
    shop = Draw("engine", SEED, 0, confine)
    shop.prepare()
    header = (ROOT / "src/engine/planted_bug.h").read_text()
    missed = 0
    for name, number in re.findall(r"^  (kBug\w+) = ([1-9]\d*)", header, re.M):
        if names and name not in names:
            continue
        files = [file for file in shop.files if file.endswith(".cc") and
                 f"planted({name})" in (shop.shop.tree / file).read_text()]
        folder = WORK / "worker0"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        made = [shop.shop.compile(file, folder, defines=[f"NIBBLE_PLANTED_BUG={number}"])
                for file in files]
        paths = {program.target: shop.shop.link(program.target, files, made, folder)
                 for program in shop.programs}
        order = trial.nearest_first(shop.parts, files[0], None) if files else []
        by = trial.seen_by(order, paths, folder / "scratch", confine)
        missed += by is None
        print(f"ok    {name}: {by.name}" if by else f"MISS  {name}: nobody saw it", flush=True)
    print(f"{missed} missed")
    return 1 if missed else 0


def planted_changes(build):
    """Every change of tests/mutation/planted.txt must fail the test that it names."""
    file = ROOT / "tests/mutation/planted.txt"
    blocks = changes.parse_blocks(file.read_text(), file.name, (*KEYS, "test"))
    shop = Workshop(ROOT, build)

    def seen(numbered):
        number, block = numbered
        folder = build / f"planted/{number}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        text = (ROOT / block["file"]).read_text()
        module, test = block["test"].split()
        try:
            made = shop.compile(block["file"], folder, changes.change_of(block, text).apply(text))
            program = shop.link(target_of(module), [block["file"]], [made], folder)
        except DoesNotBuild as problem:
            return f"does not build: {problem}"
        if test not in trial.suites(program, cases=True):
            return f"{test} is not a test of {module}"
        good, _ = trial.run([str(program), f"--gtest_filter={test}"], folder / "scratch", 60, None,
                            limit=None)
        shutil.rmtree(folder, ignore_errors=True)
        return f"{test} passes with it" if good else ""
    with ThreadPoolExecutor(2) as pool:
        problems = list(pool.map(seen, enumerate(blocks)))
    for block, problem in zip(blocks, problems):
        print(f"FAIL  {block['file']}: {block['becomes']}: {problem}" if problem
              else f"ok    {block['file']}: {block['test']}")
    print(f"{problems.count('')} passed, {len(problems) - problems.count('')} failed")
    return 1 if any(problems) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=COUNT, help="mutants that count, a module")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no mutant after these")
    parser.add_argument("--planted", metavar="BUILD", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.planted:
        return planted_changes(arguments.planted.resolve())
    confine = trial.confining()
    if confine is None:
        sys.exit("mutate: expected `unshare` to make a mount namespace, so that mutants cannot "
                 "write outside of their folder, found that it may not; run as root")
    if arguments.modules[:1] == ["planted-bugs"]:
        return planted_bugs(arguments.modules[1:], confine)
    unknown = [name for name in arguments.modules if name not in MODULES]
    if unknown:
        sys.exit(f"mutate: expected a module ({', '.join(MODULES)}) or planted-bugs, "
                 f"found {unknown[0]}")
    return draw_modules(arguments.modules or MODULES, arguments, confine)


if __name__ == "__main__":
    sys.exit(main())

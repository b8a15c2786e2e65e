#!/usr/bin/env python3
"""How many small mistakes in product code do the tests see? `./test --mutate [MODULE...]` runs it.

tools/mutate.py MODULE... [--seed N,...] [--count N]   a draw of mutants of each module
tools/mutate.py planted-bugs [BUG...]              the mistakes of src/base/planted_bug.h
tools/mutate.py --planted BUILD                    those of tests/mutation/planted.txt, quickly
"""

import argparse
import pathlib
import re
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "mutation"))
import changes  # noqa: E402
import drawing  # noqa: E402
import trial  # noqa: E402
import turns  # noqa: E402
from drawing import KEYS, WORK, Judges  # noqa: E402
from programs import ROOT, target_of  # noqa: E402
from workshop import DoesNotBuild, Workshop, configure, copy_sources  # noqa: E402

SEED = 20
COUNT = 40
MODULES = ("checkpoint", "text", "grammar", "model", "engine", "server", "quantize", "backend/cpu",
           "backend/cuda")


def make_tree():
    WORK.mkdir(parents=True, exist_ok=True)
    copy_sources(ROOT, WORK / "tree")
    configure(ROOT, WORK / "tree", WORK / "build")
    return Workshop(WORK / "tree", WORK / "build")


def draw_modules(modules, arguments, confine):
    shop = make_tree()
    begin = time.monotonic()
    deadline = begin + 60 * arguments.minutes
    judges = Judges.own if arguments.own_tests else Judges.all
    wanted = [drawing.Draw(module, shop, confine, seed, judges)
              for seed in arguments.seed for module in modules]
    draws = drawing.prepare(wanted, arguments.jobs)
    try:
        turns.run(draws, arguments.count, arguments.jobs, WORK, deadline,
                  lambda: drawing.time_slow(draws, arguments.jobs, deadline))
    finally:
        for seed in arguments.seed:
            total = changes.Score()
            for draw in draws:
                if draw.seed == seed:
                    total.add(drawing.report(draw, arguments.count, time.monotonic() - begin))
            print(f"seed {seed}: {total.text()}", flush=True)
    return 0 if len(draws) == len(wanted) else 1


def planted_bugs(names, confine, jobs):
    """Every bug of src/base/planted_bug.h must be seen by a suite or by the simulation."""
    shop = make_tree()
    draw, = drawing.prepare([drawing.Draw("engine", shop, confine, judges=Judges.own)], jobs)
    drawing.time_slow([draw], jobs, float("inf"))
    header = (ROOT / "src/base/planted_bug.h").read_text()
    bugs = [bug for bug in re.findall(r"^  (kBug\w+) = ([1-9]\d*)", header, re.M)
            if not names or bug[0] in names]
    sources = [file for file in (shop.tree / "src").rglob("*.cc")
               if "planted(kBug" in file.read_text()]

    def seen(numbered):
        worker, (name, number) = numbered
        files = [str(file.relative_to(shop.tree)) for file in sorted(sources)
                 if f"planted({name})" in file.read_text()]
        folder = WORK / f"bug{worker}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        made = [shop.compile(file, folder, defines=[f"NIBBLE_PLANTED_BUG={number}"])
                for file in files]
        paths = {}
        for target, path in draw.paths().items():
            try:
                paths[target] = shop.link(target, files, made, folder)
            except DoesNotBuild:  # it has no part of what the bug is in
                paths[target] = path
        order = trial.nearest_first(draw.parts, files[0], None) if files else []
        by = trial.seen_by(order, paths, folder / "scratch", confine, right=draw.paths())
        shutil.rmtree(folder, ignore_errors=True)
        print(f"ok    {name}: {by.part.name}" if by else f"MISS  {name}: nobody saw it", flush=True)
        return by is None
    with ThreadPoolExecutor(jobs) as pool:
        missed = sum(pool.map(seen, enumerate(bugs)))
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
                            limits=())
        shutil.rmtree(folder, ignore_errors=True)
        return f"{test} passes with it" if good else ""
    with ThreadPoolExecutor(2) as pool:
        problems = list(pool.map(seen, enumerate(blocks)))
    for block, problem in zip(blocks, problems):
        print(f"FAIL  {block['file']}: {block['becomes']}: {problem}" if problem
              else f"ok    {block['file']}: {block['test']}")
    print(f"{problems.count('')} passed, {len(problems) - problems.count('')} failed")
    return 1 if any(problems) else 0


def seeds_of(words):
    return [int(word) for word in words.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE")
    parser.add_argument("--seed", type=seeds_of, default=[SEED], help="one, or some as 7,8")
    parser.add_argument("--count", type=int, default=COUNT, help="mutants that count, a module")
    parser.add_argument("--jobs", type=int, default=2, help="builds and mutants at once")
    parser.add_argument("--minutes", type=float, default=1e6,
                        help="leave undecided what is not decided after these")
    parser.add_argument("--own-tests", action="store_true",
                        help="leave out the tests of other modules: quicker, and sees less")
    parser.add_argument("--unconfined", action="store_true",
                        help="let mutants write anywhere: for a machine that is thrown away")
    parser.add_argument("--planted", metavar="BUILD", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.planted:
        return planted_changes(arguments.planted.resolve())
    confine = [] if arguments.unconfined else trial.confining()
    if confine is None:
        sys.exit("mutate: expected `unshare` to make a mount namespace, so that mutants cannot "
                 "write outside of their folder, found that it may not; run as root, or give "
                 "--unconfined on a machine that is thrown away")
    if arguments.modules[:1] == ["planted-bugs"]:
        return planted_bugs(arguments.modules[1:], confine, arguments.jobs)
    unknown = [name for name in arguments.modules if name not in MODULES]
    if unknown:
        sys.exit(f"mutate: expected a module ({', '.join(MODULES)}) or planted-bugs, "
                 f"found {unknown[0]}")
    return draw_modules(arguments.modules or MODULES, arguments, confine)


if __name__ == "__main__":
    sys.exit(main())

"""Draws of mutants of modules: trials of many at once, their results, their scores.

changes.py makes the mutants, workshop.py builds them, trial.py runs tests over them.
"""

import enum
import hashlib
import json
import shutil
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import changes
import trial
from programs import ROOT, product_files, programs_of, sources_hash
from workshop import DoesNotBuild, put

WORK = ROOT / "build/mutate"
KEYS = ("file", "was", "becomes")
COUNTED = ("killed", "survived", "marked")
# Parts that take longer judge last: they see little that no quicker one sees.
SECONDS_OF_QUICK = 10.0
# A part that has not ended after these is timed while the quick parts judge.
SECONDS_UNTIL_SLOW = 20.0
SECONDS_MAX = 600.0  # of a part that may judge


def marked_equivalent():
    file = ROOT / "tests/mutation/equivalent.txt"
    blocks = changes.parse_blocks(file.read_text(), file.name, (*KEYS, "reason"))
    return {tuple(block[key] for key in KEYS) for block in blocks}


class Results:
    """The outcome of each mutant, kept by a hash of its text and of all sources of the tests; of
    one that is not decided, the parts of the tests that saw nothing."""

    lock = threading.Lock()  # one for all: draws of a module with two seeds have the same file

    def __init__(self, file):
        self.file, self.known, self.hints = file, {}, {}
        if file.exists():
            for line in file.read_text().splitlines():
                entry = json.loads(line)
                self.known[entry["key"]] = entry
                if entry["outcome"] == "killed":
                    self.hints[entry["mutant"]] = entry["by"]

    def add(self, entry):
        with self.lock, self.file.open("a") as out:
            out.write(json.dumps(entry) + "\n")
            self.known[entry["key"]] = entry


class Links(dict):
    """{target: its program with changed objects}, each linked when it is asked for."""

    def __init__(self, shop, files, made, folder):
        super().__init__()
        self.link = lambda target: shop.link(target, files, made, folder)

    def __missing__(self, target):
        self[target] = self.link(target)
        return self[target]


def candidates_of(name, file, makers):
    return changes.candidates(name, file.read_text(), makers)


class Judges(enum.Enum):
    all = 0
    own = 1  # the tests of other modules judge nothing


class Draw:
    """The draw of one module, and what is known of its mutants."""

    def __init__(self, module, shop, confine, seed=0, judges=Judges.all):
        self.module, self.shop, self.confine, self.seed = module, shop, confine, seed
        self.name = module.replace("/", "_") + ("" if judges == Judges.all else "-own")
        self.programs = [program for program in programs_of(module)
                         if judges == Judges.all or not program.module]
        self.equivalent = marked_equivalent()
        self.results = Results(WORK / f"{self.name}.jsonl")
        # A build without CUDA compiles what of that backend needs none.
        self.files = {name: sources for name, sources in product_files(shop.tree, module).items()
                      if all(map(shop.compiles, sources))}
        self.hash = sources_hash(shop.tree, module, self.programs)
        self.parts = []    # that judge: their time is known
        self.untimed = []  # parts whose time is not known yet
        self.times = {}
        self.drawn = []    # all mutants, in the order of the draw
        self.entries = {}  # place in the draw -> entry; None: undecided when time was up
        self.next = self.busy = 0
        self.unseen = []   # places of those that the quick parts did not see

    def paths(self):
        return {program.target: self.shop.build / "src" / (program.module or self.module) /
                program.target for program in self.programs}

    def leave_out_missing(self):
        """Judges without those tests of other modules that do not build."""
        missing = [program for program in self.programs
                   if program.module and not self.paths()[program.target].exists()]
        for program in missing:
            print(f"{program.target} does not build without any change, and judges nothing")
        if missing:
            self.programs = [program for program in self.programs if program not in missing]
            self.hash = sources_hash(self.shop.tree, self.module, self.programs)

    def find_parts(self):
        """Lists the pieces of the tests. Returns what an earlier run knows of their times."""
        self.untimed = trial.parts_of([p for p in self.programs if not p.helper], self.paths())
        kept = WORK / f"{self.name}-seconds.json"
        known = json.loads(kept.read_text()) if kept.exists() else {}
        for part in self.untimed:
            part.seconds, _ = known.get("parts", {}).get(part.name, (0.0, False))
        return known["parts"] if known.get("hash") == self.hash else {}

    def take_times(self, timed):
        """Takes times {part: (seconds, fails)} of some parts; those that fail judge nothing."""
        taken = [part for part in self.untimed if part.name in timed]
        for part in taken:
            part.seconds, fails = timed[part.name]
            if fails:
                print(f"{part.name} fails without any change, and judges nothing", flush=True)
        self.parts = self.parts + [part for part in taken if not timed[part.name][1]]
        self.untimed = [part for part in self.untimed if part.name not in timed]
        self.times.update((part.name, timed[part.name]) for part in taken)
        (WORK / f"{self.name}-seconds.json").write_text(
            json.dumps({"hash": self.hash, "parts": self.times}, indent=1))

    def find_candidates(self, pool):
        names = list(self.files)
        makers = {maker for header in (self.shop.tree / "src").rglob("*.h")
                  for maker in changes.ERROR_MAKER.findall(header.read_text())}
        made = pool.map(candidates_of, names, [self.shop.tree / name for name in names],
                        [makers] * len(names))
        return [change for some in made for change in some]

    def wants(self, count):
        """Says if another mutant should begin."""
        decided = sum(entry is None or entry["outcome"] in (*COUNTED, "unseen")
                      for entry in self.entries.values())
        return decided + self.busy < count and self.next < len(self.drawn)

    def judge(self, change, folder, deadline, quick):
        """Tries one mutant: does_not_build, same_object, marked (it is not tried), killed or
        survived. unseen: no `quick` part saw it, or none until time was up. None: not even begun.
        """
        if change.identity() in self.equivalent:
            return {"outcome": "marked"}
        text = change.apply((self.shop.tree / change.file).read_text())
        mutant = json.dumps(change.identity())
        key = hashlib.sha256((self.hash + change.file + text).encode()).hexdigest()
        known = self.results.known.get(key)
        if known and (quick or known["outcome"] != "unseen"):
            return known
        if time.monotonic() >= deadline:
            return known
        passed = list(known["passed"]) if known else []
        begin = time.monotonic()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            outcome, by = self.build_and_run(change, text, folder, mutant, deadline, quick, passed)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        entry = {"key": key, "mutant": mutant, "by": by.part.name if by else "",
                 "line": change.line, "outcome": outcome,
                 "seconds": round(time.monotonic() - begin, 1)}
        if by and by.late:
            entry["late"] = True
        if outcome == "unseen":
            entry["passed"] = passed
        self.results.add(entry)
        return entry

    def build_and_run(self, change, text, folder, mutant, deadline, quick, passed):
        """The outcome, and who saw it. Adds the names of parts that did not to `passed`."""
        try:
            put(folder, change.file, text)
            files = self.files[change.file]
            made = [self.shop.compile(file, folder, text if file == change.file else None)
                    for file in files]
            if all(map(self.shop.same_object, files, made)):
                return "same_object", None
            # The tests of other modules are linked when the module's own saw nothing.
            paths = Links(self.shop, files, made, folder)
            for program in self.programs:
                if not program.module:
                    _ = paths[program.target]
            hint = self.results.hints.get(mutant)
            order = [part for part in trial.nearest_first(self.parts, change.file, hint)
                     if part.name not in passed and
                     (not quick or part.seconds <= SECONDS_OF_QUICK or part.name == hint)]
            by = trial.seen_by(order, paths, folder / "scratch", self.confine, deadline,
                               right=self.paths(), passed=passed)
        except DoesNotBuild:  # or a program of another module lacks something of it
            return "does_not_build", None
        except trial.OutOfTime:
            return "unseen", None
        if by:
            return "killed", by
        judged = not self.untimed and all(part.name in passed for part in self.parts)
        return ("survived" if judged else "unseen"), None


def prepare(draws, jobs):
    """Finds the mutants, builds what judges them and times what of it is quick. Returns the draws
    whose own programs build and prints what does not."""
    shop, candidates = draws[0].shop, {}
    targets = [program.target for draw in draws for program in draw.programs]
    with ThreadPoolExecutor(1) as beside, ProcessPoolExecutor(jobs) as pool:
        building = beside.submit(shop.make, targets, jobs)
        for draw in draws:
            if draw.module not in candidates:
                candidates[draw.module] = draw.find_candidates(pool)
            draw.drawn = changes.draw(candidates[draw.module], draw.seed)
        building.result()
    for draw in draws:
        draw.leave_out_missing()
    ready = [draw for draw in draws if all(path.exists() for path in draw.paths().values())]
    for draw in draws:
        if draw not in ready:
            print(f"{draw.module}: its tests do not build without any change; it is left out")
    known = {}
    for draw in ready:
        known.update(draw.find_parts())
    for draw in ready:
        draw.take_times(known)
    time_parts(ready, jobs, SECONDS_UNTIL_SLOW)
    return ready


def time_parts(draws, jobs, seconds_max):
    """Times the parts of the draws that are not timed yet. Those that have not ended after
    `seconds_max` stay so, and fail if that is SECONDS_MAX."""
    fresh, paths = {}, {}
    for draw in draws:
        fresh.update({part.name: part for part in draw.untimed})
        paths.update(draw.paths())
    longest_first = sorted(fresh.values(), key=lambda part: -part.seconds)
    with trial.workers(jobs) as pool:
        ends = trial.measure(longest_first, paths, WORK / "right", draws[0].confine, pool,
                             seconds_max) if fresh else []
    timed = {part.name: (part.seconds, end != trial.Ended.well)
             for part, end in zip(longest_first, ends)
             if end != trial.Ended.late or seconds_max >= SECONDS_MAX}
    for draw in draws:
        draw.take_times(timed)


def time_slow(draws, jobs, deadline):
    """Times those that prepare() left. What has no time when the deadline comes judges nothing."""
    time_parts(draws, jobs, max(0.0, min(SECONDS_MAX, deadline - time.monotonic())))


def report(draw, count, seconds):
    """Prints and keeps the survivors of a draw and its score. Returns the score."""
    score = changes.Score()
    left = {"does_not_build": 0, "same_object": 0}
    lines = []
    for place in sorted(draw.entries):
        change, entry = draw.drawn[place], draw.entries[place]
        if score.counted == count:
            break
        outcome = entry["outcome"] if entry else "undecided"
        if outcome in left:
            left[outcome] += 1
            continue
        setattr(score, outcome, getattr(score, outcome) + 1)
        if outcome in ("survived", "unseen"):
            lines.append(f"{outcome:8}  {change.file}:{change.line}\n"
                         f"  was      {change.was.strip()}\n  becomes  {change.becomes.strip()}")
    lines.append(f"{draw.module}: {score.text()}; left out: {left['does_not_build']} do not "
                 f"build, {left['same_object']} give the same object; seed {draw.seed}, "
                 f"{seconds:.0f} s")
    text = "\n".join(lines)
    print(text, flush=True)
    (WORK / f"{draw.name}-{draw.seed}.txt").write_text(text + "\n")
    return score

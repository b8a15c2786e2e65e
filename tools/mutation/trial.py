"""Runs test programs of changed products, confined and timed, and says which test saw the change.

A program runs suite by suite, so a crash or a loop costs one suite. A suite that fails is run once
more: what fails only once is not counted.
"""

import collections
import enum
import itertools
import os
import pathlib
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

MEMORY_BYTES_MAX = 8 << 30
# A changed program may take ten times as long as the right one, and never less than this.
SECONDS_MIN = 5.0
TIMES_SLOWER_MAX = 10
ATTEMPTS = 3  # at a part whose right programs fail too

# Everything but the scratch folder is read-only: a changed program may remove or write any file.
# The folder holds 2 GiB, which a program that never stops writing cannot pass; a file with holes
# may be longer. The kernel's own file systems hold no files of anybody's; to pass them over makes
# this several times as quick where there are many of them.
CONFINE = """
set -e
scratch=$1; shift
mount --make-rprivate /
mount -t tmpfs -o size=2g scratch "$scratch"
while read -r _ _ _ _ place options rest; do
  case "$options,${rest#*- }" in
    ro,* | *,proc\\ * | *,sysfs\\ * | *,cgroup* | *,devpts\\ *) continue ;;
  esac
  mount -o remount,bind,ro "$place" 2>/dev/null || true
done < /proc/self/mountinfo
mount -o remount,bind,rw "$scratch"
mount -t proc proc /proc 2>/dev/null || true
export TMPDIR="$scratch"
case "$scratch" in /tmp/*) ;; *) mount --bind "$scratch" /tmp ;; esac
cd "$scratch"
exec "$@"
"""


def confining():
    """The words that confine a command to a folder; None where the system does not allow it."""
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    if os.geteuid() != 0:
        words += ["--user", "--map-root-user"]
    for try_words in (words, [*words, "--user", "--map-root-user"]):
        try:
            done = subprocess.run([*try_words, "bash", "-c", CONFINE, "-", os.getcwd(), "true"],
                                  capture_output=True, check=False, timeout=20)
        except OSError:
            return None
        if done.returncode == 0:
            return [*try_words, "bash", "-c", CONFINE, "-"]
    return None


# A program sets the limits: a function of Python's that ran in the child would make each start copy
# the tables of this process's memory, and of these starts there are hundreds in a second.
LIMITS = ("prlimit", f"--as={MEMORY_BYTES_MAX}", "--core=0", "--")


def own_cores(worker, workers, cores):
    """The processors of one of many workers: its share of `cores`, and never fewer than two. A
    program starts as many threads as it may use processors, so programs that all may use all of
    a large machine would be in each other's way."""
    count = max(2, len(cores) // workers)
    begin = worker * len(cores) // workers
    return {cores[(begin + i) % len(cores)] for i in range(count)}


def workers(count):
    """A pool of `count` threads; what each of them starts keeps to processors of its own."""
    cores, numbers = sorted(os.sched_getaffinity(0)), itertools.count()

    def keep_to_own():
        os.sched_setaffinity(0, own_cores(next(numbers) % count, count, cores))
    return ThreadPoolExecutor(count, initializer=keep_to_own)


def run(command, scratch, seconds_max, confine, limits=LIMITS):
    """(ended well, seconds). Past `seconds_max` the command and all it started are killed."""
    scratch.mkdir(parents=True, exist_ok=True)
    words = [*limits, *(confine and [*confine, str(scratch)] or []), *command]
    begin = time.monotonic()
    process = subprocess.Popen(
        words, cwd=scratch, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, "TMPDIR": str(scratch), "TEST_TMPDIR": str(scratch)})
    try:
        good = process.wait(seconds_max) == 0
    except subprocess.TimeoutExpired:
        good = False
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    shutil.rmtree(scratch, ignore_errors=True)
    return good, time.monotonic() - begin


def suites(program, cases):
    """The suites of a gtest program, in its order; `cases` gives single tests instead."""
    listed = subprocess.run([str(program), "--gtest_list_tests"], capture_output=True, text=True,
                            check=True).stdout
    found, suite = [], ""
    for line in listed.splitlines():
        name = line.split("#")[0].rstrip()
        if name.endswith(".") and not name.startswith(" "):
            suite = name
            if not cases:
                found.append(suite + "*")
        elif name.startswith("  ") and cases:
            found.append(suite + name.strip())
    return found


class Part:
    """A piece of the tests: one suite of a gtest program, or all of another; and its time."""

    def __init__(self, program, suite="", seconds=0.0):
        self.program, self.suite, self.seconds = program, suite, seconds

    @property
    def name(self):
        words = [pathlib.Path(self.program.script).name, *self.program.arguments]
        return f"{self.program.target} {self.suite or ' '.join(words).strip()}"

    def command(self, paths):
        words = self.program.command(paths[self.program.target])
        if self.suite:
            words += [f"--gtest_filter={self.suite}", "--gtest_fail_fast"]
        return words

    @property
    def seconds_max(self):
        return max(SECONDS_MIN, TIMES_SLOWER_MAX * self.seconds)


def parts_of(programs, paths):
    """Every part of the programs, which were built at `paths`; a gtest program has one a suite."""
    parts = []
    for program in programs:
        if program.arguments:
            parts.append(Part(program))
        else:
            parts.extend(Part(program, suite)
                         for suite in suites(paths[program.target], cases=False))
    return parts


class Ended(enum.Enum):
    well = 0
    badly = 1  # twice: it can judge nothing
    late = 2   # not at all within its time


def measure(parts, paths, scratch, confine, pool, seconds_max):
    """Times each part of the right programs, several at once. How each of them Ended."""
    def time_of(numbered):
        number, part = numbered
        for _ in range(2):
            good, part.seconds = run(part.command(paths), scratch / str(number), seconds_max,
                                     confine)
            if good:
                return Ended.well
            if part.seconds >= seconds_max:
                return Ended.late
        return Ended.badly
    return list(pool.map(time_of, enumerate(parts)))


def nearest_first(parts, file, hint):
    """Those likely to see a change of `file` first: the one that saw it before, then by name, then
    the quickest; tests of other modules last."""
    stem = pathlib.Path(file).stem.replace("_", "").lower()

    def distance(part):
        name = part.name.lower()
        return part.name != hint, part.program.module != "", stem not in name, part.seconds
    return sorted(parts, key=distance)


# The part that saw a change, and whether its time was up both times.
Seen = collections.namedtuple("Seen", "part late")


class OutOfTime(Exception):
    """The deadline came before anything was decided."""


def seen_by(parts, paths, scratch, confine, deadline=float("inf"), right=None, passed=None):
    """The first part that fails twice with the changed programs, and passes between with those at
    `right`, as Seen, or None: on a machine that is too busy right programs fail too, and then the
    part is tried again, ATTEMPTS times in all. `passed`: a list that the names of parts are added
    to that passed with the changed programs; of a part whose right programs failed at each attempt
    nothing is known. OutOfTime."""
    late = []

    def passes(part, programs):
        left = deadline - time.monotonic()
        good, seconds = run(part.command(programs), scratch,
                            max(0.0, min(part.seconds_max, left)), confine)
        if not good and time.monotonic() >= deadline:
            raise OutOfTime
        late.append(seconds >= part.seconds_max)
        return good
    for part in parts:
        for _ in range(ATTEMPTS):
            late.clear()
            good = passes(part, paths)
            if not good and right and not passes(part, right):
                continue
            if not good and not passes(part, paths):
                return Seen(part, late[0] and late[-1])
            if passed is not None:
                passed.append(part.name)
            break
    return None

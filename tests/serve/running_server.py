"""Starts `nibble serve` on a free loopback port and stops it; runs checks of it, or of the program
alone. Whatever waits here waits for minutes: a machine may be busy, or stand still for a while."""
import argparse
import functools
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback


class RunningServer:
    """`with RunningServer(nibble, model, ["--api-key", "k"]) as server: server.url`"""

    def __init__(self, nibble, model, flags=(), environment=None, exact=False):
        """`exact`: these flags and this environment, with no port or variable added."""
        self.command = [nibble, "serve", model, *([] if exact else ["--port", "0"]), *flags]
        self.environment = environment if exact else {**os.environ, **(environment or {})}
        self.log = []

    def __enter__(self):
        self.begin = time.monotonic()
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True,
                                        env=self.environment)
        self.ready = threading.Event()
        self.url = None
        self.ready_ms = None  # as the server states it
        self.wall_ms = None  # from starting the process
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if not self.ready.wait(timeout=600) or self.url is None:
            self.process.kill()
            raise RuntimeError("the server did not become ready: " + "".join(self.log))
        return self

    def _read(self):
        for line in self.process.stderr:
            self.log.append(line)
            found = re.match(r"ready: (http://\S+)/v1 after (\d+) ms", line)
            if found:
                self.url = found.group(1)
                self.ready_ms = int(found.group(2))
                self.wall_ms = (time.monotonic() - self.begin) * 1e3
                self.ready.set()
        self.ready.set()

    def logged(self, text, seconds=600):
        """Waits until `text` appears in the log."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if any(text in line for line in self.log):
                return True
            time.sleep(0.02)
        return False

    def stop(self, sign=signal.SIGTERM):
        """The exit code."""
        if self.process.poll() is None:
            self.process.send_signal(sign)
        code = self.process.wait(timeout=600)
        self.reader.join(timeout=600)
        return code

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def tried(times):
    """A check of times on this machine's clock: a machine that stands still spoils one try, a
    program that is wrong all of them."""
    def decorated(check):
        @functools.wraps(check)
        def run(*arguments):
            for left in reversed(range(times)):
                try:
                    return check(*arguments)
                except AssertionError as error:
                    if left == 0:
                        raise
                    print(f"      {check.__name__} is tried again: {str(error)[:200]}")
        return run
    return decorated


def stopped_at_work(start, at_work):
    """A process of `start()` that stands still (SIGSTOP) since `at_work()` was true of it; one that
    has ended by then is started again."""
    for _ in range(50):
        process = start()
        end = time.monotonic() + 600
        while process.poll() is None and not at_work() and time.monotonic() < end:
            time.sleep(0.002)
        if process.poll() is None and time.monotonic() < end:
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            if process.poll() is None and at_work():
                return process
        process.kill()
        process.communicate()
    raise AssertionError("none of 50 processes could be stopped at work")


def options_of(description, **more):
    """Those of every test program; `more` are options of this one with their defaults."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--nibble", required=True, help="path of the program")
    parser.add_argument("--model", required=True, help="checkpoint folder")
    parser.add_argument("--only", default="", help="run the checks whose name contains this")
    for name, default in more.items():
        parser.add_argument(f"--{name}", default=default, help=f"default: {default}")
    return parser.parse_args()


def run_each(checks, only):
    """Every test_* of the object's class whose name contains `only`; how many passed and failed."""
    passed, failed = 0, 0
    for name in [n for n in vars(type(checks)) if n.startswith("test_") and only in n]:
        begin = time.monotonic()
        try:
            getattr(checks, name)()
        except Exception:
            failed += 1
            print(f"FAIL  {name}")
            traceback.print_exc(file=sys.stdout)
        else:
            passed += 1
            print(f"ok    {name} ({time.monotonic() - begin:.1f} s)")
    return passed, failed


def left_badly(server):
    """Stops the server. True, with its last lines on the output, unless it left with 0."""
    code = server.stop()
    if code != 0:
        print(f"FAIL  the server left with {code}:\n" + "".join(server.log[-40:]))
    return code != 0


def run_checks(checks_of, description, flags=()):
    """The checks of `checks_of(server, nibble, model)`, with one running keyless server that has
    these flags. The exit code."""
    options = options_of(description)
    with RunningServer(options.nibble, options.model, flags) as server:
        checks = checks_of(server, options.nibble, options.model)
        passed, failed = run_each(checks, options.only)
        checks.close()
        failed += left_badly(server)
    print(f"ready after {server.ready_ms} ms")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def run_program_checks(checks_of, description, **more):
    """The checks of `checks_of(nibble, model, work, **more)`, with an empty folder to work in;
    `more` are options of this program with their defaults. The exit code."""
    options = options_of(description, **more)
    with tempfile.TemporaryDirectory() as work:
        checks = checks_of(os.path.abspath(options.nibble), options.model, pathlib.Path(work),
                           **{name: getattr(options, name) for name in more})
        passed, failed = run_each(checks, options.only)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0

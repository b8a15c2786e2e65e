"""Kills `nibble quantize` at random moments and lets it go on, until it is done; every file must
then be that of an undisturbed run. A source that changed meanwhile is refused, even if its sizes,
times and the pieces that the journal samples are the same.

crash_test.py --nibble NIBBLE --model MODEL [--kills N] [--seed S]. Prints 'N passed, N failed'.
"""

import argparse
import hashlib
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import tempfile
import time


def hashes(folder):
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(folder.rglob("*")) if p.is_file()}


def change_unsampled(path):
    """Flips the last bit of every value between the sixteen pieces of 64 KiB that a fingerprint
    reads, and gives the file its time back."""
    facts = path.stat()
    data = bytearray(path.read_bytes())
    step = (len(data) - 65536) // 15
    head = 8 + struct.unpack("<Q", data[:8])[0]
    for i in range(15):
        begin = max(head, i * step + 65536)
        begin += (begin - head) % 2
        for at in range(begin, (i + 1) * step - 1, 2):
            data[at] ^= 1
    path.write_bytes(bytes(data))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


class Crashes:
    def __init__(self, nibble, model, work, seed):
        self.nibble, self.model, self.work = nibble, model, work
        self.random = random.Random(seed)
        self.seconds = float("inf")  # of the shortest whole run: the machine may stand still in one
        self.kills = self.resumed = self.passed = self.failed = 0

    def command(self, output, flags):
        return [*self.command_for(self.model, output), *flags]

    def command_for(self, source, output):
        return [self.nibble, "quantize", source, output, "--no-progress", "--journal-every",
                "0.002"]

    def undisturbed(self, output, flags):
        fresh, begin = not output.exists(), time.monotonic()
        subprocess.run(self.command(output, flags), check=True, capture_output=True)
        if fresh:
            self.seconds = min(self.seconds, time.monotonic() - begin)

    def killed(self, output, flags):
        """One run with a kill in its time; True if it was still at work."""
        fresh, begin = not output.exists(), time.monotonic()
        run = subprocess.Popen(self.command(output, flags), stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE)
        try:
            error = run.communicate(timeout=self.random.uniform(0, 1.1 * self.seconds))[1]
            if fresh:
                self.seconds = min(self.seconds, time.monotonic() - begin)
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGKILL)
            error = run.communicate()[1]
        if run.returncode > 0:
            raise AssertionError(f"exit {run.returncode}: {error.decode()}")
        return run.returncode == -signal.SIGKILL

    @staticmethod
    def complete(output):
        """Killed in the verification at the end, or in none of its time."""
        return (output / "config.json").exists() and not (output / ".nibble-journal").exists()

    def life(self, name, flags, whole):
        """Kills until a run gets through, at most 12 times; then lets it finish."""
        output = self.work / name
        for _ in range(self.random.randint(1, 12)):
            if self.complete(output) or not self.killed(output, flags):
                break
            self.kills += 1
            self.resumed += (output / ".nibble-journal").exists()
        if not self.complete(output):
            self.undisturbed(output, flags)
        same = hashes(output) == whole
        self.passed += same
        self.failed += not same
        if not same:
            print("FAIL  ", name, {k for k in hashes(output).items() ^ whole.items()})
        shutil.rmtree(output)


    def source_changed(self, whole):
        """One killed run, of which a finished unit's source changes."""
        source, output = self.work / "source", self.work / "changed"
        shutil.copytree(self.model, source)
        for _ in range(50):
            shutil.rmtree(output, ignore_errors=True)
            run = subprocess.Popen([self.nibble, "quantize", source, output, "--no-progress",
                                    "--journal-every", "0", "--threads", "1"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            journal = output / ".nibble-journal"
            while run.poll() is None and not (
                    journal.exists() and journal.read_bytes().count(b"\n") > 20):
                time.sleep(0.001)
            run.send_signal(signal.SIGKILL)
            if run.wait() == -signal.SIGKILL and journal.exists():
                break
        kept = {path: (path.read_bytes(), path.stat()) for path in source.glob("*.safetensors")}
        for path in kept:
            change_unsampled(path)
        done = subprocess.run(self.command_for(source, output), capture_output=True, text=True,
                              check=False)
        words = "other weights, although sizes and times are the same"
        assert done.returncode == 2 and words in done.stderr, f"it went on: {done.stderr}"
        assert (output / ".nibble-journal").exists(), "what was finished is lost"
        for path, (data, facts) in kept.items():
            path.write_bytes(data)
            os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        subprocess.run(self.command_for(source, output), check=True, capture_output=True)
        now = hashes(output)
        assert all(now[name] == whole[name] for name in whole if name.startswith("model")), \
            "given back, the source gives other weights"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nibble", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        crashes = Crashes(args.nibble, args.model, work, args.seed)
        variants = ([], ["--format", "modelopt", "--max-shard-size", "3M"])
        begun = []
        for i, flags in enumerate(variants):
            crashes.undisturbed(work / f"whole{i}", flags)
            begun.append((flags, hashes(work / f"whole{i}")))
        crashes.source_changed(begun[0][1])
        life = 0
        while crashes.kills < args.kills:
            flags, whole = begun[life % len(begun)]
            crashes.life(f"life{life}", flags, whole)
            life += 1
    print(f"{crashes.kills} kills in {life} lives, {crashes.resumed} of them left a journal")
    print(f"{crashes.passed} passed, {crashes.failed} failed")
    return 1 if crashes.failed or crashes.resumed == 0 else 0


if __name__ == "__main__":
    raise SystemExit(main())

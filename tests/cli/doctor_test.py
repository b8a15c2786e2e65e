#!/usr/bin/env python3
"""nibble doctor: doctor_test.py --nibble PROGRAM --model PEBBLE_FOLDER.

Cards that are not here are shown to it by a library of the driver's name that this test compiles.
The last line counts.
"""
import json
import os
import pathlib
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/serve"))
from running_server import run_program_checks, tried  # noqa: E402

# The functions of NVIDIA's nvml.h that are asked; a negative count says that the driver is broken.
LIBRARY = r"""
#include <string.h>
static const char* kName = "%(name)s";
struct memory { unsigned long long total, free, used; };
int nvmlInit_v2(void) { return %(count)d < 0 ? 18 : 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned n) { strncpy(text, "580.159.03", n); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int* version) { *version = 13000; return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = %(count)d; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** device) {
  *device = (char*)0 + i + 1;
  return 0;
}
int nvmlDeviceGetName(void* device, char* text, unsigned n) { strncpy(text, kName, n); return 0; }
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  *major = %(capability)d / 10;
  *minor = %(capability)d %% 10;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, struct memory* memory) {
  memory->total = %(mib)dULL << 20;
  memory->free = memory->total / 2;
  return %(mib)d == 0 ? 3 : 0;
}
"""


class Checks:
    def __init__(self, nibble, model, work):
        self.nibble, self.work = nibble, work

    def run(self, *words, library=None, code=None):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("NIBBLE_", "HF_"))}
        environment["HOME"] = str(self.work)
        if library:
            environment["LD_LIBRARY_PATH"] = str(library)
        done = subprocess.run([self.nibble, "doctor", *words], capture_output=True, text=True,
                              timeout=600, cwd=self.work, env=environment)
        assert code is None or done.returncode == code, done
        assert done.returncode in (0, 1), done
        return done

    def card(self, name, capability, mib, count=1):
        """The folder of such a library."""
        folder = self.work / f"{name}-{count}".replace(" ", "-")
        folder.mkdir(exist_ok=True)
        source = LIBRARY % {"name": name, "capability": capability, "mib": mib, "count": count}
        (folder / "nvml.c").write_text(source)
        subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", folder / "libnvidia-ml.so.1",
                        folder / "nvml.c"], check=True)
        return folder

    def lines(self, *words, library=None, code=None):
        done = self.run(*words, "--json", library=library, code=code)
        report = json.loads(done.stdout)
        assert report["fine"] == (done.returncode == 0), report
        assert report["fine"] == all(line["health"] != "not fine" for line in report["lines"])
        return report["lines"]

    @staticmethod
    def of(lines, subject):
        return [line for line in lines if line["subject"] == subject]

    def test_this_machine(self):
        lines = self.lines()
        for subject in ("program", "GPU", "CPU", "memory", "this folder", "Hugging Face cache",
                        "own cache", "port"):
            assert self.of(lines, subject), (subject, lines)
        text = self.run().stdout
        assert "\x1b" not in text and all(
            line.startswith(("fine ", "note ", "not fine", "    ", "nothing", "some things"))
            for line in text.splitlines()), text
        cores = len(os.sched_getaffinity(0))
        assert self.of(lines, "CPU")[0]["text"].startswith(f"{cores} core"), lines

    def test_a_card_of_the_previous_generation(self):
        lines = self.lines(library=self.card("NVIDIA GeForce RTX 4090", 89, 24564))
        gpu = self.of(lines, "GPU")[0]
        assert gpu["health"] == "fine" and "24564 MiB, 12282 free" in gpu["text"], gpu
        assert "580.159.03, for CUDA 13.0" in self.of(lines, "driver")[0]["text"]
        assert "weight-only" in self.of(lines, "formats")[0]["text"]
        self.check_rates(lines, "rtx4090", {"qwen3.6-27b", "qwen3.5-9b", "qwen3.5-4b"})

    def check_rates(self, lines, card, wanted):
        """Each model that is said to fit has the bound that `plan` computes for the card."""
        models = {line["text"].split(" ")[0]: line["text"] for line in self.of(lines, "model")}
        assert len(models) == 4 and wanted <= set(models), models
        for name in wanted:
            plan = json.loads(subprocess.run(
                [self.nibble, "plan", name, "--gpu", card, "--json"], check=True,
                capture_output=True).stdout)
            bound = round(plan["speed_bound"]["rows"][0]["tokens_per_second"])
            text = models[name]
            assert f"at most {bound} tokens/s for one stream" in text, (bound, text)
            assert f"up to {plan['longest_request']} tokens" in text, (plan, text)

    def test_an_a100(self):
        lines = self.lines(library=self.card("NVIDIA A100-SXM4-80GB", 80, 81920))
        formats = self.of(lines, "formats")[0]["text"]
        assert "multiplies BF16; NVFP4 weights run weight-only" in formats, formats
        assert all("fits" in line["text"] for line in self.of(lines, "model"))
        self.check_rates(lines, "a100-80gb", {"qwen3.6-35b-a3b", "qwen3.6-27b", "qwen3.5-9b",
                                              "qwen3.5-4b"})

    def test_cards_that_cannot_be_used(self):
        old = self.lines(library=self.card("Tesla V100-SXM2-32GB", 70, 32768), code=1)
        assert "8.0 or higher" in self.of(old, "GPU")[0]["advice"]
        assert not self.of(old, "model") and not self.of(old, "formats")
        broken = self.lines(library=self.card("none", 0, 0, count=-1), code=1)
        assert "does not start (status 18)" in self.of(broken, "GPU")[0]["text"]

    def test_wrong_words(self):
        for words, pieces in ((["x"], ["--receipt"]), (["--port", "0"], ["--port", "65535"]),
                              (["--jsonn"], ["did you mean --json"])):
            done = subprocess.run([self.nibble, "doctor", *words], capture_output=True, text=True)
            assert done.returncode == 2 and all(p in done.stderr for p in pieces), done

    def test_two_cards_and_unified_memory(self):
        lines = self.lines(library=self.card("NVIDIA GB10", 121, 0, count=2))
        first, second = self.of(lines, "GPU")
        assert second["health"] == "note" and "CUDA_VISIBLE_DEVICES" in second["advice"]
        assert any("fits" in line["text"] for line in self.of(lines, "model")), lines

    @tried(3)  # another process may take the port once it is free
    def test_a_port_that_is_taken(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            line = self.of(self.lines("--port", str(port)), "port")[0]
        assert line["health"] == "note" and "--port" in line["advice"], line
        assert self.of(self.lines("--port", str(port)), "port")[0]["health"] == "fine"


if __name__ == "__main__":
    sys.exit(run_program_checks(Checks, __doc__))

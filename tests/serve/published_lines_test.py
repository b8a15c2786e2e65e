#!/usr/bin/env python3
"""The published `vllm serve` lines with `nibble serve` in their place: published_lines_test.py
--nibble PROGRAM --model PEBBLE_FOLDER.

Each line starts and answers, or stops with exactly one reason and starts once that flag is taken
out. Models are Pebble with max_position_embeddings 262144, quantized as the name's owner did, in
folders of those names. The words are the published ones; behind them only `--port 0`, and in the
environment a size of the KV cache that holds one request of full length.

--card runs the same table on a GPU with random weights of the 35B in the declared formats: --model
is then still Pebble's folder (its tokenizer is filled up), and nothing but `--port 0 --load-format
dummy` is added.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "bench", "cuda"))
from load_shapes import dummy_folder  # noqa: E402
from running_server import RunningServer, run_each  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
LENGTH = 262144
CPU_CACHE = str(640 << 20)  # holds 262,144 tokens of Pebble in F32: 4,096 pages of 128 KiB

IG1 = "ig1/Qwen3.5-35B-A3B-NVFP4"
NVIDIA = "nvidia/Qwen3.6-35B-A3B-NVFP4"
INFERROUTER = "inferRouter/Qwen3.6-35B-A3B-NVFP4"
FP8_HEAD = "fp8-head/Qwen3.6-35B-A3B-NVFP4"  # the branch of that name, as a folder
# Name -> what Pebble is quantized with, and the published config that a card's dummy declares.
MODELS = {
    IG1: (["--recipe", "w4a4"], "ig1-qwen3.5-35b-a3b-nvfp4"),
    NVIDIA: (["--recipe", "mixed-nvfp4-head", "--format", "modelopt"],
             "nvidia-qwen3.6-35b-a3b-nvfp4"),
    INFERROUTER: (["--recipe", "w4a4"], "inferrouter-qwen3.6-35b-a3b-nvfp4"),
    FP8_HEAD: (["--recipe", "w4a4-fp8-head"], "inferrouter-qwen3.6-35b-a3b-nvfp4-fp8-head"),
}

LINE_1 = (f"{IG1} --served-model-name Qwen3.5-35B-A3B --reasoning-parser qwen3 "
          "--enable-auto-tool-choice --tool-call-parser qwen3_coder --max-model-len auto "
          "--gpu-memory-utilization 0.65 --kv-cache-memory-bytes 20600M")
LINE_2 = (f"{IG1} --served-model-name Qwen3.5-35B-A3B --reasoning-parser qwen3 "
          "--enable-auto-tool-choice --tool-call-parser qwen3_coder --max-model-len auto "
          "--limit-mm-per-prompt.video 0 --max-cudagraph-capture-size 32 --max-num-seqs 32 "
          "--max-num-batched-tokens 2048 --gpu-memory-utilization 0.95")
LINE_3 = (f"{NVIDIA} --port 8000 --quantization modelopt --max-model-len 262144 "
          "--reasoning-parser qwen3")
LINE_3_TOOLS = (f"{LINE_3} --enable-auto-tool-choice --tool-call-parser qwen3 "
                """--default-chat-template-kwargs '{"enable_thinking": false}'""")
MTP = ("--speculative-config "
       """'{"method":"mtp","num_speculative_tokens":3,"moe_backend":"triton"}'""")
LINE_4 = (f"{NVIDIA} --quantization modelopt --kv-cache-dtype fp8 --attention-backend flashinfer "
          "--moe-backend marlin --gpu-memory-utilization 0.85 --max-model-len 65536 "
          f"--max-num-seqs 4 --enable-chunked-prefill --enable-prefix-caching {MTP}")
LINE_5 = (f"{NVIDIA} --host 0.0.0.0 --port 8000 --tensor-parallel-size 1 --trust-remote-code "
          "--kv-cache-dtype fp8 --attention-backend flashinfer --moe-backend marlin "
          "--gpu-memory-utilization 0.4 --max-model-len 262144 --max-num-seqs 4 "
          "--max-num-batched-tokens 8192 --enable-chunked-prefill --async-scheduling "
          f"--enable-prefix-caching {MTP} --load-format fastsafetensors --reasoning-parser qwen3 "
          "--tool-call-parser qwen3_xml --enable-auto-tool-choice")
LINE_6 = (f"{INFERROUTER} --revision main --served-model-name qwen35b-a3b "
          "--tensor-parallel-size 1 --gpu-memory-utilization 0.95 --max-model-len 262144 "
          "--max-num-seqs 64 --max-num-batched-tokens 8192 --kv-cache-dtype turboquant_4bit_nc "
          "--enable-chunked-prefill --enable-prefix-caching --dtype bfloat16 --trust-remote-code")
LINE_7_4_BIT = (LINE_6.replace(INFERROUTER, FP8_HEAD).replace("main", "fp8-head")
                .replace("262144", "32768").replace("0.95", "0.93")
                .replace("--max-num-seqs 64", "--max-num-seqs 16").replace("8192", "4096"))
LINE_7_FP8 = LINE_7_4_BIT.replace("turboquant_4bit_nc", "fp8_e4m3")
LINE_8 = f"{INFERROUTER} --kv-cache-dtype fp8_e4m3 --calculate-kv-scales"

ESTIMATE = {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "1"}
SPARK = {"VLLM_USE_FLASHINFER_MOE_FP4": "0", "VLLM_FP8_MOE_BACKEND": "flashinfer_cutlass",
         "FLASHINFER_DISABLE_VERSION_CHECK": "1"}
# Flags of the lines that change nothing here: each has one line at start.
NOT_NEEDED = ("reasoning-parser", "enable-auto-tool-choice", "tool-call-parser",
              "max-cudagraph-capture-size", "attention-backend",
              "moe-backend", "enable-chunked-prefill", "async-scheduling", "dtype",
              "tensor-parallel-size", "trust-remote-code", "revision")


def without(line, flag):
    """The words of the line without a flag and its value."""
    words = shlex.split(line) if isinstance(line, str) else list(line)
    at = words.index(flag)
    return words[:at] + words[at + 2:]


def memory_bytes():
    """The memory that this machine has for a server on the CPU."""
    text = pathlib.Path("/proc/meminfo").read_text()
    return int(re.search(r"MemAvailable:\s+(\d+)", text).group(1)) * 1024


class Checks:
    def __init__(self, options, work):
        self.nibble = os.path.abspath(options.nibble)
        self.card, self.work = options.card, work
        for name, (flags, published) in MODELS.items():
            folder = work / name
            folder.parent.mkdir(exist_ok=True)
            if self.card:
                self.make_dummy(folder, ROOT / "tests" / "published" / f"{published}.json")
            else:
                self.make_pebble(folder, pathlib.Path(options.model).resolve(), flags)

    def make_dummy(self, folder, published):
        facts = json.loads(published.read_text())
        config = json.loads((ROOT / "tests/golden/configs/qwen3.6-35b-a3b.json").read_text())
        config["quantization_config"] = facts["quantization_config"]
        folder.mkdir()
        made = self.work / "config.json"
        made.write_text(json.dumps(config))
        dummy_folder(made, folder)

    def make_pebble(self, folder, model, flags):
        long = self.work / "long"
        if not long.exists():
            shutil.copytree(model, long)
            config = json.loads((long / "config.json").read_text())
            config["text_config"]["max_position_embeddings"] = LENGTH
            (long / "config.json").write_text(json.dumps(config))
        same = [self.work / name for name, (other, _) in MODELS.items() if other == flags]
        if same[0] != folder:
            return folder.symlink_to(same[0])
        return subprocess.run([self.nibble, "quantize", long, folder, "--no-progress", *flags],
                              check=True, capture_output=True)

    def words(self, words):
        words = shlex.split(words) if isinstance(words, str) else list(words)
        return words + ["--port", "0"] + (["--load-format", "dummy"] if self.card else [])

    def environment(self, more=None):
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("VLLM_", "NIBBLE_"))}
        if not self.card:
            plain["NIBBLE_KV_CACHE_MEMORY_BYTES"] = CPU_CACHE
        return {**plain, **(more or {})}

    def starts(self, line, names, length=None, environment=None):
        """It gets ready, says a line of each flag that changes nothing, and answers. The log."""
        words = self.words(line)
        os.chdir(self.work)
        with RunningServer(self.nibble, words[0], words[1:], self.environment(environment),
                           exact=True) as server:
            for flag in NOT_NEEDED:
                said = sum(text.startswith(f"--{flag} ") and " is not needed: " in text
                           for text in server.log)
                given = sum(re.match(rf"--{flag}(\.|=|$)", word) is not None for word in words)
                assert said == given, (flag, said, given, server.log)
            url = server.url.replace("0.0.0.0", "127.0.0.1")
            for name in names:  # a name beside the first need not be listed, but is known
                model = json.load(urllib.request.urlopen(f"{url}/v1/models/{name}",
                                                         timeout=600))
                assert length in (None, model["max_model_len"]), model
            body = {"model": names[0], "max_tokens": 4,
                    "messages": [{"role": "user", "content": "What is 12 + 34?"}]}
            request = urllib.request.Request(f"{url}/v1/chat/completions",
                                             json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            answer = json.load(urllib.request.urlopen(request, timeout=600))
            assert 1 <= answer["usage"]["completion_tokens"] <= 4, answer
            assert server.stop() == 0, server.log
            return server.log

    def stops(self, line, piece, code=2, environment=None):
        """It stops with exactly one reason, which holds `piece`."""
        done = subprocess.run([self.nibble, "serve", *self.words(line)], cwd=self.work, text=True,
                              capture_output=True, timeout=600, stdin=subprocess.DEVNULL,
                              env=self.environment(environment))
        reasons = [text for text in done.stderr.splitlines() if text.startswith("nibble serve:")]
        assert done.returncode == code and len(reasons) == 1, (done.returncode, done.stderr)
        assert piece in reasons[0], reasons
        return reasons[0]

    def start_of_line_1(self, words):
        """20,600 MiB of cache are 20,600 MiB, also on a CPU: where they are not, that is said. A
        limit of this process (`ulimit -v`) is none of what the server looks at."""
        fits = 0.65 * memory_bytes() > (23 << 30)
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if self.card or (fits and (limit == resource.RLIM_INFINITY or limit > (24 << 30))):
            return self.starts(words, ["Qwen3.5-35B-A3B"], environment=ESTIMATE)
        if 0.65 * memory_bytes() < (19 << 30):  # between these it depends on the moment
            self.stops(words, "--kv-cache-memory-bytes", code=1, environment=ESTIMATE)
        words = [CPU_CACHE if word == "20600M" else word for word in shlex.split(words)]
        return self.starts(words, ["Qwen3.5-35B-A3B"], LENGTH, environment=ESTIMATE)

    def test_line_1(self):
        log = "".join(self.start_of_line_1(LINE_1))
        assert "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS: not read here" in log, log
        if not self.card:
            assert log.count("--backend auto takes the CPU: ") == 1, log

    def test_line_1_as_arguments_of_a_container(self):
        """An image's entry point is `nibble serve`: its arguments have no verb, and may begin with
        flags where the model is named by --model or the environment."""
        words = without(LINE_1, "--kv-cache-memory-bytes") + ["--dry-run"]
        forms = ((words, {}), (words[1:] + ["--model", words[0]], {}),
                 (words[1:], {"NIBBLE_MODEL": words[0]}))
        for arguments, environment in forms:
            done = subprocess.run([self.nibble, "serve", *self.words(arguments)], cwd=self.work,
                                  env=self.environment(environment), capture_output=True,
                                  text=True, timeout=600)
            assert done.returncode == 0, done.stderr
            assert f"model: {words[0]} on " in done.stdout, done.stdout
            assert "--gpu-memory-utilization 0.65: honoured" in done.stdout, done.stdout
            assert "--tool-call-parser qwen3_coder: accepted, not needed:" in done.stdout
            lines = [line.split(":")[0] for line in done.stdout.splitlines()]
            told = [line for line in lines[lines.index("memory"):] if line != "host tier"]
            assert told[:3] == ["memory", "in bytes", "context"], done.stdout
            assert "listening" not in done.stderr and "ready" not in done.stderr, done.stderr

    def test_line_2(self):
        self.starts(LINE_2, ["Qwen3.5-35B-A3B"], None if self.card else LENGTH)

    def test_line_3_in_both_forms(self):
        self.starts(LINE_3, ["Qwen3.6-35B-A3B-NVFP4", NVIDIA], LENGTH)
        self.starts(LINE_3_TOOLS, ["Qwen3.6-35B-A3B-NVFP4"], LENGTH)

    def test_line_4(self):
        log = self.starts(LINE_4, [NVIDIA], 65536, SPARK)
        said = [text for text in log if text.startswith("the environment's ")]
        assert len(said) == 1 and all(name in said[0] for name in SPARK if "VLLM" in name), said

    def test_line_5(self):
        self.starts(LINE_5, [NVIDIA], LENGTH)

    def test_line_6(self):
        self.starts(LINE_6, ["qwen35b-a3b"], LENGTH)

    def test_line_7_in_4_bits(self):
        self.starts(LINE_7_4_BIT, ["qwen35b-a3b"], 32768)

    def test_line_7_in_fp8(self):
        self.starts(LINE_7_FP8, ["qwen35b-a3b"], 32768)

    def test_line_8_is_refused(self):
        self.stops(LINE_8, "--calculate-kv-scales is refused: scales made from the first prompts")

    def test_a_contradiction_to_the_checkpoint_is_refused(self):
        for line in (f"{IG1} --quantization modelopt", f"{NVIDIA} -q compressed-tensors",
                     f"{NVIDIA} --quantization modelopt_fp4"):
            self.stops(line, "expected what config.json declares")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nibble", required=True, help="path of the program")
    parser.add_argument("--model", default=str(ROOT / "pebble" / "model"), help="Pebble's folder")
    parser.add_argument("--card", action="store_true", help="random 35B weights on a GPU")
    parser.add_argument("--only", default="", help="run the checks whose name contains this")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        passed, failed = run_each(Checks(options, pathlib.Path(work)), options.only)
        os.chdir("/")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

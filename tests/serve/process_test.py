#!/usr/bin/env python3
"""The server as a process: keys, flags, signals, a log nobody reads, what survives a restart.

Loopback only; each check starts a server of its own. Exits 1 if a check fails; the last line
counts.
"""
import fcntl
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import openai

from running_server import RunningServer, run_checks

QUESTION = [{"role": "user", "content": "What is 12 + 34?"}]


def rest_of(lines):
    """The lines that still come of a stream, which may be broken off."""
    rest = []
    try:
        rest.extend(lines)
    except httpx.RemoteProtocolError:
        pass
    return rest


class Checks:
    def __init__(self, server, nibble, model):
        self.nibble = nibble
        self.model = model

    def close(self):
        pass

    def test_api_key(self):
        with RunningServer(self.nibble, self.model, ["--api-key", "sesame"]) as server:
            base = server.url + "/v1"
            client = lambda key: openai.OpenAI(base_url=base, api_key=key, max_retries=0)
            for wrong in ("x", "sesam", "sesamee", "SESAME"):
                try:
                    client(wrong).models.list()
                except openai.AuthenticationError:
                    continue
                raise AssertionError(f"the key {wrong} was accepted")
            assert client("sesame").models.list().data
            assert httpx.get(server.url + "/health", timeout=600).status_code == 200
            assert httpx.get(server.url + "/v1/models", timeout=600).status_code == 401
            assert server.stop() == 0

    def test_admin_routes_answer_to_clients_only_with_their_flag(self):
        paths = ("/sleep", "/wake_up", "/cancel_all")
        with tempfile.TemporaryDirectory() as folder:
            socket = str(Path(folder) / "admin")
            with RunningServer(self.nibble, self.model, ["--admin-socket", socket]) as server, \
                    httpx.Client(transport=httpx.HTTPTransport(uds=socket),
                                 timeout=600) as administrator:
                for path in paths:
                    refused = httpx.post(server.url + path, timeout=600)
                    assert refused.status_code == 403, (path, refused.text)
                    assert "--enable-admin-routes" in refused.text, refused.text
                assert administrator.post("http://x/cancel_all").json() == {"cancelled": 0}
        with RunningServer(self.nibble, self.model, ["--enable-admin-routes"]) as server:
            assert httpx.post(server.url + "/cancel_all", timeout=600).json() == {"cancelled": 0}
            # The CPU backend cannot sleep, and says so; the routes are there.
            assert {httpx.post(server.url + path, timeout=600).status_code for path in paths} <= {200, 409}

    def test_drains_on_sigterm(self):
        with RunningServer(self.nibble, self.model, ["--log-requests"]) as server:
            body = {"prompt": "a", "max_tokens": 150, "stream": True, "ignore_eos": True}
            lines = []
            started = threading.Event()

            def read():
                with httpx.stream("POST", server.url + "/v1/completions", json=body, timeout=600) as answer:
                    for line in answer.iter_lines():
                        lines.append(line)
                        started.set()

            reader = threading.Thread(target=read)
            reader.start()
            assert started.wait(600)
            assert server.stop(signal.SIGTERM) == 0
            assert server.logged("stopping: answers still running: 1"), server.log
            reader.join(600)
            assert lines[-2:] == ["data: [DONE]", ""] or lines[-1] == "data: [DONE]", lines[-3:]

    def test_second_signal_ends_at_once(self):
        flags = ["--max-model-len", "16000", "--shutdown-timeout", "86400"]
        with RunningServer(self.nibble, self.model, flags) as server:
            body = {"prompt": "a", "max_tokens": 15000, "stream": True, "ignore_eos": True}
            with httpx.stream("POST", server.url + "/v1/completions", json=body, timeout=600) as answer:
                lines = answer.iter_lines()
                next(lines)
                server.process.send_signal(signal.SIGINT)
                assert server.logged("stopping: answers still running: 1"), server.log
                server.stop(signal.SIGINT)
                assert not any('"finish_reason":"length"' in line for line in rest_of(lines))

    def test_a_pass_that_does_not_end_ends_it_with_code_3(self):
        flags = ["--step-deadline", "0.001"]  # shorter than any pass over a long prompt
        with RunningServer(self.nibble, self.model, flags) as server:
            assert httpx.get(server.url + "/live", timeout=600).status_code == 200
            body = {"prompt": "a b c " * 300, "max_tokens": 5}
            answer = httpx.post(server.url + "/v1/completions", json=body, timeout=600)
            assert answer.status_code == 500 and "has not ended" in answer.text, answer.text
            assert server.process.wait(timeout=600) == 3
            assert server.logged("a pass of the cpu backend has not ended"), server.log

    def test_nor_does_any_other_verb_wait_for_a_pass_that_does_not_end(self):
        prompt = "a b c " * 300
        with tempfile.TemporaryDirectory() as folder:
            ids = Path(folder) / "ids.json"
            ids.write_text(json.dumps({"ids": [5] * 1000}))
            lines = Path(folder) / "lines.jsonl"
            lines.write_text(json.dumps({
                "custom_id": "one", "method": "POST", "url": "/v1/completions",
                "body": {"prompt": prompt, "max_tokens": 5}}) + "\n")
            for words, typed in ((["run", self.model, prompt], ""),
                                 (["run", self.model, "--ids", ids], ""),
                                 (["run", self.model, "--batch", lines], ""),
                                 (["chat", self.model], f"{prompt}\nand again\n")):
                command = [self.nibble, *words, "--step-deadline", "0.001"]
                done = subprocess.run(command, input=typed, text=True, capture_output=True,
                                      timeout=600)
                assert done.returncode == 3, (words[:3], done)
                told = f"nibble {words[0]}: a pass of the cpu backend has not ended"
                assert done.stderr.count(told) == 1, done.stderr

    def test_time_in_which_it_was_stopped_is_no_time_of_a_pass(self):
        flags = ["--step-deadline", "3", "--max-model-len", "16000"]
        with RunningServer(self.nibble, self.model, flags) as server:
            body = {"prompt": "a", "max_tokens": 1500, "stream": True, "ignore_eos": True}
            with httpx.stream("POST", server.url + "/v1/completions", json=body, timeout=600) as answer:
                lines = answer.iter_lines()
                next(lines)
                server.process.send_signal(signal.SIGSTOP)
                time.sleep(6)
                server.process.send_signal(signal.SIGCONT)
                assert [line for line in lines if line][-1] == "data: [DONE]"
            assert server.stop() == 0

    def test_a_log_nobody_reads_does_not_stop_it(self):
        command = [self.nibble, "serve", self.model, "--port", "0"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        try:
            fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 4096)
            url = None
            while url is None:  # then nothing reads any more
                found = re.match(rb"ready: (http://\S+)/v1 ", process.stderr.readline())
                url = found.group(1).decode() if found else None
            body = {"model": "model", "messages": QUESTION, "max_tokens": 1}
            with httpx.Client(timeout=600) as http:
                for _ in range(150):  # a line each, far more than the pipe holds
                    answer = http.post(url + "/v1/chat/completions", json=body)
                    assert answer.status_code == 200
        finally:
            process.kill()
            process.wait()
            process.stderr.close()

    def test_pinned_prefixes_survive_a_restart(self):
        marked = [{"type": "text", "text": "Remember every word of this. " * 40,
                   "cache_control": {"type": "ephemeral"}}]
        messages = [{"role": "system", "content": marked}, *QUESTION]
        cached, said, lengths = [], [], []
        with tempfile.TemporaryDirectory() as folder:
            yarn = ["--rope-scaling", '{"rope_type": "yarn", "factor": 2}',
                    "--max-model-len", "32768"]
            rounded = ["--mamba-ssm-cache-dtype", "bfloat16"]
            for more in ([], [], yarn, rounded):  # other angles make other keys, as other states do
                flags = ["--prefix-store", folder, *more]
                with RunningServer(self.nibble, self.model, flags) as server:
                    client = openai.OpenAI(base_url=server.url + "/v1", api_key="x")
                    answer = client.chat.completions.create(
                        model=client.models.list().data[0].id, messages=messages, temperature=0)
                    cached.append(answer.usage.prompt_tokens_details.cached_tokens)
                    lengths.append(client.models.list().data[0].max_model_len)
                    said.append(answer.choices[0].message.content)
                    assert server.stop() == 0
        assert cached[0] == 0 and cached[1] >= 64 and cached[2:] == [0, 0], cached
        assert lengths[0] <= 16384 and lengths[2] == 32768, lengths
        assert said[0] == said[1]

    def test_quantizes_once_and_serves_the_same_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            flags = ["--quantize", "mixed", "--quantized-folder", folder]
            for words in ("quantizing to", "quantized before"):
                with RunningServer(self.nibble, self.model, flags) as server:
                    client = openai.OpenAI(base_url=server.url + "/v1", api_key="x")
                    client.chat.completions.create(model="model", messages=QUESTION, max_tokens=5)
                    assert server.stop() == 0
                    assert server.logged(words), server.log
            (made,) = Path(folder).iterdir()
            other = Path(folder) / "other"
            subprocess.run([self.nibble, "quantize", self.model, other, "--no-progress"],
                           check=True, capture_output=True)
            for file in other.glob("*.safetensors"):
                assert file.read_bytes() == (made / file.name).read_bytes(), file.name

    def test_what_cannot_be_is_told_before_the_work(self):
        def refused(words, *flags):
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(
                    [self.nibble, "serve", self.model, "--quantize", "mixed",
                     "--quantized-folder", folder, *flags],
                    capture_output=True, text=True, timeout=600)
                assert done.returncode in (1, 2) and done.stderr.count("\n") == 1, done
                assert words in done.stderr and not list(Path(folder).iterdir()), done

        with RunningServer(self.nibble, self.model) as server:
            refused("cannot listen on 127.0.0.1 port", "--port", server.url.rsplit(":", 1)[1])
        refused("no.toml", "--port", "0", "--profiles", "/no.toml")
        refused("--default-chat-template-kwargs", "--port", "0",
                "--default-chat-template-kwargs", "[1]")
        refused("--api-key-file", "--port", "0", "--api-key-file", "/no.jsonl")
        for keys in ("", ",", "one,", ",two", "one,,two"):
            refused("--api-key: expected keys of at least one character", "--port", "0",
                    "--api-key", keys)
        refused("--max-queued-tokens", "--port", "0", "--max-queued-tokens", "0")

    def test_a_door_that_is_open_to_others_is_told(self):
        def warnings(*flags):
            done = subprocess.run([self.nibble, "serve", self.model, "--dry-run", *flags],
                                  capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, done.stderr
            return [line for line in done.stderr.splitlines() if line.startswith("warning:")]

        for host in ("0.0.0.0", "::", "192.0.2.1"):
            (line,) = warnings("--host", host)
            assert f"--host {host} without a key" in line, line
        for flags in ([], ["--host", "127.0.0.2"], ["--host", "localhost"], ["--host", "::1"]):
            assert not warnings(*flags), flags
        for flags in (["--api-key", "k"], ["--no-auth"], ["--uds", "/tmp/none"]):
            assert not warnings("--host", "0.0.0.0", *flags), flags

    def test_a_dry_run_prepares_for_images(self):
        def dry_run(model, *flags):
            return subprocess.run([self.nibble, "serve", model, "--dry-run", *flags],
                                  capture_output=True, text=True, timeout=600)

        line = "images: at most 8 a request, each resized to at most"
        assert line in dry_run(self.model).stdout
        for flags in (["--no-vision"], ["--limit-mm-per-prompt", "image=0"]):
            done = dry_run(self.model, *flags)
            assert done.returncode == 0 and "images: " not in done.stdout, done
        with tempfile.TemporaryDirectory() as folder:
            for path in Path(self.model).resolve().iterdir():
                (Path(folder) / path.name).symlink_to(path)
            processor = Path(folder) / "preprocessor_config.json"
            words = json.loads(processor.read_text())
            processor.unlink()
            processor.write_text(json.dumps({**words, "patch_size": 14}))
            done = dry_run(folder)
            assert done.returncode == 1 and not done.stdout, done
            assert "patches of 16 pixels" in done.stderr and "--no-vision" in done.stderr, done

    def test_flags(self):
        flags = ["--served-model-name", "alpha,beta", "--max-model-len", "200",
                 "--default-chat-template-kwargs", '{"enable_thinking": false}']
        with RunningServer(self.nibble, self.model, flags) as server:
            client = openai.OpenAI(base_url=server.url + "/v1", api_key="x", max_retries=0)
            names = [m.id for m in client.models.list().data]
            assert names[:3] == ["alpha", "beta", "alpha:thinking-general"], names
            answer = client.chat.completions.create(model="beta", messages=QUESTION, temperature=0)
            assert answer.model == "beta"
            assert not getattr(answer.choices[0].message, "reasoning_content", None)
            assert client.models.retrieve("alpha").max_model_len == 200


if __name__ == "__main__":
    sys.exit(run_checks(Checks, __doc__))

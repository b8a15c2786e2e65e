#!/usr/bin/env python3
"""nibble connect: connect_test.py --nibble PROGRAM --model PEBBLE_FOLDER.

What it prints for each client must be what that client's own parser takes: shell, TOML, JSON, YAML.
The last line counts.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib

import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "serve"))
from running_server import RunningServer, run_checks  # noqa: E402

NOBODY = "http://127.0.0.1:9"  # the discard port: nothing listens there
ODD_KEY = "it's $HOME \"x\" `id` \\"
CLIENTS = ("claude", "codex", "opencode", "openwebui", "cline", "continue", "aider")


def after(text, heading):
    """The lines after a comment, to the next comment."""
    rest = text.split(heading, 1)[1].split("\n", 1)[1]
    return re.split(r"(?m)^# ", rest)[0]


def exported(text, name):
    """A variable's value, as the shell has it after the lines that export."""
    lines = [line for line in text.splitlines() if line.startswith("export ")]
    script = "\n".join([*lines, f'printf %s "${name}"'])
    return subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True).stdout


class Checks:
    def __init__(self, server, nibble, model):
        self.url, self.nibble, self.model = server.url, nibble, model

    def close(self):
        pass

    def connect(self, client, *words, code=0):
        done = self.said(client, *words)
        assert done.returncode == code, done
        return done.stdout if code == 0 else done.stderr

    def said(self, client, *words):
        """It gives a server five seconds, in which a machine may stand still."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NIBBLE_")}
        for _ in range(10):
            done = subprocess.run([self.nibble, "connect", client, *words], capture_output=True,
                                  text=True, timeout=600, env=environment)
            if "timeout" not in done.stderr:
                break
        return done

    def asked(self, client, *words):
        return self.connect(client, "--url", self.url, *words)

    def test_every_client_gets_url_model_and_key(self):
        for client in CLIENTS:
            text = self.asked(client, "--api-key", "sesame")
            for piece in (self.url, "model", "sesame"):
                assert piece in text, (client, piece, text)

    def test_claude(self):
        text = self.asked("claude", "--api-key", ODD_KEY, "--model", "model:thinking-coding")
        assert exported(text, "ANTHROPIC_BASE_URL") == self.url  # it adds /v1/messages
        assert exported(text, "ANTHROPIC_AUTH_TOKEN") == ODD_KEY
        for name in ("MODEL", "DEFAULT_OPUS_MODEL", "DEFAULT_SONNET_MODEL", "DEFAULT_HAIKU_MODEL"):
            assert exported(text, "ANTHROPIC_" + name) == "model:thinking-coding"
        assert int(exported(text, "CLAUDE_CODE_MAX_OUTPUT_TOKENS")) > 0

    def test_codex(self):
        text = self.asked("codex", "--api-key", ODD_KEY)
        config = tomllib.loads(after(text, "above its first") + after(text, "at its end"))
        assert config["model"] == "model" and config["model_context_window"] > 0
        provider = config["model_providers"][config["model_provider"]]
        assert provider["base_url"] == self.url + "/v1" and provider["wire_api"] == "responses"
        assert exported(text, provider["env_key"]) == ODD_KEY
        assert not provider["env_key"].startswith("NIBBLE_"), "the server would read it"

    def test_opencode(self):
        config = json.loads(after(self.asked("opencode", "--api-key", ODD_KEY), "opencode.json"))
        provider, model = config["model"].split("/")
        provider = config["provider"][provider]
        assert provider["options"] == {"baseURL": self.url + "/v1", "apiKey": ODD_KEY}
        limit = provider["models"][model]["limit"]
        assert 0 < limit["output"] < limit["context"]

    def test_continue(self):
        text = self.asked("continue", "--api-key", ODD_KEY)
        model, = yaml.safe_load(after(text, "config.yaml"))["models"]
        assert model["apiBase"] == self.url + "/v1" and model["apiKey"] == ODD_KEY
        assert model["model"] == "model" and "tool_use" in model["capabilities"]
        assert model["defaultCompletionOptions"]["contextLength"] > 0

    def test_aider_and_open_webui(self):
        for client in ("aider", "openwebui"):
            text = self.asked(client, "--api-key", ODD_KEY)
            name = "OPENAI_API_BASE" if client == "aider" else "OPENAI_API_BASE_URL"
            assert exported(text, name) == self.url + "/v1"
            assert exported(text, "OPENAI_API_KEY") == ODD_KEY
        text = self.asked("aider")
        limits = json.loads(after(text, ".aider.model.metadata.json"))
        assert limits["openai/model"]["max_input_tokens"] > 0
        assert "aider --model openai/model\n" in text

    def test_urls_are_tidied(self):
        for words in ([self.url + "/"], [self.url + "/v1"], [self.url + "/v1/"],
                      [self.url.removeprefix("http://")]):
            assert exported(self.connect("claude", "--url", *words),
                            "ANTHROPIC_BASE_URL") == self.url, words

    def test_a_server_that_does_not_answer(self):
        done = self.said("claude", "--url", NOBODY, "--model", "m")
        assert done.returncode == 0 and "was not asked" in done.stderr, done
        assert exported(done.stdout, "ANTHROPIC_MODEL") == "m"
        assert "MAX_OUTPUT_TOKENS" not in done.stdout
        assert "--model NAME" in self.connect("claude", "--url", NOBODY, code=1)

    def test_an_unknown_model_is_told_of(self):
        done = self.said("codex", "--url", self.url, "--model", "m")
        assert done.returncode == 0 and "does not list m; it has model, " in done.stderr, done

    def test_profiles_are_known_in_each_form(self):
        with RunningServer(self.nibble, self.model, ["--no-list-profiles"]) as server:
            for url in (self.url, server.url):
                for name in ("thinking-coding", "model:thinking-coding"):
                    done = self.said("codex", "--url", url, "--model", name)
                    config = tomllib.loads(after(done.stdout, "above its first"))
                    assert done.stderr == "" and config["model"] == name, done
                    assert config["model_context_window"] > 0, done
            assert server.stop() == 0

    def test_keys_are_asked_for(self):
        with RunningServer(self.nibble, self.model, ["--api-key", "sesame"]) as server:
            told = self.connect("codex", "--url", server.url, code=2)
            assert "--api-key" in told, told
            text = self.connect("codex", "--url", server.url, "--api-key", "sesame")
            assert 'model = "model"' in text
            assert server.stop() == 0

    def test_wrong_words(self):
        for words, piece in ((["clade"], "did you mean claude?"), (["x" * 30], "one of claude"),
                             (["claude", "--url", "ftp://x"], "--url"),
                             (["claude", "--url", "http://a b"], "--url"),
                             (["claude", "--api-key", "a\r\nb"], "control"),
                             ([], "CLIENT")):
            done = subprocess.run([self.nibble, "connect", *words], capture_output=True, text=True)
            assert done.returncode == 2 and piece in done.stderr, done
            assert done.stderr.count("\n") == 1, done


if __name__ == "__main__":
    sys.exit(run_checks(Checks, __doc__))

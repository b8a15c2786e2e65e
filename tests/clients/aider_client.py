"""aider: it asks for a file in the form that it applies, runs the file's test and asks again while
that fails. Pebble does not know the form: the server holds its answers to the one that is right."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from client_run import MODEL, main

ANSWER = "greeting.txt\n```\nHello from Pebble.\n```\n"
# Fails the first time.
TEST = "echo run >> runs; grep -q Hello greeting.txt && test $(wc -l < runs) -ge 2"


def run(url, *flags):
    """(the file that was written, how often its test ran, what aider said)."""
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work)
        (folder / "test.sh").write_text(TEST)
        (folder / "greeting.txt").write_text("\n")
        (folder / "settings.yml").write_text(json.dumps([  # JSON is YAML too
            {"name": f"openai/{MODEL}", "edit_format": "whole", "use_repo_map": False,
             "extra_params": {"max_tokens": 200, "extra_body": {
                 "structured_outputs": {"choice": [ANSWER]}, "enable_thinking": False}}}]))
        done = subprocess.run(
            [sys.executable, "-m", "aider", "--model", f"openai/{MODEL}", "--no-git",
             "--openai-api-base", url + "/v1", "--openai-api-key", "unused", "--yes-always",
             "--model-settings-file", "settings.yml", "--no-check-update",
             "--no-show-model-warnings", "--no-analytics", "--no-suggest-shell-commands",
             "--no-show-release-notes",
             "--no-detect-urls", "--no-auto-lint", *flags,
             "--message", "Write a greeting.", "greeting.txt"],
            cwd=work, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, env={**os.environ, "HOME": work})
        assert done.returncode == 0, done.stdout
        runs = folder / "runs"
        return ((folder / "greeting.txt").read_text(),
                len(runs.read_text().split()) if runs.exists() else 0, done.stdout)


def tool_loop(url):
    text, runs, said = run(url, "--auto-test", "--test-cmd", "sh test.sh", "--stream")
    assert text == "Hello from Pebble.\n" and runs == 2, (text, runs, said)


def structured(url):
    text, _, said = run(url, "--no-stream")
    assert text == "Hello from Pebble.\n", (text, said)


def stream(url):
    text, _, said = run(url, "--stream")
    assert text == "Hello from Pebble.\n", (text, said)


main(tool_loop, structured, stream)

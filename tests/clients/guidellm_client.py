"""guidellm, a benchmark: streamed chats, completions and responses, calls of tools, answers held to
a schema. It takes an answer without a call, where one is due, for a failed request."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from client_run import MODEL, RESPONSE_FORMAT, TOOL, main, model_folder


def run(url, backend=None, data=None):
    """The report of three requests one after another."""
    with tempfile.TemporaryDirectory() as work:
        report = pathlib.Path(work) / "report.json"
        scenario = pathlib.Path(work) / "scenario.json"
        scenario.write_text(json.dumps({"spec": {
            "backend": {"kind": "openai_http", "target": url, "model": MODEL, **(backend or {})},
            "profile": {"kind": "synchronous"},
            "constraints": [{"kind": "max_requests", "count": 3}],
            "tokenizer": {"kind": "huggingface_auto", "model": model_folder()},
            "data": [{"kind": "synthetic_text", "prompt_tokens": 40, "output_tokens": 20,
                      **(data or {})}],
            "outputs": [{"kind": "json", "path": str(report)}]}}))
        done = subprocess.run([sys.executable, "-m", "guidellm", "run", "--disable-console",
                               "-c", scenario], text=True, capture_output=True,
                              env={**os.environ, "HOME": work})
        assert done.returncode == 0 and report.exists(), done.stdout + done.stderr
        benchmark, = json.loads(report.read_text())["benchmarks"]
    requests = benchmark["requests"]
    assert len(requests["successful"]) == 3 and not requests["errored"], requests
    return requests["successful"]


def stream(url):
    for form in ("/v1/chat/completions", "/v1/completions", "/v1/responses"):
        for request in run(url, {"request_format": form}):
            assert request["output_metrics"]["text_tokens"] == 20, request


def tool_loop(url):
    tools = [{"type": "function", "function": TOOL}]
    requests = run(url, data={"turns": 1, "tool_call_turns": [0], "tools": tools,
                              "output_tokens": 200})
    assert any(request["output_metrics"]["tool_call_count"] for request in requests), requests


def structured(url):
    extras = {"body": {"response_format": RESPONSE_FORMAT, "ignore_eos": False, "stop": None}}
    for request in run(url, {"extras": extras}, {"output_tokens": 300}):
        text = request["output"]
        assert set(json.loads(text[text.index("{"):])) == {"name", "age"}, request


main(stream, tool_loop, structured)

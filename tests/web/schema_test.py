"""schemathesis over /openapi.json against a real server: thousands of requests, good and bad.

No answer has a status of 5xx, none a status, type or body that the document does not describe, and
what the document forbids is refused.

    tests/web/schema_test.py --nibble build/release/src/cli/nibble --model pebble/model

What it is not: a judge of refusals. Fields that exclude each other are a 400 here, and the
document's schemas do not say so.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "serve"))
from running_server import RunningServer  # noqa: E402

CHECKS = ["not_a_server_error", "status_code_conformance", "content_type_conformance",
          "response_schema_conformance", "response_headers_conformance", "allow_header_conformance",
          "unsupported_method", "negative_data_rejection", "ignored_auth"]
# A time limit of 1 ms ends with 504, as documented; /v1/embeddings always answers 501.
CONFIG = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 501, 504]
"""
# They answer on the admin socket; here every method of theirs is a 403.
LEFT_OUT = ["/sleep", "/wake_up", "/cancel_all"]
CANARY = {"messages": [{"role": "user", "content": "What is 12 plus 7?"}], "temperature": 0}


def canary(url, key):
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(CANARY).encode(), {
        "content-type": "application/json", "authorization": "Bearer " + key})
    with urllib.request.urlopen(request, timeout=600) as response:
        return json.load(response)["choices"][0]["message"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nibble", required=True, help="path of the program")
    parser.add_argument("--model", required=True, help="checkpoint folder")
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    flags = ["--max-model-len", "256", "--no-log-requests", "--response-store", "32",
             "--api-key", "sesame"]
    program = pathlib.Path(sys.executable).with_name("schemathesis")
    with RunningServer(options.nibble, options.model, flags) as server, \
            tempfile.TemporaryDirectory() as folder:
        before = canary(server.url, "sesame")
        config = pathlib.Path(folder) / "schemathesis.toml"
        config.write_text(CONFIG)
        command = [str(program), "--config-file", str(config), "run", server.url + "/openapi.json",
                   "--phases", "examples,coverage,fuzzing", "--checks", ",".join(CHECKS),
                   "--max-time", str(options.seconds), "--seed", str(options.seed),
                   "--header", "Authorization: Bearer sesame", "--continue-on-failure",
                   "--no-shrink", "--suppress-health-check", "all", "--warnings", "off",
                   "--request-timeout", "30"]
        for path in LEFT_OUT:
            command += ["--exclude-path", path]
        result = subprocess.run(command, cwd=folder, timeout=options.seconds + 120)
        same = canary(server.url, "sesame") == before
        code = server.stop()
    print(f"schemathesis left with {result.returncode}, the server with {code}; "
          f"the canary's answer is {'unchanged' if same else 'ANOTHER'}")
    good = result.returncode == 0 and code == 0 and same
    print("1 passed, 0 failed" if good else "0 passed, 1 failed")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

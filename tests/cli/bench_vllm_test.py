#!/usr/bin/env python3
"""vLLM's own result code on what `nibble bench serve` writes: its metrics of the same requests are
ours, and its sweep tools read summary.json. Runs in vLLM's environment (tests/full_steps.sh)."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "serve"))
from scripted_server import Script, ScriptedServer  # noqa: E402

from vllm.benchmarks.lib.endpoint_request_func import RequestFuncOutput  # noqa: E402
from vllm.benchmarks.serve import calculate_metrics  # noqa: E402
from vllm.benchmarks.sweep.plot import _get_metric, _json_load_bytes  # noqa: E402
from vllm.benchmarks.sweep.plot_pareto import _prepare_records  # noqa: E402

PERCENTS = [1.0, 50.0, 99.0]


def measured(nibble, work):
    plans = [{"first": 0.01 * (i % 5), "gap": 0.002 * (i % 4)} for i in range(30)]
    plans[7], plans[11] = {"status": 429}, {"cut": 2}
    with ScriptedServer(Script(*plans)) as server:
        subprocess.run([nibble, "bench", "serve", server.url, "--concurrency", "3",
                        "--num-prompts", "30", "--rounds", "1", "--num-warmups", "0",
                        "--random-output-len", "6", "--random-range-ratio", "0.4",
                        "--metric-percentiles", "1,50,99", "--goodput", "ttft:30,tpot:5",
                        "--late-ms", "2000", "--result-dir", work], check=True)
    return json.loads((pathlib.Path(work) / "run-1.json").read_text())


def as_vllm_saw_them(run):
    return [RequestFuncOutput(success=not error, latency=latency, output_tokens=output, ttft=ttft,
                              itl=itl, prompt_len=prompt, error=error, start_time=start)
            for error, latency, output, ttft, itl, prompt, start in zip(
                run["errors"], run["latencies"], run["output_lens"], run["ttfts"], run["itls"],
                run["input_lens"], run["start_times"])]


def compare(run):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        theirs, lens = calculate_metrics([], as_vllm_saw_them(run), run["duration"], None, PERCENTS,
                                         {"ttft": 30.0, "tpot": 5.0})
    expected = {"completed": theirs.completed, "failed": theirs.failed,
                "total_input_tokens": theirs.total_input,
                "total_output_tokens": theirs.total_output,
                "request_throughput": theirs.request_throughput,
                "request_goodput": theirs.request_goodput,
                "output_throughput": theirs.output_throughput,
                "total_token_throughput": theirs.total_token_throughput,
                "max_output_tokens_per_s": theirs.max_output_tokens_per_s,
                "max_concurrent_requests": theirs.max_concurrent_requests, "output_lens": lens}
    for name in ("ttft", "tpot", "itl", "e2el"):
        for word in ("mean", "median", "std"):
            expected[f"{word}_{name}_ms"] = getattr(theirs, f"{word}_{name}_ms")
        for percent, value in getattr(theirs, f"percentiles_{name}_ms"):
            expected[f"p{int(percent)}_{name}_ms"] = value
    for key, value in expected.items():
        same = run[key] == value if isinstance(value, list) else (
            abs(run[key] - value) <= 1e-9 * max(1.0, abs(value)))
        assert same, (key, run[key], value)
    assert run["completed"] == 28 and run["failed"] == 2, run["errors"]
    assert 0 < theirs.request_goodput * run["duration"] < 28
    return len(expected)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nibble", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        run = measured(options.nibble, work)
        figures = compare(run)
        records = _json_load_bytes(pathlib.Path(work) / "summary.json")
        for key in ("output_throughput", "p99_ttft_ms", "max_concurrency"):
            assert _get_metric(records[0], key) == run[key], key
        prepared, skipped = _prepare_records(records, user_count_var="max_concurrency",
                                             gpu_count_var=None)
        assert skipped == 0 and prepared[0]["tokens_per_user"] == run["output_throughput"] / 3
    print(f"{figures} figures as vLLM computes them")
    return 0


if __name__ == "__main__":
    sys.exit(main())

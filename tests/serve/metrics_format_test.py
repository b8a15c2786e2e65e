#!/usr/bin/env python3
"""/metrics through the parser of prometheus_client, after requests of every kind: well-formed text,
the names that dashboards, autoscalers and gateways of vLLM read, counters that only grow.

Loopback only. Exits 1 if a check fails; the last line counts.
"""
import sys

import httpx
from prometheus_client.parser import text_string_to_metric_families

from running_server import run_checks

# As vLLM's documents name them: gauges by their name, counters without _total, histograms.
VLLM = {
    "vllm:num_requests_running": "gauge", "vllm:num_requests_waiting": "gauge",
    "vllm:kv_cache_usage_perc": "gauge", "vllm:prompt_tokens": "counter",
    "vllm:generation_tokens": "counter", "vllm:request_success": "counter",
    "vllm:prefix_cache_queries": "counter", "vllm:prefix_cache_hits": "counter",
    "vllm:num_preemptions": "counter", "vllm:spec_decode_num_drafts": "counter",
    "vllm:spec_decode_num_draft_tokens": "counter",
    "vllm:spec_decode_num_accepted_tokens": "counter",
    "vllm:spec_decode_num_accepted_tokens_per_pos": "counter",
    "vllm:time_to_first_token_seconds": "histogram",
    "vllm:inter_token_latency_seconds": "histogram",
    "vllm:e2e_request_latency_seconds": "histogram",
}


class Checks:
    def __init__(self, server, nibble, model):
        self.http = httpx.Client(base_url=server.url, timeout=600)
        self.before = self.families()
        body = {"prompt": "one", "max_tokens": 5}
        for more in ({}, {"n": 2}, {"model": "instruct"}, {"stop": "e"}, {"stream": True}):
            assert self.http.post("/v1/completions", json={**body, **more}).status_code == 200
        assert self.http.post("/v1/completions", json={"prompt": 7}).status_code == 400
        assert self.http.get("/nothing").status_code == 404
        self.after = self.families()

    def close(self):
        self.http.close()

    def families(self):
        answer = self.http.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        self.text = answer.text
        return {family.name: family for family in text_string_to_metric_families(answer.text)}

    def test_names_of_vllm(self):
        for name, kind in VLLM.items():
            assert self.after[name].type == kind, (name, self.after.get(name))
            assert self.after[name].documentation, name

    def test_every_family_is_declared_once(self):
        kinds = [line.split()[2] for line in self.text.splitlines() if line.startswith("# TYPE")]
        assert len(kinds) == len(set(kinds)), sorted(kinds)
        for family in self.after.values():
            assert family.type != "unknown" and family.samples is not None, family
            seen = [(s.name, tuple(sorted(s.labels.items()))) for s in family.samples]
            assert len(seen) == len(set(seen)), seen
            assert all(sample.labels["model_name"] == "model" for sample in family.samples)

    def test_weights_by_place(self):
        """On a CPU experts and embedding are mapped, the rest is copied."""
        places = {s.labels["place"]: s.value
                  for s in self.after["nibble_host_weight_bytes"].samples}
        on_cpu = self.http.get("/stats").json()["backend"] == "cpu"
        assert set(places) == ({"copied", "mapped"} if on_cpu else set()), places
        assert all(value > 1e6 for value in places.values()), places

    def test_counters_grow(self):
        value = lambda families, name: {(s.name, tuple(sorted(s.labels.items()))): s.value
                                        for s in families[name].samples}
        for name, family in self.before.items():
            if family.type in ("counter", "histogram"):
                after = value(self.after, name)
                for key, was in value(self.before, name).items():
                    assert after[key] >= was, key

        def total(families, name):
            return sum(s.value for s in families[name].samples)
        grown = lambda name: total(self.after, name) - total(self.before, name)
        assert grown("vllm:request_success") == 6 and 6 <= grown("vllm:generation_tokens") <= 30
        by = {s.labels["profile"]: s.value for s in self.after["nibble_requests"].samples}
        assert by == {"": 4, "instruct": 1}, by
        assert total(self.after, "nibble_requests_refused") == 2

    def test_histograms_add_up(self):
        for family in self.after.values():
            if family.type != "histogram":
                continue
            buckets = [s for s in family.samples if s.name.endswith("_bucket")]
            counts = [s.value for s in buckets]
            assert counts == sorted(counts) and buckets[-1].labels["le"] == "+Inf", family.name
            count, = [s.value for s in family.samples if s.name.endswith("_count")]
            assert counts[-1] == count, family.name


if __name__ == "__main__":
    sys.exit(run_checks(Checks, __doc__))

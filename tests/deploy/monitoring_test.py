#!/usr/bin/env python3
"""Alerts and dashboard of deploy/: monitoring_test.py --nibble PROGRAM --model PEBBLE_FOLDER.

promtool (tools/install_packages.sh full brings it) checks the rules, runs their tests and takes
every expression of the dashboard as a rule. Each alert has a case in which it fires and an instance
for which it stays silent, and every metric that is named is one of a live server's. Loopback only;
the last line counts. Needs PyYAML (tools/requirements-deploy.txt).
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/serve"))
from running_server import run_checks  # noqa: E402

PROMTOOL = shutil.which("promtool") or ROOT / "build/cache/promtool/usr/bin/promtool"
ALERTS = ROOT / "deploy/prometheus/alerts.yaml"
ALERTS_TEST = ROOT / "deploy/prometheus/alerts_test.yaml"
DASHBOARD = ROOT / "deploy/grafana/nibble.json"
# The values that stand in for the variables of Grafana.
VARIABLES = {"$__rate_interval": "5m", "$model": ".*", "$instance": ".*"}


def promtool(*words):
    done = subprocess.run([PROMTOOL, *words], capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout + done.stderr


def expressions():
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            text = target["expr"]
            for name, value in VARIABLES.items():
                text = text.replace(name, value)
            assert "$" not in text, text
            yield panel["title"], text


def names_in(text):
    return set(re.findall(r"\bnibble_[a-z0-9_]+", text))


class Checks:
    def __init__(self, server, nibble, model):
        self.url = server.url

    def close(self):
        pass

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data,
                                         headers={"Content-Type": "application/json"})
        try:
            return urllib.request.urlopen(request, timeout=600).read().decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()

    def test_rules_are_sound(self):
        code, said = promtool("check", "rules", str(ALERTS))
        assert code == 0 and "rules found" in said, said

    def test_rules_fire_and_stay_silent(self):
        code, said = promtool("test", "rules", str(ALERTS_TEST))
        assert code == 0 and "SUCCESS" in said, said

    def test_a_wrong_rule_is_seen(self):
        rules = ALERTS.read_text()
        changes = {"waiting > 16": "waiting > 25", "usage_perc > 0.95": "usage_perc > 0.2",
                   " > 0.1\n": " > 0.01\n", "<= 0.05": "<= 0.5", "== 0\n": "== 1\n"}
        for was, becomes in changes.items():
            assert was in rules, was
            with tempfile.TemporaryDirectory() as folder:
                (pathlib.Path(folder) / "alerts.yaml").write_text(rules.replace(was, becomes))
                copy = shutil.copy(ALERTS_TEST, folder)
                code, _ = promtool("test", "rules", copy)
            assert code != 0, (was, becomes)

    def test_each_alert_fires_once_and_is_silent_once(self):
        alerts = {rule["alert"] for group in yaml.safe_load(ALERTS.read_text())["groups"]
                  for rule in group["rules"]}
        tested = yaml.safe_load(ALERTS_TEST.read_text())["tests"]
        assert {test["name"] for test in tested} == alerts
        for test in tested:
            instances = set(re.findall(r'instance="(\w+)"', str(test["input_series"])))
            fired = {alert["exp_labels"]["instance"] for case in test["alert_rule_test"]
                     for alert in case["exp_alerts"]}
            assert all(case["alertname"] == test["name"] for case in test["alert_rule_test"])
            assert fired and instances - fired, (test["name"], instances, fired)

    def test_expressions_of_the_dashboard_are_rules(self):
        rules = [{"record": f"dashboard:{number}", "expr": text}
                 for number, (_, text) in enumerate(expressions())]
        assert len(rules) >= 20
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
            file.flush()
            code, said = promtool("check", "rules", file.name)
        assert code == 0 and f"{len(rules)} rules found" in said, said

    def test_every_metric_is_one_of_a_live_server(self):
        self.ask("/v1/completions", {"prompt": "one", "max_tokens": 4})
        self.ask("/v1/completions", {"prompt": 7})
        live = {line.split("{")[0] for line in self.ask("/metrics").splitlines()
                if line and not line.startswith("#")}
        named = names_in(ALERTS.read_text())
        for _, text in expressions():
            named |= names_in(text)
        for file in (ROOT / "deploy/kubernetes").glob("*.yaml"):
            named |= names_in(file.read_text())
        assert len(named) >= 25, named
        assert named <= live, sorted(named - live)

    def test_the_dashboard_can_be_imported(self):
        dashboard = json.loads(DASHBOARD.read_text())
        panels = dashboard["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        variables = {variable["name"] for variable in dashboard["templating"]["list"]}
        assert set(re.findall(r"\$\{?(\w+)", DASHBOARD.read_text())) - {
            "__rate_interval", "__all"} == variables


if __name__ == "__main__":
    sys.exit(run_checks(Checks, __doc__))

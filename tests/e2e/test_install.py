"""Installing as docs/install.md says, on a real API server and kubelet, where Pod Security `restricted` is enforced.

In one cluster and in this order: each test finds what the one before left. Routers of one front-end are a release of
their own, and serve throughout what happens to the operator's.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.audit import asked_by, granted
from support.checkout import ROOT
from support.cluster import Cluster, await_true, cluster_command
from support.docs_commands import FENCE
from support.helm import CHART, NAMESPACE, OVERLAYS, by_name, helm, kustomize, template

pytestmark = [pytest.mark.long, pytest.mark.timeout(2700)]  # with nothing cached all of Kubernetes is compiled

SAMPLE = ROOT / "manifests" / "samples" / "cluster"
GOLDEN = ROOT / "tests" / "integration" / "manifests" / "golden"
PAGE = (ROOT / "docs" / "install.md").read_text()
HELM, KUSTOMIZE, UNINSTALL = (match[2] for match in FENCE.finditer(PAGE) if match[1] == "bash")
LIST = tomllib.loads((ROOT / "hack" / "images.toml").read_text())
TABLE = "headrace-chat-fe-eu-west"
EDGE = "edge-headrace-router-fe-eu-west"

SMALL = {"requests": {"cpu": "20m", "memory": "64Mi"}}
BRIEF = {"graceSeconds": 5, "resources": SMALL}  # its requests take a second
IMAGE = {"registry": "localhost/headrace", "tag": "test"}
VALUES = {
    "image": IMAGE,
    "operator": {
        "resources": SMALL,
        "config": {
            "tick": "2s",
            "scrape": {"interval": "2s", "timeout": "1s"},
            "routers": [
                {"frontend": "fe-eu-west", "service": {"namespace": NAMESPACE, "name": f"{EDGE}-admin", "port": 9090}}
            ],
        },
    },
    "routers": [{"frontend": "fe-us-east", "policies": ["inference/chat"], "replicas": 1} | BRIEF],
}
EDGE_VALUES = {
    "image": IMAGE,
    "operator": {"enabled": False},
    "crds": {"install": False},
    "routers": [{"frontend": "fe-eu-west", "policies": ["inference/chat"]} | BRIEF],
}


@pytest.fixture(scope="module")
def cluster(bare: Cluster) -> Iterator[Cluster]:
    """Without anything of ours, before and after."""
    # The first puts helm beside kubectl, for the page's commands.
    for command in (["exec", "helm", "version"], ["load", "operator", "router", "lab"]):
        done = subprocess.run(cluster_command(bare.name, *command), capture_output=True, text=True, timeout=2400)
        assert done.returncode == 0, done.stderr
    emptied(bare)
    yield bare
    emptied(bare)


def emptied(cluster: Cluster) -> None:
    gone = ["--ignore-not-found", "--timeout=240s"]
    cluster.kubectl("delete", "namespace", NAMESPACE, "inference", "batch", *gone)
    cluster.kubectl("delete", "crd", "inferenceengines.headrace.dev", "routingpolicies.headrace.dev", *gone)
    roles = ["clusterrole,clusterrolebinding", "--selector=app.kubernetes.io/name=headrace"]
    cluster.kubectl("delete", *roles, *gone)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the page's commands can be typed: the manifests, and a values file."""
    folder = tmp_path_factory.mktemp("install")
    (folder / "manifests").symlink_to(ROOT / "manifests")
    (folder / "values.yaml").write_text(yaml.safe_dump(VALUES))
    (folder / "edge.yaml").write_text(yaml.safe_dump(EDGE_VALUES))
    return folder


def typed(cluster: Cluster, folder: Path, commands: str) -> str:
    """Run a block of the page in the cluster's network. What stands from a test before may stand."""
    commands = re.sub(r"(kubectl create namespace (\S+))", r"(\1 || kubectl get namespace \2)", commands)
    command = cluster_command(cluster.name, "exec", "bash", "-euo", "pipefail", "-c", commands)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def gaps() -> list[tuple[str, str]]:
    """From when to when a release was gone: pods end after their roles do, and are refused what they ask meanwhile."""
    return []


def now() -> str:
    return datetime.now(UTC).isoformat()


def rolled_out(cluster: Cluster, *deployments: str) -> None:
    for name in deployments:
        cluster.kubectl("rollout", "status", f"deployment/{name}", f"--namespace={NAMESPACE}", "--timeout=240s")


def policy_ready(cluster: Cluster) -> None:
    cluster.kubectl("wait", "--for=condition=Ready", "rpol/chat", "--namespace=inference", "--timeout=240s")


def identity(cluster: Cluster) -> tuple[str, int, int]:
    """(policy uid, term, revision) of the table that the outliving front-end's routers read."""
    table = json.loads(cluster.get("configmap", TABLE, "--namespace=inference")["data"]["table.json"])
    return table["identity"]["uid"], table["identity"]["term"], table["identity"]["revision"]


def served(cluster: Cluster, deployment: str) -> int:
    """Requests that one router of a Deployment has counted."""
    reading = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9090/metrics').read().decode())"
    python = ["--", "/opt/headrace/bin/python", "-c", reading]
    page = cluster.kubectl("exec", f"--namespace={NAMESPACE}", f"deployment/{deployment}", *python).stdout
    found = re.findall(r"(?m)^headrace_offered_requests_total\{.*\} (\S+)$", page)
    return round(sum(float(one) for one in found))


class Load:
    """Clients of a Service, until told to stop."""

    def __init__(self, cluster: Cluster, service: str) -> None:
        address = cluster.get("service", service, f"--namespace={NAMESPACE}")["spec"]["clusterIP"]
        options = ["--rate=5", "--model=llama-3.1-70b", "--duration=1200", "--output-tokens=16"]
        command = [sys.executable, "-m", "headrace_lab.load", f"--to=fe=http://{address}:8080", *options]
        self._process = subprocess.Popen(
            cluster_command(cluster.name, "exec", *command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def end(self) -> tuple[int, list[str]]:
        """Stop sending: how many requests were answered, and what became of those that were not."""
        self._process.terminate()
        told, complaints = self._process.communicate(timeout=120)
        assert told, complaints
        result = json.loads(told)
        # Those that it has just sent are its own to cut.
        return result["counts"]["done"], [one for one in result["failures"] if "at the end of the replay" not in one]

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@pytest.fixture(scope="module")
def installed(cluster: Cluster, place: Path) -> Cluster:
    """By Helm as the page says, with the sample's engines and policy, and the second release of routers."""
    typed(cluster, place, HELM)
    typed(cluster, place, f"helm install edge manifests/charts/headrace --namespace {NAMESPACE} --values edge.yaml")
    cluster.kubectl("apply", f"--kustomize={SAMPLE}")
    policy_ready(cluster)
    rolled_out(cluster, "headrace-operator", "headrace-router-fe-us-east", EDGE)
    return cluster


def test_helm_as_the_page_says(installed: Cluster) -> None:
    labels = installed.get("namespace", NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    load = Load(installed, "headrace-router-fe-us-east")
    try:
        await_true(lambda: served(installed, "headrace-router-fe-us-east") > 20, "requests are answered")
        done, lost = load.end()
    finally:
        load.kill()
    assert lost == []
    assert done > 20


SEEN_INSIDE = """
import importlib.metadata, json, os, pathlib, shutil
def writable(path):
    try:
        pathlib.Path(path, "try").write_text("")
    except OSError:
        return False
    return True
print(json.dumps({
    "distributions": sorted({one.metadata["Name"].lower() for one in importlib.metadata.distributions()}),
    "programs": [name for name in ("gcc", "cc", "make", "pip", "pip3") if shutil.which(name)],
    "uid": os.getuid(), "root": writable("/"), "code": writable("/opt/headrace"),
}))
"""


@pytest.mark.parametrize("which", ["operator", "router"])
def test_pods_hold_nothing_they_need_not(installed: Cluster, which: str) -> None:
    """Group security of the cases: what isn't there can't be used by who breaks in."""
    deployment = {"operator": "deployment/headrace-operator", "router": f"deployment/{EDGE}"}[which]
    python = ["--", "/opt/headrace/bin/python", "-c", SEEN_INSIDE]
    seen = json.loads(installed.kubectl("exec", f"--namespace={NAMESPACE}", deployment, *python).stdout)
    assert set(seen["distributions"]).isdisjoint(LIST[which]["without"])
    assert "headrace" in seen["distributions"]
    assert seen["programs"] == []
    assert (seen["uid"], seen["root"], seen["code"]) == (65532, False, False)


def without_monitors(text: str) -> str:
    """Without the kinds that the Prometheus operator would bring."""
    kept = [one for one in yaml.safe_load_all(text) if one and not one["kind"].endswith("Monitor")]
    return yaml.safe_dump_all(kept)


@pytest.mark.parametrize(
    "name", sorted(path.name.removesuffix(".values.yaml") for path in GOLDEN.glob("*.values.yaml"))
)
def test_the_api_takes_what_helm_makes(installed: Cluster, name: str) -> None:
    """Every field is known to the API server, and every value right, for each set of values."""
    installed.kubectl("create", "namespace", "batch", check=False)
    text = without_monitors(yaml.safe_dump_all(template(GOLDEN / f"{name}.values.yaml").values()))
    dry = ["--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts", "--field-manager=dry"]
    done = installed.kubectl("apply", *dry, "--filename=-", stdin=text)
    assert "Warning" not in done.stderr


@pytest.mark.parametrize("overlay", sorted(path.name for path in OVERLAYS.iterdir()))
def test_the_api_takes_what_kustomize_makes(installed: Cluster, overlay: str) -> None:
    text = without_monitors(yaml.safe_dump_all(kustomize(OVERLAYS / overlay).values()))
    dry = ["--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts", "--field-manager=dry"]
    installed.kubectl("apply", *dry, "--filename=-", stdin=text)


def test_routers_serve_while_the_operator_is_upgraded_removed_and_installed_again(
    installed: Cluster, place: Path, gaps: list[tuple[str, str]]
) -> None:
    """Types, resources and tables outlive the release; the next installation goes on with their revisions."""
    before, engines = identity(installed), len(installed.get("ieng", "--namespace=inference")["items"])
    uid = installed.get("rpol", "chat", "--namespace=inference")["metadata"]["uid"]
    load = Load(installed, EDGE)
    try:
        upgrade = f"helm upgrade headrace manifests/charts/headrace --namespace {NAMESPACE} --values values.yaml"
        typed(installed, place, f"{upgrade} --set operator.podAnnotations.upgraded=yes")
        rolled_out(installed, "headrace-operator")
        await_true(lambda: identity(installed)[1] > before[1], "the new pods lead")
        between = identity(installed)

        began = now()
        typed(installed, place, UNINSTALL)
        operators = "--selector=app.kubernetes.io/component=operator", f"--namespace={NAMESPACE}"
        await_true(lambda: not installed.get("pods", *operators)["items"], "the operator is gone")
        assert installed.get("rpol", "chat", "--namespace=inference")["metadata"]["uid"] == uid
        assert len(installed.get("ieng", "--namespace=inference")["items"]) == engines
        assert identity(installed) == between

        typed(installed, place, HELM)
        gaps.append((began, now()))
        await_true(lambda: identity(installed)[1] > between[1], "the operator leads again")
        policy_ready(installed)
        done, lost = load.end()
    finally:
        load.kill()
    after = identity(installed)
    assert before[0] == between[0] == after[0] == uid
    assert before[2] <= between[2] <= after[2]
    assert lost == []
    assert done > 50


def test_kustomize_as_the_page_says(installed: Cluster, place: Path, gaps: list[tuple[str, str]]) -> None:
    """With images of our own, as the page tells; over what a Helm release left, which goes on."""
    before, began = identity(installed), now()
    typed(installed, place, UNINSTALL)
    own = place / "own"
    own.mkdir()
    images = [
        {"name": f"registry.example.com/headrace/{which}", "newName": f"localhost/headrace/{which}", "newTag": "test"}
        for which in ("operator", "router")
    ]
    dev = os.path.relpath(OVERLAYS / "dev", own.resolve())
    (own / "kustomization.yaml").write_text(yaml.safe_dump({"resources": [dev], "images": images}))
    commands = KUSTOMIZE.replace("manifests/kustomize/overlays/dev", "own")
    typed(
        installed, place, commands.replace("--server-side", "--server-side --force-conflicts")
    )  # the types are Helm's
    gaps.append((began, now()))
    await_true(lambda: identity(installed)[1] > before[1], "the operator leads")
    policy_ready(installed)
    assert identity(installed)[0] == before[0]


# Rights for what can't be made to happen here: a write that meets another's.
CONFLICTS = {("get", "inferenceengines"), ("get", "routingpolicies")}


def test_every_right_is_used_and_none_is_missing(installed: Cluster, gaps: list[tuple[str, str]]) -> None:
    """The API server's audit log of all of the above, and of a policy's end, against the roles."""
    for value in ("Retain", "Delete"):  # its owner must go, and comes back
        patch = [{"op": "add", "path": "/spec/frontends/1/publish", "value": {"onDelete": value}}]
        installed.kubectl("patch", "rpol/chat", "--namespace=inference", "--type=json", f"--patch={json.dumps(patch)}")
        owners = 0 if value == "Retain" else 1

        def owned(owners: int = owners) -> bool:
            table = installed.get("configmap", TABLE, "--namespace=inference")
            return len(table["metadata"].get("ownerReferences", ())) == owners

        await_true(owned, f"the table is owned by {owners}")
    installed.kubectl("delete", "rpol/chat", "--namespace=inference")
    heartbeat = ["lease", "headrace-heartbeat", "--namespace=inference"]
    await_true(lambda: installed.kubectl("get", *heartbeat, check=False).returncode != 0, "no table, no heartbeat")

    audit = subprocess.run(cluster_command(installed.name, "audit"), capture_output=True, text=True, check=True)
    for account, values in (("headrace-operator", VALUES), (EDGE, EDGE_VALUES)):
        asked = asked_by(audit.stdout.splitlines(), f"{NAMESPACE}:{account}")
        refused = [one for one in asked if not one.granted]
        assert [one for one in refused if not any(begin < one.at < end for begin, end in gaps)] == []
        used = {(one.verb, one.resource) for one in asked}
        # A server-side apply that makes an object is allowed to by `create`.
        used |= {("create", one.resource) for one in asked if one.verb == "patch" and one.code == 201}
        release = "headrace" if account == "headrace-operator" else "edge"
        rights = granted(release_objects(release, values), account)
        assert rights
        assert used <= rights
        assert rights - used - CONFLICTS == set()


def release_objects(release: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    options = [f"--set-json={key}={json.dumps(value)}" for key, value in values.items()]
    command = ["template", release, str(CHART), f"--namespace={NAMESPACE}", "--set=crds.install=false", *options]
    return list(by_name(helm(*command).stdout).values())

"""A real Argo CD over a real API server with the operator on it: waves, health, self-heal, prune, history."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.argocd import ArgoCd, argocd_programs, running_argocd
from support.checkout import ROOT
from support.cluster import Cluster, await_true, cluster_command
from support.cluster_operator import headrace, leading_operator
from support.gitops_statuses import CASES

pytestmark = [pytest.mark.long, pytest.mark.timeout(2700)]

APP = "inference-routing"
POLICY = ("rpol", "classic", "--namespace=inference")


class Repository:
    """A fleet's Git repository: our types and the classic sample, as a person would keep them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.routing = folder / "routing"
        self.routing.mkdir(parents=True)
        for path in (*(ROOT / "crds").glob("*.yaml"), *(ROOT / "manifests" / "samples" / "classic").iterdir()):
            shutil.copy(path, self.routing)
        example = yaml.safe_load(
            (ROOT / "manifests" / "gitops" / "argocd" / "operator" / "kustomization.yaml").read_text()
        )
        self.files = sorted(path.name for path in self.routing.iterdir())
        self.patches = example["patches"]
        self.git("init", "--quiet", "--initial-branch=main")
        self.commit("the fleet")

    def git(self, *words: str) -> str:
        identity = ("-c", "user.name=Fleet", "-c", "user.email=fleet@example.com")
        done = subprocess.run(("git", *identity, *words), cwd=self.folder, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, message: str) -> str:
        """Commit all that stands; returns the revision as people write it."""
        kustomization = {"resources": self.files, "patches": self.patches}
        (self.routing / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)
        return self.git("rev-parse", "HEAD")[:7]

    def edit(self, name: str, old: str, new: str) -> str:
        path = self.routing / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        return self.commit(f"{old} becomes {new}")


def application(repository: Repository) -> dict[str, Any]:
    """The example's own Application, on this repository."""
    text = (ROOT / "manifests" / "gitops" / "argocd" / "applications.yaml").read_text()
    (found,) = (each for each in yaml.safe_load_all(text) if each["metadata"]["name"] == APP)
    found["spec"]["source"]["repoURL"] = f"file://{repository.folder}"
    return dict(found)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster("argocd")
    made.up()
    try:
        yield made
    finally:
        made.down()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("git") / "fleet")


@pytest.fixture(scope="module")
def argo(cluster: Cluster, repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArgoCd]:
    """Argo CD with the Application in it: it brings the types, and the operator comes after them."""
    folder = tmp_path_factory.mktemp("argocd")
    with running_argocd(cluster, folder) as argo:
        argo.apply(application(repository))
        # Types and resources in one sync: the wave and the dry run that is left out let it succeed at once. Without an
        # operator nobody has judged the policy.
        found = argo.await_health(APP, health="Progressing")
        assert found["RoutingPolicy", "classic"]["message"] == "the operator has not judged it yet"
        with leading_operator(cluster, folder / "operator.log"):
            yield argo


def history(cluster: Cluster) -> list[str]:
    return list(cluster.get(*POLICY).get("status", {}).get("history", []))


def newest(cluster: Cluster, told: str) -> bool:
    lines = history(cluster)
    return bool(lines) and told in lines[0]


def edit(cluster: Cluster, change: str) -> None:
    words = ("env", f"KUBE_EDITOR=sed -i {change}", "kubectl", "edit", *POLICY)
    subprocess.run(cluster_command(cluster.name, "exec", *words), check=True, capture_output=True, timeout=60)


def test_argo_cds_own_lua_says_what_our_tests_of_it_say(tmp_path: Path) -> None:
    """tests/golden runs the scripts by another Lua with libraries taken away; this is the one that counts."""
    program = argocd_programs() / "argocd"
    settings = ROOT / "manifests" / "gitops" / "argocd" / "argocd-cm.yaml"
    said = {}
    for case, (kind, obj, _) in CASES.items():
        path = tmp_path / f"{case}.yaml"
        metadata = {"name": "x", **obj["metadata"]}
        path.write_text(
            yaml.safe_dump({**obj, "apiVersion": "headrace.dev/v1alpha1", "kind": kind, "metadata": metadata})
        )
        words = ("admin", "settings", "resource-overrides", "health", str(path), "--argocd-cm-path", str(settings))
        told = subprocess.run((program, *words), check=True, capture_output=True, text=True, timeout=60).stdout
        status, message = told.splitlines()[:2]
        said[case] = (status.removeprefix("STATUS: "), message.removeprefix("MESSAGE: "))
    assert said == {case: told for case, (_, _, told) in CASES.items()}


def test_what_is_in_git_is_healthy_by_our_lua(argo: ArgoCd) -> None:
    found = argo.await_health(APP, health="Healthy")
    assert found["RoutingPolicy", "classic"] == {"status": "Healthy", "message": "3 tables in force"}
    assert found["InferenceEngine", "a"]["status"] == "Healthy"


def test_a_commit_is_attributed_with_its_revision(argo: ArgoCd, repository: Repository) -> None:
    revision = repository.edit("policy.yaml", "latency: 60ms", "latency: 5ms")
    argo.refresh(APP)
    told = f"network 100 % (classic by Argo CD at {revision})"
    await_true(lambda: newest(argo.cluster, told), told)
    repository.edit("policy.yaml", "latency: 5ms", "latency: 60ms")
    argo.refresh(APP)
    await_true(lambda: newest(argo.cluster, "c 8.3 % -> 17 %"), "the weights of before")
    argo.await_health(APP, health="Healthy")


def test_self_heal_takes_back_an_edit_and_both_are_attributed(argo: ArgoCd) -> None:
    before = history(argo.cluster)
    edit(argo.cluster, "s/60ms/5ms/")

    def told() -> list[str]:
        return [line for line in history(argo.cluster) if line not in before]

    await_true(lambda: len(told()) == 2, "an edit and its end in history")
    healed, edited = told()
    assert "(classic by kubectl edit)" in edited
    assert "(classic by Argo CD at " in healed
    argo.await_health(APP, health="Healthy")


def test_self_heal_leaves_break_glass_alone(argo: ArgoCd, repository: Repository) -> None:
    """Two rounds of Argo CD's, one of them with a sync, take neither annotation away, nor does it show a difference."""
    cluster = argo.cluster
    headrace(cluster, "freeze", "classic", "-n", "inference", "--until", "30m", "--why", "load test")

    def shown() -> bool:
        told = argo.await_health(APP, health="Healthy")["RoutingPolicy", "classic"]["message"]
        return bool(told.startswith("frozen until"))

    await_true(shown, "the freeze, in Argo CD")
    headrace(cluster, "drain", "c", "-n", "inference", "--until", "30m", "--why", "new driver")
    revision = repository.edit("policy.yaml", "latency: 80ms", "latency: 81ms")
    argo.refresh(APP)

    def synced() -> bool:
        return str(argo.status(APP)["sync"].get("revision", ""))[:7] == revision

    await_true(synced, "the commit synced")
    found = argo.await_health(APP, health="Healthy")
    assert found["InferenceEngine", "c"]["message"].startswith("c is drained until")
    for kind, name, annotation in (("rpol", "classic", "freeze-until"), ("ieng", "c", "drain-until")):
        metadata = cluster.get(kind, name, "--namespace=inference")["metadata"]
        assert f"headrace.dev/{annotation}" in metadata["annotations"]
    headrace(cluster, "resume", "c", "-n", "inference")
    headrace(cluster, "resume", "classic", "-n", "inference")
    await_true(lambda: any("weights follow" in line for line in history(cluster)), "the end of the freeze")


def test_shedding_is_healthy_and_a_conflict_degraded_until_it_is_pruned(argo: ArgoCd, repository: Repository) -> None:
    repository.edit("policy.yaml", "requestsPerSecond: 120", "requestsPerSecond: 400")
    argo.refresh(APP)
    shed = ("--output=jsonpath={.status.conditions[?(@.type=='CapacitySufficient')].status}",)
    await_true(lambda: argo.cluster.kubectl("get", *POLICY, *shed).stdout == "False", "not enough capacity")
    await_true(
        lambda: "are refused" in argo.await_health(APP, health="Healthy")["RoutingPolicy", "classic"]["message"],
        "shedding told as Healthy",
    )
    other = yaml.safe_load((repository.routing / "policy.yaml").read_text())
    other["metadata"]["name"] = "other"
    (repository.routing / "other.yaml").write_text(yaml.safe_dump(other))
    repository.files.append("other.yaml")
    repository.commit("a second policy for the same front-ends")
    argo.refresh(APP)
    found = argo.await_health(APP, health="Degraded")
    assert "is older and rules" in found["RoutingPolicy", "other"]["message"]
    assert found["RoutingPolicy", "classic"]["status"] == "Healthy"
    (repository.routing / "other.yaml").unlink()
    repository.files.remove("other.yaml")
    repository.commit("without it")
    argo.refresh(APP)
    found = argo.await_health(APP, health="Healthy")
    assert ("RoutingPolicy", "other") not in found
    assert argo.cluster.get("rpol", "--namespace=inference")["items"][0]["metadata"]["name"] == "classic"


def test_no_prune_takes_the_types(argo: ArgoCd, repository: Repository) -> None:
    """A types' file that falls out of Git must not take every policy of the cluster with it."""
    kept = [name for name in repository.files if "headrace.dev" in name]
    assert len(kept) == 2
    repository.files = [name for name in repository.files if name not in kept]
    repository.commit("without the types")
    argo.refresh(APP)
    await_true(lambda: argo.status(APP)["sync"]["status"] == "OutOfSync", "the types are told as left over")
    argo.refresh(APP)
    await_true(lambda: argo.status(APP).get("operationState", {}).get("phase") == "Succeeded", "a sync without them")
    assert argo.cluster.get("rpol", "classic", "--namespace=inference")["metadata"]["name"] == "classic"
    repository.files += kept
    repository.commit("and with them again")
    argo.refresh(APP)
    argo.await_health(APP, health="Healthy")

"""What the operator writes, on a real API server: conflicts, owners, Events, sizes, and a second cluster of its own.

Each scenario runs in the cluster's network (support/live_publisher.py) and asserts there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.checkout import ROOT
from support.cluster import Cluster, await_true, cluster_command
from support.largest import LARGEST
from support.live_here import NAMESPACES

pytestmark = pytest.mark.timeout(2700)  # with nothing cached all of Kubernetes is compiled
CRDS = sorted((ROOT / "crds").glob("*.yaml"))
SECONDS = 300


class Beside(Cluster):
    """A second cluster, with its own certificate authority, that the first one's network reaches."""

    def __init__(self, name: str, other: Cluster) -> None:
        super().__init__(name)
        self.other = other

    def up(self) -> None:
        self._run("up", "--owner", str(self.owner), "--beside", self.other.name, seconds=2400)


@pytest.fixture(scope="module")
def near(bare: Cluster) -> Iterator[Cluster]:
    """The cluster with our types; what scenarios make is removed with their namespaces."""
    for crd in CRDS:
        bare.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={crd}")
    bare.established()
    yield bare
    bare.kubectl("delete", "namespace", *NAMESPACES, "--ignore-not-found", "--timeout=120s")


@pytest.fixture(scope="module")
def far(near: Cluster) -> Iterator[Beside]:
    if near.how == "given":
        pytest.skip("one cluster is given, and none can be made beside it")
    made = Beside("publisher-far", near)
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture(scope="module")
def far_kubeconfig(far: Beside, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("far") / "kubeconfig"
    path.write_text(far._run("kubeconfig").stdout)
    return path


def started(near: Cluster, scenario: str, *arguments: str, far: Path | None = None) -> subprocess.Popen[str]:
    """A scenario in the cluster's network."""
    command = [sys.executable, "-m", "support.live_publisher", scenario, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "FAR": str(far or "")}
    return subprocess.Popen(
        cluster_command(near.name, "exec", *command),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def measured(process: subprocess.Popen[str]) -> Any:
    """What a scenario that ended well measured."""
    said, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    return json.loads(said)


@pytest.mark.parametrize(
    "scenario", ["facts", "idempotent", "fencing", "ownership", "events", "heartbeats", "statuses"]
)
def test_one_cluster(near: Cluster, scenario: str) -> None:
    """Cases REL-05 (owners, deleted by hand), STS-01 (nothing written twice).

    https://github.com/kubernetes/website/issues/29480
    https://github.com/strimzi/strimzi-kafka-operator/issues/13079
    """
    measured(started(near, scenario))


def test_the_largest_statuses_are_taken_whole(near: Cluster) -> None:
    """Case STS-04: an API server drops what its schema lacks and still answers 200.

    https://github.com/nolar/kopf/pull/527
    """
    texts = [msgspec.json.encode(LARGEST[kind]).decode() for kind in ("policy", "engine")]
    shown = measured(started(near, "largest", *texts))
    assert shown["bytes"] < 32 * 1024


@pytest.mark.long
def test_many_policies_at_once(near: Cluster) -> None:
    assert measured(started(near, "many", "60"))["tables"] == 120


@pytest.mark.long
def test_another_cluster(near: Cluster, far_kubeconfig: Path) -> None:
    measured(started(near, "elsewhere", far=far_kubeconfig))


@pytest.mark.long
def test_another_cluster_that_hangs_delays_nobody(
    near: Cluster, far: Beside, far_kubeconfig: Path, tmp_path: Path
) -> None:
    """Its API server takes connections and answers nothing; writes here go on, and it catches up."""
    flag = tmp_path / "flag"
    process = started(near, "far_silent", str(flag), far=far_kubeconfig)
    for step in ("pause", "resume"):
        await_true(lambda: flag.exists() or process.poll() is not None, f"asked to {step}", SECONDS)
        if process.poll() is None:
            far._run("api", step)
            flag.unlink()
    shown = measured(process)
    # A call there takes 10 s to fail; whoever waited for it would show that.
    assert shown["while it hangs ms"]["max"] < 5000

"""Scenarios of live_publisher.py with another cluster, to which tables go: swept, distrusted, hung."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from headrace_api.policy import RoutingPolicy
from headrace_operator.kube.client import KubeClient, KubeFault
from headrace_operator.kube.remote import read_access, remote_client
from headrace_operator.publisher.cluster import ClusterPublisher
from headrace_operator.publisher.cluster.objects import seen_of
from headrace_operator.publisher.places import Place, TableKey
from support.engine_manifests import STATUS
from support.live_here import CONFIGMAPS, GROUP, NAMESPACE, OPS, SECONDS, Here, Json, await_that, missing, stamp, table
from support.tables import key, places_of


@contextlib.contextmanager
def far_file(change: Callable[[Json], None] = lambda _: None) -> Iterator[Path]:
    """A kubeconfig file of the other cluster, as an administrator would mount it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kubeconfig"
        config = yaml.safe_load(Path(os.environ["FAR"]).read_text())
        change(config)
        path.write_text(yaml.safe_dump(config))
        yield path


def far_api(path: Path) -> KubeClient:
    api = remote_client("far", read_access(path), lambda: True)
    with contextlib.suppress(KubeFault):
        api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    return api


def settle(here: Here, made: ClusterPublisher, places: dict[TableKey, Place], rounds: int = 4) -> None:
    for _ in range(rounds):
        here.now += 60
        made.tables.barred(places)
        made.publish([], places)
        for remote in made._clusters.tables.remotes.values():
            remote.wait(SECONDS)


def elsewhere() -> Json:
    """A table in a second cluster with an authority of its own: unowned, in the inventory, swept when orphaned."""
    here = Here()
    policy = here.policy()
    places = places_of(policy)
    b = key(frontend="fe-b")
    places[b] = places[b]._replace(cluster="far")
    with far_file() as path:
        far = far_api(path)
        here.publisher(clusters={"far": path})  # learns the term that stands
        made = here.publisher(clusters={"far": path})
        settle(here, made, places)
        tables = [table(policy, 4, frontend=name, term=here.term) for name in ("fe-a", "fe-b")]
        assert len(made.publish(tables, places)) == 2
        settle(here, made, places)
        found = far.get(f"{CONFIGMAPS}/headrace-chat-fe-b")
        assert "ownerReferences" not in found["metadata"]
        assert seen_of(found).table == tables[1]
        made.beat(here.now, stamp(0))
        for remote in made._clusters.tables.remotes.values():
            remote.wait(SECONDS)
        assert not missing(far, f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/headrace-heartbeat")
        foreign = {
            **found,
            "metadata": {"name": "theirs", "labels": {**found["metadata"]["labels"], "headrace.dev/policy-uid": "x"}},
        }
        with contextlib.suppress(KubeFault):
            far.create(CONFIGMAPS, foreign)
        made.close()
        here.api.delete(f"{GROUP}/routingpolicies/chat")
        here.term += 1
        second = here.publisher(clusters={"far": path})
        second.tables.barred({})
        stands = [one for one in second.tables.tables() if one.frontend == "fe-b" and one.policy == "chat"]
        assert [one.identity.term for one in stands] == [here.term], "the new term is stamped there too"
        for _ in range(2):
            second.remove_orphans([b], certain=True)
        settle(here, second, {})
        assert missing(far, f"{CONFIGMAPS}/headrace-chat-fe-b")
        assert not missing(far, f"{CONFIGMAPS}/theirs")
        far.delete(f"{CONFIGMAPS}/theirs")
        inventory = here.api.get(f"/api/v1/namespaces/{OPS}/configmaps/headrace-inventory-far")
        assert inventory["data"]["tables.json"] == "{}"
        second.close()
    wrong = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())["clusters"][0]["cluster"][
        "certificate-authority-data"
    ]
    with far_file(
        lambda config: config["clusters"][0]["cluster"].update({"certificate-authority-data": wrong})
    ) as path:
        here.term += 1
        distrusting = here.publisher(clusters={"far": path})
        assert distrusting.tables.barred(places) == {b}
        assert "TLS" in distrusting.tables.refusals[b].message, distrusting.tables.refusals
        distrusting.close()
    return {}


def far_silent(flag: str) -> Json:
    """While another cluster hangs (the test pauses its API server), publishing here takes its usual time.

    flag: a file; this makes it when the other is to be paused, and waits until the test took it away, twice.
    """
    here = Here()
    policy = here.policy()
    places = places_of(policy)
    b = key(frontend="fe-b")
    places[b] = places[b]._replace(cluster="far")
    with far_file() as path:
        far = far_api(path)
        made = here.publisher(clusters={"far": path})
        settle(here, made, places)
        made.publish([table(policy, 1, frontend=name, term=here.term) for name in ("fe-a", "fe-b")], places)
        settle(here, made, places)
        usual = [publish_once(made, policy, places, revision, here.term) for revision in range(2, 12)]
        asked(flag)
        made.publish([table(policy, 20, 5_000, frontend="fe-b", term=here.term)], places)
        begin, slow = time.monotonic(), []
        revision = 21
        while made.tables.barred(places) != {b}:
            assert time.monotonic() - begin < SECONDS
            slow.append(publish_once(made, policy, places, revision, here.term))
            revision += 1
        for _ in range(10):
            slow.append(publish_once(made, policy, places, revision, here.term))
            revision += 1
        assert made.tables.refusals[b].reason == "ClusterUnreachable"
        made.policy_statuses["inf/chat"] = STATUS
        made.show_policies([policy], {}, stamp(0))
        made.flush(0.0)
        found = here.api.get(f"{GROUP}/routingpolicies/chat")["status"]["conditions"]
        assert [one["reason"] for one in found if one["type"] == "Published"] == ["ClusterUnreachable"]
        asked(flag)

        def back() -> bool:
            settle(here, made, places, 1)
            return made.tables.barred(places) == frozenset()

        seconds = await_that(back, "the other cluster is back")
        assert made.publish([table(policy, 90, 2_500, frontend="fe-b", term=here.term)], places)
        settle(here, made, places)
        standing = seen_of(far.get(f"{CONFIGMAPS}/headrace-chat-fe-b")).table
        assert standing is not None
        assert standing.identity.revision == 90
        far.delete(f"{CONFIGMAPS}/headrace-chat-fe-b")
        made.close()
    return {"usual ms": ms(usual), "while it hangs ms": ms(slow), "back after s": round(seconds, 1)}


def publish_once(
    made: ClusterPublisher, policy: RoutingPolicy, places: dict[TableKey, Place], revision: int, term: int
) -> float:
    begin = time.monotonic()
    made.tables.barred(places)
    assert made.publish([table(policy, revision, revision, term=term)], places)
    return time.monotonic() - begin


def ms(seconds: list[float]) -> Json:
    return {"median": round(sorted(seconds)[len(seconds) // 2] * 1000), "max": round(max(seconds) * 1000)}


def asked(flag: str) -> None:
    Path(flag).touch()
    await_that(lambda: not Path(flag).exists(), "the test did what was asked")

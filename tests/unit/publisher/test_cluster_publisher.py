"""A publisher in a cluster as a whole: takeovers, other clusters, and what it costs when nothing changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from headrace_api.base import Metadata
from headrace_api.names import LABEL_POLICY_UID
from headrace_api.policy import RoutingPolicy
from headrace_api.status import PolicySummary
from headrace_api.table import Identity
from headrace_operator.decision.memory import Memory
from headrace_operator.kube.client import KubeClient, NotLeading
from headrace_operator.kube.remote import Access
from headrace_operator.publisher.cluster import (
    ClusterPublisher,
    TermBehind,
    access,
    cluster_publisher,
    clusters,
    remote,
)
from headrace_operator.publisher.cluster.claims import Claims
from headrace_operator.publisher.cluster.clusters import Term
from headrace_operator.publisher.cluster.objects import Spot, table_manifest
from headrace_operator.publisher.cluster.target import CHECK_SECONDS
from headrace_operator.publisher.notes import EventNote
from headrace_operator.publisher.places import Place, TableKey
from headrace_operator.publisher.records import Record, recorded_revisions
from headrace_operator.snapshot.model import Snapshot
from support.cluster import await_true
from support.engine_manifests import AT, STATUS, engine, state_of
from support.fake_kube import Call, FakeKube, Refuse
from support.tables import key, places_of, policy_of, table_of

SOON = 20
KUBECONFIG = """
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://far:6443"}}]
users: [{name: u, user: {token: t}}]
"""


class World:
    """An API server here, one elsewhere, and publishers of one term after the other."""

    def __init__(self, here: FakeKube, there: FakeKube, folder: Path) -> None:
        self.here, self.there, self.folder = here, there, folder
        self.now = 0.0
        self.leading = True
        self.made: list[ClusterPublisher] = []
        self.file = folder / "far"
        self.file.write_text(KUBECONFIG)

    def publisher(self, term: int = 1, **more: Any) -> ClusterPublisher:
        clusters = more.pop("clusters", {"far": self.file})
        client = self.here.client(may_write=lambda: self.leading)
        found = cluster_publisher(
            client, term, namespace="ops", holder="pod", clusters=clusters, steady=lambda: self.now, **more
        )
        self.made.append(found)
        return found

    def idle(self, made: ClusterPublisher) -> None:
        """Wait until nothing is done elsewhere."""
        for one in made._clusters.tables.remotes.values():
            one.wait(SOON)
            assert one.idle()


@pytest.fixture
def world(kube: FakeKube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    there = FakeKube()
    made = World(kube, there, tmp_path)

    def client(name: str, _: Access, may_write: Callable[[], bool]) -> KubeClient:
        return there.client(name, may_write, timeout=0.3)

    monkeypatch.setattr(access, "remote_client", client)
    monkeypatch.setattr(remote, "PATIENCE_SECONDS", 0.1)
    try:
        yield made
    finally:
        there.hang.clear()
        for one in made.made:
            one.close()
        there.close()


def far(policy: RoutingPolicy) -> dict[TableKey, Place]:
    """Front-end fe-a here, fe-b in the cluster ``far``."""
    found = places_of(policy)
    b = TableKey(f"inf/{policy.metadata.name}", "fe-b")
    return found | {b: found[b]._replace(cluster="far")}


POLICY = policy_of()
FAR = far(POLICY)
CHAT = {"metadata": {"name": "chat", "namespace": "inf", "uid": "uid-chat"}}
B = key(frontend="fe-b")
TABLES = [table_of(), table_of(frontend="fe-b")]


class Stood(NamedTuple):
    name: str
    metadata_uid: str


def stood(world: World) -> list[Stood]:
    """Tables in the other cluster, and whose they are."""
    found = [world.there.get("configmaps", name) for name in world.there.names("configmaps")]
    return [Stood(one["metadata"]["name"], one["metadata"]["labels"][LABEL_POLICY_UID]) for one in found]


def reads_and_writes(world: World) -> tuple[int, int]:
    calls = [*world.here.calls, *world.there.calls]
    return sum(call.method == "GET" for call in calls), sum(call.method != "GET" for call in calls)


# Terms


def test_a_takeover_stamps_its_term_and_goes_on(world: World) -> None:
    first = world.publisher()
    first.stamp_term({})
    first.publish([table_of(7), table_of(7, frontend="fe-b")], FAR)
    first.policy_statuses["inf/chat"] = msgspec.structs.replace(STATUS, summary=PolicySummary(revision=7))
    first.show_policies([POLICY], {}, AT)
    world.here.put("routingpolicies", CHAT)
    assert first.flush(0.0) == 1
    world.idle(first)
    second = world.publisher(term=2)
    assert (second.revision, second.policy_statuses) == (7, first.policy_statuses)
    assert second.stamp_term({}) == 1  # the other cluster's was stamped as it was read
    assert [table.identity for table in second.tables.tables()] == [
        Identity(uid="uid-chat", term=2, revision=7),
        Identity(uid="uid-chat", term=2, revision=7),
    ]
    assert second.stamp_term({}) == 0


def test_a_paused_leader_writes_nothing_any_more(world: World) -> None:
    world.here.put("routingpolicies", CHAT)
    made = world.publisher()
    made.publish(TABLES, FAR)
    world.idle(made)
    world.leading = False
    world.here.calls.clear()
    world.there.calls.clear()
    with pytest.raises(NotLeading):
        made.publish([table_of(2)], FAR)
    made.policy_statuses["inf/chat"] = STATUS
    made.show_policies([POLICY], {}, AT)
    with pytest.raises(NotLeading):
        made.flush(0.0)
    with pytest.raises(NotLeading):
        made.beat(0.0, AT)
    made.publish([table_of(2, frontend="fe-b")], FAR)
    made.tell([EventNote("RoutingPolicy", "inf/chat", "Normal", "WeightsChanged", "x")], {}, AT)
    made.close()
    assert reads_and_writes(world)[1] == 0


@pytest.mark.parametrize("term", [1, 2, 3])
def test_a_term_that_is_no_newer_is_refused(world: World, term: int) -> None:
    """The Lease was deleted or restored: routers would take nothing of it, and no late write could be told apart."""
    made = world.publisher(term=3)
    made.publish([table_of(term=3)], FAR)
    with pytest.raises(TermBehind) as behind:
        world.publisher(term=term)
    assert behind.value.standing == 3
    assert world.publisher(term=4).revision == 1


def test_who_still_holds_the_lease(world: World) -> None:
    """Asked when a table claims a newer term: the leader's own count, or another's, or no answer."""
    lease = {"metadata": {"name": "headrace-operator", "namespace": "ops"}, "spec": {"leaseTransitions": 3}}
    claims = Claims(world.here.client(), "ops", steady=lambda: 0.0, wall=lambda: AT)
    third = Term(world.here.client(), 3, "ops", "pod", (), lambda: 0.0, claims)
    assert not third.leads()
    world.here.put("leases", lease)
    assert third.leads()
    assert not replace(third, number=2).leads()


def test_after_a_kill_the_status_says_what_stands(world: World) -> None:
    world.publisher().publish(TABLES, FAR)
    found = world.publisher(term=2).policy_statuses["inf/chat"]
    assert (found.summary.revision, len(found.weights)) == (1, 2)
    assert "ended while publishing" in found.history[0]


def test_records_are_kept_where_state_is_given(world: World) -> None:
    record = Record(revision=3, term=1, uid="", at=AT, snapshot=Snapshot(at=0.0), memory=Memory())
    world.publisher().record(record, 4, Memory())
    state = world.folder / "state"
    kept = world.publisher(term=2, state=state)
    kept.record(record, 4, Memory())
    kept.remember(Memory())
    assert recorded_revisions(state) == (3,)


# Other clusters


def test_a_table_goes_to_another_cluster_unowned(world: World) -> None:
    """Case REL-05: across clusters an ownerReference would have the table collected.

    https://github.com/kubernetes/website/issues/29480
    """
    made = world.publisher()
    assert made.tables.barred(FAR) == frozenset()
    assert len(made.publish(TABLES, FAR)) == 2
    metadata = world.there.get("configmaps", "inf/headrace-chat-fe-b")["metadata"]
    assert not metadata.get("ownerReferences")
    assert world.here.names("configmaps") == ["inf/headrace-chat-fe-a", "ops/headrace-inventory-far"]
    inventory = world.here.get("configmaps", "ops/headrace-inventory-far")["data"]["tables.json"]
    assert inventory == '{"inf/headrace-chat-fe-b":"uid-chat"}'


def test_a_hung_cluster_delays_nobody(world: World) -> None:
    made = world.publisher()
    made.publish(TABLES, FAR)
    world.idle(made)
    with world.there.hanging():
        assert len(made.publish([table_of(2, frontend="fe-b")], FAR)) == 1  # on its way, as far as is known
        assert made.publish([table_of(2)], FAR) == (table_of(2),)
        await_true(lambda: made.tables.barred(FAR) == {B}, "the hung cluster is known", SOON)
        refusal = made.tables.refusals[B]
        assert refusal.reason == "ClusterUnreachable"
        assert "cluster far does not answer" in refusal.message
        assert {table.frontend: table.identity.revision for table in made.tables.tables()} == {"fe-a": 2, "fe-b": 1}
        before = made.tables.refusals[B]
        for _ in range(3):
            world.now += 60
            made.tables.barred(FAR)
            world.idle(made)
        assert made.tables.refusals[B] == before  # quiet: the word stays while it is down
    world.there.refuse = silent
    world.now += 60
    made.tables.barred(FAR)
    world.idle(made)
    assert made.tables.barred(FAR) == {B}
    assert made.tables.refusals[B] == before  # also when it is down in another way
    world.there.refuse = lambda _: None
    world.now += 60
    made.tables.barred(FAR)
    world.idle(made)
    assert made.tables.barred(FAR) == frozenset()
    assert made.tables.refusals == {}
    assert made.publish([table_of(3, frontend="fe-b")], FAR) == (table_of(3, frontend="fe-b"),)


def test_a_cluster_that_is_down_at_the_start_is_waited_for_by_nobody_else(world: World) -> None:
    world.there.refuse = silent
    made = world.publisher()
    assert made.tables.barred(FAR) == {B}
    assert made.publish(TABLES, FAR) == (table_of(),)
    made.policy_statuses["inf/chat"] = STATUS
    world.here.put("routingpolicies", CHAT)
    made.show_policies([POLICY], {}, AT)
    made.flush(0.0)
    conditions = world.here.get("routingpolicies", "inf/chat")["status"]["conditions"]
    found = {one["type"]: (one["status"], one["reason"]) for one in conditions}
    assert found["Published"] == found["Ready"] == ("False", "ClusterUnreachable")
    world.there.refuse = lambda _: None
    world.now += 60
    made.tables.barred(FAR)
    world.idle(made)
    assert made.tables.barred(FAR) == frozenset()


def silent(_: Call) -> None:
    raise Refuse(503, "ServiceUnavailable", "no server")


def test_an_unknown_cluster_is_named_with_the_known(world: World) -> None:
    made = world.publisher()
    places = {key(): FAR[key()]._replace(cluster="nowhere")}
    assert made.tables.barred(places) == {key()}
    assert made.tables.refusals[key()].message == (
        "publish.cluster: 'nowhere' is not in the operator's configuration; right would be local, far"
    )
    assert made.publish([table_of()], places) == ()
    made.tables.barred({key(): places[key()]._replace(publishes=False)})
    assert made.tables.refusals == {}


def test_a_configuration_that_changes(world: World) -> None:
    made = world.publisher(clusters={})
    assert made.tables.barred(FAR) == {B}
    made.retarget({"far": world.file})
    made.tables.barred(FAR)
    world.idle(made)
    assert made.tables.barred(FAR) == frozenset()
    assert len(made.publish(TABLES, FAR)) == 2
    world.idle(made)
    made.retarget({})
    assert made.tables.barred(FAR) == {B}
    assert made.tables.refusals[B].reason == "ClusterUnknown"


def test_a_heartbeat_outlives_a_cluster_that_is_taken_out_of_the_configuration(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes round in a thread beside the one that takes up configurations, and may hold what was just closed."""
    made = world.publisher()
    made.tables.barred(FAR)
    world.idle(made)
    made.publish(TABLES, FAR)
    world.idle(made)
    made._clusters.tables.remotes["far"].close(0.0)
    made.beat(0.0, AT)
    assert world.here.names("leases") == ["inf/headrace-heartbeat"]
    assert made._clusters.tables.remotes["far"].publish(TABLES, FAR) == ()
    assert "Traceback" not in caplog.text


def test_hung_clusters_are_waited_for_together_at_the_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Lease is given back after that, and a pod has thirty seconds to end."""
    made = world.publisher(clusters={})
    waited: list[float] = []

    class Hung:
        def close(self, seconds: float) -> None:
            waited.append(seconds)

    monkeypatch.setattr(clusters.time, "monotonic", lambda: 1000.0 + sum(waited))
    made._clusters.tables.remotes = {name: Hung() for name in "abc"}  # type: ignore[misc]
    made._clusters.close(5.0)
    assert waited == [5.0, 0.0, 0.0]
    made._clusters.tables.remotes = {}


def test_a_kubeconfig_that_cannot_be_taken_is_told(world: World) -> None:
    world.file.write_text(KUBECONFIG.replace("token: t", "exec: {command: sh}"))
    made = world.publisher()
    assert made.tables.barred(FAR) == {B}
    assert "user.exec: not taken here" in made.tables.refusals[B].message
    world.file.write_text(KUBECONFIG)
    world.now += 60
    made.tables.barred(FAR)
    world.idle(made)
    assert made.tables.barred(FAR) == frozenset()


def test_a_table_moves_between_clusters(world: World) -> None:
    made = world.publisher()
    made.publish(TABLES, FAR)
    world.idle(made)
    moved = FAR | {key(): FAR[key()]._replace(cluster="far"), B: FAR[B]._replace(cluster="local")}
    for _ in range(3):
        made.tables.barred(moved)
        made.publish([], moved)
        world.idle(made)
    made.tables.barred(moved)
    assert world.here.names("configmaps") == ["inf/headrace-chat-fe-b", "ops/headrace-inventory-far"]
    assert world.there.names("configmaps") == ["inf/headrace-chat-fe-a"]
    assert len(made.tables.tables()) == 2
    assert made.tables.refusals == {}


def test_orphans_elsewhere_are_swept_at_the_start(world: World) -> None:
    """A policy that was deleted while the operator was down: its table in another cluster is found by the inventory."""
    first = world.publisher()
    first.publish(TABLES, FAR)
    world.idle(first)
    theirs = table_of(name="theirs", frontend="fe-b")
    world.there.put("configmaps", table_manifest(theirs, Place("theirs"), Spot("inf", "theirs"), owned=False))
    second = world.publisher(term=2)
    second.tables.barred({})
    assert [one.policy for one in second.tables.tables() if one.frontend == "fe-b"] == ["chat"]
    for _ in range(2):
        second.remove_orphans([key(), B], certain=True)
    world.idle(second)
    second.tables.barred({})
    assert world.there.names("configmaps") == ["inf/theirs"]  # another installation's, and left alone
    assert world.here.names("configmaps") == ["ops/headrace-inventory-far"]
    assert world.here.get("configmaps", "ops/headrace-inventory-far")["data"]["tables.json"] == "{}"


def test_nothing_is_written_elsewhere_that_the_inventory_lacks(world: World) -> None:
    made = world.publisher()
    made.tables.barred(FAR)

    def refuse(call: Call) -> None:
        if "inventory" in call.name:
            raise Refuse(403, "Forbidden", "no")

    world.here.refuse = refuse
    assert made.publish(TABLES, FAR) == (table_of(),)
    world.idle(made)
    assert world.there.names("configmaps") == []
    assert made.tables.refusals[B].reason == "Forbidden"


@pytest.mark.parametrize("spec", [{}, {"configMap": "other"}], ids=["made anew", "made anew, under another name"])
def test_what_is_mended_elsewhere_is_in_the_inventory_too(world: World, spec: dict[str, str]) -> None:
    """Else a policy that is deleted while the operator is down leaves a table there that nobody sweeps."""
    first = world.publisher()
    first.tables.barred(FAR)
    world.idle(first)
    first.publish(TABLES, FAR)
    world.idle(first)
    anew = {one: place._replace(uid="uid-anew", name=spec.get("configMap", place.name)) for one, place in FAR.items()}
    for _ in range(3):
        first.tables.barred(anew)
        world.idle(first)
    assert [one.metadata_uid for one in stood(world)] == ["uid-anew"]
    second = world.publisher(term=2)
    second.remove_orphans([B], certain=True)
    second.remove_orphans([B], certain=True)
    world.idle(second)
    assert world.there.names("configmaps") == []


def test_a_policy_made_anew_keeps_its_place_elsewhere_over_a_kill(world: World) -> None:
    """The inventory is written first: a kill after it, or a cluster that is away then, leaves the old uid there."""
    first = world.publisher()
    first.tables.barred(FAR)
    world.idle(first)
    first.publish(TABLES, FAR)
    world.idle(first)
    spot = Spot("inf", "headrace-chat-fe-b")
    first._clusters.inventory.enter("far", {spot: "uid-anew"})
    anew = far(policy_of(uid="uid-anew"))
    second = world.publisher(term=2)
    world.idle(second)
    assert [one.frontend for one in second.tables.tables()] == ["fe-a", "fe-b"]
    second.tables.barred(anew)
    world.idle(second)
    second.publish([table_of(3, frontend="fe-b", uid="uid-anew", term=2)], anew)
    world.idle(second)
    assert second.tables.refusals == {}
    assert [one.metadata_uid for one in stood(world)] == ["uid-anew"]


def test_a_place_elsewhere_that_is_refused_costs_the_inventory_nothing(world: World) -> None:
    made = world.publisher()
    made.tables.barred(FAR)
    world.idle(made)
    world.there.missing.add("inf")
    for _ in range(4):
        made.tables.barred(FAR)
        made.publish(TABLES, FAR)
        world.idle(made)
        world.now += 60
    assert sum("inventory" in call.name for call in world.here.writes()) == 1


def test_a_newer_term_elsewhere_is_left_alone(world: World) -> None:
    first = world.publisher(term=5)
    first.publish([table_of(term=5, frontend="fe-b")], FAR)
    world.idle(first)
    world.there.refuse = silent
    second = world.publisher(term=2)
    world.there.refuse = lambda _: None
    assert second.tables.barred(FAR) == {B}
    for _ in range(2):
        world.now += 60
        second.tables.barred(FAR)
        world.idle(second)
    assert second.tables.barred(FAR) == frozenset()
    assert second.publish([table_of(9, term=2), table_of(9, term=2, frontend="fe-b")], FAR) == (table_of(9, term=2),)
    assert second.tables.barred(FAR) == {B}
    assert second.tables.refusals[B].reason == "NewerTerm"
    assert "restart the operator" in second.tables.refusals[B].message


# Cost


def test_a_quiet_world_is_not_written_to(world: World) -> None:
    """Case STS-01: nothing is written while nothing changes, and little is read; the heartbeats apart.

    https://github.com/strimzi/strimzi-kafka-operator/issues/13079
    """
    made = world.publisher()
    world.here.put("routingpolicies", CHAT)
    made.policy_statuses["inf/chat"] = STATUS

    def tick() -> None:
        made.tables.barred(FAR)
        made.publish([], FAR)
        made.remove_orphans([], certain=True)
        made.show_policies([POLICY], {}, AT)
        made.forget_others([POLICY])
        made.tell([], {}, AT)
        made.flush(world.now)

    made.publish(TABLES, FAR)
    for _ in range(4):
        tick()
        world.now += 5
        world.idle(made)
    world.here.calls.clear()
    world.there.calls.clear()
    for _ in range(60):
        tick()
        world.now += 5
        world.idle(made)
    reads, writes = reads_and_writes(world)
    assert writes == 0
    assert reads <= 2 * 60 * 5 / CHECK_SECONDS + 2


def test_many_policies_at_once(world: World) -> None:
    policies = [policy_of(f"p{number}") for number in range(100)]
    places: Mapping[TableKey, Place] = places_of(*policies)
    made = world.publisher(clusters={})
    threads: set[int] = set()
    world.here.refuse = lambda _: threads.add(threading.get_ident())
    tables = [table_of(name=one.metadata.name, frontend=fe) for one in policies for fe in ("fe-a", "fe-b")]
    assert len(made.publish(tables, places)) == 200
    assert len([call for call in world.here.calls if call.method == "POST"]) == 200
    assert len(threads) <= 8


# Statuses of resources that never were in force


def test_a_resource_that_never_was_right_is_told(world: World) -> None:
    """Case STS-02: the new generation with Ready=False, never silence. https://github.com/argoproj/argo-cd/issues/23578"""
    made = world.publisher()
    odd = {"routingpolicies": "inf/odd", "inferenceengines": "inf/strange"}
    for plural, name in odd.items():
        world.here.put(plural, {"metadata": {"name": name.removeprefix("inf/"), "namespace": "inf", "uid": name}})
    refused = {("RoutingPolicy", "inf/odd"): "spec.x: bad", ("InferenceEngine", "inf/strange"): "spec.y: worse"}
    rejected = {
        name: Metadata(name=name[1].removeprefix("inf/"), namespace="inf", uid=name[1], generation=3)
        for name in refused
    }
    for _ in range(2):
        made.show_policies([], refused, AT, rejected)
        made.show_engines([engine("a")], {"inf/a": state_of()}, {}, refused, AT, rejected)
        made.forget_others([engine("a")], rejected)
        made.tell([], refused, AT)
        made.flush(world.now)
        world.now += 10
    for plural, name in odd.items():
        status = world.here.get(plural, name)["status"]
        assert status["observedGeneration"] == 3
        found = {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}
        assert found == {"Ready": ("False", "InvalidSpec"), "Stalled": ("True", "InvalidSpec")}
    made.close()
    await_true(lambda: len(world.here.names("events")) == 2, "each is told", SOON)
    assert [world.here.get("events", name)["count"] for name in world.here.names("events")] == [1, 1]

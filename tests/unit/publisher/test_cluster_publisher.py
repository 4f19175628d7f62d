"""A publisher in a cluster as a whole: takeovers, what it costs when nothing changes, what never was in force."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest

from headrace_api.base import Metadata
from headrace_api.status import PolicySummary
from headrace_api.table import Identity
from headrace_operator.decision.memory import Memory
from headrace_operator.kube.client import NotLeading
from headrace_operator.publisher.cluster import TermBehind
from headrace_operator.publisher.cluster.claims import Claims
from headrace_operator.publisher.cluster.clusters import Term
from headrace_operator.publisher.cluster.target import CHECK_SECONDS
from headrace_operator.publisher.notes import EventNote
from headrace_operator.publisher.places import Place, TableKey
from headrace_operator.publisher.records import Record, recorded_revisions
from headrace_operator.snapshot.model import Snapshot
from support.cluster import await_true
from support.engine_manifests import AT, STATUS, engine, state_of
from support.publisher_world import CHAT, FAR, POLICY, SOON, TABLES, World, reads_and_writes
from support.tables import places_of, policy_of, table_of


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

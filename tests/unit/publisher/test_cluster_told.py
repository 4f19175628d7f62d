"""Statuses, Events and heartbeats in a cluster."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from headrace_api.base import resource_id
from headrace_api.status import PolicyStatus
from headrace_operator.kube.client import KubeFault, NotLeading
from headrace_operator.kube.pool import Pool
from headrace_operator.kube.seen import SeenStatuses
from headrace_operator.publisher.cluster.claims import Claims
from headrace_operator.publisher.cluster.events import EXPIRY_SECONDS, ClusterEvents
from headrace_operator.publisher.cluster.heartbeats import ClusterHeartbeat, NamespaceBeats
from headrace_operator.publisher.cluster.statuses import FLUSH_SECONDS, MANY, PORTION, ClusterStatuses, read_statuses
from headrace_operator.publisher.cluster.target import TableTarget
from headrace_operator.publisher.complaints import Complaints
from headrace_operator.publisher.notes import EventNote
from headrace_operator.publisher.places import Place, TableKey
from headrace_operator.publisher.ports import StatusKey
from headrace_operator.snapshot.clock import epoch_seconds, rfc3339
from support.engine_manifests import AT, STATUS
from support.fake_kube import Call, FakeKube, Refuse
from support.tables import places_of, policy_of, table_of

POLICIES = "routingpolicies"
SOON = 20.0


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool(4, "test")
    yield made
    made.close()


@pytest.fixture
def statuses(kube: FakeKube, pool: Pool) -> ClusterStatuses:
    return fresh(kube, pool)


def fresh(kube: FakeKube, pool: Pool, leading: bool = True, seen: SeenStatuses | None = None) -> ClusterStatuses:
    client = kube.client(may_write=lambda: leading)
    return ClusterStatuses(client, pool, read_statuses(client, ()), Complaints(), seen=seen)


def chat(kube: FakeKube, name: str = "chat", uid: str = "uid-chat") -> None:
    kube.put(POLICIES, {"metadata": {"name": name, "namespace": "inf", "uid": uid}})


def numbered(generation: int) -> PolicyStatus:
    return msgspec.structs.replace(STATUS, observed_generation=generation)


# Statuses


def test_a_status_is_written_when_it_differs_and_not_sooner_than_five_seconds(
    kube: FakeKube, statuses: ClusterStatuses
) -> None:
    chat(kube)
    written = []
    for steady, generation in ((0.0, 1), (1.0, 1), (2.0, 2), (3.0, 3), (5.0, 3), (99.0, 3)):
        statuses.set(policy_of(), generation, numbered(generation))
        written.append(statuses.flush(steady))
    assert written == [1, 0, 0, 0, 1, 0]
    assert kube.get(POLICIES, "inf/chat")["status"]["observedGeneration"] == 3
    statuses.set(policy_of(), 4, numbered(4))
    assert statuses.flush(100.0) == 1
    statuses.set(policy_of(), 5, numbered(5))
    assert (statuses.flush(101.0), statuses.flush(101.0, all_of_them=True)) == (0, 1)


def test_what_stands_is_not_written_again_after_a_takeover(
    kube: FakeKube, statuses: ClusterStatuses, pool: Pool
) -> None:
    chat(kube)
    statuses.set(policy_of(), 1, numbered(1))
    statuses.flush(0.0)
    kube.calls.clear()
    again = fresh(kube, pool)
    again.set(policy_of(), 1, numbered(1))
    assert again.flush(0.0) == 0
    assert kube.writes() == []


def test_what_somebody_else_took_away_or_changed_is_written_again(kube: FakeKube, pool: Pool) -> None:
    """Not at every word of a watch: what it tells of our own writes, of edits and of what is older changes nothing."""
    chat(kube)
    seen = SeenStatuses()
    statuses = fresh(kube, pool, seen=seen)

    def told() -> None:
        seen.tell("RoutingPolicy", kube.get(POLICIES, "inf/chat"))

    def flushed(steady: float) -> int:
        statuses.set(policy_of(uid="uid-chat"), 1, numbered(1))
        return statuses.flush(steady)

    told()
    assert flushed(0.0) == 1
    told()
    assert flushed(10.0) == 0
    kube.edit(POLICIES, "inf/chat", lambda found: found.update(spec={"x": 1}))
    old = kube.get(POLICIES, "inf/chat")
    told()
    assert flushed(20.0) == 0
    kube.edit(POLICIES, "inf/chat", lambda found: found.pop("status"))
    told()
    assert (flushed(21.0), flushed(22.0)) == (1, 0)
    told()
    seen.tell("RoutingPolicy", {**old, "status": {}})
    assert flushed(30.0) == 0
    kube.edit(POLICIES, "inf/chat", lambda found: found["status"].update(observedGeneration=7))
    told()
    assert (flushed(40.0), flushed(50.0)) == (1, 0)
    assert kube.get(POLICIES, "inf/chat")["status"]["observedGeneration"] == 1
    # The next leader knows what stood, and watches tell it all at once.
    again = fresh(kube, pool, seen=seen)
    told()
    again.set(policy_of(uid="uid-chat"), 1, numbered(1))
    assert again.flush(0.0) == 0


def test_many_statuses_wait_for_the_next_round(kube: FakeKube, pool: Pool) -> None:
    """A thousand statuses are not waited for: the round goes on after a while, and tables with it."""
    client, clock = kube.client(), iter([0.0, 1.0, 1.0 + FLUSH_SECONDS, 100.0, 100.0, 100.0, 100.0])
    many = ClusterStatuses(client, pool, read_statuses(client, ()), Complaints(), clock=lambda: next(clock))
    for number in range(PORTION + 3):
        chat(kube, f"p{number}", f"uid-{number}")
        many.set(policy_of(f"p{number}", uid=f"uid-{number}"), 1, numbered(1))
    assert (many.flush(0.0), many.flush(1.0), many.flush(2.0)) == (PORTION, 3, 0)


def test_an_edit_in_between_is_read_again(kube: FakeKube, statuses: ClusterStatuses) -> None:
    chat(kube)
    statuses.set(policy_of(), 1, numbered(1))
    statuses.flush(0.0)
    kube.edit(POLICIES, "inf/chat", lambda found: found.update(spec={"x": 1}))
    statuses.set(policy_of(), 2, numbered(2))
    assert statuses.flush(10.0) == 1
    assert kube.get(POLICIES, "inf/chat")["spec"] == {"x": 1}


def test_a_paused_leaders_status_is_not_written(kube: FakeKube, pool: Pool) -> None:
    chat(kube)
    paused = fresh(kube, pool, leading=False)
    paused.set(policy_of(), 1, numbered(1))
    with pytest.raises(NotLeading):
        paused.flush(0.0)
    assert kube.writes() == []


def test_a_resource_deleted_meanwhile_is_no_fault(
    kube: FakeKube, statuses: ClusterStatuses, caplog: pytest.LogCaptureFixture
) -> None:
    statuses.set(policy_of("gone"), 1, numbered(1))
    assert statuses.flush(0.0) == 0
    assert caplog.text == ""


def test_a_resource_made_anew_never_gets_the_old_ones_status(kube: FakeKube, statuses: ClusterStatuses) -> None:
    chat(kube)
    statuses.set(policy_of(), 1, numbered(1))
    statuses.flush(0.0)
    kube.remove(POLICIES, "inf/chat")
    chat(kube, uid="uid-new")
    statuses.set(policy_of(), 2, numbered(2))
    assert statuses.flush(10.0) == 0
    assert "status" not in kube.get(POLICIES, "inf/chat")
    statuses.set(policy_of(uid="uid-new"), 2, numbered(2))
    assert statuses.flush(20.0) == 1


def test_what_the_server_refuses_is_told_once_and_rests(
    kube: FakeKube, statuses: ClusterStatuses, caplog: pytest.LogCaptureFixture
) -> None:
    chat(kube)

    def refuse(call: Call) -> None:
        if call.sub == "status":
            raise Refuse(422, "Invalid", "status.why: Too long")

    kube.refuse = refuse
    for steady in (0.0, 10.0, 20.0):
        statuses.set(policy_of(), 1, numbered(1))
        assert statuses.flush(steady) == 0
    assert len([call for call in kube.calls if call.sub == "status"]) == 1
    assert caplog.text.count("status.why: Too long") == 1
    kube.refuse = lambda _: None
    statuses.set(policy_of(), 2, numbered(2))
    assert statuses.flush(30.0) == 1


def test_what_can_not_be_written_now_is_not_tried_at_every_round(kube: FakeKube, statuses: ClusterStatuses) -> None:
    """Rounds may be a tenth of a second apart: a lost permission would cost a call each for every resource."""
    chat(kube)

    def refuse(call: Call) -> None:
        if call.sub == "status":
            raise Refuse(403, "Forbidden", "routingpolicies/status is forbidden")

    kube.refuse = refuse
    statuses.set(policy_of(), 1, numbered(1))
    for tenth in range(100):
        assert statuses.flush(tenth / 10) == 0
    assert len([call for call in kube.calls if call.sub == "status"]) == 2
    kube.refuse = lambda _: None
    assert statuses.flush(10.0) == 1


def test_many_threads_complain_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """Tables, Events, the heartbeat and other clusters do: a round must not fail of it."""
    caplog.set_level(logging.CRITICAL)
    complaints, over, seen = Complaints(), threading.Event(), threading.Event()

    def complain(mark: int) -> None:
        number = 0
        while not over.is_set():
            number += 1
            complaints.about(f"writing {mark}.{number % 97}", number)
            complaints.settled(f"writing {mark}.{number * 7 % 97}")
            if number > 97:
                seen.set()

    threads = [threading.Thread(target=complain, args=(mark,), daemon=True) for mark in range(3)]
    for thread in threads:
        thread.start()
    try:
        assert seen.wait(60)
        for number in range(1000):
            complaints.only("table of ", {"inf/chat fe-a": str(number)})
    finally:
        over.set()
        for thread in threads:
            thread.join(60)


def test_many_new_resources_cost_one_list(kube: FakeKube, statuses: ClusterStatuses) -> None:
    policies = [policy_of(f"p{number}") for number in range(3 * MANY)]
    for policy in policies:
        chat(kube, policy.metadata.name, policy.metadata.uid)
        statuses.set(policy, 1, numbered(1))
    kube.calls.clear()
    assert statuses.flush(0.0) == 3 * MANY
    assert len(kube.calls) == 3 * MANY + 1


def test_what_is_gone_is_forgotten(kube: FakeKube, statuses: ClusterStatuses) -> None:
    chat(kube)
    statuses.set(policy_of(), 1, numbered(1))
    statuses.keep_only({StatusKey("RoutingPolicy", "inf/other")})
    assert statuses.flush(0.0) == 0


# Events


def note(reason: str = "WeightsChanged", message: str = "m", name: str = "chat") -> EventNote:
    return EventNote("RoutingPolicy", f"inf/{name}", "Normal", reason, message)


UIDS = {StatusKey("RoutingPolicy", "inf/chat"): "uid-chat"}


def told(kube: FakeKube, *rounds: Any, uids: dict[StatusKey, str] = UIDS) -> None:
    """Tell in one process; each round: notes, states, at."""
    events = ClusterEvents(kube.client(), Complaints())
    for notes, states, at in rounds:
        before = list(kube.calls)
        events.tell(notes, states, uids, at)
        assert kube.calls == before  # nothing before it is sent
        events.send()
        running = events._running
        if running is not None:
            running.result(SOON)
    events.close(SOON)


def only(kube: FakeKube) -> dict[str, Any]:
    (name,) = kube.names("events")
    return kube.get("events", name)


def later(seconds: float) -> str:
    begin = epoch_seconds(AT)
    assert begin is not None
    return rfc3339(begin + seconds)


def test_events_count_up_in_one_object(kube: FakeKube) -> None:
    told(kube, ([note()], [], AT), ([note(message="n"), note(message="o")], [], later(60)))
    event = only(kube)
    assert (event["count"], event["message"]) == (3, "o")
    assert (event["firstTimestamp"], event["lastTimestamp"]) == (AT, later(60))
    assert event["involvedObject"]["uid"] == "uid-chat"
    assert event["metadata"]["namespace"] == "inf"


def test_counts_go_on_after_a_restart_and_states_are_not_told_again(kube: FakeKube) -> None:
    bad = note("PolicyInvalid", "spec.x: bad")
    told(kube, ([note()], [bad], AT), ([], [bad], later(5)))
    told(kube, ([note()], [bad], later(60)))
    found = {event["reason"]: event["count"] for (kind, _, _), event in kube.objects.items() if kind == "events"}
    assert found == {"WeightsChanged": 2, "PolicyInvalid": 1}
    told(kube, ([], [bad._replace(message="spec.x: worse")], later(70)))
    assert {event["count"] for (kind, _, _), event in kube.objects.items() if kind == "events"} == {2}


def test_what_expired_begins_anew(kube: FakeKube) -> None:
    told(kube, ([note()], [], AT), ([note()], [], later(EXPIRY_SECONDS + 1)))
    assert (only(kube)["count"], only(kube)["firstTimestamp"]) == (1, later(EXPIRY_SECONDS + 1))


def test_a_resource_made_anew_has_events_of_its_own(kube: FakeKube) -> None:
    told(kube, ([note()], [], AT))
    told(kube, ([note()], [], later(5)), uids={StatusKey("RoutingPolicy", "inf/chat"): "uid-new"})
    assert (only(kube)["count"], only(kube)["involvedObject"]["uid"]) == (1, "uid-new")


def test_an_event_that_cannot_be_written_delays_nothing(kube: FakeKube, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    client = kube.client(timeout=0.2)
    events = ClusterEvents(client, Complaints())
    with kube.hanging():
        for _ in range(3):
            events.tell([note()], [], UIDS, AT)
        events.send()  # gives back at once
        running = events._running
        assert running is not None
        running.result(SOON)
    events.tell([note("Other")], [], UIDS, AT)
    events.close(SOON)
    found = {event["reason"]: event["count"] for (kind, _, _), event in kube.objects.items() if kind == "events"}
    assert found == {"WeightsChanged": 3, "Other": 1}
    assert caplog.text.count("telling Events") == 2  # told once, and that it goes again


def test_an_event_that_is_refused_loses_only_itself(kube: FakeKube) -> None:
    def refuse(call: Call) -> None:
        if call.name.startswith("inf/bad"):
            raise Refuse(403, "Forbidden", "no")

    kube.refuse = refuse
    told(kube, ([note(name="bad"), note()], [], AT))
    assert len(kube.names("events")) == 1


def test_nobody_tells_who_does_not_lead(kube: FakeKube) -> None:
    events = ClusterEvents(kube.client(may_write=lambda: False), Complaints())
    events.tell([note()], [], UIDS, AT)
    events.close(SOON)
    assert kube.writes() == []


# Heartbeats


def beats(kube: FakeKube, pool: Pool, *namespaces: str) -> tuple[TableTarget, ClusterHeartbeat]:
    client = kube.client()
    target = TableTarget("local", lambda: client, pool, term=1, owned=True)
    places = {TableKey(f"{one}/chat", "fe-a"): Place("t", uid="uid-chat") for one in namespaces}
    target.publish([table_of(namespace=one) for one in namespaces], places)
    kube.calls.clear()
    claims = Claims(client, "ops", "pod", steady=lambda: 0.0, wall=lambda: AT)
    return target, ClusterHeartbeat(NamespaceBeats(target, lambda: client, pool, claims))


def test_each_namespace_with_tables_has_a_heartbeat(kube: FakeKube, pool: Pool) -> None:
    target, heart = beats(kube, pool, "a", "b")
    assert [heart.renew(steady, AT) for steady in (0.0, 5.0, 9.9, 10.0)] == [True, False, False, True]
    assert kube.names("leases") == ["a/headrace-heartbeat", "b/headrace-heartbeat"]
    spec = kube.get("leases", "a/headrace-heartbeat")["spec"]
    assert spec == {"holderIdentity": "pod", "leaseDurationSeconds": 60, "renewTime": "2026-01-01T00:00:00.000000Z"}
    target.remove([TableKey("a/chat", "fe-a")])
    heart.renew(20.0, AT)
    assert kube.names("leases") == ["b/headrace-heartbeat"]


def test_heartbeats_that_an_earlier_term_left_are_removed(kube: FakeKube, pool: Pool) -> None:
    _, heart = beats(kube, pool, "a")
    heart.renew(0.0, AT)
    kube.put("leases", {"metadata": {"name": "headrace-heartbeat", "namespace": "theirs"}})
    kube.objects.pop(("configmaps", "a", "t"))
    _, second = beats(kube, pool, "b")
    second.renew(0.0, AT)
    assert kube.names("leases") == ["b/headrace-heartbeat", "theirs/headrace-heartbeat"]
    selectors = [query.get("fieldSelector") for call, query in kube.queries if call.plural == "leases" and query]
    assert "metadata.name=headrace-heartbeat" in selectors


def test_a_heartbeat_that_fails_stops_no_other(kube: FakeKube, pool: Pool) -> None:
    _, heart = beats(kube, pool, "a", "b")

    def refuse(call: Call) -> None:
        if call.plural == "leases" and call.name.startswith("a/"):
            raise Refuse(403, "Forbidden", "being terminated")

    kube.refuse = refuse
    with pytest.raises(KubeFault, match="being terminated"):
        heart.renew(0.0, AT)
    assert kube.names("leases") == ["b/headrace-heartbeat"]


def test_ids_are_the_resources() -> None:
    policy = policy_of()
    assert {key.policy for key in places_of(policy)} == {resource_id(policy.metadata)}

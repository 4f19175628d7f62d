"""Statuses in a cluster: written where they differ, not too often, and never on a resource made anew."""

from __future__ import annotations

import msgspec
import pytest

from headrace_api.base import resource_id
from headrace_api.status import PolicyStatus
from headrace_operator.kube.client import NotLeading
from headrace_operator.kube.pool import Pool
from headrace_operator.kube.seen import SeenStatuses
from headrace_operator.publisher.cluster.statuses import FLUSH_SECONDS, MANY, PORTION, ClusterStatuses, read_statuses
from headrace_operator.publisher.complaints import Complaints
from headrace_operator.publisher.ports import StatusKey
from support.engine_manifests import STATUS
from support.fake_kube import Call, FakeKube, Refuse
from support.tables import places_of, policy_of

POLICIES = "routingpolicies"


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


def test_ids_are_the_resources() -> None:
    policy = policy_of()
    assert {key.policy for key in places_of(policy)} == {resource_id(policy.metadata)}

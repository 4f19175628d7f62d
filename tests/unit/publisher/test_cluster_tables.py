"""Tables on one API server: what is written over what, what a new term takes up, and what is left alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from headrace_api.names import LABEL_MANAGED, LABEL_POLICY_UID
from headrace_api.table import Identity
from headrace_operator.decision.tables.encode import encode_table, stamped
from headrace_operator.kube.client import NotLeading
from headrace_operator.kube.pool import Pool
from headrace_operator.publisher.cluster.refused import RETRY_SECONDS
from headrace_operator.publisher.cluster.target import CHECK_SECONDS, TableTarget
from headrace_operator.publisher.places import Place, TableKey
from support.engine_manifests import AT
from support.fake_kube import Call, FakeKube, Refuse
from support.table_target import NAME, PLACES, Clock, foreign, standing, target
from support.tables import key, places_of, policy_of, table_of


def test_a_table_is_written_with_labels_and_owner(kube: FakeKube, made: TableTarget) -> None:
    assert made.publish([table_of(3)], PLACES) == (table_of(3),)
    metadata = kube.get("configmaps", NAME)["metadata"]
    assert metadata["labels"][LABEL_POLICY_UID] == "uid-chat"
    assert [one["uid"] for one in metadata["ownerReferences"]] == ["uid-chat"]
    assert metadata["ownerReferences"][0]["controller"] is True
    assert metadata["ownerReferences"][0]["blockOwnerDeletion"] is False
    assert (standing(kube), made.tables()) == (table_of(3), (table_of(3),))


def test_what_is_written_carries_the_version_that_was_read(kube: FakeKube, made: TableTarget) -> None:
    """A late write by a paused ex-leader changes nothing: it gets a conflict, sees the newer term, and ends."""
    made.publish([table_of(1)], PLACES)
    pool, newer = Pool(2, "newer"), Clock()
    leader = target(kube, pool, newer, term=2)
    leader.publish([table_of(1, term=2)], PLACES)
    with pytest.raises(NotLeading, match="carries term 2, this is term 1"):
        made.publish([table_of(2, 5_000)], PLACES)
    assert standing(kube).identity == Identity(uid="uid-chat", term=2, revision=1)
    pool.close()


def test_a_late_creation_finds_the_new_leaders_table(kube: FakeKube, made: TableTarget, pool: Pool) -> None:
    leader = target(kube, pool, Clock(), term=2)
    leader.publish([table_of(1, term=2)], PLACES)
    with pytest.raises(NotLeading):
        made.publish([table_of(9)], PLACES)
    assert standing(kube).identity.term == 2


def test_another_hand_is_written_over(kube: FakeKube, made: TableTarget) -> None:
    """An edit between our reads is a conflict; the term is not newer, so the leader's word stands in the end."""
    made.publish([table_of(1)], PLACES)
    kube.edit("configmaps", NAME, lambda found: found["data"].update({"table.json": "{}"}))
    assert made.publish([table_of(2, 5_000)], PLACES) == (table_of(2, 5_000),)
    assert standing(kube) == table_of(2, 5_000)


@pytest.mark.parametrize("labels", [{}, {LABEL_MANAGED: "somebody"}])
def test_a_foreign_configmap_is_left_alone(kube: FakeKube, made: TableTarget, labels: dict[str, str]) -> None:
    """Case REL-05 and the routing-table page: only ConfigMaps that the operator made are written.

    https://github.com/kubernetes/website/issues/29480
    """
    kube.put("configmaps", {**foreign(), "metadata": {**foreign()["metadata"], "labels": labels}})
    before = json.dumps(kube.get("configmaps", NAME))
    assert made.publish([table_of()], PLACES) == ()
    assert made.refusals[key()].reason == "ConfigMapNotOurs"
    assert "remove it, or rename" in made.refusals[key()].message
    assert json.dumps(kube.get("configmaps", NAME)) == before


def test_what_is_refused_rests_a_while(kube: FakeKube, made: TableTarget, clock: Clock) -> None:
    kube.put("configmaps", foreign())
    made.publish([table_of()], PLACES)
    assert made.bars(key(), PLACES[key()], PLACES)
    clock.now += 60
    assert not made.bars(key(), PLACES[key()], PLACES)
    kube.remove("configmaps", NAME)
    assert made.publish([table_of()], PLACES) == (table_of(),)
    assert made.refusals == {}


def test_a_failing_write_loses_only_its_own(kube: FakeKube, made: TableTarget) -> None:
    def refuse(call: Call) -> None:
        if call.method == "POST" and len([one for one in kube.calls if one.method == "POST"]) == 1:
            raise Refuse(422, "Invalid", "no")

    kube.refuse = refuse
    policies = [policy_of(f"p{number}") for number in range(8)]
    tables = [table_of(name=policy.metadata.name) for policy in policies]
    assert len(made.publish(tables, places_of(*policies))) == 7
    assert [one.reason for one in made.refusals.values()] == ["WriteFailed"]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (403, "Forbidden"),
        (404, "NamespaceMissing"),
        (422, "WriteFailed"),
        (500, "WriteFailed"),
        (503, "ClusterUnreachable"),
    ],
)
def test_refusals_have_reasons(kube: FakeKube, made: TableTarget, status: int, reason: str) -> None:
    def refuse(call: Call) -> None:
        raise Refuse(status, "Why", "because")

    kube.refuse = refuse
    assert made.publish([table_of()], PLACES) == ()
    assert made.refusals[key()].reason == reason
    assert "because" in made.refusals[key()].message


def test_a_silent_server_is_not_asked_for_each(kube: FakeKube, pool: Pool, clock: Clock) -> None:
    """300 tables and a hung API server cost one time limit, not 300."""
    client = kube.client(timeout=0.2)
    hung = TableTarget("local", lambda: client, pool, term=1, owned=True, steady=clock)
    policies = [policy_of(f"p{number}") for number in range(60)]
    with kube.hanging():
        assert hung.publish([table_of(name=one.metadata.name) for one in policies], places_of(*policies)) == ()
    assert len(hung.refusals) == 60
    assert hung.silent is not None
    assert "no answer within its time limit" in hung.silent.message
    assert hung.publish([table_of(name="p0")], places_of(*policies))
    assert hung.silent is None
    assert len(kube.calls) < 12


# Taking up


def test_a_new_term_takes_up_what_stands(kube: FakeKube, made: TableTarget, pool: Pool, clock: Clock) -> None:
    made.publish([table_of(4), table_of(4, frontend="fe-b")], PLACES)
    kube.put("configmaps", foreign("inf/other"))
    kube.page = 1
    again = target(kube, pool, clock, term=2)
    assert again.tables() == (table_of(4), table_of(4, frontend="fe-b"))
    assert again.newest_term() == 1
    assert again.namespaces() == {"inf"}
    assert again.shelf.retained() == frozenset()


def test_a_table_that_cannot_be_read_is_told_and_written_over(
    kube: FakeKube, made: TableTarget, pool: Pool, clock: Clock
) -> None:
    made.publish([table_of(4)], PLACES)
    kube.edit("configmaps", NAME, lambda found: found["data"].update({"table.json": '{"schemaVersion": 9}'}))
    client = kube.client()
    again = TableTarget("local", lambda: client, pool, term=2, owned=True, steady=clock)
    assert again.read_back() == (f"local: ConfigMap {NAME} has no table that can be read",)
    assert again.tables() == ()
    assert again.publish([table_of(1, term=2)], PLACES) == (table_of(1, term=2),)


def test_of_two_copies_the_newest_stands_and_the_other_goes(
    kube: FakeKube, made: TableTarget, pool: Pool, clock: Clock
) -> None:
    """A kill between writing under a new name and removing the old one leaves both."""
    made.publish([table_of(1)], PLACES)
    copy = json.loads(json.dumps(kube.get("configmaps", NAME)).replace("headrace-chat-fe-a", "a-copy"))
    kube.put("configmaps", copy)
    made.publish([table_of(2)], PLACES)
    again = target(kube, pool, clock, term=2)
    assert again.tables() == (table_of(2),)
    clock.now += CHECK_SECONDS
    again.repair(PLACES)
    assert kube.names("configmaps") == [NAME]


def claiming(kube: FakeKube, term: int) -> None:
    """Somebody edits the table's term."""
    text = encode_table(table_of(term=term)).decode()
    kube.edit("configmaps", NAME, lambda found: found["data"].update({"table.json": text}))


@pytest.mark.parametrize("term", [9, 2**40])
def test_an_edited_term_ends_no_leader(kube: FakeKube, pool: Pool, clock: Clock, term: int) -> None:
    """Who may edit one ConfigMap must not stop the operator for all: the Lease is asked before its word is taken."""
    made = target(kube, pool, clock, leads=lambda: True)
    made.publish([table_of()], PLACES)
    claiming(kube, term)
    assert made.publish([table_of(2)], PLACES) == (table_of(2),)
    claiming(kube, term)
    clock.now += CHECK_SECONDS
    assert made.repair(PLACES) == (key(),)
    assert standing(kube) == table_of(2)


def test_a_term_no_lease_counts_to_is_no_table(kube: FakeKube, made: TableTarget, pool: Pool, clock: Clock) -> None:
    """Else a new leader would have to take a term above it, and there is none."""
    made.publish([table_of()], PLACES)
    claiming(kube, 2**31 - 1)
    again = target(kube, pool, clock, term=2)
    assert (again.newest_term(), again.tables()) == (0, ())
    assert again.publish([table_of(term=2)], PLACES) == (table_of(term=2),)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda table: json.dumps(table)[:-1] + ', "later": ' + "[" * 100_000 + "]" * 100_000 + "}",
        lambda table: json.dumps(table | {"policy": "\ud800"}),
    ],
    ids=["nested without end", "half a letter"],
)
def test_no_ones_table_stops_a_takeover(
    kube: FakeKube, made: TableTarget, pool: Pool, clock: Clock, spoil: Callable[[Any], str]
) -> None:
    """Who may write a ConfigMap in one namespace must not keep the operator from everybody else's."""
    made.publish([table_of(), table_of(name="calm")], places_of(policy_of(), policy_of("calm")))
    text = spoil(json.loads(encode_table(table_of())))
    kube.edit("configmaps", NAME, lambda found: found["data"].update({"table.json": text}))
    assert target(kube, pool, clock, term=2).tables() == (table_of(name="calm"),)
    clock.now += CHECK_SECONDS
    assert made.repair(PLACES) == (key(),)
    assert standing(kube) == table_of()


@pytest.mark.parametrize("revision", [10**11 + 1, 2**63, 10**40])
def test_an_edited_revision_is_not_counted_on_from(
    kube: FakeKube, made: TableTarget, pool: Pool, clock: Clock, revision: int
) -> None:
    """One number serves all tables: past 10^12 routers refuse them, past 2^63 the API server refuses statuses."""
    made.publish([table_of(7)], PLACES)
    text = encode_table(table_of(revision)).decode()
    kube.edit("configmaps", NAME, lambda found: found["data"].update({"table.json": text}))
    (table,) = target(kube, pool, clock, term=2).tables()
    assert table.identity == Identity(uid="uid-chat", term=1, revision=0)
    assert table.models == table_of().models


def test_a_term_that_could_not_be_put_on_a_table_is_put_there_later(
    kube: FakeKube, made: TableTarget, pool: Pool, clock: Clock
) -> None:
    """Else the write of a leader that was paused would still land: the version is the one that it had read."""
    unwanted = table_of(name="kept")
    made.publish([table_of(), table_of(frontend="fe-b"), unwanted], PLACES | places_of(policy_of("kept")))
    again = target(kube, pool, clock, term=2)

    def refuse(call: Call) -> None:
        if call.method != "GET":
            raise Refuse(500, "InternalError", "etcdserver: leader changed")

    kube.refuse = refuse
    late = [stamped(one, Identity(uid=one.identity.uid, term=2, revision=1), AT) for one in again.tables()]
    assert again.publish(late, {}) == ()
    kube.refuse = lambda _: None
    assert again.repair(PLACES) == ()  # what was just refused rests
    clock.now += RETRY_SECONDS
    assert len(again.repair(PLACES)) == 3
    assert {one.identity.term for one in again.tables()} == {2}
    with pytest.raises(NotLeading):
        made.publish([table_of(2)], PLACES)


def test_two_installations_in_one_cluster(kube: FakeKube, made: TableTarget, pool: Pool, clock: Clock) -> None:
    """Of another Headrace's tables none is known, changed or removed."""
    made.publish([table_of(uid="uid-theirs")], {key(): Place("headrace-chat-fe-a", uid="uid-theirs")})
    ours = target(kube, pool, clock, owned=False, known=lambda _spot, uid: uid == "uid-chat")
    assert ours.tables() == ()
    assert ours.publish([table_of()], PLACES) == ()
    assert "made by another Headrace (policy uid uid-theirs)" in ours.refusals[key()].message
    clock.now += CHECK_SECONDS
    ours.repair(PLACES)
    assert ours.tables() == ()


def test_watched_namespaces_are_listed_one_by_one(kube: FakeKube, made: TableTarget, pool: Pool, clock: Clock) -> None:
    made.publish([table_of(), table_of(namespace="other")], PLACES | {TableKey("other/chat", "fe-a"): Place("x")})
    client = kube.client()
    again = TableTarget("local", lambda: client, pool, term=2, owned=True, watched=["inf"], steady=clock)
    kube.calls.clear()
    again.read_back()
    assert [call.name for call in kube.calls] == ["inf"]
    assert again.tables() == (table_of(),)

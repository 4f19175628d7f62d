"""Tables on one API server: what is written over what, and what is left alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace_api.names import LABEL_MANAGED, LABEL_POLICY_UID
from headrace_api.table import Identity, RoutingTable
from headrace_operator.decision.tables.encode import encode_table, stamped
from headrace_operator.kube.client import NotLeading
from headrace_operator.kube.pool import Pool
from headrace_operator.publisher.cluster.refused import RETRY_SECONDS
from headrace_operator.publisher.cluster.target import CHECK_SECONDS, TableTarget
from headrace_operator.publisher.places import Place, TableKey
from support.engine_manifests import AT
from support.fake_kube import Call, FakeKube, Refuse
from support.tables import key, places_of, policy_of, table_of

NAME = "inf/headrace-chat-fe-a"
PLACES = places_of(policy_of())


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool(4, "test")
    yield made
    made.close()


@pytest.fixture
def made(kube: FakeKube, pool: Pool, clock: Clock) -> TableTarget:
    return target(kube, pool, clock)


def target(kube: FakeKube, pool: Pool, clock: Clock, term: int = 1, **more: Any) -> TableTarget:
    client = kube.client()
    found = TableTarget("local", lambda: client, pool, term=term, owned=more.pop("owned", True), steady=clock, **more)
    found.read_back()
    kube.calls.clear()
    return found


def standing(kube: FakeKube, name: str = NAME) -> RoutingTable:
    from headrace_operator.publisher.cluster.objects import seen_of

    found = seen_of(kube.get("configmaps", name)).table
    assert found is not None
    return found


def foreign(name: str = NAME) -> dict[str, Any]:
    namespace, _, bare = name.partition("/")
    return {"metadata": {"name": bare, "namespace": namespace}, "data": {"mine": "1"}}


# Writing


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


# Mending


def test_nothing_touched_nothing_written(kube: FakeKube, made: TableTarget, clock: Clock) -> None:
    """Case STS-01: no writes and few reads while nothing changes.

    https://github.com/strimzi/strimzi-kafka-operator/issues/13079
    """
    made.publish([table_of(), table_of(frontend="fe-b")], PLACES)
    kube.calls.clear()
    for _ in range(60):
        clock.now += 1
        assert made.repair(PLACES) == ()
    assert kube.writes() == []
    assert len(kube.calls) == 60 / CHECK_SECONDS


def deleted(kube: FakeKube) -> None:
    kube.remove("configmaps", NAME)


def edited(kube: FakeKube) -> None:
    kube.edit("configmaps", NAME, lambda found: found["data"].update({"table.json": "{}"}))


def unlabelled(kube: FakeKube) -> None:
    kube.edit("configmaps", NAME, lambda found: found["metadata"].update(labels={}))


def disowned(kube: FakeKube) -> None:
    kube.edit("configmaps", NAME, lambda found: found["metadata"].pop("ownerReferences"))


@pytest.mark.parametrize("hand", [deleted, edited, unlabelled, disowned])
def test_what_was_touched_is_mended(kube: FakeKube, made: TableTarget, clock: Clock, hand: Any) -> None:
    """Case REL-05: deleted by hand, it is written again within a cycle.

    https://github.com/SparebankenVest/azure-key-vault-to-kubernetes/issues/153
    """
    made.publish([table_of()], PLACES)
    before = kube.get("configmaps", NAME)
    hand(kube)
    clock.now += CHECK_SECONDS
    assert made.repair(PLACES) == (key(),)
    after = kube.get("configmaps", NAME)
    for part in ("labels", "annotations", "ownerReferences"):
        assert after["metadata"][part] == before["metadata"][part]
    assert after["data"] == before["data"]


def test_labels_of_others_are_theirs(kube: FakeKube, made: TableTarget, clock: Clock) -> None:
    made.publish([table_of()], PLACES)
    kube.edit("configmaps", NAME, lambda found: found["metadata"]["labels"].update(team="blue"))
    clock.now += CHECK_SECONDS
    assert made.repair(PLACES) == ()
    assert made.publish([table_of(2)], PLACES) == (table_of(2),)
    assert kube.get("configmaps", NAME)["metadata"]["labels"]["team"] == "blue"


def test_a_foreign_object_in_the_place_of_a_deleted_table(kube: FakeKube, made: TableTarget, clock: Clock) -> None:
    made.publish([table_of()], PLACES)
    deleted(kube)
    kube.put("configmaps", foreign())
    clock.now += CHECK_SECONDS
    assert made.repair(PLACES) == ()
    assert made.refusals[key()].reason == "ConfigMapNotOurs"
    assert kube.get("configmaps", NAME)["data"] == {"mine": "1"}


def test_a_retained_table_that_somebody_deletes_stays_deleted(kube: FakeKube, made: TableTarget, clock: Clock) -> None:
    made.publish([table_of()], {key(): Place("headrace-chat-fe-a", retain=True, uid="uid-chat")})
    deleted(kube)
    clock.now += CHECK_SECONDS
    assert made.repair({}) == ()
    assert (made.tables(), kube.names("configmaps")) == ((), [])


def test_a_late_writers_orphan_is_found(kube: FakeKube, made: TableTarget, pool: Pool, clock: Clock) -> None:
    """What a paused ex-leader created after this term read everything becomes known, and so an orphan."""
    other = target(kube, pool, Clock())
    other.publish([table_of(name="gone")], places_of(policy_of("gone")))
    clock.now += CHECK_SECONDS
    made.repair(PLACES)
    assert made.tables() == (table_of(name="gone"),)
    assert made.remove([key("gone")]) == (key("gone"),)


# Moving, owning, going


def test_another_name_moves_the_table(kube: FakeKube, made: TableTarget) -> None:
    made.publish([table_of()], PLACES)
    assert made.repair({key(): PLACES[key()]._replace(name="renamed")}) == (key(),)
    assert kube.names("configmaps") == ["inf/renamed"]
    assert made.repair({key(): PLACES[key()]._replace(name="renamed")}) == ()


def test_a_shadow_policys_table_does_not_move(kube: FakeKube, made: TableTarget) -> None:
    made.publish([table_of()], PLACES)
    shadow = {key(): PLACES[key()]._replace(name="renamed", publishes=False)}
    assert made.repair(shadow) == ()
    assert kube.names("configmaps") == [NAME]


def test_on_delete_decides_who_owns_it(kube: FakeKube, made: TableTarget) -> None:
    made.publish([table_of()], PLACES)
    keep = {key(): PLACES[key()]._replace(retain=True)}
    assert made.repair(keep) == (key(),)
    assert kube.get("configmaps", NAME)["metadata"]["ownerReferences"] == []
    assert made.shelf.retained() == {key()}
    assert made.remove([key()]) == ()
    assert made.repair(PLACES) == (key(),)
    assert [one["uid"] for one in kube.get("configmaps", NAME)["metadata"]["ownerReferences"]] == ["uid-chat"]
    assert made.repair(PLACES) == ()


def test_a_policy_made_anew_takes_its_table_over(kube: FakeKube, made: TableTarget) -> None:
    """Another uid under the same name: the table carries it, or routers and the collector would hold on to the old."""
    made.publish([table_of(5)], PLACES)
    anew = places_of(policy_of(uid="uid-new"))
    assert made.repair(anew) == (key(),)
    metadata = kube.get("configmaps", NAME)["metadata"]
    assert [one["uid"] for one in metadata["ownerReferences"]] == ["uid-new"]
    assert metadata["labels"][LABEL_POLICY_UID] == "uid-new"
    assert standing(kube).identity == Identity(uid="uid-new", term=1, revision=5)


def test_other_owners_stay(kube: FakeKube, made: TableTarget) -> None:
    made.publish([table_of()], PLACES)
    theirs = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "uid-pod"}
    kube.edit("configmaps", NAME, lambda found: found["metadata"]["ownerReferences"].append(theirs))
    made.publish([table_of(2)], PLACES)
    made.repair({key(): PLACES[key()]._replace(retain=True)})
    assert kube.get("configmaps", NAME)["metadata"]["ownerReferences"] == [theirs]


def test_removal_names_the_version_that_was_read(kube: FakeKube, made: TableTarget) -> None:
    made.publish([table_of()], PLACES)
    kube.edit("configmaps", NAME, lambda found: found["metadata"]["labels"].update(team="blue"))
    assert made.remove([key()]) == (key(),)
    assert kube.names("configmaps") == []
    assert made.remove([key()]) == ()


def test_what_stands_there_instead_is_not_removed(kube: FakeKube, made: TableTarget) -> None:
    made.publish([table_of()], PLACES)
    deleted(kube)
    kube.put("configmaps", foreign())
    assert made.remove([key()]) == (key(),)
    assert kube.get("configmaps", NAME)["data"] == {"mine": "1"}


def test_a_removal_that_fails_is_tried_again(kube: FakeKube, made: TableTarget) -> None:
    made.publish([table_of()], PLACES)

    def refuse(call: Call) -> None:
        if call.method == "DELETE":
            raise Refuse(403, "Forbidden", "no")

    kube.refuse = refuse
    assert made.remove([key()]) == ()
    assert made.refusals[key()].reason == "Forbidden"
    kube.refuse = lambda _: None
    assert made.remove([key()]) == (key(),)


# One name, two policies


def test_the_older_policy_has_the_name(kube: FakeKube, made: TableTarget) -> None:
    """Case STS-05: oldest first, then by name; stable whoever comes first.

    https://github.com/kubernetes-sigs/gateway-api/pull/4043
    """
    young = policy_of("alpha", created="2026-01-02T00:00:00Z")
    places = places_of(policy_of(), young)
    places[key("alpha")] = places[key("alpha")]._replace(name="headrace-chat-fe-a")
    made.publish([table_of(name="alpha")], places)
    assert made.bars(key(), places[key()], places) is False
    assert made.publish([table_of()], places) == (table_of(),)
    assert made.tables() == (table_of(),)
    assert made.bars(key("alpha"), places[key("alpha")], places)
    assert made.refusals[key("alpha")].reason == "ConfigMapTaken"
    assert made.publish([table_of(2, name="alpha")], places) == ()
    del places[key()]
    assert made.remove([key()]) == (key(),)
    assert not made.bars(key("alpha"), places[key("alpha")], places)
    assert made.publish([table_of(2, name="alpha")], places) == (table_of(2, name="alpha"),)


def test_names_that_change_hands_at_once(kube: FakeKube, made: TableTarget) -> None:
    """The one moves away, the other comes: no refusal is left over, whoever is written first."""
    policies = [policy_of("alpha"), policy_of("beta")]
    places = places_of(*policies)
    made.publish([table_of(name="alpha"), table_of(name="beta")], places)
    a, b = key("alpha"), key("beta")
    swapped = places | {a: places[a]._replace(name=places[b].name), b: places[b]._replace(name="elsewhere")}
    for _ in range(3):
        for one in (a, b):
            made.bars(one, swapped[one], swapped)
        made.repair(swapped)
    assert kube.names("configmaps") == ["inf/elsewhere", "inf/headrace-beta-fe-a"]
    assert made.refusals == {}


def test_a_retained_table_keeps_its_name(kube: FakeKube, made: TableTarget) -> None:
    made.publish([table_of(name="gone")], {key("gone"): Place("headrace-chat-fe-a", retain=True, uid="uid-gone")})
    assert made.bars(key(), PLACES[key()], PLACES)
    assert made.publish([table_of()], PLACES) == ()
    assert made.refusals[key()].reason == "ConfigMapTaken"


def test_an_orphans_name_is_free(kube: FakeKube, made: TableTarget) -> None:
    made.publish([table_of(name="gone")], {key("gone"): Place("headrace-chat-fe-a", uid="uid-gone")})
    assert made.publish([table_of()], PLACES) == (table_of(),)
    assert made.tables() == (table_of(),)


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

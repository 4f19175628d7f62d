"""Tables on one API server that somebody touched: looked at now and then, and mended."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_operator.kube.pool import Pool
from headrace_operator.publisher.cluster.target import CHECK_SECONDS, TableTarget
from headrace_operator.publisher.places import Place
from support.fake_kube import FakeKube
from support.table_target import NAME, PLACES, Clock, deleted, foreign, target
from support.tables import key, places_of, policy_of, table_of


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

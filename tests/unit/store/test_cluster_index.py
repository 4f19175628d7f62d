"""Objects of one kind by events and lists: in any order, twice, late, or never told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_operator.kube.seen import older
from headrace_operator.store.cluster_index import BEGIN_SECONDS, LAG_SECONDS, Key, KindIndex, stamp_of

Json = dict[str, Any]


def item(name: str, version: int | str, uid: str = "", value: int = 0) -> Json:
    metadata = {"name": name, "namespace": "inf", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, "value": value}


def index() -> KindIndex[int]:
    return KindIndex(lambda found, _: found["value"])


def held(found: KindIndex[int]) -> dict[str, int]:
    return {key.name: value for key, value in found}


def test_only_changes_of_what_is_kept_are_news() -> None:
    """Case STS-01: an operator's own status writes come back as events, and must not wake it.

    https://github.com/strimzi/strimzi-kafka-operator/issues/13079
    """
    found = index()
    assert found.upsert(item("a", 1, value=7))
    assert not found.upsert(item("a", 1, value=7))
    assert not found.upsert(item("a", 2, value=7))
    assert found.upsert(item("a", 3, value=8))
    assert held(found) == {"a": 8}


def test_an_older_state_changes_nothing() -> None:
    found = index()
    found.upsert(item("a", 5, value=5))
    assert not found.upsert(item("a", 4, value=4))
    assert held(found) == {"a": 5}


def test_a_deletion_of_an_earlier_object_of_the_name_changes_nothing() -> None:
    found = index()
    found.upsert(item("a", 9, uid="new", value=1))
    assert not found.delete(item("a", 8, uid="old"))
    assert held(found) == {"a": 1}


def test_a_late_event_does_not_bring_a_deleted_object_back() -> None:
    found = index()
    found.upsert(item("a", 1))
    assert found.delete(item("a", 2))
    assert not found.upsert(item("a", 1))
    assert held(found) == {}
    assert found.upsert(item("a", 3, uid="another", value=4))
    assert held(found) == {"a": 4}


def test_what_was_deleted_in_a_gap_goes_with_the_next_list() -> None:
    """A watch that is begun anew lists what there is, and says nothing of what went meanwhile."""
    found = index()
    for name in "abc":
        found.upsert(item(name, 1))
    compared = found.compare([item("a", 1), item("b", 1)], "9", 0.0)
    assert (compared.changed, compared.settled, compared.broken) == (True, True, False)
    assert held(found) == {"a": 0, "b": 0}


def test_what_came_after_the_list_was_taken_stays() -> None:
    found = index()
    found.upsert(item("a", 1))
    found.upsert(item("b", 12))
    found.compare([item("a", 1)], "10", 0.0)
    assert held(found) == {"a": 0, "b": 0}


@pytest.mark.parametrize("left", [0, 1], ids=["an empty list", "most of it"])
def test_a_list_that_lacks_most_is_believed_only_twice(left: int) -> None:
    """An empty list must not become an outage: without deletions' events it counts at the second look."""
    found = index()
    for name in "abcd":
        found.upsert(item(name, 1))
    listed = [item(name, 1) for name in "abcd"[:left]]
    first = found.compare(listed, "9", 0.0)
    assert (first.changed, first.settled) == (False, False)
    assert len(found) == 4
    second = found.compare(listed, "10", 1.0)
    assert (second.changed, second.settled) == (True, True)
    assert len(found) == left


def test_a_doubt_ends_when_the_list_is_whole_again() -> None:
    found = index()
    for name in "abcd":
        found.upsert(item(name, 1))
    whole = [item(name, 1) for name in "abcd"]
    assert not found.compare([], "9", 0.0).settled
    assert found.compare(whole, "10", 1.0).settled
    assert not found.compare([], "11", 2.0).changed
    assert len(found) == 4


def test_the_last_object_may_go() -> None:
    found = index()
    found.upsert(item("a", 1))
    assert not found.compare([], "9", 0.0).settled
    assert found.compare([], "9", 1.0).settled
    assert held(found) == {}


def test_an_event_that_stays_away_is_a_broken_watch() -> None:
    found = index()
    assert not found.compare([item("a", 1)], "1", 0.0).broken
    assert not found.compare([item("a", 1)], "1", LAG_SECONDS / 2).broken
    compared = found.compare([item("a", 1)], "1", LAG_SECONDS)
    assert (compared.settled, compared.broken) == (False, True)
    found.upsert(item("a", 1))
    assert found.compare([item("a", 1)], "1", LAG_SECONDS + 1).settled


def test_an_object_that_changes_all_the_time_is_not_a_broken_watch() -> None:
    found = index()
    for version in range(1, 40):
        assert not found.compare([item("a", version)], str(version), LAG_SECONDS * version).broken
        found.upsert(item("a", version))


def test_a_kind_of_which_little_is_kept_lags_only_in_what_is_kept() -> None:
    found: KindIndex[int] = KindIndex(lambda one, _: one["value"] or None)
    found.upsert(item("kept", 1, value=1))
    found.upsert(item("left", 1, value=0))
    listed = [item("kept", 1), item("left", 1)]
    assert found.compare(listed, "3", 0.0, partial=True).settled
    listed = [item("kept", 2), item("left", 1)]
    assert not found.compare(listed, "3", 10.0, partial=True).broken
    assert found.compare(listed, "3", 10.0 + LAG_SECONDS, partial=True).broken
    found.begin()
    assert not found.compare(listed, "3", 11.0 + LAG_SECONDS, partial=True).broken, "a new watch has its own time"


@pytest.mark.parametrize(
    "hostile",
    [
        {},
        {"metadata": None},
        {"metadata": []},
        {"metadata": {"name": None}},
        {"metadata": {"name": 3, "namespace": 4}},
        {"metadata": {"name": ""}},
    ],
    ids=str,
)
def test_what_is_no_object_is_left_alone(hostile: Json) -> None:
    found = index()
    assert not found.upsert(hostile)
    assert not found.delete(hostile)
    assert found.compare([hostile], "1", 0.0).settled


def test_stamps_and_versions() -> None:
    stamp = stamp_of({"metadata": {"name": "n", "namespace": None, "uid": 3, "resourceVersion": None}})
    assert stamp is not None
    assert (stamp.key, stamp.uid, stamp.version) == (Key("", "n"), "", "")
    assert older("9", "10")
    assert not older("10", "9")
    assert not older("", "9")
    assert not older("abc", "abd")


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_order_of_events_and_lists_ends_at_the_truth(data: st.DataObject) -> None:
    """Whatever is lost or late, two lists in a row leave what the API server has."""
    truth: dict[str, Json] = {}
    found, sent, version = index(), list[tuple[str, Json]](), 0
    for _ in range(data.draw(st.integers(1, 25))):
        name = data.draw(st.sampled_from("abc"))
        version += 1
        if name in truth and data.draw(st.booleans()):
            sent.append(("DELETED", {**truth.pop(name), "metadata": {**item(name, version)["metadata"]}}))
            sent[-1][1]["metadata"]["uid"] = f"{name}-{version}-gone"
        else:
            uid = truth[name]["metadata"]["uid"] if name in truth else f"{name}-{version}"
            truth[name] = item(name, version, uid=uid, value=version)
            sent.append(("MODIFIED", truth[name]))
    # Events of other objects overtake each other, and some are never told.
    for change, one in data.draw(st.permutations(sent)):
        if data.draw(st.booleans()):
            (found.delete if change == "DELETED" else found.upsert)(one)
    for one in truth.values():  # a session that begins anew lists everything
        found.upsert(one)
    for at in range(2):
        found.compare(list(truth.values()), str(version + 1), float(at))
    assert held(found) == {name: one["value"] for name, one in truth.items()}


def test_a_watch_that_begins_with_thousands_of_objects_is_not_late_while_they_arrive() -> None:
    """Else a restart among a thousand engines on a busy machine begins its watches anew for ever."""
    found = index()
    found.begin()
    listed = [item(name, 1) for name in "abc"]
    assert not found.compare(listed, "1", 0.0, heard_at=0.0).broken
    found.upsert(item("a", 1))
    assert not found.compare(listed, "1", 2 * LAG_SECONDS, heard_at=2 * LAG_SECONDS - 1).broken
    assert found.compare(listed, "1", 3 * LAG_SECONDS, heard_at=2 * LAG_SECONDS - 1).broken, "nothing arrives any more"
    found.begin()
    assert not found.compare(listed, "1", 100.0, heard_at=100.0).broken
    assert not found.compare(listed, "1", 99.0 + BEGIN_SECONDS, heard_at=99.0 + BEGIN_SECONDS).broken
    assert found.compare(listed, "1", 100.0 + BEGIN_SECONDS, heard_at=100.0 + BEGIN_SECONDS).broken, "others' news"

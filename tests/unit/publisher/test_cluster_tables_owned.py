"""Tables on one API server: whose they are, where they move, when they go, and one name that two policies want."""

from __future__ import annotations

from headrace_api.names import LABEL_POLICY_UID
from headrace_api.table import Identity
from headrace_operator.publisher.cluster.target import TableTarget
from headrace_operator.publisher.places import Place
from support.fake_kube import Call, FakeKube, Refuse
from support.table_target import NAME, PLACES, deleted, foreign, standing
from support.tables import key, places_of, policy_of, table_of

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

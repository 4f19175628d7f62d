"""A publisher whose tables go to other clusters, too: hung, unknown, down at the start, taken out, come back."""

from __future__ import annotations

import pytest

from headrace_operator.publisher.cluster import clusters
from headrace_operator.publisher.cluster.objects import Spot, table_manifest
from headrace_operator.publisher.places import Place
from support.cluster import await_true
from support.engine_manifests import AT, STATUS
from support.fake_kube import Call, Refuse
from support.publisher_world import CHAT, FAR, KUBECONFIG, POLICY, SOON, TABLES, B, World, far, stood
from support.tables import key, policy_of, table_of


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

"""The cluster store: what an API server gives, half of it wrong, late or missing, as resources in force."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from headrace_api.endpoint_slices import SERVICE_LABEL
from headrace_operator.store.cluster import Kind
from headrace_operator.store.cluster_index import Key
from headrace_operator.store.resources import ResourceName
from support.engine_manifests import engine_dict, policy_dict
from support.told_store import KINDS, Json, Server, engine_on_service


def test_nothing_is_known_before_every_kind_was_listed(server: Server) -> None:
    server.apply(engine_dict("a", "http://a:1"))
    assert not server.look().complete
    assert server.store.missing == KINDS
    for kind in KINDS:
        assert not server.store.ready
        server.compare(kind)
    assert server.store.ready
    assert server.look().complete


def test_the_same_object_while_nothing_changes(server: Server) -> None:
    """Case STS-01: our own status writes come back as events; they are no news.

    https://github.com/strimzi/strimzi-kafka-operator/issues/13079
    """
    server.apply(engine_dict("a", "http://a:1"))
    server.apply(policy_dict())
    server.compare()
    seen = server.look()
    assert not server.apply(engine_dict("a", "http://a:1") | {"status": {"models": "m"}})
    assert not server.apply(
        engine_dict("a", "http://a:1") | {"status": {"models": "m, n"}}, manager="headrace-operator"
    )
    server.compare()
    assert server.look() is seen


BAD: dict[str, Callable[[Json], Any]] = {
    "text for a number": lambda spec: spec["capacity"]["perReplica"].update(requestsPerSecond="ten"),
    "an empty spec": lambda spec: spec.clear(),
    "a field of another version": lambda spec: spec.update(url="http://b:8000"),
    "two base models": lambda spec: spec.update(models=[{"name": "m"}, {"name": "n"}]),
    "a negative capacity": lambda spec: spec["capacity"]["perReplica"].update(requestsPerSecond=-1),
    "a fraction": lambda spec: spec["capacity"]["perReplica"].update(requestsPerSecond=1.5),
    "credentials in an address": lambda spec: spec["endpoints"].update(urls=["https://u:p@a/"]),
}


@pytest.mark.parametrize("spoil", BAD.values(), ids=BAD.keys())
def test_an_engine_that_we_refuse_keeps_its_last_valid_spec(server: Server, spoil: Callable[[Json], Any]) -> None:
    """Case CRD-01: one bad resource stops no other, and says which values hold.

    https://github.com/rook/rook/issues/3480, https://github.com/apache/flink-kubernetes-operator/pull/196
    """
    good = engine_dict("c", "http://c:1")
    server.apply(good)
    server.apply(engine_dict("a", "http://a:1"))
    bad = copy.deepcopy(good)
    spoil(bad["spec"])
    server.apply(bad)
    server.compare()
    found = server.look()
    assert [one.metadata.name for one in found.engines] == ["a", "c"]
    kept = found.engines[1]
    assert kept.spec.endpoints.urls == ("http://c:1",)
    assert kept.metadata.generation == 2, "its status tells of the edit that was refused"
    name = ResourceName("InferenceEngine", "inf/c")
    assert found.refused[name]
    assert found.rejected[name].generation == 2
    assert found.faults == (f"InferenceEngine inf/c: {found.refused[name]}",)
    assert "u:p" not in found.refused[name]
    server.apply(good)
    assert server.look().refused == {}


@pytest.mark.parametrize("spec", [{}, None, "text", [1], {"models": None}, {"models": [None]}], ids=str)
def test_one_that_never_was_right_is_only_told(server: Server, spec: Any) -> None:
    """Case CRD-01, CRD-02: null, missing and empty are faults of one resource, never of the loop.

    https://github.com/kubernetes/kubernetes/pull/95423
    """
    server.apply(engine_dict("a", "http://a:1") | {"spec": spec})
    server.compare()
    found = server.look()
    name = ResourceName("InferenceEngine", "inf/a")
    assert found.engines == ()
    assert name in found.refused
    assert found.rejected[name].uid
    assert found.complete, "what is refused is there, and said apart"


def test_one_made_anew_has_no_earlier_spec(server: Server) -> None:
    """Events of both come from queues of their own: the new one may be told before the deletion."""
    server.apply(policy_dict("chat"))
    old = server.objects["RoutingPolicy", "inf", "chat"]
    spoiled = policy_dict("chat", models=[])
    spoiled["metadata"] |= {"uid": "anew", "resourceVersion": "50", "generation": 1}
    server.store.upsert("RoutingPolicy", spoiled)
    server.store.delete("RoutingPolicy", old)
    found = server.look()
    assert found.policies == ()
    assert [one.uid for one in found.rejected.values()] == ["anew"]


def test_an_api_server_that_is_put_back_from_a_backup(server: Server) -> None:
    """Its versions begin again below those that were seen: all that it tells would be taken for old, without end."""
    for name in ("kept", "later"):
        server.apply(engine_dict(name, "http://127.0.0.1:1"))
    server.version = 1000
    server.apply(engine_dict("kept", "http://127.0.0.1:1", state="Disabled"))
    server.delete("InferenceEngine", "later")
    server.compare()
    assert [(one.metadata.name, one.spec.state) for one in server.look().engines] == [("kept", "Disabled")]
    kept, later = (
        engine_dict("kept", "http://127.0.0.1:1", state="Draining"),
        engine_dict("later", "http://127.0.0.1:1"),
    )
    for uid, one in (("uid-1", kept), ("uid-2", later)):
        one["metadata"] |= {"uid": uid, "resourceVersion": "500", "generation": 2}
    bare = [{"metadata": one["metadata"]} for one in (kept, later)]
    assert server.store.compare("InferenceEngine", bare, "510").broken
    assert not server.look().complete
    server.store.expect(KINDS)
    server.now += 1.0
    assert not server.store.compare("InferenceEngine", bare, "511").settled, "what stood there may be another now"
    for one in (kept, later):
        server.store.upsert("InferenceEngine", one)
    assert server.store.compare("InferenceEngine", bare, "512").settled
    found = server.look()
    assert [(one.metadata.name, one.spec.state) for one in found.engines] == [("kept", "Draining"), ("later", "Active")]
    assert found.complete


def test_null_means_missing(server: Server) -> None:
    """Case CRD-02: helm renders ``retry:`` with nothing after it.

    https://github.com/kubernetes/website/pull/25151
    """
    server.apply(policy_dict(protection={"retry": None}, engineSelector=None))
    found = server.look()
    assert found.refused == {}
    assert found.policies[0].spec.protection.retry.max_attempts == 3


def test_faults_of_a_hostile_object_are_one_sentence(server: Server) -> None:
    server.apply(engine_dict("a", "http://a:1", **{f"x{index}": index for index in range(1000)}))
    found = server.look().refused[ResourceName("InferenceEngine", "inf/a")]
    assert found.count("no such field") == 3
    assert found.endswith("; and more")
    assert len(found) < 2000


def test_other_peoples_annotations_are_not_kept(server: Server) -> None:
    manifest = engine_dict("a", "http://a:1")
    manifest["metadata"]["annotations"] = {
        "headrace.dev/why": "so",
        "kubectl.kubernetes.io/last-applied": "x" * 300_000,
    }
    server.apply(manifest)
    assert server.look().engines[0].metadata.annotations == {"headrace.dev/why": "so"}


def test_who_edited_last_is_known(server: Server) -> None:
    server.apply(engine_dict("a", "http://a:1"))
    assert server.look().engines[0].metadata.editor == "kubectl apply"
    server.apply(engine_dict("a", "http://a:2"), manager="kubectl-edit")
    assert server.look().engines[0].metadata.editor == "kubectl edit"


def test_a_deletion_that_nobody_told_is_found_by_the_list(server: Server) -> None:
    for name in "abc":
        server.apply(engine_dict(name, f"http://{name}:1"))
    server.compare()
    server.delete("InferenceEngine", "a", told=False)
    server.compare()
    assert [one.metadata.name for one in server.look().engines] == ["b", "c"]
    server.delete("InferenceEngine", "b")
    assert [one.metadata.name for one in server.look().engines] == ["c"]


def test_a_kind_that_can_not_be_listed_deletes_nothing(server: Server) -> None:
    """A lost permission is no mass deletion: what is known stays, and nothing counts as deleted."""
    server.apply(engine_dict("a", "http://a:1"))
    server.compare()
    assert server.look().complete
    server.store.broken("InferenceEngine", "forbidden")
    found = server.look()
    assert len(found.engines) == 1
    assert not found.complete
    assert found.faults == ("InferenceEngines can't be followed: forbidden",)
    server.compare()
    assert server.look().complete


def test_the_watches_age(server: Server) -> None:
    server.now = 50.0
    assert server.store.age == 50.0
    server.compare()
    assert server.store.age == 0.0
    server.now = 60.0
    server.store.broken("Node", "no answer")
    assert server.store.age == 10.0
    server.apply(engine_dict("a", "http://a:1"))
    assert server.store.age == 0.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "hostile",
    [
        {},
        {"metadata": {"name": "x"}},
        {"metadata": {"name": "x", "namespace": "inf", "labels": [], "annotations": 3, "managedFields": [None, 1, {}]}},
        {"metadata": {"name": "x", "labels": {SERVICE_LABEL: {}}}, "spec": 3, "endpoints": {}, "ports": "http"},
        {"metadata": {"name": "x" * 300, "namespace": None, "uid": 4}, "spec": {"ports": [None]}, "endpoints": [None]},
    ],
    ids=range(5),
)
def test_hostile_objects_break_nothing(server: Server, kind: Kind, hostile: Json) -> None:
    server.apply(engine_on_service("a", "vllm"))
    server.store.give(Key("inf", "vllm"), hostile, [hostile])
    server.store.upsert(kind, hostile)
    server.store.delete(kind, hostile)
    server.store.upsert(kind, hostile)
    items = [one for (its, _, _), one in server.objects.items() if its == kind]
    server.store.compare(kind, [hostile, *items], "none")
    assert [one.metadata.name for one in server.look().engines] == ["a"]

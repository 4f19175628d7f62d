"""The cluster store: what an API server gives, half of it wrong, late or missing, as resources in force."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from headrace_api.endpoint_slices import SERVICE_LABEL
from headrace_operator.store.cluster import SERVICE_SECONDS, ClusterStore, Kind, ServicePort
from headrace_operator.store.cluster_index import Key
from headrace_operator.store.resources import ResourceName, Resources
from headrace_operator.store.topology import REGION_LABEL, ZONE_LABEL
from support.engine_manifests import engine_dict, policy_dict

Json = dict[str, Any]
KINDS: tuple[Kind, ...] = ("InferenceEngine", "RoutingPolicy", "EndpointSlice", "Service", "Node")


class Server:
    """Objects with uids and versions, told to the store as a watch tells them."""

    def __init__(self, *kinds: Kind) -> None:
        self.now = 0.0
        self.store = ClusterStore(lambda: self.now)
        self.objects: dict[tuple[Kind, str, str], Json] = {}
        self.version = 0
        self.store.expect(kinds or KINDS)

    def apply(self, manifest: Json, *, manager: str = "kubectl-client-side-apply", told: bool = True) -> bool:
        kind: Kind = manifest["kind"]
        metadata = manifest["metadata"]
        key = (kind, metadata.get("namespace", ""), metadata["name"])
        known = self.objects.get(key)
        self.version += 1
        generation = known["metadata"]["generation"] if known else 0
        generation += known is None or known.get("spec") != manifest.get("spec")
        manifest = copy.deepcopy(manifest)
        manifest["metadata"] |= {
            "uid": known["metadata"]["uid"] if known else f"uid-{self.version}",
            "resourceVersion": str(self.version),
            "generation": generation,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [
                {
                    "manager": manager,
                    "operation": "Update",
                    "time": f"2026-01-01T00:00:{self.version:02d}Z",
                    "fieldsV1": {"f:spec": {"f:models": {}}},
                }
            ],
        }
        self.objects[key] = manifest
        return told and self.store.upsert(kind, manifest)

    def delete(self, kind: Kind, name: str, *, told: bool = True) -> None:
        self.version += 1
        gone = self.objects.pop((kind, "inf", name))
        if told:
            self.store.delete(kind, gone)

    def compare(self, *kinds: Kind) -> None:
        for kind in kinds or KINDS:
            items = [{"metadata": one["metadata"]} for (its, _, _), one in self.objects.items() if its == kind]
            self.store.compare(kind, items, str(self.version))

    def look(self) -> Resources:
        return self.store.look(thorough=False)


def engine_on_service(name: str, service: str, port: int = 8000, **spec: Any) -> Json:
    return engine_dict(name, [], **(spec | {"endpoints": {"service": {"name": service, "port": port}}}))


def slice_of(service: str, *endpoints: Json, name: str = "", ports: list[Json] | None = None) -> Json:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name or f"{service}-1", "namespace": "inf", "labels": {SERVICE_LABEL: service}},
        "ports": ports if ports is not None else [{"name": "http", "port": 8000}],
        "endpoints": list(endpoints),
    }


def pod(address: str, *, ready: bool = True, **more: Any) -> Json:
    return {"addresses": [address], "conditions": {"ready": ready}, **more}


def node(name: str, region: str, zone: str) -> Json:
    labels = {REGION_LABEL: region, ZONE_LABEL: zone}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def service_of(service: str, **port: Any) -> Json:
    return {"kind": "Service", "metadata": {"name": service, "namespace": "inf"}, "spec": {"ports": [port]}}


@pytest.fixture
def server() -> Server:
    return Server()


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


def test_endpoints_of_services_that_someone_names(server: Server) -> None:
    server.apply(slice_of("vllm", pod("10.0.0.1"), pod("10.0.0.2", ready=False)))
    server.apply(slice_of("other", pod("10.0.0.9")))
    server.compare()
    assert server.look().services == {}
    server.apply(engine_on_service("a", "vllm"))
    assert server.look().services == {}, "not read yet is not known, which is not empty"
    assert server.store.unread() == (Key("inf", "vllm"),)
    server.now += SERVICE_SECONDS
    assert not server.look().complete
    server.store.give(Key("inf", "vllm"), None, [server.objects["EndpointSlice", "inf", "vllm-1"]])
    found = server.look()
    assert found.complete
    assert [(one.host, one.ready) for one in found.services["inf/vllm:8000"]] == [
        ("10.0.0.1", True),
        ("10.0.0.2", False),
    ]
    server.apply(slice_of("vllm", pod("10.0.0.1"), pod("10.0.0.2")))
    assert all(one.ready for one in server.look().services["inf/vllm:8000"])
    server.delete("EndpointSlice", "vllm-1")
    assert server.look().services == {"inf/vllm:8000": ()}
    server.delete("InferenceEngine", "a")
    assert server.look().services == {}


def test_what_names_a_service_is_told_when_that_was_read(server: Server) -> None:
    """Else the first table of an engine is made of replicas that it might have, at a Service that may not exist."""
    server.compare()
    before = server.look()
    server.apply(engine_on_service("a", "nowhere"))
    assert server.look() is before
    server.store.give(Key("inf", "nowhere"), None, [])
    assert server.look().services == {"inf/nowhere:8000": ()}
    server.apply(engine_on_service("b", "unreadable"))
    server.now += 5
    assert [one.metadata.name for one in server.look().engines] == ["a"]
    server.now += SERVICE_SECONDS
    found = server.look()
    assert [one.metadata.name for one in found.engines] == ["a", "b"]
    assert "inf/unreadable:8000" not in found.services, "what can't be read is unknown, and stops nobody for longer"


def test_an_event_that_outruns_the_reading_of_its_service_counts(server: Server) -> None:
    """Engines and their Deployments are applied together: pods become ready while their Services are first read."""
    server.apply(engine_on_service("a", "llm"))
    (key,) = server.store.unread()
    before, ready = slice_of("llm"), slice_of("llm", pod("10.0.0.1"))
    for version, one in ((90, before), (91, ready)):
        one["metadata"] |= {"uid": "s", "resourceVersion": str(version)}
    server.store.upsert("EndpointSlice", ready)
    assert server.look().services == {}
    server.store.give(key, service_of("llm", name="http", port=8000), [before])
    assert [one.host for one in server.look().services["inf/llm:8000"]] == ["10.0.0.1"]


def test_events_of_other_services_are_no_news(server: Server) -> None:
    server.apply(engine_on_service("a", "vllm"))
    server.store.give(Key("inf", "vllm"), None, [])
    server.compare()
    seen = server.look()
    assert not server.apply(slice_of("other", pod("10.0.0.9")))
    assert not server.apply(service_of("other", port=80))
    server.compare()
    assert server.look() is seen


def test_a_services_port_means_the_pods_port_of_that_name(server: Server) -> None:
    server.apply(engine_on_service("a", "vllm", 80))
    ports = [{"name": "metrics", "port": 9090}, {"name": "http", "port": 8000}]
    server.store.give(
        Key("inf", "vllm"),
        service_of("vllm", name="http", port=80) | {"apiVersion": "v1"},
        [slice_of("vllm", pod("fd00::1f"), ports=ports)],
    )
    (found,) = server.look().services["inf/vllm:80"]
    assert found.url == "http://[fd00::1f]:8000", "case CRD-05: https://github.com/vllm-project/router/pull/96"


def test_services_that_the_configuration_names(server: Server) -> None:
    server.store.expect(KINDS, [ServicePort("ops", "routers", 9090)])
    assert server.store.unread() == (Key("ops", "routers"),)
    server.store.give(Key("ops", "routers"), None, [])
    assert server.look().services == {"ops/routers:9090": ()}


def test_an_engine_stands_where_its_pods_stand(server: Server) -> None:
    server.apply(node("n1", "us", "us-a"))
    server.apply(engine_on_service("a", "vllm"))
    server.store.give(Key("inf", "vllm"), None, [slice_of("vllm", pod("10.0.0.1", nodeName="n1"))])
    (found,) = server.look().engines
    assert (found.spec.location.region, found.spec.location.zone) == ("us", "us-a")


@pytest.mark.parametrize(
    "left", [slice_of("vllm"), slice_of("vllm", pod("10.0.0.1", ready=False, nodeName="n1"))], ids=["none", "not ready"]
)
def test_an_engine_whose_last_pod_goes_stands_where_it_stood(server: Server, left: Json) -> None:
    server.apply(node("n1", "us", "us-a"))
    server.apply(engine_on_service("a", "vllm"))
    server.store.give(Key("inf", "vllm"), None, [])
    server.apply(slice_of("vllm", pod("10.0.0.1", nodeName="n1")))
    before = server.look().engines[0]
    assert before.spec.location.region == "us"
    server.apply(left)
    assert server.look().engines[0].spec == before.spec
    server.apply(engine_on_service("a", "vllm", location={"region": "moon"}))
    assert server.look().engines[0].spec.location.region == "moon", "its own word counts at once"
    assert server.look().engines[0].spec.location.zone is None


def test_without_permission_to_read_nodes_the_zone_is_known() -> None:
    server = Server("InferenceEngine", "RoutingPolicy", "EndpointSlice", "Service")
    server.apply(engine_on_service("a", "vllm"))
    server.store.give(Key("inf", "vllm"), None, [])
    server.apply(slice_of("vllm", pod("10.0.0.1", zone="us-a", nodeName="n1")))
    server.compare("InferenceEngine", "RoutingPolicy", "EndpointSlice", "Service")
    found = server.look()
    assert found.complete
    assert (found.engines[0].spec.location.region, found.engines[0].spec.location.zone) == (None, "us-a")


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

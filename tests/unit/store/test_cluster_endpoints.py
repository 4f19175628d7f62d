"""The cluster store: endpoints of the Services that someone names, and where engines stand by them."""

from __future__ import annotations

import pytest

from headrace_operator.store.cluster import SERVICE_SECONDS, ServicePort
from headrace_operator.store.cluster_index import Key
from support.told_store import KINDS, Json, Server, engine_on_service, node, pod, service_of, slice_of


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

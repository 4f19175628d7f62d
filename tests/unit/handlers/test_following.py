"""Following a cluster: what is begun, checked, said and begun anew, with an API server of the test's own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from kubernetes import client

from headrace_operator.handlers import following
from headrace_operator.handlers.following import (
    AGAIN_SECONDS,
    BEGIN_SECONDS,
    COMPARE_SECONDS,
    FAILED_SECONDS,
    MANY_SERVICES,
    PROBE_SECONDS,
    Follower,
)
from headrace_operator.handlers.session import Session, Watched, connection_of
from headrace_operator.kube.client import KubeFault
from headrace_operator.store.cluster import ClusterStore, ServicePort
from headrace_operator.store.cluster_index import LAG_SECONDS
from support.engine_manifests import engine_dict

Json = dict[str, Any]
FORBIDDEN = KubeFault(403, "Forbidden", "nodes is forbidden")
AWAY = KubeFault(0, "NoAnswer", "connection refused")


class Api:
    """Lists by path; ``faults`` by a part of the path."""

    settings = None

    def __init__(self) -> None:
        self.objects: dict[str, list[Json]] = {}
        self.faults: dict[str, KubeFault] = {}
        self.asked: list[str] = []
        self.version = 10

    def list(self, path: str, *, labels: str = "", fields: str = "", metadata_only: bool = False) -> Json:
        self._answer(path)
        items = self.objects.get(path.rpartition("/")[2], []) if not fields else []
        return {"metadata": {"resourceVersion": str(self.version)}, "items": items}

    def get(self, path: str) -> Json:
        self._answer(path)
        raise KubeFault(404, "NotFound", "not found")

    def every(self, path: str) -> list[Json]:
        self._answer(path)
        return self.objects.get(path.rpartition("/")[2], [])

    def _answer(self, path: str) -> None:
        self.asked.append(path)
        for part, fault in self.faults.items():
            if part in path:
                raise fault


class Watch:
    """A session that a test speaks through."""

    begun: list[Watch] = []

    def __init__(
        self, watched: Sequence[Watched], namespaces: Sequence[str], settings: Callable[[], Any], tell: Any
    ) -> None:
        self.kinds = {one.kind for one in watched}
        self.namespaces, self.tell = tuple(namespaces), tell
        self.alive, self.ended_by = False, ""

    def start(self) -> None:
        self.alive = True
        self.begun.append(self)

    def end(self) -> None:
        self.alive = False


class World:
    def __init__(self, namespaces: Sequence[str] = (), named: Sequence[ServicePort] = ()) -> None:
        self.now = 0.0
        self.api: Any = Api()
        self.store = ClusterStore(lambda: self.now)
        self.woken = 0
        self.follower = Follower(self.api, self.store, self._wake, lambda: self.now, namespaces, named)

    def _wake(self) -> None:
        self.woken += 1

    def step(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.follower.step()


@pytest.fixture(autouse=True)
def watches(monkeypatch: pytest.MonkeyPatch) -> list[Watch]:
    monkeypatch.setattr(following, "Session", Watch)
    monkeypatch.setattr(Watch, "begun", [])
    return Watch.begun


def item(name: str, version: int) -> Json:
    found = engine_dict(name, f"http://{name}:1")
    found["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": str(version)}
    return found


def test_everything_is_watched_and_compared(watches: list[Watch]) -> None:
    world = World()
    world.step()
    assert watches[0].kinds == {"InferenceEngine", "RoutingPolicy", "EndpointSlice", "Service", "Node"}
    assert world.store.ready
    asked = len(world.api.asked)
    world.step(COMPARE_SECONDS / 2)
    assert len(world.api.asked) == asked
    world.step(COMPARE_SECONDS / 2)
    assert len(world.api.asked) == asked + 5


def test_what_the_watch_tells_wakes_the_loop(watches: list[Watch]) -> None:
    world = World()
    world.step()
    watches[0].tell("InferenceEngine", None, item("a", 1))
    assert world.woken == 1
    watches[0].tell("InferenceEngine", "MODIFIED", item("a", 2))
    assert world.woken == 1, "a status write of ours is no news"
    watches[0].tell("InferenceEngine", "DELETED", item("a", 3))
    assert world.woken == 2


def test_a_watch_that_tells_nothing_is_begun_anew(watches: list[Watch], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = World()
    world.api.objects["inferenceengines"] = [item("a", 1)]
    world.step()
    assert not world.store.ready
    for _ in range(int(LAG_SECONDS / AGAIN_SECONDS) + 1):
        world.step(AGAIN_SECONDS)
    assert not watches[0].alive
    world.step(BEGIN_SECONDS[1])
    assert len(watches) == 2
    world.step(AGAIN_SECONDS)
    assert watches[1].alive, "a new watch has its own time"
    watches[1].tell("InferenceEngine", None, item("a", 1))
    world.step(AGAIN_SECONDS)
    assert world.store.ready
    assert "InferenceEngines are listed that the watch did not tell" in caplog.text


def test_a_watch_that_ends_by_itself_is_begun_anew_after_a_while(watches: list[Watch]) -> None:
    world = World()
    world.step()
    watches[0].alive, watches[0].ended_by = False, "APIForbiddenError: engines is forbidden"
    world.step(COMPARE_SECONDS)
    world.step(BEGIN_SECONDS[1])
    assert len(watches) == 2
    assert world.store.ready
    assert world.store.look(thorough=False).complete


def test_nodes_that_may_not_be_read_are_done_without(watches: list[Watch], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = World()
    world.api.faults["/nodes"] = FORBIDDEN
    world.step()
    assert "Node" not in watches[0].kinds
    assert world.store.look(thorough=False).complete
    assert caplog.text.count("Node can't be read") == 1
    world.step(PROBE_SECONDS)
    assert watches[0].alive, "what works goes on while the permission is asked for again"
    world.api.faults.clear()
    world.step(PROBE_SECONDS)
    world.step(BEGIN_SECONDS[1])
    assert "Node" in watches[-1].kinds


@pytest.mark.parametrize(
    ("fault", "word"), [(FORBIDDEN, "right would be a role that may get, list and watch it"), (AWAY, "refused")]
)
def test_what_is_needed_and_can_not_be_read_is_waited_for(
    watches: list[Watch], caplog: pytest.LogCaptureFixture, fault: KubeFault, word: str
) -> None:
    caplog.set_level(logging.INFO)
    world = World()
    world.api.faults["/inferenceengines"] = fault
    for _ in range(20):
        world.step(BEGIN_SECONDS[1])
    assert watches == []
    assert caplog.text.count("InferenceEngine can't be read") == 1
    assert word in caplog.text
    assert world.store.missing == ()  # nothing is expected before watches begin
    assert not world.store.ready
    world.api.faults.clear()
    world.step(BEGIN_SECONDS[1])
    assert world.store.ready
    assert "InferenceEngine can be read again" in caplog.text


def test_an_outage_deletes_nothing_and_ends_nothing(watches: list[Watch]) -> None:
    world = World()
    world.step()
    watches[0].tell("InferenceEngine", None, item("a", 1))
    world.api.faults["/"] = AWAY
    for _ in range(20):
        world.step(COMPARE_SECONDS)
    found = world.store.look(thorough=False)
    assert len(found.engines) == 1
    assert not found.complete
    world.api.faults.clear()
    world.api.objects["inferenceengines"] = [item("a", 1)]
    world.step(COMPARE_SECONDS)
    assert watches[0].alive
    assert world.store.look(thorough=False).complete


def test_watched_namespaces_and_routers_elsewhere(watches: list[Watch]) -> None:
    world = World(["team-a", "team-b"], [ServicePort("ops", "routers", 9090), ServicePort("team-a", "r", 9090)])
    world.step()
    main, beside = watches
    assert main.namespaces == ("team-a", "team-b")
    assert (beside.namespaces, beside.kinds) == (("ops",), {"EndpointSlice", "Service"})
    assert "/apis/headrace.dev/v1alpha1/namespaces/team-b/inferenceengines" in world.api.asked
    assert "/apis/discovery.k8s.io/v1/namespaces/ops/endpointslices" in world.api.asked
    assert "/apis/headrace.dev/v1alpha1/namespaces/ops/inferenceengines" not in world.api.asked
    assert "/api/v1/nodes" not in world.api.asked, "nothing is asked of the cluster as a whole"
    world.follower.follow(["team-a"], [])
    world.step()
    assert not main.alive
    assert not beside.alive
    world.step(BEGIN_SECONDS[1])
    assert [one.namespaces for one in watches[2:]] == [("team-a",)]


def test_a_service_that_someone_names_is_read(watches: list[Watch]) -> None:
    world = World(named=[ServicePort("ops", "routers", 9090)])
    world.api.faults["/services/routers"] = AWAY
    world.step()
    assert not world.store.ready
    world.api.faults.clear()
    world.step(FAILED_SECONDS)
    assert world.store.ready
    assert world.store.look(thorough=False).services == {"ops/routers:9090": ()}
    assert world.woken


def test_many_services_of_a_namespace_are_listed_and_not_asked_for_one_by_one(watches: list[Watch]) -> None:
    names = [f"routers-{number}" for number in range(MANY_SERVICES)]
    world = World(named=[ServicePort("ops", name, 9090) for name in names])
    world.api.objects["services"] = [{"metadata": {"name": name, "namespace": "ops"}} for name in names[1:]]
    world.step()
    assert world.store.unread() == ()
    assert [path for path in world.api.asked if "/namespaces/ops/" in path] == [
        "/api/v1/namespaces/ops/services",
        "/apis/discovery.k8s.io/v1/namespaces/ops/endpointslices",
    ]


@pytest.mark.parametrize(("fault", "most"), [(AWAY, 2), (FORBIDDEN, 10)])
def test_services_that_can_not_be_read_are_not_asked_for_on_and_on(
    watches: list[Watch], fault: KubeFault, most: int
) -> None:
    """A silent server costs its whole time limit each; one that refuses was asked for each five times a second."""
    world = World(named=[ServicePort("ops", f"routers-{number}", 9090) for number in range(5)])
    world.api.faults["/services/"] = fault
    for _ in range(25):
        world.step(0.2)
    assert 1 <= sum("/services/" in path for path in world.api.asked) <= most


def test_a_service_that_can_not_be_read_keeps_nobody_from_the_others(watches: list[Watch]) -> None:
    world = World(named=[ServicePort("ops", name, 9090) for name in ("a", "b", "c")])
    world.api.faults["/services/a"] = KubeFault(500, "InternalError", "no")
    world.step()
    assert sorted(world.store.look(thorough=False).services) == ["ops/b:9090", "ops/c:9090"]


def test_the_configuration_waits_for_no_slow_server(watches: list[Watch]) -> None:
    """It is told from the event loop, which also answers the kubelet's probes."""
    world = World()
    held, go = threading.Event(), threading.Event()

    def answer(_: str) -> None:
        held.set()
        assert go.wait(60)

    world.api._answer = answer
    world.follower.start()
    assert held.wait(60)
    telling = threading.Thread(target=world.follower.follow, args=(["team-a"], []), daemon=True)
    telling.start()
    telling.join(30)
    waits = telling.is_alive()
    go.set()
    world.follower.stop()
    assert not waits


def test_what_is_not_watched_any_more_is_not_said_to_be_deleted(watches: list[Watch]) -> None:
    world = World(["team-a", "team-b"])
    world.step()
    assert world.store.look(thorough=False).covers("team-b")
    world.follower.follow(["team-a"], [])
    world.step()
    assert not world.store.look(thorough=False).complete
    world.step(BEGIN_SECONDS[1])
    found = world.store.look(thorough=False)
    assert found.complete
    assert [found.covers(one) for one in ("team-a", "team-b")] == [True, False]


def test_credentials_as_kopf_takes_them() -> None:
    settings = client.Configuration()
    settings.host, settings.ssl_ca_cert = "https://api.example:6443", "/ca.crt"
    settings.api_key["authorization"] = "bearer abc"
    found = connection_of(settings)
    assert (found.server, found.ca_path, found.scheme, found.token) == (
        "https://api.example:6443",
        "/ca.crt",
        "bearer",
        "abc",
    )
    assert connection_of(client.Configuration()).token is None


def test_a_session_that_is_ended_as_it_begins_ends() -> None:
    settings = client.Configuration()
    settings.host = "http://127.0.0.1:1"

    def session() -> Session:
        return Session([Watched("Node", "", "v1", "nodes")], (), lambda: settings, lambda *_: None)

    never = session()
    never.end()
    assert not never.alive
    soon = session()
    soon.start()
    soon.end()
    assert not soon.alive

"""Engines by Service: pods come and go without a table, and no request is lost for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from headrace_api.table import RoutingTable
from headrace_router.endpoints import dns as dns_services
from headrace_router.endpoints import services
from headrace_router.server import server
from headrace_router.server.server import Router
from headrace_router.upstream.resolve import NotFound, Resolver, Unresolved
from support.fake_api import CONFIGMAPS, SERVICES, SLICES, FakeApi, config_map, service_object, slice_of
from support.fake_engine import EVENT, Exchange, FakeEngine, answers
from support.raw_client import ask, get, post
from support.router_pod import services_table, watching
from support.router_process import in_flight, metric, reads, ready, until, until_async
from support.router_table import SESSION, table_bytes

ASK = {"model": "m"}


@pytest.fixture
async def pods() -> AsyncIterator[list[FakeEngine]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(FakeEngine(answers)) for _ in range(3)]


def publish(api: FakeApi, table: RoutingTable) -> None:
    api.put(CONFIGMAPS, config_map(table_bytes(table).decode()))


def pod(api: FakeApi, service: str, number: int, engine: FakeEngine, **conditions: bool) -> None:
    """One slice a pod: on loopback their ports tell pods apart."""
    api.put(SLICES, slice_of(service, "127.0.0.1", port=engine.port, name=f"{service}-{number}", **conditions))


def endpoints(router: Router, engine: str = "inference/a") -> list[str]:
    known = router.selector.view.engines.get(engine)
    return [] if known is None else [endpoint.url for endpoint in known.endpoints]


async def served(router: Router, pods: list[FakeEngine], count: int = 8, *headers: str) -> list[int]:
    """How many of ``count`` requests each pod got."""
    before = [len(each.requests) for each in pods]
    for _ in range(count):
        assert (await ask(router.address, post(ASK, "/v1/chat/completions", *headers))).status == 200
    return [len(each.requests) - had for each, had in zip(pods, before, strict=True)]


async def test_pods_come_and_go_without_a_table(api: FakeApi, token: Path, pods: list[FakeEngine]) -> None:
    publish(api, services_table({"a": ("vllm", 8000, 1)}))
    pod(api, "vllm", 0, pods[0])
    pod(api, "other", 0, pods[2])
    async with watching(api, token) as router:
        await until(lambda: endpoints(router) == [pods[0].url])
        pod(api, "vllm", 1, pods[1], ready=False)
        pod(api, "vllm", 2, pods[2], ready=False)
        pod(api, "vllm", 1, pods[1])
        await until(lambda: len(endpoints(router)) == 2)
        first, second, third = await served(router, pods)
        assert first
        assert second
        assert not third
        pod(api, "vllm", 0, pods[0], terminating=True)
        await until(lambda: endpoints(router) == [pods[1].url])
        assert await served(router, pods) == [0, 8, 0]
        api.remove(SLICES, "inference", "vllm-1")
        await until(lambda: endpoints(router) == [])
        assert await metric(router.admin_address, "headrace_endpoints", engine="inference/a") == 0
        assert api.watching(SLICES) == 1
        assert in_flight(router) == 0


async def test_a_stream_on_a_terminating_pod_ends_normally(api: FakeApi, token: Path) -> None:
    """REL-04 (https://github.com/vllm-project/production-stack/issues/680): what runs on what goes is not cut; a pod
    that has no slice any more still has its stream."""
    go_on = asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        await exchange.start_sse()
        await exchange.chunk(EVENT)
        await go_on.wait()
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end_chunks()

    async with FakeEngine(slow) as old, FakeEngine(answers) as new:
        publish(api, services_table({"a": ("vllm", 8000, 1)}))
        pod(api, "vllm", 0, old)
        async with watching(api, token) as router:
            await until(lambda: endpoints(router) == [old.url])
            stream = asyncio.create_task(ask(router.address, post(ASK | {"stream": True})))
            await old.until(lambda: len(old.requests) == 1)
            pod(api, "vllm", 1, new)
            pod(api, "vllm", 0, old, terminating=True)
            api.remove(SLICES, "inference", "vllm-0")
            await until(lambda: endpoints(router) == [new.url])
            assert await served(router, [old, new]) == [0, 8]
            go_on.set()
            answer = await stream
            assert answer.complete
            assert answer.body.endswith(b"[DONE]\n\n")
            await until(lambda: in_flight(router) == 0)


async def test_a_session_keeps_its_pod(api: FakeApi, token: Path, pods: list[FakeEngine]) -> None:
    """HAS-02 (https://github.com/vllm-project/production-stack/issues/8): inside an engine too, a lost pod moves its
    own sessions only."""
    publish(api, services_table({"a": ("vllm", 8000, 1)}, affinity=SESSION))
    for number, engine in enumerate(pods):
        pod(api, "vllm", number, engine)
    async with watching(api, token) as router:
        await until(lambda: len(endpoints(router)) == 3)
        homes = {}
        for session in range(12):
            got = await served(router, pods, 2, f"x-session-id: s{session}")
            assert sorted(got) == [0, 0, 2]
            homes[session] = got.index(2)
        lost = Counter(homes.values()).most_common(1)[0][0]
        api.remove(SLICES, "inference", f"vllm-{lost}")
        await until(lambda: len(endpoints(router)) == 2)
        for session, home in homes.items():
            got = await served(router, pods, 1, f"x-session-id: s{session}")
            assert got.index(1) == home or home == lost


async def test_an_engine_without_ready_pods_is_passed_over_and_explained(
    api: FakeApi, token: Path, pods: list[FakeEngine]
) -> None:
    publish(api, services_table({"a": ("vllm-a", 8000, 9_999), "b": ("vllm-b", 8000, 1)}))
    pod(api, "vllm-a", 0, pods[0], ready=False)
    pod(api, "vllm-b", 0, pods[1])
    async with watching(api, token) as router:
        await until(lambda: endpoints(router, "inference/b") == [pods[1].url])
        assert await served(router, pods) == [0, 8, 0]
        told = (await get(router.admin_address, "/debug/explain?model=m")).json()
        assert {c["engine"]: c["state"] for c in told["candidates"]} == {  # type: ignore[attr-defined]
            "inference/a": "no ready endpoint",
            "inference/b": "open",
        }
        api.remove(SLICES, "inference", "vllm-b-0")
        await until(lambda: endpoints(router, "inference/b") == [])
        refused = await ask(router.address, post(ASK))
        assert (refused.status, refused.code) == (503, "no_engine")
        assert (await ready(router.admin_address))[0] == 200, "never because of engines"


async def test_which_target_port_is_meant_stands_in_the_service(
    api: FakeApi, token: Path, pods: list[FakeEngine]
) -> None:
    """A Service's port is not its pods' port; with several ports only the Service tells. Without the right to list
    Services the only port, or the one of that number, must do."""
    publish(api, services_table({"a": ("vllm", 80, 1)}))
    two = slice_of("vllm", "127.0.0.1", port=pods[0].port)
    two["ports"].append({"name": "metrics", "port": pods[1].port})
    api.put(SLICES, two)
    api.put(SERVICES, service_object("vllm", 80, pods[0].port))
    async with watching(api, token) as router:
        await until(lambda: endpoints(router) == [pods[0].url])
    api.forbidden.add(SERVICES)
    async with watching(api, token) as router:
        await until(lambda: _followed(router))
        assert endpoints(router) == []
        pod(api, "vllm", 0, pods[0])
        api.remove(SLICES, "inference", "vllm-x")
        await until(lambda: endpoints(router) == [pods[0].url])


def _followed(router: Router) -> bool:
    known = router.selector.view.engines.get("inference/a")
    return known is not None and known.addresses is not None


async def test_only_namespaces_of_the_tables_are_watched(api: FakeApi, token: Path, pods: list[FakeEngine]) -> None:
    publish(api, services_table({"a": ("vllm", 8000, 1)}))
    pod(api, "vllm", 0, pods[0])
    api.paged = 1
    pod(api, "vllm", 1, pods[1])
    async with watching(api, token) as router:
        await until(lambda: api.watching(SLICES) == 1 and len(endpoints(router)) == 2)
        publish(api, services_table({"a": ("vllm", 8000, 1), "b": ("vllm", 8000, 1)}, revision=2))
        await until(lambda: len(endpoints(router, "inference/b")) == 2)
        assert len(api.queries(SLICES, watch=False)) == 2, "two pages, and no list for an engine more"
        from support.router_table import routing_table

        publish(api, routing_table({"a": pods[0].url}, revision=3))
        await until(lambda: api.watching(SLICES) == 0)
        assert endpoints(router) == [pods[0].url]


async def test_slices_that_lie_do_no_harm(api: FakeApi, token: Path, pods: list[FakeEngine]) -> None:
    publish(api, services_table({"a": ("vllm", 8000, 1)}))
    pod(api, "vllm", 0, pods[0])
    stranger = slice_of("vllm", "10.9.9.9", name="stranger") | {"endpoints": None}
    hostile = [
        {"metadata": {"name": "h1", "namespace": "inference", "labels": None}},
        slice_of("vllm", "not an address", name="h2"),
        slice_of("vllm", "127.0.0.1/../x", name="h3"),
        slice_of("vllm", name="h4") | {"endpoints": [None, 7, {"addresses": "x"}, {"addresses": [None]}]},
        slice_of("vllm", "10.0.0.1", name="h5") | {"ports": [{"port": 10**9}]},
        slice_of("", "10.0.0.1", name="h6"),
        stranger,
    ]
    for each in hostile:
        api.put(SLICES, each)
    async with watching(api, token) as router:
        await until(lambda: endpoints(router) == [pods[0].url])
        for each in hostile:
            api.put(SLICES, each)
        api.say(SLICES, b'{"type":"ADDED","object":{"metadata":{"namespace":"elsewhere","name":"vllm-0"}}}\n')
        pod(api, "vllm", 1, pods[1])
        await until(lambda: len(endpoints(router)) == 2)
        assert await served(router, pods)


class Names:
    """A resolver under a test's control: hosts that are not in it do not exist; None: it says nothing."""

    def __init__(self, **known: list[str] | None) -> None:
        self.known = known
        self.asked: Counter[str] = Counter()

    def look(self, host: str) -> list[str]:
        name = host.partition(".")[0]
        self.asked[host] += 1
        if name not in self.known:
            raise NotFound(f"{host}: no such name")
        found = self.known[name]
        if found is None:
            raise Unresolved(f"{host}: the resolver is down")
        return found


async def test_without_rights_services_are_found_by_name_and_back(
    api: FakeApi, token: Path, pods: list[FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(vllm=["127.0.0.1"])
    monkeypatch.setattr(server, "Resolver", lambda: Resolver(names.look))
    monkeypatch.setattr(dns_services, "EVERY", 0.05)
    publish(api, services_table({"a": ("vllm", pods[0].port, 1)}))
    pod(api, "vllm", 0, pods[1])
    api.forbidden.add(SLICES)
    async with watching(api, token) as router:
        await until(lambda: endpoints(router) == [pods[0].url])
        assert names.asked.keys() == {"vllm.inference.svc"}
        told = (await ready(router.admin_address))[1]["services"]
        assert told["byName"] == 1
        assert "403" in told["watched"]["inference"]
        names.known["vllm"] = None
        await until_async(lambda: _says(router, "the resolver is down"))
        assert await served(router, pods) == [8, 0, 0], "what was known stays"
        del names.known["vllm"]
        await until(lambda: endpoints(router) == [])
        api.forbidden.clear()
        await until(lambda: endpoints(router) == [pods[1].url], 60)
        settled = names.asked.total()
        told = (await ready(router.admin_address))[1]["services"]
        assert (told["byName"], told["watched"], names.asked.total()) == (0, {"inference": None}, settled)


async def _says(router: Router, text: str) -> bool:
    return text in str((await ready(router.admin_address))[1]["services"]["unresolved"])


async def test_a_name_is_looked_up_at_once_when_its_address_is_dead(
    tmp_path: Path, pods: list[FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standalone too: a table in a file, and no API server at all."""
    names = Names(vllm=["127.0.0.9"])
    monkeypatch.setattr(server, "Resolver", lambda: Resolver(names.look))
    monkeypatch.setattr(dns_services, "EVERY", 600.0)
    monkeypatch.setattr(dns_services, "SOONEST", 0.05)
    path = tmp_path / "t.json"
    path.write_bytes(table_bytes(services_table({"a": ("vllm", pods[0].port, 1)})))
    async with watching(None, path, files=(path,), configmaps=()) as router:
        await until(lambda: endpoints(router) == [f"http://127.0.0.9:{pods[0].port}"])
        names.known["vllm"] = ["127.0.0.1"]
        await until_async(lambda: _ok(router), 60)
        assert endpoints(router) == [pods[0].url]


async def _ok(router: Router) -> bool:
    return (await ask(router.address, post(ASK))).status == 200


async def test_readiness_waits_for_the_first_word_on_services_but_not_for_long(
    api: FakeApi, token: Path, pods: list[FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a new router would refuse its first requests, and one without engines would never be ready."""
    publish(api, services_table({"a": ("vllm", 8000, 1)}))
    pod(api, "vllm", 0, pods[0])
    monkeypatch.setattr(services, "SETTLED_AFTER", 1.0)
    api.hung.add(SLICES)
    async with watching(api, token) as router:
        await until(lambda: router.tables.applied)
        assert (await ready(router.admin_address))[0] == 503
        await until_async(lambda: _is_ready(router))
    api.hung.clear()
    async with watching(api, token) as router:
        await until_async(lambda: _is_ready(router))
        assert (await ask(router.address, post(ASK))).status == 200


async def _is_ready(router: Router) -> bool:
    return (await ready(router.admin_address))[0] == 200


async def test_round_trips_are_measured_where_a_policy_wants_them(
    api: FakeApi, token: Path, pods: list[FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace_router.endpoints import round_trips

    monkeypatch.setattr(round_trips, "LOOK", 0.01)
    monkeypatch.setattr(round_trips, "FIRST_WITHIN", 0.0)
    publish(api, services_table({"a": ("vllm", 8000, 1)}))
    pod(api, "vllm", 0, pods[0])
    async with watching(api, token) as router:
        await until(lambda: endpoints(router) == [pods[0].url])
        assert router.round_trips.due() == []
        publish(api, services_table({"a": ("vllm", 8000, 1)}, revision=2, measure_round_trips=True))
        await until(lambda: "inference/a" in router.round_trips.measured())
        labels: dict[str, Any] = {"frontend": "fe-a", "engine": "inference/a"}
        await reads(1, router.admin_address, "headrace_round_trip_samples", **labels)
        assert 0 < await metric(router.admin_address, "headrace_round_trip_seconds", **labels) < 1

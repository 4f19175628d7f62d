"""Engines by Service while the API server, rights and Services are not as they should be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace_router.endpoints import dns as dns_services
from headrace_router.endpoints import services
from headrace_router.endpoints import slices as kube_slices
from headrace_router.kube import watch as kube_watch
from headrace_router.server import server
from headrace_router.server.server import Router
from headrace_router.upstream.resolve import NotFound, Resolver
from support.fake_api import CONFIGMAPS, SERVICES, SLICES, FakeApi, config_map, service_object, slice_of
from support.fake_engine import FakeEngine, answers
from support.raw_client import ask, post
from support.router_pod import services_table, watching
from support.router_process import ready, until, until_async
from support.router_table import routing_table, table_bytes

ASK = {"model": "m"}


@pytest.fixture
async def pod() -> AsyncIterator[FakeEngine]:
    async with FakeEngine(answers) as made:
        yield made


@pytest.fixture
def by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver that knows the Service vllm."""

    def look(host: str) -> list[str]:
        if host != "vllm.inference.svc":
            raise NotFound(f"{host}: no such name")
        return ["127.0.0.1", "fec0::1%9", "nonsense address"]

    monkeypatch.setattr(server, "Resolver", lambda: Resolver(look))
    monkeypatch.setattr(dns_services, "EVERY", 0.05)


def endpoints(router: Router, engine: str = "inference/a") -> list[str]:
    known = router.selector.view.engines.get(engine)
    return [] if known is None else [endpoint.url for endpoint in known.endpoints]


async def _is_ready(router: Router) -> bool:
    return (await ready(router.admin_address))[0] == 200


@pytest.mark.usefixtures("by_name")
async def test_started_while_the_api_server_is_away_services_are_found_by_name(
    api: FakeApi, token: Path, pod: FakeEngine, tmp_path: Path
) -> None:
    """A container that is restarted meanwhile has its mounted table, and nobody has told it of slices yet: the
    cluster's DNS still knows. What the API server says once it is back stands instead."""
    table = services_table({"a": ("vllm", pod.port, 1)})
    mounted = tmp_path / "inference" / "headrace-chat-fe-a"
    mounted.mkdir(parents=True)
    (mounted / "table.json").write_bytes(table_bytes(table))
    api.failing |= {CONFIGMAPS, SLICES, SERVICES}
    async with watching(api, token, fallback=tmp_path) as router, FakeEngine(answers) as other:
        await until(lambda: endpoints(router) == [pod.url])
        assert (await ask(router.address, post(ASK))).status == 200
        api.put(SLICES, slice_of("vllm", "127.0.0.1", port=other.port))
        api.failing.clear()
        await until(lambda: endpoints(router) == [other.url], 60)
        api.failing |= {SLICES}
        api.cut()
        await until(lambda: router.services.detail()["watched"] != {"inference": None})
        assert endpoints(router) == [other.url], "what slices said stays"


@pytest.mark.usefixtures("by_name")
async def test_rights_that_turn_out_missing_after_an_outage_lead_to_names(
    api: FakeApi, token: Path, pod: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that starts may refuse for a moment: then what it said before stays. Once names stand, an outage is no
    reason to go back to what slices said long ago."""
    api.put(CONFIGMAPS, config_map(table_bytes(services_table({"a": ("vllm", pod.port, 1)})).decode()))
    api.put(SLICES, slice_of("vllm", "127.0.0.9"))
    async with watching(api, token) as router:

        async def told(code: str) -> None:
            await until(lambda: code in str(router.services.detail()["watched"]), 60)

        await until(lambda: endpoints(router) == ["http://127.0.0.9:8000"])
        api.failing |= {SLICES}
        api.cut(SLICES)
        await told("500")
        api.forbidden |= {SLICES}
        api.failing.clear()
        await told("403")
        assert endpoints(router) == ["http://127.0.0.9:8000"]
        monkeypatch.setattr(kube_slices, "REFUSED_FOR", 0.0)
        await until(lambda: endpoints(router) == [pod.url], 60)
        api.failing |= {SLICES}
        api.forbidden.clear()
        await told("500")
        assert endpoints(router) == [pod.url]
        api.failing.clear()
        await until(lambda: endpoints(router) == ["http://127.0.0.9:8000"], 60)


async def test_readiness_does_not_fall_again_for_a_tables_first_service(
    api: FakeApi, token: Path, pod: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ready for good until shutdown: a policy's edit must not take all routers out of their Service at once."""
    monkeypatch.setattr(services, "SETTLED_AFTER", 600.0)
    api.put(CONFIGMAPS, config_map(table_bytes(routing_table({"a": pod.url})).decode()))
    api.hung.add(SLICES)
    async with watching(api, token) as router:
        await until_async(lambda: _is_ready(router))
        table = services_table({"a": ("vllm", 8000, 1)}, revision=2)
        api.put(CONFIGMAPS, config_map(table_bytes(table).decode()))
        await until(lambda: router.selector.view.policies[0].revision == "2")
        assert await _is_ready(router)


async def test_a_services_ports_are_asked_for_whenever_an_unknown_one_is_named(
    api: FakeApi, token: Path, pod: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long nothing was new of Services: an engine that comes later needs its own at once."""
    monkeypatch.setattr(kube_watch, "RELIST", 0.0)
    monkeypatch.setattr(kube_watch, "WATCH", 1.0)
    monkeypatch.setattr(kube_slices, "SERVICES_EVERY", 0.2)
    api.put(CONFIGMAPS, config_map(table_bytes(services_table({"a": ("vllm", 80, 1)})).decode()))
    api.put(SERVICES, service_object("vllm", 80, 8000))
    async with watching(api, token) as router:
        await until(lambda: len(api.queries(SERVICES, watch=False)) >= 5, 60)
        two = slice_of("new", "127.0.0.1", port=pod.port)
        two["ports"].append({"name": "metrics", "port": 9090})
        api.put(SERVICES, service_object("new", 80, pod.port))
        api.put(SLICES, two)
        table = services_table({"a": ("vllm", 80, 1), "b": ("new", 80, 1)}, revision=2)
        api.put(CONFIGMAPS, config_map(table_bytes(table).decode()))
        await until(lambda: endpoints(router, "inference/b") == [pod.url], 3.0)


async def test_services_that_hang_hold_up_nobody(api: FakeApi, token: Path, pod: FakeEngine) -> None:
    """Which port is meant can mostly be told from the slices alone."""
    api.put(CONFIGMAPS, config_map(table_bytes(services_table({"a": ("vllm", 80, 1)})).decode()))
    api.put(SLICES, slice_of("vllm", "127.0.0.1", port=pod.port))
    api.hung.add(SERVICES)
    async with watching(api, token) as router:
        await until_async(lambda: _is_ready(router))
        assert endpoints(router) == [pod.url]

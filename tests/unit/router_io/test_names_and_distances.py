"""Names that are looked up again and again, and round trips."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from headrace_router.core.build_view import build_view
from headrace_router.core.selection import Selector
from headrace_router.endpoints import dns as dns_services
from headrace_router.endpoints.dns import DnsServices
from headrace_router.endpoints.round_trips import RoundTrips, connecting
from headrace_router.upstream import resolve
from headrace_router.upstream.resolve import NotFound, Resolver, Unresolved, look_up
from support.fake_engine import FakeEngine, answers
from support.router_core import make_table, swap
from support.router_process import until


class Names:
    """A resolver under a test's control."""

    def __init__(self, found: list[str] | Exception) -> None:
        self.found = found
        self.asked = 0

    def look(self, _host: str) -> list[str]:
        self.asked += 1
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_services, "EVERY", 0.001)


async def follow(names: Names, *hosts: str) -> tuple[DnsServices, list[str], asyncio.Task[None]]:
    changes: list[str] = []
    found = DnsServices(Resolver(names.look), chance=lambda: 0.5, changed=changes.append)
    found.want(hosts)
    return found, changes, asyncio.create_task(found.follow())


@pytest.mark.usefixtures("quick")
async def test_a_resolver_that_fails_leaves_what_was_known() -> None:
    names = Names(["10.0.0.1"])
    found, changes, task = await follow(names, "a")
    await until(lambda: found.addresses("a") == ["10.0.0.1"])
    assert found.answered()
    names.found = Unresolved("a: no answer")
    await until(lambda: found.trouble("a") == "a: no answer")
    since = names.asked
    await until(lambda: names.asked > since + 5)
    assert found.addresses("a") == ["10.0.0.1"]
    assert changes == ["a"]
    names.found = ["10.0.0.2", "10.0.0.3"]
    await until(lambda: found.addresses("a") == ["10.0.0.2", "10.0.0.3"])
    assert found.trouble("a") is None
    task.cancel()


@pytest.mark.usefixtures("quick")
async def test_a_name_that_is_gone_is_believed_at_the_second_word() -> None:
    """A resolver that never knew it may know nothing of the cluster: that takes away no address."""
    names = Names(NotFound("a: no such name"))
    found, _, task = await follow(names, "a")
    await until(lambda: names.asked > 5)
    assert found.addresses("a") is None
    assert found.answered()
    names.found = ["10.0.0.1"]
    await until(lambda: found.addresses("a") == ["10.0.0.1"])
    names.found = NotFound("a: no such name")
    asked = names.asked
    await until(lambda: found.addresses("a") == [])
    assert names.asked >= asked + dns_services.GONE_AFTER
    task.cancel()


async def test_names_are_forgotten_and_doubted() -> None:
    names = Names(["10.0.0.1"])
    found, changes, task = await follow(names, "a", "b")
    await until(lambda: sorted(changes) == ["a", "b"])
    found.want(["b"])
    assert found.addresses("a") is None
    found.doubt("a")
    found.doubt("b")
    asked = names.asked
    await until(lambda: names.asked > asked)
    task.cancel()


async def test_a_hung_resolver_holds_a_few_places_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "LIMIT", 0.05)
    release = threading.Event()

    def hang(host: str) -> list[str]:
        release.wait(30)
        return [host]

    resolver = Resolver(hang)
    asks = [asyncio.create_task(resolver.addresses(f"h{number}")) for number in range(resolve.AT_ONCE)]
    failed = await asyncio.gather(*asks, return_exceptions=True)
    assert all(isinstance(each, Unresolved) for each in failed)
    waiting = asyncio.create_task(resolver.addresses("next"))
    await asyncio.sleep(0)
    assert not waiting.done()
    release.set()
    assert await waiting == ["next"]


def test_the_systems_resolver() -> None:
    assert "127.0.0.1" in look_up("127.0.0.1")
    for host in ("no-such-name.invalid", "a" * 300, "b\x00c"):
        with pytest.raises((NotFound, Unresolved), match=host[:10]):
            look_up(host)


class World:
    """A selector, a clock, and distances."""

    def __init__(self, **table: Any) -> None:
        self.now = 0.0
        self.distance: dict[str, float | Exception] = {}
        self.asked: list[str] = []
        self.selector = Selector(build_view([make_table(**table)]), rng=lambda: 0.5)
        self.trips = RoundTrips(self.selector, self.connect, clock=lambda: self.now, chance=lambda: 0.5)

    async def connect(self, host: str, port: int) -> float:
        self.asked.append(f"{host}:{port}")
        found = self.distance.get(host, 0.01)
        if isinstance(found, Exception):
            raise found
        return found

    async def minutes(self, count: float) -> None:
        end = self.now + 60 * count
        while self.now < end:
            for name in self.trips.due():
                await self.trips.measure(name)
            self.now += 1


async def test_a_median_of_five_minutes_has_always_five_samples() -> None:
    """api.md, Network: TCP connect, median of 5 minutes, at least 5 samples."""
    world = World(measureRoundTrips=True)
    await world.minutes(5)
    for _ in range(30):
        await world.minutes(0.3)
        assert {found.samples >= 5 for found in world.trips.measured().values()} == {True}
    assert world.trips.measured().keys() == {"ns/a", "ns/b", "ns/c"}
    assert len(world.asked) <= 3 * 18
    world.distance["a.example"] = 0.2
    await world.minutes(2)
    assert world.trips.measured()["ns/a"].seconds == 0.01, "two of five"
    await world.minutes(3)
    assert world.trips.measured()["ns/a"].seconds == 0.2


@pytest.mark.parametrize("error", [ConnectionRefusedError(), TimeoutError(), NotFound("x"), Unresolved("x")])
async def test_who_can_not_be_connected_to_has_no_round_trip(error: Exception) -> None:
    world = World(measureRoundTrips=True)
    world.distance["a.example"] = error
    await world.minutes(2)
    assert world.trips.measured().keys() == {"ns/b", "ns/c"}
    world.now += 1_000
    assert world.trips.measured() == {}, "what is old is unknown"


async def test_only_tables_that_ask_are_measured() -> None:
    world = World()
    await world.minutes(3)
    assert world.asked == []
    swap(world.selector, make_table(measureRoundTrips=True))
    await world.minutes(1)
    assert world.trips.measured()
    swap(world.selector, make_table())
    await world.minutes(1)
    assert world.trips.measured() == {}


async def test_a_real_connect() -> None:
    async with FakeEngine(answers) as engine:
        connect = connecting(Resolver(lambda _host: ["127.0.0.1"]))
        assert 0 < await connect("127.0.0.1", engine.port) < 1
        assert 0 < await connect("a-name", engine.port) < 1
        await engine.until(lambda: engine.connections == 2)
        await engine.until(lambda: engine.open_connections == 0)
    with pytest.raises(ConnectionRefusedError):
        await connect("127.0.0.1", engine.port)


def _answering(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80)) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)


def test_a_name_leads_to_no_address_that_an_engine_cannot_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who owns a name can make it say the address of a cloud's metadata service, now or later."""
    _answering(monkeypatch, "169.254.169.254", "10.0.0.7")
    assert look_up("engine.example") == ["10.0.0.7"]
    _answering(monkeypatch, "169.254.169.254")
    with pytest.raises(Unresolved, match="no address that an engine can have"):
        look_up("engine.example")


@pytest.mark.parametrize(
    ("conf", "host", "asked"),
    [
        ("search a.svc.k8s svc.k8s k8s corp.example\noptions ndots:5", "vllm.inf.svc", "vllm.inf.svc.k8s."),
        ("search old\n# x\nsearch  svc.k8s.\n", "vllm.inf.svc", "vllm.inf.svc.k8s."),
        ("search svc.k8s", "engine.example", "engine.example"),
        ("search corp.example", "vllm.inf.svc", "vllm.inf.svc"),
        ("search\n\n", "vllm.inf.svc", "vllm.inf.svc"),
        (None, "vllm.inf.svc", "vllm.inf.svc"),
    ],
)
def test_a_services_name_is_asked_for_in_the_clusters_domain_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, conf: str | None, host: str, asked: str
) -> None:
    """A wildcard in another domain of the search list must not take over the requests for a Service that is gone."""
    if conf is not None:
        (tmp_path / "resolv.conf").write_text(conf)
    monkeypatch.setattr(resolve, "RESOLV_CONF", tmp_path / "resolv.conf")
    names: list[str] = []

    def record(name: str, *_: object, **__: object) -> list[object]:
        names.append(name)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.7", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", record)
    assert look_up(host) == ["10.0.0.7"]
    assert names == [asked]

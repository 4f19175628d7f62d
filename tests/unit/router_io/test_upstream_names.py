"""Addresses of engines' names: how long they are good for, whose turn it is, and a resolver that fails or hangs."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from headrace_router.upstream import connect
from headrace_router.upstream.connect import Names, origin
from headrace_router.upstream.port import Address, NotSent
from headrace_router.upstream.resolve import NotFound, Resolver, Unresolved
from support.router_process import until
from support.upstream_pool import pooled, tried

HOST = "engine.example"


class Told:
    """A resolver and a clock under a test's control. ``hang``: look-ups wait for it."""

    def __init__(self, *found: str) -> None:
        self.found: list[str] | Exception = list(found)
        self.asked = 0
        self.now = 1000.0
        self.hang = threading.Event()
        self.hang.set()
        self.names = Names(Resolver(self.look), lambda: self.now)

    def look(self, _: str) -> list[str]:
        self.asked += 1
        assert self.hang.wait(20)
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    async def ask(self) -> list[str]:
        return await self.names.addresses(HOST)


async def test_an_answer_is_good_for_a_while_and_its_addresses_take_turns() -> None:
    told = Told("10.0.0.1", "10.0.0.2", "fd00::3")
    assert [(await told.ask())[0] for _ in range(4)] == ["10.0.0.1", "10.0.0.2", "fd00::3", "10.0.0.1"]
    told.found = ["10.0.0.9", "10.0.0.8"]
    told.now += connect.TTL - 0.1
    assert sorted(await told.ask()) == ["10.0.0.1", "10.0.0.2", "fd00::3"]
    assert told.asked == 1
    told.now += 0.2
    assert sorted(await told.ask()) == ["10.0.0.8", "10.0.0.9"]
    assert told.asked == 2


async def test_many_who_ask_at_once_are_one_question_and_who_leaves_takes_no_answer_away() -> None:
    """SCA-02 (https://github.com/BerriAI/litellm/issues/12669): a burst must not fill the resolver's places."""
    told = Told("10.0.0.1")
    told.hang.clear()
    asking = [asyncio.create_task(told.ask()) for _ in range(50)]
    await until(lambda: told.asked == 1)
    for task in asking[:20]:
        task.cancel()
    await asyncio.gather(*asking[:20], return_exceptions=True)
    told.hang.set()
    assert await asyncio.gather(*asking[20:]) == [["10.0.0.1"]] * 30
    assert told.asked == 1


async def test_a_resolver_that_says_nothing_leaves_the_last_answer_for_a_while() -> None:
    """STA-02 (we hold): nothing unknown counts as zero."""
    told = Told("10.0.0.1")
    await told.ask()
    told.found = Unresolved("no answer")
    told.now += connect.TTL
    for _ in range(5):
        assert await told.ask() == ["10.0.0.1"]
    assert told.asked == 2, "asked again after a moment, not by each request"
    told.now += connect.SOONEST
    assert await told.ask() == ["10.0.0.1"]
    assert told.asked == 3
    told.now += connect.HELD
    with pytest.raises(Unresolved):
        await told.ask()
    told.found = ["10.0.0.2"]
    assert await told.ask() == ["10.0.0.2"]


async def test_a_resolver_that_hangs_holds_a_known_name_up_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "_PATIENCE", 0.01)
    told = Told("10.0.0.1")
    await told.ask()
    told.hang.clear()
    told.now += connect.TTL
    assert await told.ask() == ["10.0.0.1"]
    told.found = ["10.0.0.2"]
    told.hang.set()
    await until(lambda: not told.names._asking)
    assert await told.ask() == ["10.0.0.2"]
    assert told.asked == 2


async def test_a_name_that_is_gone_is_gone() -> None:
    told = Told("10.0.0.1")
    await told.ask()
    told.found = NotFound("no such name")
    told.now += connect.TTL
    with pytest.raises(NotFound):
        await told.ask()
    told.found = Unresolved("no answer")
    with pytest.raises(Unresolved):
        await told.ask()


async def test_addresses_that_cannot_be_connected_to_are_asked_for_again_soon() -> None:
    """STA-04 (https://github.com/kubernetes/kubernetes/issues/109414): a pod that came back has another address."""
    told = Told("10.0.0.1")
    told.names.doubt("never.asked")
    await told.ask()
    told.found = ["10.0.0.2"]
    told.names.doubt(HOST)
    assert await told.ask() == ["10.0.0.1"], "a storm of failures is no storm of questions"
    told.now += connect.SOONEST
    assert await told.ask() == ["10.0.0.2"]


async def test_names_nobody_asks_for_are_forgotten() -> None:
    told = Told("10.0.0.1")
    for number in range(50):
        await told.names.addresses(f"e{number}.example")
    told.now += connect.HELD
    await told.ask()
    assert list(told.names._known) == [HOST]


async def test_an_address_needs_no_question_and_some_are_nobodys() -> None:
    told = Told()
    assert await told.names.addresses("10.1.2.3") == ["10.1.2.3"]
    assert await told.names.addresses("fd00::2") == ["fd00::2"]
    for address in ("169.254.169.254", "fe80::1", "0.0.0.0", "::ffff:169.254.169.254"):
        with pytest.raises(Unresolved, match="no address that an engine can have"):
            await told.names.addresses(address)
    assert told.asked == 0


@pytest.mark.parametrize("url", ["http://rebound.example:80", "http://0xa9fea9fe", "http://169.254.169.254"])
async def test_requests_follow_no_name_to_what_is_link_local(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """SEC-02 (https://github.com/agentgateway/agentgateway/pull/3144): no connection to the metadata service."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", 80))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    async with pooled() as pool:
        error = (await tried(pool, Address("ns/a", url))).outcome
        assert isinstance(error, NotSent)
        assert "no address that an engine can have" in str(error)
        assert not error.own


async def test_a_name_that_is_none_is_another_engines_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    def idna(*_: object, **__: object) -> None:
        raise UnicodeError("label too long")

    monkeypatch.setattr(socket, "getaddrinfo", idna)
    async with pooled() as pool:
        error = (await tried(pool, Address("ns/a", "http://a.b"))).outcome
        assert isinstance(error, NotSent)
        assert "no name that can be looked up" in str(error)


async def test_a_thread_that_cannot_be_had_costs_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> None:
        raise RuntimeError("can't start new thread")

    resolver = Resolver(lambda _: ["10.0.0.1"])
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        for _ in range(20):
            with pytest.raises(Unresolved, match="new thread"):
                await resolver.addresses(HOST)
    assert await resolver.addresses(HOST) == ["10.0.0.1"]


@pytest.mark.parametrize(
    ("url", "host", "port", "line"),
    [
        ("http://a", "a", 80, b"a"),
        ("http://a:8000", "a", 8000, b"a:8000"),
        ("https://a", "a", 443, b"a"),
        ("https://a:80", "a", 80, b"a:80"),
        ("http://[fd00::2]:8000", "fd00::2", 8000, b"[fd00::2]:8000"),
        ("https://[fd00::2]", "fd00::2", 443, b"[fd00::2]"),
    ],
)
def test_hosts_are_told_as_urls_have_them(url: str, host: str, port: int, line: bytes) -> None:
    told = origin(url)
    assert (told.host, told.port, told.host_line, told.https) == (host, port, line, url.startswith("https"))

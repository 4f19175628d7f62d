"""A body's time: it may be slow, and pause, but who drips doesn't hold memory for long."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import repeat

import pytest

from headrace_router.listener.limits import Limits
from support.client_side import ClientSide, FakeTransport, client_side
from support.raw_client import post
from support.stub_proxy import StubProxy

IDLE = Limits().body_idle
RATE = Limits().body_rate
SWEEP = 1.0
MEGABYTE = 10**6

Part = tuple[float, int]  # seconds of silence, then bytes


def test_time_is_used_up_and_given_back() -> None:
    limits = Limits(body_idle=60.0, body_rate=500)
    assert limits.body_deadline(160.0, 110.0, 0) == 160.0
    assert limits.body_deadline(160.0, 110.0, 500) == 161.0
    assert limits.body_deadline(160.0, 110.0, 5000) == 170.0
    assert limits.body_deadline(160.0, 110.0, 10**9) == 170.0, "nobody sends ahead"
    assert limits.body_deadline(109.0, 110.0, 1) < 110.0, "a byte doesn't make good for a second"
    assert limits.body_deadline(109.0, 110.0, 1000) == 111.0
    assert limits.body_deadline(5.0, 110.0, 5000) == 112.5, "a router that was held up asks for no more than this"


def send(side: ClientSide, client: FakeTransport, parts: Iterator[Part], size: int) -> float:
    """Send a body in these parts until it is whole or answered; returns the seconds that it took."""
    began = side.loop.time()
    client.protocol.data_received(post(b"x" * size, "/now")[:-size])
    for pause, count in parts:
        side.loop.advance(pause)
        if client.written:
            break
        client.protocol.data_received(b"x" * min(count, size))
        size -= min(count, size)
        if not size:
            break
    side.loop.advance()
    return side.loop.time() - began


@pytest.mark.stand_ins
@pytest.mark.parametrize(
    ("parts", "most", "rate"),
    [
        (repeat((0.25, 1)), IDLE * 1.1, range(3, 5)),
        (repeat((5.0, 1)), IDLE * 1.1, None),
        (repeat((0.9 * IDLE, 1)), 2 * IDLE, None),
        (iter([(0.0, MEGABYTE - 10_000), *[(5.0, 1)] * 10_000]), IDLE * 1.1, None),
        (iter([(IDLE / 2, MEGABYTE - 10_000), *[(5.0, 1)] * 10_000]), IDLE * 1.6, None),
        (repeat((1.0, RATE // 2)), IDLE * 2.1, range(RATE // 2 - 5, RATE // 2 + 1)),
        (repeat((10.0, RATE * 8)), IDLE * 5.1, range(RATE * 7 // 10, RATE * 8 // 10 + 1)),
    ],
    ids=["a byte often", "a byte now and then", "a byte seldom", "fast, then bytes", "late, then bytes", "half", "0.8"],
)
def test_who_drips_loses_its_place_and_gives_the_memory_back(
    parts: Iterator[Part], most: float, rate: range | None
) -> None:
    """rate: what it is told that it sent, in bytes a second; None: less than 1."""
    proxy = StubProxy(most=MEGABYTE)
    with client_side(Limits(), proxy) as side:
        client = side.connect()
        took = send(side, client, parts, MEGABYTE)
        assert proxy.refused == ["body_timeout"]
        assert IDLE <= took <= most + 2 * SWEEP
        assert proxy.memory.held == 0
        head, _, body = client.written.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert b"Connection: close" in head
        said = re.search(rb"the body came too slowly: at (.*) bytes/s, right would be at least 500 bytes/s", body)
        assert said is not None
        assert said[1] == b"less than 1" if rate is None else int(said[1]) in rate
        side.loop.advance(10.0)
        assert client.closing
        assert not side.listener.connections


@pytest.mark.stand_ins
@pytest.mark.parametrize(
    "parts",
    [
        repeat((1.0, RATE + 100)),
        repeat((0.1, RATE // 8)),
        repeat((0.9 * IDLE, int(IDLE * RATE))),
        iter([(0.95 * IDLE, 1), *[(1.0, 2 * RATE)] * 1000]),
    ],
    ids=["steady", "small", "bursts", "late"],
)
def test_who_is_slow_but_goes_on_is_served(parts: Iterator[Part]) -> None:
    proxy = StubProxy(most=MEGABYTE)
    with client_side(Limits(), proxy) as side:
        client = side.connect()
        took = send(side, client, parts, 300_000)
        assert client.written.startswith(b"HTTP/1.1 200")
        assert took > 2 * IDLE
        # The next one on the same connection has its own time.
        client.written = b""
        send(side, client, iter([(0.9 * IDLE, 10), (0.9 * IDLE, 10)]), 20)
        assert proxy.refused == ["body_timeout"]


@pytest.mark.stand_ins
@pytest.mark.parametrize(
    ("before", "silent"),
    [
        ([], IDLE),
        ([(0.0, 10 * RATE)], IDLE),
        ([(1.0, 2 * RATE)] * 20, IDLE),
        ([(1.0, RATE // 2)] * 40, IDLE - 20),
        ([(0.4 * IDLE, 1)], 0.6 * IDLE),
    ],
    ids=["at all", "after a part", "after a good part", "after a slow part", "after a late byte"],
)
def test_who_sends_nothing_any_more_is_told_so(before: list[Part], silent: float) -> None:
    """What is behind already has less time left, and stopped all the same."""
    proxy = StubProxy()
    with client_side(Limits(), proxy) as side:
        client = side.connect()
        send(side, client, iter([*before, (2 * IDLE, 1)]), 100_000)
        said = re.search(rb'"no bytes of the body came for ([0-9.]+) s"', client.written)
        assert said is not None
        assert silent - 2 * SWEEP <= float(said[1]) <= silent + 2 * SWEEP


@pytest.mark.stand_ins
@pytest.mark.parametrize("size", [1, 10_000])
def test_what_comes_at_the_last_moment_counts_if_it_is_worth_the_time(size: int) -> None:
    with client_side(Limits()) as side:
        client = side.connect()
        client.protocol.data_received(post(b"x" * 100_000, "/now")[:-100_000])
        while not client.protocol._late:
            client.protocol.data_received(b"x")
            side.loop.advance(SWEEP / 4)
        client.protocol.data_received(b"x" * size)
        side.loop.advance(5 * SWEEP)
        assert bool(client.written) == (size == 1)


@pytest.mark.stand_ins
def test_a_router_that_was_held_up_reads_what_came_before_it_blames_anybody() -> None:
    proxy = StubProxy()
    with client_side(Limits(), proxy) as side:
        client, silent = side.connect(), side.connect()
        for each in (client, silent):
            send(side, each, iter([(0.0, 1000)]), 100_000)
        side.loop.hold_up(10 * IDLE)
        assert not client.written
        client.protocol.data_received(b"x" * 90_000)
        side.loop.advance(2 * SWEEP)
        assert silent.written.startswith(b"HTTP/1.1 408")
        assert not client.written
        client.protocol.data_received(b"x" * 9_000)
        side.loop.advance()
        assert client.written.startswith(b"HTTP/1.1 200")

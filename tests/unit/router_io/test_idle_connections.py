"""At the limit of clients' connections the one that has idled longest makes room; one in use never does."""

from __future__ import annotations

import random

import pytest

from headrace_router.listener.client_connection import FIRST_BYTE, FIRST_HEAD, TURNED_AWAY
from headrace_router.listener.idle import Idle
from headrace_router.listener.limits import Limits
from headrace_router.listener.listener import TOLD
from support.client_side import ClientSide, FakeTransport, client_side
from support.raw_client import post

# A proxy and connections of the tests' own.
pytestmark = pytest.mark.stand_ins


NOW = post(b"x", "/now")
HELD = post(b"x", "/held")


def used(side: ClientSide) -> FakeTransport:
    client = side.connect()
    ask(side, client)
    return client


def ask(side: ClientSide, client: FakeTransport) -> None:
    client.written = b""
    client.protocol.data_received(NOW)
    side.loop.advance()
    assert client.written.startswith(b"HTTP/1.1 200")


def turned_away(client: FakeTransport) -> bool:
    return client.written.startswith(b"HTTP/1.1 503") and b'"code":"too_many_connections"' in client.written


def test_who_has_idled_longest_makes_room() -> None:
    with client_side(Limits(connections=3)) as side:
        clients = []
        for _ in range(3):
            clients.append(used(side))
            side.loop.advance(1.0)
        ask(side, clients[0])
        new = side.connect()
        assert [client.closing for client in clients] == [False, True, False]
        ask(side, new)
        side.loop.advance(10.0)
        side.connect()
        assert [client.closing for client in clients] == [False, True, True]
        assert len(side.listener.connections) == 4
        side.loop.advance()
        assert len(side.listener.connections) == 3


@pytest.mark.parametrize(
    "data", [HELD, HELD[:20], HELD[:-1], b"POST /held HTTP/1.1\r\nHost: r\r\nContent-Length: 99999\r\n\r\n"]
)
def test_who_has_begun_a_request_keeps_its_place(data: bytes) -> None:
    with client_side(Limits(connections=2)) as side:
        clients = [used(side) for _ in range(2)]
        for client in clients:
            client.protocol.data_received(data)
        side.loop.advance(2 * FIRST_BYTE)
        for _ in range(3):
            new = side.connect()
            side.loop.advance()
            assert turned_away(new)
            assert not any(client.closing for client in clients)
        side.loop.advance(3 * TURNED_AWAY)
        assert len(side.listener.connections) == 2


def test_whether_there_is_room_is_asked_at_nobodys_cost() -> None:
    with client_side(Limits(connections=2)) as side:
        clients = [used(side)]
        assert [side.listener.room(coming, ()) for coming in range(3)] == [True, True, False], (
            "the idle one makes room once"
        )
        assert side.listener.room(2, [clients[0].protocol]), "who was admitted a moment ago counts once"
        clients[0].protocol.data_received(HELD)
        assert [side.listener.room(coming, ()) for coming in (0, 1)] == [True, False]
        clients.append(used(side))
        assert all(side.listener.room(0, ()) for _ in range(3))
        side.loop.advance()
        assert not clients[1].closing
        clients[1].protocol.data_received(HELD)
        assert not side.listener.room(0, ())
        side.held(clients[1]).finish()
        side.loop.advance()
        assert side.listener.room(0, ())
        side.connect()
        assert clients[1].closing


def test_whose_first_head_is_late_makes_room_after_the_idle_ones() -> None:
    """Half heads held their places for all of --head-timeout, and everybody else was refused."""
    with client_side(Limits(connections=4)) as side:
        idle, again = used(side), used(side)
        older, newer = side.connect(), side.connect()
        older.protocol.data_received(HELD[:20])
        again.protocol.data_received(HELD[:20])
        side.loop.advance(1.0)
        newer.protocol.data_received(HELD[:20])
        side.connect().protocol.data_received(HELD)
        assert idle.closing
        assert turned_away_now(side)
        side.loop.advance(FIRST_HEAD - 1.0)
        side.connect().protocol.data_received(HELD)
        assert turned_away(older)
        assert turned_away_now(side)
        newer.protocol.data_received(HELD[20:])
        side.loop.advance(2 * FIRST_HEAD)
        assert turned_away_now(side), "a head that became whole in time is served, and who was served before is trusted"
        side.held(newer).finish()
        side.loop.advance()
        assert newer.written.startswith(b"HTTP/1.1 200")
        assert b"503" not in again.written
        side.loop.advance(3 * TURNED_AWAY)
        assert side.listener._counted() == len(side.listener.connections) == 4


def test_half_heads_that_are_there_already_make_room_and_bytes_on_their_way_spare_them() -> None:
    with client_side(Limits(connections=3)) as side:
        clients = [side.connect() for _ in range(3)]
        for client in clients:
            client.protocol.data_received(HELD[:20])
            side.loop.advance(1.0)
        side.loop.advance(FIRST_HEAD)
        clients[0].unsent = 1
        side.connect().protocol.data_received(HELD)
        assert [turned_away(client) for client in clients] == [False, True, False]
        clients[0].unsent = 0
        for _ in range(2):
            side.connect().protocol.data_received(HELD)
        assert all(turned_away(client) for client in clients)
        assert turned_away_now(side)


@pytest.mark.parametrize(("first_request", "silent"), [(15.0, 0.0), (10.0, 0.0), (620.0, 615.0)])
def test_a_first_head_has_its_time_however_little_is_left_for_a_first_request(
    first_request: float, silent: float
) -> None:
    """Its beginning was counted back from the earlier of two deadlines: it was late as it began."""
    with client_side(Limits(connections=2, first_request=first_request, head_seconds=20.0)) as side:
        client = side.connect()
        side.loop.advance(silent)
        client.protocol.data_received(HELD[:20])
        assert not client.protocol.spare(side.loop.time())
        side.loop.advance(FIRST_HEAD - 0.5)
        assert not client.protocol.spare(side.loop.time())
        side.loop.advance(0.5)
        assert client.protocol.spare(side.loop.time())


def test_who_was_answered_may_make_room_again_and_who_does_not_take_its_answer_not_yet() -> None:
    with client_side(Limits(connections=1)) as side:
        client = side.connect()
        client.protocol.data_received(HELD)
        assert turned_away_now(side)
        side.held(client).finish()
        side.loop.advance()
        client.unsent = 1
        assert turned_away_now(side)
        client.unsent = 0
        assert not turned_away_now(side)
        assert client.closing


def turned_away_now(side: ClientSide) -> bool:
    client = side.connect()
    side.loop.advance()
    return turned_away(client)


def test_a_new_connection_has_a_chance_to_say_something() -> None:
    """Else connections that come one right after the other would close each other, and none be served."""
    with client_side(Limits(connections=2)) as side:
        side.connect().protocol.data_received(HELD)
        first = side.connect()
        side.loop.advance(FIRST_BYTE / 2)
        assert turned_away_now(side)
        assert not first.closing
        side.loop.advance(FIRST_BYTE)
        assert not turned_away_now(side)
        assert first.closing


def test_an_empty_line_is_no_request() -> None:
    with client_side(Limits(connections=1)) as side:
        client = used(side)
        client.protocol.data_received(HELD)
        assert turned_away_now(side), "the order has passed it over"
        # Answered with an empty line behind the request, which is looked at in a turn of its own.
        client.protocol.data_received(b"\r\n")
        side.held(client).finish()
        assert client.protocol._pending
        assert side.listener._idle.take(side.loop.time()) is None
        side.loop.advance()
        assert not turned_away_now(side)
        assert client.closing


def test_empty_lines_keep_no_place() -> None:
    """A client that drips them was always the youngest of the idle ones, and never closed for another."""
    with client_side(Limits(connections=2)) as side:
        first = used(side)
        second = used(side)
        side.loop.advance(1.0)
        ask(side, first)
        third = side.connect()
        assert second.closing
        ask(side, third)
        for _ in range(3):
            side.loop.advance(1.0)
            first.protocol.data_received(b"\r\n")
        side.connect()
        assert first.closing
        assert not third.closing


def test_a_burst_takes_as_many_places_as_there_are_idle_ones() -> None:
    """In one turn of the loop, where what was closed is still there."""
    count = TOLD + 50
    with client_side(Limits(connections=count)) as side:
        old = [used(side) for _ in range(count)]
        new = [side.connect() for _ in range(count)]
        assert all(client.closing for client in old)
        assert not any(client.closing or client.written for client in new)
        more = [side.connect() for _ in range(count)]
        side.loop.advance()
        # None of these had its chance yet. Some are told, and none keeps its place.
        assert all(client.closing or turned_away(client) for client in more)
        side.loop.advance(3 * TURNED_AWAY)
        assert set(side.listener.connections) == {client.protocol for client in new}
        assert not side.listener._leaving


def test_the_order_is_kept_only_while_it_is_needed() -> None:
    with client_side(Limits(connections=16)) as side:
        clients = [used(side) for _ in range(16)]
        assert not len(side.listener._idle)
        new = side.connect()
        assert len(side.listener._idle) == 16
        for client in (new, *clients[1:8]):
            client.close()
        side.loop.advance()
        assert len(side.listener._idle) == 8
        clients[8].close()
        side.loop.advance()
        assert not len(side.listener._idle)
        for client in clients[9:]:
            ask(side, client)
        assert not len(side.listener._idle)


@pytest.mark.parametrize(("left", "fills"), [(1, 1), (8, 1), (9, 10)])
def test_the_order_is_filled_once_for_as_many_as_come(left: int, fills: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fill looks at all; where the count goes up and down a little there is one, not one a time."""
    filled = []
    fill = Idle.fill
    monkeypatch.setattr(Idle, "fill", lambda *given: filled.append(1) or fill(*given))
    with client_side(Limits(connections=16)) as side:
        clients = [used(side) for _ in range(17)]
        for _ in range(9):
            for client in clients[-left:]:
                client.close()
            side.loop.advance()
            clients[-left:] = [used(side) for _ in range(left)]
            clients.append(used(side))
        assert len(filled) == fills


def test_any_course_of_events_keeps_the_bound_and_refuses_only_where_all_are_in_use() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        most = rng.randint(1, 9)
        with client_side(Limits(connections=most)) as side:
            since: dict[FakeTransport, float] = {}
            running: dict[FakeTransport, None] = {}
            for _ in range(120):
                side.loop.advance(rng.choice((0.0, 0.13, 0.6, 2.1)))
                known = [client for client in (*since, *running) if not client.closing]
                event = rng.choice(("connects", "asks", "asks", "is answered", "leaves"))
                if event == "connects":
                    idle = sorted((client for client in since if not client.closing), key=lambda one: since[one])
                    could = [one for one in idle if one.protocol.served or side.loop.time() - since[one] >= FIRST_BYTE]
                    new = side.connect()
                    side.loop.advance()
                    if len(known) < most:
                        assert not any(client.closing for client in known)
                    if turned_away(new):
                        assert len(known) == most, seed
                        assert not could, seed
                        continue
                    if len(known) == most:
                        (closed,) = [client for client in known if client.closing]
                        # Passed over once for being new, it stands behind those that idled a little less.
                        assert since[closed] < since[could[0]] + FIRST_BYTE, seed
                    since[new] = side.loop.time()
                elif event == "asks" and (free := [client for client in since if not client.closing]):
                    client = rng.choice(free)
                    client.protocol.data_received(HELD)
                    del since[client]
                    running[client] = None
                elif event == "is answered" and running:
                    client = rng.choice(list(running))
                    del running[client]
                    side.held(client).finish()
                    side.proxy.held.remove(side.held(client))
                    since[client] = side.loop.time()
                    side.loop.advance()
                elif event == "leaves" and known:
                    client = rng.choice(known)
                    client.close()
                    running.pop(client, None)
                    side.loop.advance()
                counted = [one for one in (*since, *running) if not one.closing]
                assert len(counted) <= most
                assert side.listener._counted() == len(counted), seed

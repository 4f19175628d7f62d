"""Small writes leave together at the end of a turn; order, closing and aborting are a transport's own."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from headrace_router.outbox import AT_ONCE, SMALL, Outbox, Writer

Log = list[tuple[int, str | bytes]]


class FakeTransport:
    """Notes what it is told in a log that several share."""

    def __init__(self, log: Log, number: int) -> None:
        self.log = log
        self.number = number
        self.closing = False

    def _note(self, what: str | bytes) -> None:
        self.log.append((self.number, what))

    def write(self, data: bytes) -> None:
        assert not self.closing
        self._note(data)

    def write_eof(self) -> None:
        self._note("eof")

    def close(self) -> None:
        self.closing = True
        self._note("close")

    def abort(self) -> None:
        self.closing = True
        self._note("abort")

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return 100


class FakeLoop:
    """Keeps what is to be called soon."""

    def __init__(self) -> None:
        self.soon: list[Any] = []

    def call_soon(self, callback: Any) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


class Stage:
    def __init__(self, count: int = 2) -> None:
        self.loop = FakeLoop()
        self.log: Log = []
        self.outbox = Outbox(cast(asyncio.AbstractEventLoop, self.loop))
        self.transports = [FakeTransport(self.log, number) for number in range(count)]
        self.writers = [Writer(self.outbox, cast(asyncio.Transport, one)) for one in self.transports]


def test_what_is_written_in_a_turn_leaves_at_its_end_in_order() -> None:
    stage = Stage()
    one, other = stage.writers
    one.write(b"a")
    other.write(b"b")
    one.write(b"c")
    assert stage.log == []
    assert one.get_write_buffer_size() == 102
    stage.loop.turn()
    assert stage.log == [(0, b"ac"), (1, b"b")]
    assert one.get_write_buffer_size() == 100
    one.write(b"d")
    stage.loop.turn()
    assert stage.log[-1] == (0, b"d")
    assert not stage.loop.soon, "nothing is left to be called while nothing waits"


def test_a_burst_does_not_wait_for_its_last() -> None:
    stage = Stage(AT_ONCE + 1)
    for writer in stage.writers:
        writer.write(b"x")
    assert [number for number, _ in stage.log] == list(range(AT_ONCE))
    stage.loop.turn()
    assert [number for number, _ in stage.log] == list(range(AT_ONCE + 1))


@pytest.mark.parametrize("before", [b"", b"first"])
def test_large_pieces_leave_at_once_behind_what_waits(before: bytes) -> None:
    stage = Stage()
    if before:
        stage.writers[0].write(before)
    stage.writers[0].write(bytes(SMALL + 1))
    assert b"".join(cast(bytes, data) for _, data in stage.log) == before + bytes(SMALL + 1)
    stage.loop.turn()
    assert len(stage.log) == 1


def test_closing_and_ending_come_behind_what_waits() -> None:
    stage = Stage()
    one, other = stage.writers
    one.write(b"last")
    one.close()
    other.write(b"last")
    other.write_eof()
    stage.loop.turn()
    assert stage.log == [(0, b"last"), (0, "close"), (1, b"last"), (1, "eof")]
    assert one.is_closing()
    assert not other.is_closing()


def test_an_abort_drops_what_waits() -> None:
    stage = Stage()
    stage.writers[0].write(b"never")
    stage.writers[0].abort()
    stage.loop.turn()
    assert stage.log == [(0, "abort")]


def test_a_transport_that_was_lost_meanwhile_gets_nothing() -> None:
    stage = Stage()
    stage.writers[0].write(b"never")
    stage.transports[0].closing = True
    stage.loop.turn()
    stage.writers[0].write(bytes(SMALL + 1))
    assert stage.log == []
    assert stage.writers[0].is_closing()


def test_a_fault_keeps_nobody_elses_write(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()

    def broken() -> None:
        raise ValueError("broken")

    stage.writers[0].write(b"a")
    stage.outbox.add(broken)
    stage.writers[1].write(b"b")
    stage.loop.turn()
    assert stage.log == [(0, b"a"), (1, b"b")]
    assert "a write failed" in caplog.text

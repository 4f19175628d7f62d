"""Connections that are left to other processes: looked for while they are there, and no longer."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from headrace_router.listener.accepting import LEFT, REST, Accepting
from support.fake_loop import FakeLoop

# A loop of the tests' own.
pytestmark = pytest.mark.stand_ins


class Loop(FakeLoop):
    """Readers are called when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: dict[socket.socket, Callable[[], object]] = {}

    def add_reader(self, of: socket.socket, call: Callable[..., object], *arguments: Any) -> None:
        self.readers[of] = lambda: call(*arguments)

    def remove_reader(self, of: socket.socket) -> None:
        self.readers.pop(of, None)

    def readable(self) -> None:
        for call in list(self.readers.values()):
            call()


class Left(Accepting):
    """Leaves every connection to others while ``leaving``; ``asked``: since when, and whether it was able."""

    at_once: ClassVar[int] = 8

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        super().__init__(sockets)
        self.asked: list[tuple[float | None, bool]] = []
        self.leaving = True
        self.taken = 0

    def _leaves(self, since: float | None, *, able: bool = True) -> bool:
        self.asked.append((since, able))
        return self.leaving

    def _arrived(self, made: socket.socket) -> None:
        self.taken += 1
        made.close()


class Full(socket.socket):
    """For whose connections there is no file while ``full``."""

    full: ClassVar[bool] = True

    def accept(self) -> tuple[socket.socket, Any]:
        if self.full:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


@contextmanager
def accepting(kind: type[socket.socket] = socket.socket) -> Iterator[tuple[Loop, socket.socket, Left]]:
    loop = Loop()
    with kind() as listening, loop.running():
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        made = Left([listening])
        yield loop, listening, made
        made.close()


def test_what_another_has_taken_is_not_waited_for_any_more() -> None:
    """A worker without room looked for it every 2 ms ever after, and took the one that had some for one that hangs."""
    with accepting() as (loop, listening, left):
        with socket.create_connection(listening.getsockname()):
            loop.readable()
            loop.advance(LEFT)
            loop.advance(LEFT)
            (first, _), (second, _), (third, _) = left.asked
            assert first is None
            assert second is not None
            assert third == second, "left since then"
            listening.accept()[0].close()
            loop.advance(LEFT)
            assert len(left.asked) == 3
            assert loop.timers == 0
        with socket.create_connection(listening.getsockname()):
            loop.readable()
            assert left.asked[3:] == [(None, True)], "the next is another one"


def test_what_is_still_there_is_taken_when_it_is_left_no_longer() -> None:
    with accepting() as (loop, listening, left), socket.create_connection(listening.getsockname()) as client:
        loop.readable()
        left.leaving = False
        loop.advance(LEFT)
        assert left.taken == 1
        assert client.recv(1) == b""


def test_who_has_no_file_for_a_connection_tells_others(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They left it to that worker for as long as it looked at it and said that it had room."""
    with accepting(Full) as (loop, listening, left), socket.create_connection(listening.getsockname()):
        left.leaving = False
        loop.readable()
        (first, second) = left.asked
        assert first == (None, True)
        assert second[0] is not None
        assert not second[1]
        assert "Too many open files" in caplog.text
        assert not loop.readers, "it rests"
        monkeypatch.setattr(Full, "full", False)
        loop.advance(REST)
        assert left.taken == 1

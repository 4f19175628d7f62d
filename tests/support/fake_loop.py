"""A loop whose time the test moves, for code that only sets timers."""

from __future__ import annotations

import asyncio
from asyncio import events
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class _Handle:
    def __init__(self, at: float, call: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.at = at
        self.call: Callable[..., object] | None = call
        self.arguments = arguments

    def cancel(self) -> None:
        self.call = None


class FakeLoop:
    """Stands in for the running loop within ``running``."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._handles: list[_Handle] = []

    def time(self) -> float:
        return self._now

    def is_running(self) -> bool:
        return True

    def get_debug(self) -> bool:
        return False

    def call_later(self, delay: float, call: Callable[..., object], *arguments: Any) -> _Handle:
        handle = _Handle(self._now + delay, call, arguments)
        self._handles.append(handle)
        return handle

    def call_soon(self, call: Callable[..., object], *arguments: Any) -> _Handle:
        return self.call_later(0.0, call, *arguments)

    def advance(self, seconds: float = 0.0) -> None:
        """Let time pass; what is due happens in its order."""
        end = self._now + seconds
        while due := [handle for handle in self._handles if handle.at <= end]:
            first = min(due, key=lambda handle: handle.at)
            self._handles.remove(first)
            self._now = max(self._now, first.at)
            if first.call is not None:
                first.call(*first.arguments)
        self._now = end

    def hold_up(self, seconds: float) -> None:
        """Let time pass in which nothing runs; then one turn."""
        self._now += seconds
        due = [handle for handle in self._handles if handle.at <= self._now]
        for handle in sorted(due, key=lambda handle: handle.at):
            self._handles.remove(handle)
            if handle.call is not None:
                handle.call(*handle.arguments)

    @property
    def timers(self) -> int:
        """Timers that are set."""
        return sum(handle.call is not None for handle in self._handles)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Be the running loop."""
        before = events._get_running_loop()
        events._set_running_loop(self)  # type: ignore[arg-type]
        try:
            yield
        finally:
            events._set_running_loop(before)

    def current(self) -> asyncio.AbstractEventLoop:
        """Itself, for signatures."""
        return self  # type: ignore[return-value]

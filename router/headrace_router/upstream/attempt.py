"""One attempt's hold on the connection that it uses, or that is being made for it.

On the request path. It lets go when the attempt ends, because the connection may be another attempt's a moment later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import mypyc_attr

from headrace_router.http1.chunked import ChunkedReader
from headrace_router.upstream.port import Cut, Leg, Lost, NotSent, Sink


@mypyc_attr(allow_interpreted_subclasses=True)
class Held(ABC):
    """What an attempt hangs on: a connection that is being made, or one."""

    __slots__ = ()

    @abstractmethod
    def give_up(self) -> None:
        """Nobody waits for it any more."""

    def pause(self) -> None:  # noqa: B027
        """See Leg. Nothing is read yet unless there is a connection."""

    def resume(self) -> None:  # noqa: B027
        """See Leg."""


@mypyc_attr(free_list_len=1)
class Attempt(Leg):
    """See port.Leg. Ends once: by ``abort``, or as the sink is told."""

    __slots__ = ("chunks", "held", "sink")

    def __init__(self, sink: Sink) -> None:
        self.sink: Sink | None = sink
        self.held: Held | None = None
        self.chunks: ChunkedReader | None = None

    def at_boundary(self) -> bool:
        """See port.Leg."""
        return self.chunks is None or self.chunks.at_boundary

    def abort(self) -> None:
        """See port.Leg."""
        held, self.held, self.sink = self.held, None, None
        if held is not None:
            held.give_up()

    def pause(self) -> None:
        """See port.Leg."""
        if self.held is not None:
            self.held.pause()

    def resume(self) -> None:
        """See port.Leg."""
        if self.held is not None:
            self.held.resume()

    def fail(self, error: NotSent | Lost | Cut) -> None:
        """End it so; harmless when it has ended."""
        sink, self.held, self.sink = self.sink, None, None
        if sink is not None:
            sink.attempt_failed(error)

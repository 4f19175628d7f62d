"""What goes into a selection and what comes out beside a pick: plain values, no behaviour.

On the request path. The shell builds RequestFacts from a head and a body, and turns a Refusal into an answer in the
client API's own form; neither side reads the other's objects.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntEnum
from math import ceil
from typing import Final, Literal

from mypy_extensions import mypyc_attr

Reason = Literal["affinity", "spill", "retry", "weighted"]
NO_NEEDS: Final[frozenset[str]] = frozenset()


@mypyc_attr(free_list_len=1)
class RequestFacts:
    """One request as selection sees it.

    key: its affinity key, None without one. body_bytes: size of the body, from which prompt class and context length
    are judged. needs: capabilities that it shows. priority: a priority's name ("" or unknown: the lowest). tried:
    (engine id, url) of the attempts that were made already, in order; selection avoids these engines. admitted: set by
    the first pick that did not shed it, so that neither waiting nor a retry draws the lot once more.
    """

    __slots__ = ("admitted", "body_bytes", "key", "model", "needs", "priority", "stream", "tried")

    def __init__(
        self,
        model: str,
        key: bytes | None = None,
        body_bytes: int = 0,
        stream: bool = False,
        needs: frozenset[str] = NO_NEEDS,
        priority: str = "",
        tried: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.model = model
        self.key = key
        self.body_bytes = body_bytes
        self.stream = stream
        self.needs = needs
        self.priority = priority
        self.tried = tried
        self.admitted = False


class RefusalKind(Enum):
    """Why no engine was picked; the value is the error code that clients see."""

    MODEL_NOT_FOUND = "model_not_found"
    CAPABILITY_MISSING = "missing_capability"
    CONTEXT_TOO_LONG = "context_length_exceeded"
    SHED = "shed"
    FULL = "saturated"
    NO_ENGINES = "no_engine"
    ALL_PENALISED = "engines_penalised"
    NONE_LEFT = "no_engine_left"


_STATUS: Final = {
    RefusalKind.MODEL_NOT_FOUND: 404,
    RefusalKind.CAPABILITY_MISSING: 400,
    RefusalKind.CONTEXT_TOO_LONG: 400,
    RefusalKind.SHED: 429,
    RefusalKind.FULL: 429,
    RefusalKind.NO_ENGINES: 503,
    RefusalKind.ALL_PENALISED: 503,
    RefusalKind.NONE_LEFT: 503,
}


class Refusal:
    """No engine for this request.

    retry_after: whole seconds, at least 1, None where waiting changes nothing. queue: wait in the policy's queue
    first. should_retry: False where the client's own immediate retry would only add load or fail the same way.
    NONE_LEFT is met by retries only: every engine was tried, the last engine's own answer is the right one to give.
    """

    __slots__ = ("kind", "message", "retry_after")

    def __init__(self, kind: RefusalKind, message: str, retry_after: int | None = None) -> None:
        self.kind = kind
        self.message = message
        self.retry_after = retry_after

    @property
    def status(self) -> int:
        return _STATUS[self.kind]

    @property
    def code(self) -> str:
        return self.kind.value

    @property
    def queue(self) -> bool:
        return self.kind is RefusalKind.FULL

    @property
    def should_retry(self) -> bool:
        return self.kind in (RefusalKind.NO_ENGINES, RefusalKind.NONE_LEFT)

    def __repr__(self) -> str:
        return f"Refusal({self.kind.name}, {self.message!r}, retry_after={self.retry_after})"


class Outcome(IntEnum):
    """How an attempt went, as far as it tells something about the endpoint.

    ANSWERED: a head with a status below 500 came (a client's error is never the engine's fault). CONNECT_FAILED:
    refused or timed out, nothing was written. ENGINE_ERROR: 5xx other than 503, or cut on a fresh connection before
    the first body byte. TIMED_OUT: no first body byte in time. FULL: 429 or 503. REUSED_CLOSED: a kept connection
    was closed just as the request was written (RET-01). CANCELLED: the client left.
    """

    ANSWERED = 0
    CONNECT_FAILED = 1
    ENGINE_ERROR = 2
    TIMED_OUT = 3
    FULL = 4
    REUSED_CLOSED = 5
    CANCELLED = 6


def whole_seconds(seconds: float) -> int:
    """Seconds as Retry-After has them: an integer, at least 1, never shorter than what was meant."""
    return max(1, ceil(seconds - 1e-9))


def listed(names: Iterable[str]) -> str:
    """Names for a message, in a stable order."""
    return ", ".join(sorted(names))

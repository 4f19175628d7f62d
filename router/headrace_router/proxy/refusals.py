"""Refusals in the client API's own error form, so that unchanged clients understand them.

On the request path. OpenAI's form everywhere, Anthropic's on ``/v1/messages``. Saturation (429) is told from an outage
(503) and both from a client's fault (4xx), each with a code of its own (SCA-04). Must not carry anything an engine or a
client could inject.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from headrace_api.names import HEADER_SHOULD_RETRY
from headrace_router.core import facts
from headrace_router.http1.lines import made
from headrace_router.http1.request_head import BadHead

_JSON_KIND: Final = b"Content-Type: application/json\r\n"
# Where an API has a type of its own for a status; of all others the class decides whose fault it is.
_OPENAI_TYPE: Final = {429: "rate_limit_error"}
_ANTHROPIC_TYPE: Final = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refusal.

    ``retry_after``: seconds (on the wire whole, at least 1). ``final``: clients should not retry. ``allow``,
    ``authenticate``: values of Allow and WWW-Authenticate.
    """

    status: int
    code: str
    message: str
    retry_after: float | None = None
    final: bool = False
    allow: str | None = None
    authenticate: str | None = None

    @property
    def phrase(self) -> bytes:
        """The reason phrase of the status line."""
        return HTTPStatus(self.status).phrase.encode("ascii")

    def body(self, *, anthropic: bool) -> bytes:
        """The JSON error."""
        client = self.status < 500
        if anthropic:
            kind = _ANTHROPIC_TYPE.get(self.status, "invalid_request_error" if client else "api_error")
            return _json({"type": "error", "error": {"type": kind, "message": self.message, "code": self.code}})
        kind = _OPENAI_TYPE.get(self.status, "invalid_request_error" if client else "server_error")
        return error_body(self.code, self.message, kind)

    def lines(self) -> bytes:
        """Header lines beside the body, joined, each with its CRLF."""
        lines = [_JSON_KIND]
        if self.retry_after is not None:
            lines.append(b"Retry-After: %d\r\n" % max(1, math.ceil(self.retry_after)))
        if self.final:
            lines.append(made(HEADER_SHOULD_RETRY, "false").raw)
        if self.allow is not None:
            lines.append(made("Allow", self.allow).raw)
        if self.authenticate is not None:
            lines.append(made("WWW-Authenticate", self.authenticate).raw)
        return b"".join(lines)


SHUTTING_DOWN: Final = Refusal(
    503, "shutting_down", "this router is shutting down; another one serves", retry_after=1.0
)
FAULT: Final = Refusal(500, "internal_error", "the router failed on this request")
TOO_MUCH: Final = Refusal(
    503, "router_overloaded", "the bodies of running requests take all memory that they may", retry_after=1.0
)
HEAD_TIMEOUT: Final = Refusal(408, "head_timeout", "the request's head did not come in time")
BAD_FRAMING: Final = Refusal(400, "bad_request", "the body's framing is broken", final=True)


def of_bad_head(bad: BadHead) -> Refusal:
    """A head that can't be read in one way only."""
    return Refusal(bad.status, bad.code, bad.message, final=True)


def head_too_large(most: int) -> Refusal:
    """A head of more than ``most`` bytes."""
    return Refusal(431, "header_too_large", f"the head has more than {most} bytes", final=True)


def over_limits(size: int, most: int, lines: int) -> Refusal:
    """A head of ``size`` bytes that has more than ``most``, or else more than ``lines`` header lines."""
    if size > most:
        return head_too_large(most)
    return Refusal(431, "too_many_headers", f"the head has more than {lines} header lines", final=True)


def body_stopped(seconds: float) -> Refusal:
    """Nothing of a body has come for so long."""
    return Refusal(408, "body_timeout", f"no bytes of the body came for {seconds:.1f} s")


def body_too_slow(rate: float, least: int) -> Refusal:
    """A body comes, at ``rate`` bytes a second, below ``least``."""
    came = f"{int(rate)}" if rate >= 1.0 else "less than 1"
    return Refusal(
        408, "body_timeout", f"the body came too slowly: at {came} bytes/s, right would be at least {least} bytes/s"
    )


def not_picked(refusal: facts.Refusal) -> Refusal:
    """A selection's refusal as an answer."""
    return Refusal(
        refusal.status,
        refusal.code,
        refusal.message,
        None if refusal.retry_after is None else float(refusal.retry_after),
        final=not refusal.should_retry,
    )


def error_body(code: str, message: str, kind: str = "server_error") -> bytes:
    """OpenAI's error object."""
    return _json({"error": {"message": message, "type": kind, "param": None, "code": code}})


def cut_event(code: str, message: str, *, anthropic: bool) -> bytes:
    """The SSE event that ends a cut stream; the leading blank line ends an event that was cut in its middle."""
    if anthropic:
        data = _json({"type": "error", "error": {"type": "api_error", "message": message, "code": code}})
        return b"\n\nevent: error\ndata: " + data + b"\n\n"
    return b"\n\ndata: " + error_body(code, message) + b"\n\n"


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode("ascii")

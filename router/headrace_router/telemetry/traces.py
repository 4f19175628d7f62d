"""OpenTelemetry spans: one server span a sampled request, one client span an attempt.

Beside the request path: a request that isn't sampled costs one draw or the look at its traceparent, and its trace
context passes on as it came. Spans are handed over to a thread of the SDK's own; what it can't take is dropped and
counted. Needs the extra ``headrace[tracing]``, which is imported only when tracing is on. Must not put bodies,
credentials, queries or header values into spans.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Protocol
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    TraceState,
    set_span_in_context,
)

from headrace_router.core.selection import Pick
from headrace_router.http1.paths import shown
from headrace_router.telemetry.accounting import CLIENT_GONE, OK, Account
from headrace_router.telemetry.sse import Usage

_TRACEPARENT: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_CONTEXT_LINES: Final = re.compile(rb"^(?:traceparent|tracestate):[^\n]*\n", re.IGNORECASE | re.MULTILINE)
_PARENT_LINE: Final = re.compile(rb"^traceparent:[^\n]*\n", re.IGNORECASE | re.MULTILINE)
_SAMPLED: Final = 0x01
_MAX_PATH: Final = 256
# Of paths in an API's form: the operation as the GenAI conventions name it, and whose form it is.
_OPERATIONS: Final = {
    "/v1/chat/completions": ("chat", "openai"),
    "/v1/responses": ("chat", "openai"),
    "/v1/completions": ("text_completion", "openai"),
    "/v1/embeddings": ("embeddings", "openai"),
    "/v1/messages": ("chat", "anthropic"),
}
_METHODS: Final = frozenset({"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"})


class Head(Protocol):
    """What is read of a request's head."""

    @property
    def method(self) -> str: ...
    @property
    def target(self) -> str: ...
    def all(self, name: bytes) -> list[bytes]: ...


class Parent:
    """A valid traceparent."""

    __slots__ = ("flags", "span", "trace")

    def __init__(self, trace: int, span: int, flags: int) -> None:
        self.trace = trace
        self.span = span
        self.flags = flags


def parent_of(lines: list[bytes]) -> Parent | None:
    """The caller's span by W3C's rules; None where there is none, several, or one that is not valid."""
    match = _TRACEPARENT.fullmatch(lines[0]) if len(lines) == 1 else None
    if match is None or match[1] == b"ff" or (match[1] == b"00" and match[5] is not None):
        return None
    trace, span = int(match[2], 16), int(match[3], 16)
    return Parent(trace, span, int(match[4], 16)) if trace and span else None


class Traces:
    """Begins a trace where one is due.

    Args:
        tracer: makes the spans, all of them: whether a request is sampled is decided here.
        ratio: the part of requests without a caller's trace that is sampled, 0 to 1.
        chance: gives numbers from 0 up to 1.
    """

    def __init__(self, tracer: Tracer, ratio: float, chance: Callable[[], float]) -> None:
        self._tracer = tracer
        self._ratio = ratio
        self._chance = chance

    def begin(self, head: Head, peer: str | None) -> RequestTrace | None:
        """The trace of a request; None where it isn't sampled: by its caller's word, else by chance."""
        parent = parent_of(head.all(b"traceparent"))
        if parent is None:
            if self._chance() >= self._ratio:
                return None
            context = Context()
        elif not parent.flags & _SAMPLED:
            return None
        else:
            context = _remote(parent, head.all(b"tracestate"))
        path = shown(head.target)[:_MAX_PATH]
        method = head.method if head.method in _METHODS else "_OTHER"
        attributes: dict[str, str] = {"http.request.method": method, "url.path": path, "network.protocol.name": "http"}
        if peer is not None:
            attributes["client.address"] = peer
        span = self._tracer.start_span(
            method if method in _METHODS else "HTTP", context, SpanKind.SERVER, attributes=attributes
        )
        return RequestTrace(self._tracer, span, method, began=parent is None)


def _remote(parent: Parent, state: list[bytes]) -> Context:
    known = TraceState.from_header([line.decode("latin-1") for line in state])
    context = SpanContext(parent.trace, parent.span, True, TraceFlags(parent.flags & 0x03), known)
    return set_span_in_context(NonRecordingSpan(context), Context())


class RequestTrace:
    """Spans of one sampled request. began: the trace begins here, so that no caller's state goes with it."""

    __slots__ = ("_attempt", "_began", "_context", "_method", "_route", "_server", "_tracer")

    def __init__(self, tracer: Tracer, server: Span, method: str, *, began: bool) -> None:
        self._tracer = tracer
        self._server = server
        self._context = set_span_in_context(server, Context())
        self._attempt: Span | None = None
        self._began = began
        self._method = method
        self._route = ""

    def route(self, path: str) -> None:
        """The request's path is one that passes."""
        self._route = path
        self._server.update_name(f"{self._method} {path}")
        self._server.set_attribute("http.route", path)

    def sending(self, account: Account, pick: Pick) -> None:
        """An attempt starts."""
        self._end_attempt()
        model = pick.served_name or account.model
        operation, provider = _OPERATIONS.get(self._route, ("", ""))
        where = urlsplit(pick.url)
        attributes: dict[str, str | int] = {
            "http.request.method": self._method,
            "url.full": f"{where.scheme}://{where.netloc.rpartition('@')[2]}{self._route}",
            "server.address": where.hostname or "",
            "server.port": where.port or (443 if where.scheme == "https" else 80),
            "gen_ai.request.model": model,
            "headrace.engine": pick.engine,
            "headrace.pick.reason": pick.reason,
        }
        if operation:
            attributes["gen_ai.operation.name"] = operation
            attributes["gen_ai.provider.name"] = provider
        if account.attempts > 1:
            attributes["http.request.resend_count"] = account.attempts - 1
        name = f"{operation} {model}" if operation else self._method
        self._attempt = self._tracer.start_span(name, self._context, SpanKind.CLIENT, attributes=attributes)
        if account.attempts == 1:
            labels = account.labels
            self._server.set_attributes(
                {
                    "headrace.policy": f"{labels[0]}/{labels[1]}",
                    "headrace.frontend": labels[2],
                    "headrace.model": account.model,
                    "headrace.priority": account.priority,
                }
            )

    def lines(self, lines: bytes) -> bytes:
        """Header lines to an engine with the attempt's span as the caller's."""
        span = self._attempt if self._attempt is not None else self._server
        context = span.get_span_context()
        value = b"traceparent: 00-%032x-%016x-%02x\r\n" % (context.trace_id, context.span_id, context.trace_flags)
        return (_CONTEXT_LINES if self._began else _PARENT_LINE).sub(b"", lines) + value

    def answered(self, usage: Usage) -> None:
        """A good answer ended; told before ``attempted``."""
        span = self._attempt
        if span is not None:
            if usage.input_tokens is not None:
                span.set_attribute("gen_ai.usage.input_tokens", usage.input_tokens)
            if usage.output_tokens is not None:
                span.set_attribute("gen_ai.usage.output_tokens", usage.output_tokens)

    def attempted(self, outcome: str, status: int) -> None:
        """The attempt ended; status: the engine's, 0 without one."""
        span = self._attempt
        if span is None:
            return
        span.set_attribute("headrace.outcome", outcome)
        if status:
            span.set_attribute("http.response.status_code", status)
        if outcome not in (OK, CLIENT_GONE):
            span.set_attribute("error.type", str(status) if status >= 400 else outcome)
            span.set_status(Status(StatusCode.ERROR))
        self._end_attempt()

    def end(self, status: int, code: str | None, complete: bool) -> None:
        """The request ended. status: what was answered, 0 nothing; code: of a refusal; complete: with a true end."""
        self._end_attempt()
        span = self._server
        if status:
            span.set_attribute("http.response.status_code", status)
        if code is not None:
            span.set_attribute("headrace.code", code)
        if status >= 500 or not complete:
            span.set_attribute("error.type", code or (str(status) if status >= 500 else "incomplete"))
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    def _end_attempt(self) -> None:
        if self._attempt is not None:
            self._attempt.end()
            self._attempt = None

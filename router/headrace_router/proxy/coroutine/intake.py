"""Takes a request in: reads its body within bounds and learns from it what selection needs.

On the request path. A hostile body is the client's fault and never more than a 400 (SEC-05). Refuses before the body is
read where its head says enough. A second ``model`` is refused; of other duplicate keys the last counts, as in the
engines' own parsers. Must not pick.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from headrace_api.names import HEADER_CLIENT_RETRY
from headrace_api.table import TablePriority
from headrace_router.core.affinity import affinity_key, lower_names
from headrace_router.core.body import BadBody, BodyFacts, needs, read_body
from headrace_router.core.facts import RequestFacts
from headrace_router.core.view import PolicyView, TableView
from headrace_router.http1.headers import garbled, in_a_loop, value_of
from headrace_router.http1.numbers import whole
from headrace_router.http1.paths import Kind, Route
from headrace_router.proxy.coroutine.watch import Expired, Watch
from headrace_router.proxy.refusals import Refusal

# Seconds without a byte of a body that is being read.
BODY_IDLE: Final = 60.0
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_UNSET: Final = frozenset({b"", b"null"})
_MOST_RETRIES: Final = 10**9


@dataclass(slots=True)
class Asked:
    """A request that may be routed. The body is let go of when nothing can be sent again."""

    route: Route
    policy: PolicyView
    facts: RequestFacts
    priority: TablePriority
    body: bytes
    client_retry: bool


async def take_in(
    request: web.BaseRequest, route: Route, current: Callable[[], TableView], watch: Watch
) -> Asked | Refusal:
    """Read and understand a request; ``current`` gives the view in force, which may change while the body comes.

    Raises:
        CancelledError: the client has left. Expired: the router shuts down.
    """
    if (name := garbled(request.raw_headers)) is not None:
        message = f"header {name} has a value that is not UTF-8; right would be ASCII, or UTF-8 where it must be"
        return Refusal(400, "bad_request", message, final=True)
    if in_a_loop(request.raw_headers):
        return Refusal(
            508, "loop", "the request goes in circles: an engine's address leads back to a router", final=True
        )
    body = await _read(request, max(policy.table.limits.body for policy in current().policies), watch)
    if isinstance(body, Refusal):
        return body
    view = current()
    facts = _facts(request, route, view, body)
    if isinstance(facts, Refusal):
        return facts
    model = facts.model if isinstance(facts, BodyFacts) else facts
    policy = view.policy_for(model)
    if policy is None:
        return Refusal(404, "model_not_found", f"no routing table has a model {model[:128]!r}", final=True)
    if len(body) > policy.table.limits.body:
        return too_large(policy.table.limits.body)
    if route.kind is Kind.POLICY and route.path not in policy.table.paths:
        return Refusal(404, "unknown_path", f"the policy of model {model[:128]!r} passes no such path: {route.path}")
    return _asked(request, route, policy, facts, body)


def too_large(limit: int) -> Refusal:
    """The body is larger than a policy allows."""
    return Refusal(413, "body_too_large", f"the body is larger than {limit} bytes", final=True)


async def _read(request: web.BaseRequest, limit: int, watch: Watch) -> bytes | Refusal:
    headers = request.raw_headers
    coding = (value_of(headers, b"content-encoding") or b"identity").strip().lower()
    if coding != b"identity":
        return Refusal(415, "unsupported_encoding", "send the body without Content-Encoding", final=True)
    if request.content_length is not None and request.content_length > limit:
        return too_large(limit)
    if not request.body_exists:
        return b""
    if (value_of(headers, b"expect") or b"").lower() == b"100-continue" and request.transport is not None:
        request.transport.write(CONTINUE)
    parts: list[bytes] = []
    size = 0
    try:
        with watch:
            while not request.content.at_eof():
                watch.arm("body", BODY_IDLE)
                part = await request.content.readany()
                size += len(part)
                if size > limit:
                    return too_large(limit)
                parts.append(part)
    except Expired as expired:
        if expired.kind != "body":
            raise
        return Refusal(408, "body_timeout", "the body stopped coming")
    except (web.RequestPayloadError, HttpProcessingError):
        return Refusal(400, "bad_request", "the body's framing is broken", final=True)
    return b"".join(parts)


def _facts(request: web.BaseRequest, route: Route, view: TableView, body: bytes) -> BodyFacts | str | Refusal:
    """The body's facts, or the model's name where a policy path has no JSON that names one."""
    only = _only_model(view, route.path) if route.kind is Kind.POLICY else None
    if only is not None and (not body or request.content_type != "application/json"):
        return only
    read = read_body(body, frozenset().union(*(policy.body_fields for policy in view.policies)))
    if isinstance(read, BadBody):
        return Refusal(400, read.code or "bad_request", read.message, final=True)
    if route.kind is Kind.RESPONSES and (refusal := _stored(read)):
        return refusal
    return read


def _only_model(view: TableView, path: str) -> str | None:
    models = [routes.model for policy in view.policies if path in policy.table.paths for routes in policy.table.models]
    return models[0] if len(models) == 1 else None


def _stored(facts: BodyFacts) -> Refusal | None:
    if bytes(facts.previous_response_id) not in _UNSET:
        field = "previous_response_id"
    elif bytes(facts.store) == b"true":
        field = "store: true"
    else:
        return None
    return Refusal(
        400,
        "store_not_supported",
        f"{field} needs an answer that one engine keeps, which this router doesn't follow yet; "
        "send the conversation in `input` and store: false",
        final=True,
    )


def _asked(request: web.BaseRequest, route: Route, policy: PolicyView, facts: BodyFacts | str, body: bytes) -> Asked:
    headers: Mapping[str, str] = lower_names(request.headers.items())
    priority = policy.priority(headers.get(policy.table.priority_header.lower()))
    known = facts if isinstance(facts, BodyFacts) else None
    asked = RequestFacts(
        model=known.model if known is not None else str(facts),
        key=affinity_key(policy.affinity, headers, known),
        body_bytes=len(body),
        stream=known is not None and known.stream is True,
        needs=needs(known) if known is not None else frozenset(),
        priority=priority.name,
    )
    retried = whole(headers.get(HEADER_CLIENT_RETRY, "0"), _MOST_RETRIES)
    return Asked(route, policy, asked, priority, body, client_retry=bool(retried))

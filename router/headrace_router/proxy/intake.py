"""Takes a request in: what its head alone rules out, and what selection needs to know of its body.

On the request path, synchronous. A hostile body is the client's fault and never more than a 400 (SEC-05). What a head
says enough of is refused before the body is read. A second ``model`` is refused; of other duplicate keys the last
counts, as in the engines' own parsers. Must not pick.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from headrace_api.names import HEADER_CLIENT_RETRY
from headrace_api.table import TablePriority
from headrace_router.core.affinity import key_of
from headrace_router.core.body import Body, needs, read_body
from headrace_router.core.facts import NO_NEEDS, RequestFacts
from headrace_router.core.json_shapes import BodyFacts
from headrace_router.core.view import ModelView, PolicyView
from headrace_router.http1.header_rules import garbled, in_a_loop
from headrace_router.http1.lines import ENCODED, FORWARDED_FOR, GARBLED, Line
from headrace_router.http1.numbers import whole
from headrace_router.http1.paths import Kind, Refused, Route
from headrace_router.http1.request_head import RequestHead
from headrace_router.proxy.known import Known
from headrace_router.proxy.refusals import Refusal

_UNSET: Final = frozenset({b"", b"null"})
_MOST_RETRIES: Final = 10**9
_CLIENT_RETRY: Final = HEADER_CLIENT_RETRY.lower().encode()
# Answered by the router itself.
PAGES: Final = (Kind.MODELS, Kind.MODEL)
_POLICY: Final = Kind.POLICY
_RESPONSES: Final = Kind.RESPONSES
_NO_TABLE: Final = Refusal(503, "no_table", "this router has no routing table yet", retry_after=5.0)
_CODED: Final = Refusal(415, "unsupported_encoding", "send the body without Content-Encoding", final=True)
_LOOP: Final = Refusal(
    508, "loop", "the request goes in circles: an engine's address leads back to a router", final=True
)


@mypyc_attr(free_list_len=1)
class Asked:
    """A request that may be routed. The body is let go of when nothing can be sent again.

    ``keep``: names of headers that engines may see although such names steer. ``named``: the body is JSON that names
    the model.
    """

    __slots__ = ("body", "client_retry", "facts", "keep", "model", "named", "policy", "priority", "route")

    def __init__(
        self,
        route: Route,
        model: ModelView,
        policy: PolicyView,
        facts: RequestFacts,
        priority: TablePriority,
        body: bytes,
        client_retry: bool,
        keep: frozenset[bytes],
        named: bool,
    ) -> None:
        self.route = route
        self.model = model
        self.policy = policy
        self.facts = facts
        self.priority = priority
        self.body = body
        self.client_retry = client_retry
        self.keep = keep
        self.named = named


def refused_by_head(head: RequestHead, route: Route | Refused, known: Known) -> Refusal | None:
    """Why a request can be refused before its body is read."""
    if isinstance(route, Refused):
        return Refusal(route.status, route.code, route.message, final=True, allow=route.allow)
    if not known.view.policies:
        return _NO_TABLE
    if route.kind in PAGES:
        return None
    if head.rules & GARBLED and (name := garbled(head.marked)) is not None:
        message = f"header {name} has a value that is not UTF-8; right would be ASCII, or UTF-8 where it must be"
        return Refusal(400, "bad_request", message, final=True)
    if head.rules & FORWARDED_FOR and in_a_loop(head.marked):
        return _LOOP
    if head.rules & ENCODED:
        return _CODED
    if head.length is not None and head.length > known.largest:
        return too_large(known.largest)
    return None


def too_large(limit: int) -> Refusal:
    """The body is larger than a policy allows."""
    return Refusal(413, "body_too_large", f"the body is larger than {limit} bytes", final=True)


def take_in(head: RequestHead, route: Route, known: Known, body: bytes) -> Asked | Refusal:
    """Understand a request whose head was not refused."""
    kind = route.kind
    other = kind is _POLICY and (not body or not _is_json(head))
    if other and (only := known.only_model(route.path)):
        return _asked_of(only, None, head, route, known, body)
    read = read_body(body, known.fields)
    if not isinstance(read, Body):
        message = f"{read.message}; {_shared(route.path)}" if other else read.message
        return Refusal(400, read.code or "bad_request", message, final=True)
    facts = read.facts
    if kind is _RESPONSES and (refusal := _stored(facts)):
        return refusal
    return _asked_of(facts.model, read, head, route, known, body)


def _asked_of(
    model: str, read: Body | None, head: RequestHead, route: Route, known: Known, body: bytes
) -> Asked | Refusal:
    """``read``: None where a policy path has no JSON, so that nothing but its one model can be meant."""
    found = known.view.models.get(model)
    if found is None:
        return Refusal(404, "model_not_found", f"no routing table has a model {model[:128]!r}", final=True)
    policy = found.policy
    size = len(body)
    if size > policy.body_limit:
        return too_large(policy.body_limit)
    if route.kind is _POLICY and route.path not in policy.table.paths:
        return Refusal(404, "unknown_path", f"the policy of model {model[:128]!r} passes no such path: {route.path}")
    names = known.headers_of(policy)
    headers = _values(head.wanted(names.wanted))
    named = headers.get(names.priority)
    priority = policy.priority(None if named is None else named.decode("utf-8", "surrogateescape"))
    if read is None:
        key = key_of(policy.affinity, headers, None)
        facts = RequestFacts(model, key, size, False, NO_NEEDS, priority.name)
    else:
        key = key_of(policy.affinity, headers, read.facts)
        facts = RequestFacts(model, key, size, read.facts.stream is True, needs(read), priority.name)
    retried = headers.get(_CLIENT_RETRY, b"0")
    again = retried != b"0" and bool(whole(retried.decode("utf-8", "surrogateescape"), _MOST_RETRIES))
    return Asked(route, found, policy, facts, priority, body, again, names.keep, read is not None)


def _values(lines: list[Line]) -> dict[bytes, bytes]:
    """Values by name; of a repeated header the first that is not empty counts."""
    values: dict[bytes, bytes] = {}
    for line in lines:
        if line.value and line.name not in values:
            values[line.name] = line.value
    return values


def _shared(path: str) -> str:
    """Why a body that names no model can't pass on a path."""
    return (
        f"several models share the path {path}, and which one is meant is read from JSON alone; right would be a JSON "
        "body with `model`, or for other bodies a path that only one model has"
    )


def _is_json(head: RequestHead) -> bool:
    kind = head.get(b"content-type")
    return kind is not None and kind.partition(b";")[0].strip().lower() == b"application/json"


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

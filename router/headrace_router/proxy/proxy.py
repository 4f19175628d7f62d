"""The clients' requests: checked, understood, refused in the client's own form, or begun as an exchange.

On the request path, synchronous. The listener brings a head, then a whole body; what can be said by the head alone is
said before the body is read. Must not wait for operator, API server or metrics.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, cast

import msgspec

from headrace_api import names
from headrace_router.core.selection import Selector
from headrace_router.http1.header_rules import request_id
from headrace_router.http1.lines import REQUEST_ID, made
from headrace_router.http1.paths import Kind, Refused, Route
from headrace_router.http1.request_head import RequestHead
from headrace_router.proxy.exchange import Client, Exchange
from headrace_router.proxy.intake import PAGES, Asked, refused_by_head, take_in
from headrace_router.proxy.known import Known
from headrace_router.proxy.means import Credentials, Keys, Means
from headrace_router.proxy.memory import BodyMemory
from headrace_router.proxy.refusals import FAULT, TOO_MUCH, Refusal
from headrace_router.proxy.seen import Seen
from headrace_router.proxy.waiting import Waiting
from headrace_router.telemetry.access_log import Entry
from headrace_router.telemetry.accounting import Account, Ledger
from headrace_router.upstream.port import UpstreamPool

if TYPE_CHECKING:
    from headrace_router.telemetry.access_log import AccessLog
    from headrace_router.telemetry.traces import Traces

log = logging.getLogger("headrace.router")

_IDS_AT_ONCE: Final = 128
_JSON: Final = b"Content-Type: application/json\r\n"


class Proxy:
    """Serves what listeners bring. To be made inside a running loop.

    Args:
        selector: picks engines.
        pool: connections to them.
        waiting: the queues.
        ledger: counts.
        memory: bounds the bodies that are held.
        keys: of clients; None: everyone is served.
        credentials: the router's own at engines.
        access_log: one line a request; None: off.
        traces: spans; None: off.
    """

    def __init__(
        self,
        selector: Selector,
        pool: UpstreamPool,
        waiting: Waiting,
        ledger: Ledger,
        memory: BodyMemory,
        *,
        keys: Keys | None = None,
        credentials: Credentials | None = None,
        access_log: AccessLog | None = None,
        traces: Traces | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.memory = memory
        self.draining = False
        self._means = Means(
            loop,
            selector,
            pool,
            waiting,
            ledger,
            memory,
            keys=keys,
            credentials=credentials,
        )
        self._access_log = access_log
        self._traces = traces
        self._looked_at = access_log is not None or traces is not None
        self._ids = Ids()

    @property
    def running(self) -> Collection[Exchange]:
        """Exchanges that have begun and not ended."""
        return cast("Collection[Exchange]", self._means.deadlines.items.keys())

    def body_limit(self, head: RequestHead) -> int | Refusal:
        """How many bytes the body may have, or why the request is refused by its head alone.

        To be asked once a head, before its body is read; a refusal is given by ``refuse``.
        """
        means = self._means
        if means.keys is not None:
            who = means.keys.who(head)
            if isinstance(who, Refusal):
                return who
        known = means.known()
        refusal = refused_by_head(head, known.route(head.method, head.target), known)
        if refusal is not None:
            return refusal
        if head.length is not None and self.memory.held + head.length > self.memory.limit:
            return TOO_MUCH
        return known.largest

    def begin(self, head: RequestHead, body: bytes, client: Client) -> Exchange | None:
        """Serve a request whose body is whole. None: it was answered already.

        ``head``: one that body_limit didn't refuse. ``body``: taken in ``memory``; from here on the proxy gives it
        back.
        """
        if self.draining:
            client.answer.keep_alive = False
        identity = self._identity(head)
        seen = self._see(head, identity, client) if self._looked_at else None
        means = self._means
        known = means.known()
        # Tables may have changed since body_limit saw the head.
        route = known.route(head.method, head.target)
        asked: Asked | Refusal | bytes
        try:
            if type(route) is Route and route.kind not in PAGES and known.view.policies:
                asked = take_in(head, route, known, body)
            else:
                asked = self._aside(head, route, known)
            if type(asked) is Asked:
                account = Account(
                    means.ledger,
                    asked.model,
                    asked.priority.name,
                    asked.facts.body_bytes,
                    asked.client_retry,
                    client.began,
                )
                if seen is not None:
                    seen.routed(asked.route)
                    seen.counted(account)
                exchange = Exchange(means, client, head, asked, account, identity, seen)
                exchange.start()
                return None if exchange.over else exchange
        except Exception:
            log.exception("request %s failed", identity)
            asked = FAULT
        self.memory.give(len(body))
        if isinstance(asked, Refusal):
            self._refuse(asked, client, identity, seen, route)
        else:
            assert isinstance(asked, bytes)
            client.answer.whole(200, b"OK", _JSON + made(names.HEADER_REQUEST_ID, identity).raw, asked)
            means.ended(seen, client.answer)
        return None

    def refuse(self, head: RequestHead | None, refusal: Refusal, client: Client) -> None:
        """Answer a request that doesn't come to ``begin``. ``head``: None where it could not be parsed."""
        if self.draining:
            client.answer.keep_alive = False
        if head is None:
            self._refuse(refusal, client, self._ids.fresh(), None, None)
            return
        identity = self._identity(head)
        seen = self._see(head, identity, client) if self._looked_at else None
        self._refuse(refusal, client, identity, seen, self._means.known().route(head.method, head.target))

    def end_all(self) -> None:
        """End every running request: streams by an error event, the others by a refusal."""
        # Those that wait first: no engine should get them when the others give up their places.
        for exchange in sorted(self.running, key=lambda exchange: not exchange.waiting):
            exchange.expire("shutdown")

    async def ended(self) -> None:
        """Wait until no exchange runs."""
        await self._means.idle()

    def _identity(self, head: RequestHead) -> str:
        return request_id(head.marked, self._ids.fresh) if head.rules & REQUEST_ID else self._ids.fresh()

    def _aside(self, head: RequestHead, route: Route | Refused, known: Known) -> Refusal | bytes:
        """For what no engine is asked: why it is refused, or the body of a page of models."""
        refusal = refused_by_head(head, route, known)
        if refusal is not None or isinstance(route, Refused):
            return refusal or FAULT
        return _models(route, known)

    def _refuse(
        self, refusal: Refusal, client: Client, identity: str, seen: Seen | None, route: Route | Refused | None
    ) -> None:
        answer = client.answer
        anthropic = isinstance(route, Route) and route.kind is Kind.MESSAGES
        if seen is not None:
            seen.refused(refusal.code)
        try:
            self._means.refuse(answer, refusal, identity, anthropic)
        except ConnectionError:
            answer.abort()
        self._means.ended(seen, answer)

    def _see(self, head: RequestHead, identity: str, client: Client) -> Seen:
        entry = trace = None
        if self._access_log is not None:
            entry = Entry(identity, head.method, head.target, client.peer, client.began)
            if self._means.keys is not None:
                who = self._means.keys.who(head)
                entry.key = who if isinstance(who, str) else None
        if self._traces is not None:
            trace = self._traces.begin(head, client.peer)
        return Seen(self._access_log, entry, trace)


class Ids:
    """Fresh request ids: 128 random bits each. A number that counts up would tell clients what others send.

    random: so many random bytes; asked for many ids at a time.
    """

    __slots__ = ("_at", "_random", "_text")

    def __init__(self, random: Callable[[int], bytes] = os.urandom) -> None:
        self._random = random
        self._text = ""
        self._at = 0

    def fresh(self) -> str:
        """32 hexadecimal digits."""
        if self._at >= len(self._text):
            self._text = self._random(_IDS_AT_ONCE * 16).hex()
            self._at = 0
        at = self._at
        self._at = at + 32
        return self._text[at : at + 32]


def _models(route: Route, known: Known) -> Refusal | bytes:
    """The models of the table, in OpenAI's form."""
    models = known.view.models
    if route.kind is Kind.MODELS:
        return msgspec.json.encode({"object": "list", "data": [_model(name) for name in sorted(models)]})
    if route.model not in models:
        return Refusal(404, "model_not_found", "no routing table has this model", final=True)
    return msgspec.json.encode(_model(str(route.model)))


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "headrace"}

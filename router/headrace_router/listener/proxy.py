"""One request from head to end: route, take in, attempt, relay; refuse in the client's own form.

On the request path. Whatever way a request ends, its engine's connection is closed or done, its place is given back and
it was counted once. One status line goes out, whatever fails later. Must not wait for operator, API server or metrics.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

import msgspec
from aiohttp import web

from headrace_api import names
from headrace_router.core.selection import Selector
from headrace_router.core.view import TableView
from headrace_router.http1 import headers, paths
from headrace_router.http1.paths import Kind, Route
from headrace_router.listener.connection import Connection, Given
from headrace_router.listener.keys import ClientKeys
from headrace_router.proxy.coroutine.answer import Answer
from headrace_router.proxy.coroutine.attempts import Attempts
from headrace_router.proxy.coroutine.intake import Asked, take_in
from headrace_router.proxy.coroutine.relay import Exchange, relay
from headrace_router.proxy.coroutine.waiting import Waiting
from headrace_router.proxy.coroutine.watch import Expired, Watch
from headrace_router.proxy.refusals import Refusal
from headrace_router.telemetry import access_log as access
from headrace_router.telemetry.accounting import Account, Ledger
from headrace_router.upstream.credentials import EngineCredentials
from headrace_router.upstream.port import Upstream

log = logging.getLogger("headrace.router")

_SHUTTING_DOWN = Refusal(503, "shutting_down", "this router is shutting down; another one serves", retry_after=1.0)
_NO_TABLE = Refusal(503, "no_table", "this router has no routing table yet", retry_after=5.0)
_FAULT = Refusal(500, "internal_error", "the router failed on this request")


class _Entry(access.Entry):
    """A request as the log has it, and its route."""

    __slots__ = ("route",)
    route: Route | None

    def __init__(self, request_id: str, method: str, target: str, peer: str | None, started: float) -> None:
        super().__init__(request_id, method, target, peer, started)
        self.route = None


@dataclass(slots=True)
class Proxy:
    """Serves the clients' listener."""

    selector: Selector
    upstream: Upstream
    waiting: Waiting
    ledger: Ledger
    log_access: Callable[[access.Entry], None] | None = None
    keys: ClientKeys | None = None
    credentials: EngineCredentials | None = None
    draining: bool = False
    running: set[Watch] = field(default_factory=set)
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        connection = request.protocol
        assert isinstance(connection, Connection)
        answer = connection.answer_to(request)
        if self.draining:
            answer.keep_alive = False
        loop = asyncio.get_running_loop()
        watch = Watch(loop)
        identity = headers.request_id(request.raw_headers, uuid.uuid4().hex)
        entry = _Entry(identity, request.method, request.raw_path, request.remote, monotonic())
        self.running.add(watch)
        self._idle.clear()
        try:
            refusal = await self._serve(request, answer, watch, entry)
            if refusal is not None:
                self._refuse(answer, refusal, entry)
        except ConnectionError:
            answer.abort()
        except Exception:
            log.exception("request %s failed", entry.request_id)
            if answer.sent:
                answer.abort()
            else:
                self._refuse(answer, _FAULT, entry)
        finally:
            self.running.discard(watch)
            if not self.running:
                self._idle.set()
            if self.log_access is not None:
                entry.ended(answer.status, complete=answer.complete, at=monotonic())
                self.log_access(entry)
        return Given(answer)

    def end_all(self) -> None:
        """End every running request: streams by an error event, the others by a refusal."""
        for watch in list(self.running):
            watch.expire("shutdown")

    async def ended(self) -> None:
        """Wait until no request runs."""
        if self.running:
            await self._idle.wait()

    async def _serve(
        self, request: web.BaseRequest, answer: Answer, watch: Watch, entry: _Entry
    ) -> Refusal | None:
        if self.keys is not None:
            who = self.keys.who(_Lines(request.raw_headers))
            if isinstance(who, Refusal):
                entry.route = _anthropic(request.method, request.raw_path)
                return who
        view = self.selector.view
        policy_paths = {path for policy in view.policies for path in policy.table.paths}
        route = paths.resolve(request.method, request.raw_path, policy_paths)
        if isinstance(route, paths.Refused):
            return Refusal(route.status, route.code, route.message, final=True, allow=route.allow)
        entry.route = route
        if not view.policies:
            return _NO_TABLE
        if route.kind in (Kind.MODELS, Kind.MODEL):
            return _models(answer, route, view, entry.request_id)
        try:
            asked = await take_in(request, route, lambda: self.selector.view, watch)
            if isinstance(asked, Refusal):
                return asked
            return await self._route(request, asked, answer, watch, entry)
        except Expired:
            return _SHUTTING_DOWN

    async def _route(
        self, request: web.BaseRequest, asked: Asked, answer: Answer, watch: Watch, entry: _Entry
    ) -> Refusal | None:
        loop = asyncio.get_running_loop()
        account = self._account(asked, entry)
        entry.account = account
        exchange = Exchange(
            answer,
            account,
            watch,
            loop,
            entry.request_id,
            stream=asked.facts.stream,
            anthropic=asked.route.kind is Kind.MESSAGES,
            timeouts=asked.policy.table.timeouts,
        )
        attempts = Attempts(
            self.selector,
            self.upstream,
            self.waiting,
            asked,
            exchange,
            method=request.method,
            headers=list(request.raw_headers),
            peer=request.remote,
            credentials=self.credentials,
            own_keys=self.keys is not None,
        )
        try:
            arrived = await attempts.run()
            if isinstance(arrived, Refusal):
                return arrived
            attempts.forget_body()
            await relay(exchange, arrived)
            return None
        finally:
            attempts.close()
            account.close()
            self.waiting.wake()

    def _account(self, asked: Asked, entry: _Entry) -> Account:
        model = self.selector.view.models[asked.facts.model]
        return Account(self.ledger, model, asked.priority.name, len(asked.body), asked.client_retry, entry.started)

    def _refuse(self, answer: Answer, refusal: Refusal, entry: _Entry) -> None:
        self.ledger.metrics.refused[(refusal.code,)].inc()
        entry.code = refusal.code
        anthropic = entry.route is not None and entry.route.kind is Kind.MESSAGES
        body = refusal.body(anthropic=anthropic)
        lines = refusal.headers()
        lines.append(headers.said(names.HEADER_REQUEST_ID, entry.request_id))
        if entry.account is not None:
            lines.append(headers.said(names.HEADER_ATTEMPTS, str(entry.account.attempts)))
        answer.whole(refusal.status, refusal.phrase, lines, body)


class _Lines:
    def __init__(self, raw: headers.RawHeaders) -> None:
        self._raw = raw

    def all(self, name: bytes) -> list[bytes]:
        return [value for key, value in self._raw if key.lower() == name]


def _anthropic(method: str, path: str) -> Route | None:
    """The route, for the form of an error."""
    route = paths.resolve(method, path, ())
    return route if isinstance(route, Route) else None


def _models(answer: Answer, route: Route, view: TableView, request_id: str) -> Refusal | None:
    """The models of the table, in OpenAI's form."""
    known = sorted(view.models)
    if route.kind is Kind.MODEL:
        if route.model not in view.models:
            return Refusal(404, "model_not_found", "no routing table has this model", final=True)
        body = msgspec.json.encode(_model(str(route.model)))
    else:
        body = msgspec.json.encode({"object": "list", "data": [_model(name) for name in known]})
    lines = [headers.said("Content-Type", "application/json"), headers.said(names.HEADER_REQUEST_ID, request_id)]
    answer.whole(200, b"OK", lines, body)
    return None


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "headrace"}

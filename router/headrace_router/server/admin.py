"""The admin listener: metrics, liveness, readiness, explanations. Never on the clients' listener.

Beside the request path. Liveness says only that the loop turns. Readiness is 200 if and only if a valid table was ever
applied and no shutdown has begun, never because of engines or the operator; what is stale stands in its detail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec
from aiohttp import web

from headrace_api import names
from headrace_api.version import __version__
from headrace_router.core.affinity import affinity_key
from headrace_router.core.explain import explain
from headrace_router.core.facts import RequestFacts
from headrace_router.core.routes import EngineView
from headrace_router.core.selection import Selector
from headrace_router.core.view import PolicyView
from headrace_router.endpoints.round_trips import RoundTrips
from headrace_router.endpoints.services import Services
from headrace_router.http1.numbers import whole
from headrace_router.tables.heartbeat import Heartbeat
from headrace_router.tables.tables import Followed, Tables
from headrace_router.telemetry.form import FORM
from headrace_router.telemetry.metrics import Gauges, Metrics, live
from headrace_router.telemetry.snapshot import Part, page

_MAX_BYTES = 10**9
Row = tuple[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Admin:
    """Answers the admin listener."""

    selector: Selector
    metrics: Metrics
    tables: Tables
    heartbeat: Heartbeat
    services: Services
    round_trips: RoundTrips
    serving: Callable[[], bool]
    draining: Callable[[], bool]
    access: Callable[[], dict[str, object]] = dict

    def application(self) -> web.Application:
        """The routes."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                web.get("/debug/explain", self._explain),
            ]
        )
        return app

    def metrics_only(self) -> web.Application:
        """The routes of a listener for whoever reads metrics: nothing else is told there."""
        app = web.Application()
        app.add_routes([web.get("/healthz", self._healthz), web.get("/metrics", self._metrics)])
        return app

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    def readiness(self) -> tuple[bool, dict[str, object]]:
        """Whether it is ready, and all that speaks for and against it."""
        draining = self.draining()
        ready = self.tables.settled() and self.serving() and self.services.settled() and not draining
        age = self.heartbeat.age()
        detail: dict[str, object] = {
            "ready": ready,
            "draining": draining,
            "frontend": self.tables.frontend,
            "tables": [_told(entry) for entry in self.tables.followed],
            "conflicts": list(self.selector.view.conflicts),
            "services": self.services.detail(),
            "access": self.access(),
            "operator": {
                "heartbeatAgeSeconds": None if age is None else round(age, 1),
                "state": "unknown" if age is None else "stale" if age > names.HEARTBEAT_STALE_SECONDS else "alive",
                "why": self.heartbeat.why,
            },
        }
        return ready, detail

    def parts(self) -> Iterator[Part]:
        """All metrics, in steps."""
        return self.metrics.parts(self._live)

    def explained(self, query: Mapping[str, str]) -> tuple[int, object]:
        """The answer to a question of /debug/explain: its status, and what is told."""
        view = self.selector.view
        model = query.get("model", "")
        policy = view.policy_for(model)
        if policy is None:
            return 404, {"error": f"no table has model {model!r}", "models": sorted(view.models)}
        given = query.get("bytes", "0")
        size = whole(given, _MAX_BYTES)
        if size is None:
            return 400, {"error": f"bytes is {given[:32]!r}; right would be the body's size, such as 2048"}
        asked = RequestFacts(
            model,
            key=_key(policy, query.get("key")),
            body_bytes=size,
            priority=query.get("priority", ""),
        )
        return 200, explain(self.selector, asked, asyncio.get_running_loop().time())

    async def _readyz(self, _request: web.Request) -> web.Response:
        ready, detail = self.readiness()
        return as_json(detail, 200 if ready else 503)

    async def _metrics(self, _request: web.Request) -> web.Response:
        return as_metrics(await page(self.parts()))

    async def _explain(self, request: web.Request) -> web.Response:
        status, told = self.explained(request.query)
        return as_json(told, status)

    def _live(self) -> Iterable[Gauges]:
        yield live("headrace_build_info", [((__version__, FORM), 1.0)])
        view = self.selector.view
        engines = view.engines.items()
        # Read as they are rendered, in steps: a thousand engines of many endpoints each are many.
        yield live(names.METRIC_IN_FLIGHT, (((name,), float(_in_flight(engine))) for name, engine in engines))
        yield live(names.METRIC_EJECTED, (((name,), float(_out(engine))) for name, engine in engines))
        yield live(
            names.METRIC_ENDPOINTS,
            (((name,), float(len(engine.endpoints) - _out(engine))) for name, engine in engines),
        )
        yield from self._table_gauges(view.policies)
        yield from self._source_gauges()
        yield from self._distances()

    def _source_gauges(self) -> Iterator[Gauges]:
        applied: dict[tuple[str, ...], float] = {}
        watched: list[Row] = []
        for entry in self.tables.followed:
            if (table := entry.table) is not None:
                applied[table.policy_namespace, table.policy, table.frontend] = entry.at
            if entry.source.whole:
                watched.append(((entry.source.label,), float(entry.source.trouble is None)))
        yield live(names.METRIC_TABLE_APPLIED, list(applied.items()))
        yield live(names.METRIC_TABLE_WATCHED, watched)

    def _distances(self) -> Iterator[Gauges]:
        frontend = self.tables.frontend or ""
        measured = self.round_trips.measured()
        seconds: list[Row] = [((frontend, name), found.seconds) for name, found in measured.items()]
        samples: list[Row] = [((frontend, name), float(found.samples)) for name, found in measured.items()]
        yield live(names.METRIC_ROUND_TRIP, seconds)
        yield live(names.METRIC_ROUND_TRIP_SAMPLES, samples)

    def _table_gauges(self, policies: Iterable[PolicyView]) -> Iterator[Gauges]:
        revisions: list[Row] = []
        issued: list[Row] = []
        info: list[Row] = []
        left: list[Row] = []
        now = asyncio.get_running_loop().time()
        for policy in policies:
            table = policy.table
            labels = (table.policy_namespace, table.policy, table.frontend)
            left.append((labels, policy.budget.left(now, policy.sheds, policy.slack())))
            revisions.append((labels, table.identity.revision))
            if (when := _epoch(table.issued)) is not None:
                issued.append((labels, when))
            info.append(((*labels, table.hash), 1.0))
        yield live("headrace_retry_budget_left", left)
        yield live(names.METRIC_TABLE_REVISION, revisions)
        yield live(names.METRIC_TABLE_ISSUED, issued)
        yield live("headrace_table_info", info)
        age = self.heartbeat.age()
        if age is not None:
            yield live(names.METRIC_HEARTBEAT_AGE, [((), age)])


def _in_flight(engine: EngineView) -> int:
    return sum(endpoint.own for endpoint in engine.endpoints)


def _out(engine: EngineView) -> int:
    return sum(endpoint.ejected or not endpoint.ready for endpoint in engine.endpoints)


def _told(entry: Followed) -> dict[str, object]:
    table = entry.table
    source = entry.source
    told: dict[str, object] = {
        "source": source.name,
        "from": source.way,
        "api": source.trouble,
        "error": entry.error,
        "note": entry.note,
    }
    if table is not None:
        told |= {
            "policy": f"{table.policy_namespace}/{table.policy}",
            "uid": table.identity.uid,
            "term": table.identity.term,
            "revision": table.identity.revision,
            "issued": table.issued,
            "hash": table.hash,
            "appliedAt": round(entry.at, 3),
        }
    return told


def _key(policy: PolicyView, value: str | None) -> bytes | None:
    """The affinity key that a request with ``value`` in the policy's first header rule would have."""
    if value is None:
        return None
    header = next((rule.header for rule in policy.table.affinity.keys if rule.header), None)
    return affinity_key(policy.affinity, {header.lower(): value}, None) if header else value.encode()


def _epoch(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def as_metrics(text: bytes) -> web.Response:
    """A page of metrics."""
    return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


def as_json(value: object, status: int) -> web.Response:
    """A page for people and their tools."""
    return web.Response(body=msgspec.json.encode(value) + b"\n", status=status, content_type="application/json")

"""The selection of the data plane: a request's facts in, a Pick or a Refusal out.

On the request path, synchronous, for one thread. It reads the view in force and this process's own counts and
health, nothing else; it waits for nothing and logs nothing. Every Pick holds its place in the counts until
``release``, whichever way its request ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr

from headrace_api.table import TableEngine
from headrace_router.core.build_view import build_view
from headrace_router.core.choose import NO_SLOT, Choice, choose, choose_endpoint
from headrace_router.core.ejection import DEFAULT_FULL_S, record
from headrace_router.core.facts import Outcome, Reason, Refusal, RefusalKind, RequestFacts, whole_seconds
from headrace_router.core.routes import RouteSet, RouteView
from headrace_router.core.shedding import shed_draw
from headrace_router.core.slots import slot_of
from headrace_router.core.state import EndpointState, endpoints_at
from headrace_router.core.view import ModelView, PolicyView, TableView

_NONE_TRIED: Final[frozenset[str]] = frozenset()
# Probing intervals: what is in trouble soon, what no request reaches now and then.
PROBE_TROUBLED_S: Final = 5.0
PROBE_IDLE_S: Final = 30.0
# Endpoints looked at per call, so that a call stays short with thousands of them.
_PROBE_SCAN: Final = 512


class Probe(NamedTuple):
    """Ask this endpoint whether it is ready, then say so by ``set_ready``."""

    engine: str
    url: str


@mypyc_attr(free_list_len=1)
class Pick:
    """Where one attempt goes, and its place in the counts until ``release`` (once; again is harmless).

    served_name: what the body's model must be called there, None to leave it. trial: the one request that decides
    whether an ejected endpoint comes back. Connections are kept by (engine, url), never by url alone.
    """

    __slots__ = (
        "_choice",
        "_held",
        "_late_key",
        "_trial",
        "endpoint",
        "epoch",
        "policy",
        "prompt_class",
        "reason",
        "slot",
        "state",
        "url",
    )

    def __init__(
        self,
        choice: Choice,
        endpoint: EndpointState,
        policy: PolicyView,
        reason: Reason,
        slot: int,
        prompt_class: int,
        late_key: int,
        trial: bool,
    ) -> None:
        self._choice = choice
        self.state = choice.route.state
        self._held = True
        self._late_key = late_key
        self._trial = trial
        self.endpoint = endpoint
        self.url = endpoint.url
        self.epoch = endpoint.epoch
        self.policy = policy
        self.reason: Reason = reason
        self.slot = slot
        self.prompt_class = prompt_class
        self.state.take(endpoint)
        if trial:
            endpoint.trial = True

    @property
    def engine(self) -> str:
        """The engine's id, namespace/name."""
        return self.state.id

    @property
    def engine_name(self) -> str:
        """The engine's bare name, as response headers show it."""
        return self._choice.route.engine.name

    @property
    def config(self) -> TableEngine:
        """The engine in the table: TLS and auth references, round trip."""
        return self._choice.route.config

    @property
    def served_name(self) -> str | None:
        """The name to write into the body's ``model``, None to leave it."""
        return self._choice.route.served_name

    @property
    def limit(self) -> int:
        """Requests in flight that this router may have on the engine, 0 where it has no limit."""
        return self._choice.route.engine.limit

    @property
    def revision(self) -> str:
        """The table's revision."""
        return self.policy.revision

    @property
    def trial(self) -> bool:
        """Whether it decides if an ejected endpoint comes back."""
        return self._trial

    @property
    def why(self) -> str:
        """The reason in words."""
        return why(self._choice, self.reason)

    def release(self) -> None:
        """The attempt ended, whichever way."""
        if not self._held:
            return
        self._held = False
        self.state.give_back(self.endpoint)
        if self._trial and self.epoch == self.endpoint.epoch:
            self.endpoint.trial = False


class Selector:
    """All of one router process's selection: the view in force, counts, health.

    Args:
        view: tables to begin with; None serves no model.
        rng: numbers from 0 to 1, for shed draws of requests without a key.
        wall_offset: seconds to add to ``now`` for wall time; routers share the windows of shed draws.
        solve_interval: seconds between solves, what a shed request is told to wait.
        default_full: seconds that a 429 or 503 without Retry-After counts.
    """

    def __init__(
        self,
        view: TableView | None,
        *,
        rng: Callable[[], float],
        wall_offset: float = 0.0,
        solve_interval: float = 5.0,
        default_full: float = DEFAULT_FULL_S,
    ) -> None:
        self.rng = rng
        self.wall_offset = wall_offset
        self.solve_interval = solve_interval
        self.default_full = default_full
        self.view = build_view(())
        self._probe_order: list[tuple[str, EndpointState, bool]] | None = None
        self._probe_at = 0
        if view is not None:
            self.install(view)

    def install(self, view: TableView) -> None:
        """Swap the tables. ``view`` is to be built with ``previous=self.view``: one at a time."""
        for model in self.view.models.values():
            model.pool.recount(0)
        for model in view.models.values():
            model.pool.recount(0)
            model.pool.total = model.pool.out = 0
        for engine in view.engines.values():
            state = engine.state
            state.endpoints = engine.endpoints
            state.pools = engine.pools
            state.troubled = True
            out = sum(endpoint.ejected for endpoint in engine.endpoints)
            for pool in engine.pools:
                pool.recount(pool.own + state.own)
                pool.total += len(engine.endpoints)
                pool.out += out
        for policy in view.policies:
            policy.configure()
        self._probe_order = None
        self.view = view

    def set_endpoints(self, engine: str, urls: Collection[str]) -> bool:
        """An engine's addresses as its Service has them now, without a new table. Returns whether any came or went.

        urls: see endpoints_at. Requests on one that goes end there. None: the engine takes nothing, the next in order
        does. Unknown engines are ignored.
        """
        known = self.view.engines.get(engine)
        if known is None or known.addresses is urls:
            return False
        same = known.addresses is not None and endpoints_at(urls, known.endpoints) == known.endpoints
        known.addresses = urls
        if same:
            return False
        known.replace(urls, self.view.phase)
        self._probe_order = None
        return True

    def pick(self, request: RequestFacts, now: float) -> Pick | Refusal:
        """An engine and endpoint for one attempt, or why there is none. ``now``: monotonic seconds."""
        model = self.view.models.get(request.model)
        if model is None:
            return Refusal(RefusalKind.MODEL_NOT_FOUND, f"the model {request.model!r} does not exist here")
        tokens = request.body_bytes / model.bytes_per_token
        prompt_class = model.prompt_class(tokens)
        routes_of = model.classes[prompt_class]
        if not request.admitted and not request.tried:
            refusal = self._shed(request, model, routes_of.shed, now) if routes_of.shed else None
            if refusal is not None:
                return refusal
            request.admitted = True
        routes = routes_of.eligible(request.needs, tokens)
        if isinstance(routes, Refusal):
            return routes
        if (known := routes.known_refusal(now)) is not None and not request.tried:
            return known
        slot = NO_SLOT if request.key is None else slot_of(request.key)
        avoid: Collection[str] = {engine for engine, _ in request.tried} if request.tried else _NONE_TRIED
        panic = False
        choice = choose(routes, slot, now, avoid)
        if choice is None and request.tried:
            choice = _other_endpoint(routes, request.tried, now)
        if choice is None:
            last = last_resort(routes, slot, now, avoid)
            if isinstance(last, Refusal):
                if not request.tried:
                    routes.keep_refusal(last, now)
                return last
            choice = last
            panic = True
        endpoint = choose_endpoint(choice.route.engine, slot, now, request.tried, panic)
        assert endpoint is not None, "an open engine has an open endpoint"
        reason = reason_of(request, choice)
        trial = endpoint.ejected and not panic
        late_key = slot if slot >= 0 else -1 - request.body_bytes
        return Pick(choice, endpoint, model.policy, reason, slot, prompt_class, late_key, trial)

    def report(self, pick: Pick, outcome: Outcome, now: float, retry_after: float | None = None) -> bool:
        """How the attempt went, as soon as that is known. Returns whether its endpoint was ejected for it.

        ``retry_after``: what the engine asked for (``read_retry_after``), with FULL.
        """
        pick.state.changed()
        return record(
            pick.endpoint,
            pick.state,
            outcome,
            epoch=pick.epoch,
            key=pick._late_key,
            limits=pick.policy.table.ejection,
            now=now,
            retry_after=retry_after,
            default_full=self.default_full,
        )

    def set_ready(self, engine: str, url: str, ready: bool) -> None:
        """A probe's word: whether the endpoint could be reached and says it is ready. Unknown ones are ignored."""
        known = self.view.engines.get(engine)
        if known is None:
            return
        for endpoint in known.endpoints:
            if endpoint.url == url:
                endpoint.ready = ready
        known.state.troubled = True
        known.state.changed()

    def due_probes(self, now: float, limit: int = 8) -> list[Probe]:
        """Endpoints to be probed now, a trickle: those in trouble and those without a weight every few seconds, idle
        ones now and then, so that what no request reaches is known to be well before it is needed."""
        due: list[Probe] = []
        order = self._probe_order
        if order is None:
            engines = self.view.engines.values()
            order = self._probe_order = [(e.id, endpoint, e.weighted) for e in engines for endpoint in e.endpoints]
        for _ in range(min(len(order), _PROBE_SCAN)):
            engine, endpoint, weighted = order[self._probe_at % len(order)]
            self._probe_at += 1
            if endpoint.own and endpoint.healthy(now):
                continue
            wait = PROBE_TROUBLED_S if not endpoint.healthy(now) or not weighted else PROBE_IDLE_S
            if now - endpoint.probed >= wait:
                endpoint.probed = now
                due.append(Probe(engine, endpoint.url))
                if len(due) >= limit:
                    break
        return due

    def in_flight(self) -> Iterator[tuple[str, str, int]]:
        """(engine id, url, this process's requests in flight) of every endpoint in force."""
        for engine in self.view.engines.values():
            for endpoint in engine.endpoints:
                yield engine.id, endpoint.url, endpoint.own

    def ejected(self, now: float) -> list[tuple[str, str, float]]:
        """(engine id, url, seconds until its trial) of every ejected endpoint."""
        return [
            (engine.id, endpoint.url, max(0.0, endpoint.until - now))
            for engine in self.view.engines.values()
            for endpoint in engine.endpoints
            if endpoint.ejected
        ]

    def _shed(self, request: RequestFacts, model: ModelView, shed: dict[str, float], now: float) -> Refusal | None:
        priority = model.policy.priority(request.priority).name
        share = shed.get(priority, 0.0)
        if share <= 0 or shed_draw(request.key, priority, now + self.wall_offset, self.rng) >= share:
            return None
        return Refusal(
            RefusalKind.SHED,
            f"capacity for {model.name} is short: {share:.0%} of priority {priority} is refused for now",
            whole_seconds(self.solve_interval),
        )


def reason_of(request: RequestFacts, choice: Choice) -> Reason:
    """The word for response headers and metrics."""
    if request.tried:
        return "retry"
    if choice.saves > 0 or choice.over:
        return "spill"
    if request.key is None:
        return "weighted"
    return "affinity" if choice.first else "spill"


def why(choice: Choice, reason: Reason) -> str:
    """A choice's reason in words."""
    if reason == "retry":
        return "another engine after a failed attempt"
    if reason == "affinity":
        return "first engine of its key"
    if reason == "weighted":
        return "its turn by weight"
    if choice.saves > 0:
        return f"saves {choice.saves:.1f} s"
    return "first engine is over its load bound" if choice.over else "first engine takes nothing now"


def last_resort(routes: RouteSet, slot: int, now: float, avoid: Collection[str]) -> Choice | Refusal:
    """No engine is open: say why, or, where only our own doubts speak against all of them, doubt ourselves."""
    left = [route for route in _in_order(routes, slot) if route.id not in avoid]
    if not left:
        return Refusal(RefusalKind.NONE_LEFT, "every engine that may serve the request was tried")
    present = [route for route in left if route.engine.endpoints]
    if not present:
        return Refusal(RefusalKind.NO_ENGINES, "no engine of this model has an address now", whole_seconds(1.0))
    if any(route.engine.full() for route in present):
        return at_limit()
    penalised = [e.full_until for route in present for e in route.engine.endpoints if e.full_until > now]
    if penalised:
        wait = min(penalised) - now
        return Refusal(RefusalKind.ALL_PENALISED, "every engine of this model asked to wait", whole_seconds(wait))
    return Choice(present[0], False)


def at_limit() -> Refusal:
    """Nobody has room."""
    return Refusal(RefusalKind.FULL, "every engine of this model is at its limit", whole_seconds(1.0))


def _in_order(routes: RouteSet, slot: int) -> list[RouteView]:
    known = routes.routes
    order = routes.orders.walk(slot) if slot >= 0 else routes.turns.near(len(known))
    return [known[index] for index in order] + list(routes.spare)


def _other_endpoint(routes: RouteSet, tried: tuple[tuple[str, str], ...], now: float) -> Choice | None:
    """Only tried engines are left: another replica of one of them, if it has one that is open."""
    for route in routes.every():
        engine = route.engine
        if any((engine.id, e.url) not in tried and e.open(now) for e in engine.endpoints) and not engine.full():
            return Choice(route, False)
    return None

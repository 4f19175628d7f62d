"""The engines that one kind of request may use under one table, prepared for picking.

On the request path, immutable but for what is computed when first needed. A RouteSet stands for one model, prompt
class and set of needs: weights, prices, affinity orders and turns belong together there. Choosing from it is
choose.py's business.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import inf
from typing import Final, NamedTuple

from headrace_api.table import Guard, Route, TableEngine
from headrace_router.core.facts import Refusal, RefusalKind, listed
from headrace_router.core.guard import Price, Variant, keyed_variant, keyless_variant
from headrace_router.core.slots import SlotOrders
from headrace_router.core.state import EndpointState, EngineState, Pool, endpoints_at
from headrace_router.core.weighted import Turns, succeed

OrdersOf = Callable[[tuple[str, ...], tuple[float, ...]], SlotOrders]

# No tokenizer packs this many times the learned bytes into a token on average: beyond it a request is too long
# without doubt, below it only the engine can tell.
CERTAINLY_TOO_LONG: Final = 4.0
# Distinct combinations of needs and length kept per prompt class; needs come from a fixed set, lengths from the table.
_KEPT_SETS: Final = 64
# Bytes of images and sound say nothing about tokens.
_BYTES_ARE_NOT_TEXT: Final = frozenset({"vision", "audio"})


class EngineView:
    """An engine under the tables in force: configuration beside its lasting state.

    limit: requests in flight that this process may have there (0: none). floor: least load bound without prices.
    orders, turns: over its endpoints, None with fewer than two. addresses: what its Service had last, as it was given;
    None: its Service isn't known, or it has none.
    """

    __slots__ = (
        "addresses",
        "all_in_flight",
        "config",
        "endpoints",
        "floor",
        "id",
        "in_flight_here",
        "limit",
        "name",
        "orders",
        "pools",
        "state",
        "turns",
        "weighted",
    )

    def __init__(
        self,
        config: TableEngine,
        state: EngineState,
        endpoints: tuple[EndpointState, ...],
        addresses: Collection[str] | None = None,
    ) -> None:
        self.config = config
        self.addresses = addresses
        self.id = config.id
        self.name = config.id.rpartition("/")[2]
        self.state = state
        self.endpoints = endpoints
        self.limit = config.concurrency_limit
        self.floor = max(1.0, self.limit / 4.0)
        self.in_flight_here = config.in_flight_here
        self.all_in_flight = config.in_flight_all
        self.orders: SlotOrders | None = None
        self.turns: Turns | None = None
        self.pools: tuple[Pool, ...] = ()
        self.weighted = False

    def replace(self, urls: Collection[str], phase: float) -> None:
        """Other addresses under the same table: those that stay keep their state, and keys and turns go on."""
        out = _out(self.endpoints)
        count = len(self.endpoints)
        self.endpoints = self.state.endpoints = endpoints_at(urls, self.endpoints, self.state.endpoint)
        self.addresses = urls
        ids = tuple(endpoint.url for endpoint in self.endpoints)
        several = len(ids) > 1
        self.orders = SlotOrders(ids, (1.0,) * len(ids)) if several else None
        self.turns = succeed(ids, (1.0,) * len(ids), phase, self.turns) if several else None
        for pool in self.pools:
            pool.total += len(self.endpoints) - count
            pool.out += _out(self.endpoints) - out
        self.state.troubled = True
        self.state.changed()

    def merge(self, other: EngineView) -> None:
        """The same engine in another policy's table: expectations add up, the stricter known limit holds."""
        self.in_flight_here += other.in_flight_here
        self.all_in_flight += other.all_in_flight
        self.limit = min(self.limit, other.limit) or max(self.limit, other.limit)
        self.floor = max(1.0, self.limit / 4.0)

    def full(self) -> bool:
        """Whether its own limit is reached here."""
        return 0 < self.limit <= self.state.in_flight

    def open(self, now: float) -> bool:
        """Whether it takes a new request."""
        state = self.state
        if 0 < self.limit <= state.in_flight or not self.endpoints:
            return False
        if not state.troubled or not state.settle(now):
            return True
        return any(endpoint.open(now) for endpoint in self.endpoints)


class RouteView:
    """One engine for one model and prompt class. config: the engine in the model's own table."""

    __slots__ = ("config", "engine", "id", "price", "served_name", "spare_weight", "state", "weight")

    def __init__(
        self, engine: EngineView, config: TableEngine, route: Route, served_name: str | None, routers: int
    ) -> None:
        self.engine = engine
        self.config = config
        self.id = engine.id
        self.state = engine.state
        self.weight = route.weight
        self.spare_weight = config.capacity_share
        self.served_name = served_name
        self.price = Price(route.reduced_cost, engine.in_flight_here, engine.all_in_flight, route.work_share, routers)

    def cost(self, variant: Variant) -> float:
        """Seconds that one more request costs here, by the table's prices and this process's own in-flight."""
        return self.price.cost(self.state.in_flight, variant)


class _Refused(NamedTuple):
    changes: int
    until: float
    refusal: Refusal


class RouteSet:
    """Routes to choose from. routes: weight above 0, by id; shares: their parts of 1; spare: the others.

    Where no engine has a weight (all that had one can't serve this request) the spare ones are spread by capacity.
    """

    __slots__ = ("_refused", "keyed", "keyless", "orders", "pool", "routes", "shares", "spare", "turns")

    def __init__(
        self,
        candidates: Sequence[RouteView],
        pool: Pool,
        guard: Guard | None,
        routers: int,
        orders_of: OrdersOf,
        phase: float,
        previous: RouteSet | None,
    ) -> None:
        weighted = [route for route in candidates if route.weight > 0]
        spare = [route for route in candidates if route.weight == 0]
        weights = [float(route.weight) for route in weighted]
        if not weighted:
            known = any(route.spare_weight > 0 for route in spare)
            weighted = [route for route in spare if not known or route.spare_weight > 0]
            spare = [route for route in spare if known and route.spare_weight == 0]
            weights = [route.spare_weight if known else 1.0 for route in weighted]
        total = sum(weights)
        ids = tuple(route.id for route in weighted)
        self.routes = tuple(weighted)
        self.shares = tuple(weight / total for weight in weights)
        self.spare = tuple(spare)
        self.pool = pool
        self._refused: _Refused | None = None
        self.keyed: Variant | None = None
        self.keyless: Variant | None = None
        if guard is not None:
            expected = sum(route.price.expected for route in weighted)
            self.keyed = keyed_variant(guard)
            self.keyless = keyless_variant(expected, routers)
        self.orders = orders_of(ids, tuple(weights))
        self.turns: Turns = succeed(ids, tuple(weights), phase, previous.turns if previous is not None else None)

    def every(self) -> tuple[RouteView, ...]:
        """All candidates, those with a weight first."""
        return self.routes + self.spare

    def known_refusal(self, now: float) -> Refusal | None:
        """Why nobody here takes a request, while it still holds: a full fleet must be able to refuse fast."""
        refused = self._refused
        if refused is None or refused.changes != self.pool.changes or now >= refused.until:
            return None
        return refused.refusal

    def keep_refusal(self, refusal: Refusal, now: float) -> None:
        """Nobody here takes a request: true until something changes or some time is up."""
        ends = (
            end
            for route in self.every()
            for endpoint in route.engine.endpoints
            for end in (endpoint.full_until, endpoint.until)
            if end > now
        )
        self._refused = _Refused(self.pool.changes, min(ends, default=inf), refusal)


class ClassView:
    """One model's prompt class: who can serve which request, and what is shed of it."""

    __slots__ = ("_before", "_build", "_common", "_lengths", "_sets", "candidates", "everyone", "shed")

    def __init__(
        self,
        candidates: tuple[RouteView, ...],
        shed: dict[str, float],
        build: Callable[[Sequence[RouteView], RouteSet | None], RouteSet],
        previous: ClassView | None,
    ) -> None:
        self.candidates = candidates
        self.shed = shed
        self._build = build
        self._common = frozenset.intersection(*(frozenset(c.config.capabilities) for c in candidates))
        lengths = {c.config.max_model_len for c in candidates} - {0}
        self._lengths = sorted(lengths)
        self.everyone: RouteSet = build(candidates, previous.everyone if previous is not None else None)
        self._sets: dict[tuple[frozenset[str], int], RouteSet | Refusal] = {}
        if previous is not None:
            # What was asked for once will be again: prepared here, off the request path.
            for needs, too_short in list(previous._sets):
                self._set(needs, min(too_short, len(self._lengths)), previous)

    def eligible(self, needs: frozenset[str], tokens: float) -> RouteSet | Refusal:
        """The routes for a request that shows ``needs`` and has about ``tokens`` tokens."""
        lengths = self._lengths
        too_short = 0
        if lengths and tokens > lengths[0] and not needs & _BYTES_ARE_NOT_TEXT:
            if tokens > CERTAINLY_TOO_LONG * lengths[-1] and self._bounded(needs):
                return _too_long(tokens, lengths[-1])
            too_short = sum(length < tokens for length in lengths)
        if not too_short and (not needs or needs <= self._common):
            return self.everyone
        found = self._sets.get((needs, too_short))
        if found is None:
            found = self._set(needs, too_short, None)
        return found

    def _bounded(self, needs: frozenset[str]) -> bool:
        able = [c for c in self.candidates if needs <= set(c.config.capabilities)]
        return bool(able) and all(c.config.max_model_len > 0 for c in able)

    def _set(self, needs: frozenset[str], too_short: int, previous: ClassView | None) -> RouteSet | Refusal:
        able = [c for c in self.candidates if needs <= set(c.config.capabilities)]
        found: RouteSet | Refusal
        if able:
            before = previous._sets.get((needs, too_short)) if previous is not None else None
            found = self._build(self._long_enough(able, too_short), before if isinstance(before, RouteSet) else None)
        else:
            found = _incapable(needs, self.candidates)
        if len(self._sets) >= _KEPT_SETS:
            self._sets.clear()
        self._sets[needs, too_short] = found
        return found

    def _long_enough(self, able: list[RouteView], too_short: int) -> list[RouteView]:
        """Those whose context is long enough; with none, the longest: an estimate alone loses no request."""
        if not too_short:
            return able
        least = self._lengths[too_short] if too_short < len(self._lengths) else float("inf")
        enough = [c for c in able if not c.config.max_model_len or c.config.max_model_len >= least]
        longest = max(c.config.max_model_len for c in able)
        return enough or [c for c in able if c.config.max_model_len == longest]


def _out(endpoints: Sequence[EndpointState]) -> int:
    return sum(endpoint.ejected for endpoint in endpoints)


def _incapable(needs: frozenset[str], candidates: Sequence[RouteView]) -> Refusal:
    there = {name for candidate in candidates for name in candidate.config.capabilities}
    missing = needs - there
    what = listed(missing) if missing else f"{listed(needs)} together"
    return Refusal(RefusalKind.CAPABILITY_MISSING, f"no engine of this model offers {what}, which the request uses")


def _too_long(tokens: float, longest: int) -> Refusal:
    return Refusal(
        RefusalKind.CONTEXT_TOO_LONG,
        f"the request has about {tokens:.0f} tokens by its size; the longest context of this model is {longest}",
    )

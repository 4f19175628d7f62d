"""One choice out of a RouteSet: affinity or turn first, then the guard, then whoever is left.

On the request path. The first choice is what the table wants; it is kept unless it can't take the request or the
guard finds another that saves more than it may cost. Other engines are looked at only then, and a bounded number.
``look`` makes the same choice without taking a turn, for explanations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Final

from mypy_extensions import mypyc_attr

from headrace_router.core.guard import Variant, load_bound
from headrace_router.core.routes import EngineView, RouteSet, RouteView
from headrace_router.core.slots import CANDIDATES
from headrace_router.core.state import EndpointState

# As many as a table carries beside those with a weight.
SPARE_CANDIDATES: Final = 16
NO_SLOT: Final = -1


@mypyc_attr(free_list_len=1)
class Choice:
    """first: whether it is the first choice. saves: seconds that a spill by price saves, else 0. over: by the bound."""

    __slots__ = ("first", "over", "route", "saves")

    def __init__(self, route: RouteView, first: bool, saves: float = 0.0, over: bool = False) -> None:
        self.route = route
        self.first = first
        self.saves = saves
        self.over = over


def choose(routes: RouteSet, slot: int, now: float, avoid: Collection[str], look: bool = False) -> Choice | None:
    """The engine for one request; None if none is open.

    Args:
        routes: who may serve it.
        slot: of its affinity key, NO_SLOT without one.
        now: monotonic seconds.
        avoid: engine ids that were tried already.
        look: change nothing.
    """
    index = _first(routes, slot, look)
    route = routes.routes[index]
    is_first = True
    if (avoid and route.id in avoid) or not route.engine.open(now):
        is_first = False
        index = _next_open(routes, slot, now, avoid, look)
        if index < 0:
            return _spare(routes, slot, now, avoid)
        route = routes.routes[index]
    variant = routes.keyed if slot >= 0 else routes.keyless
    if variant is None:
        return _within_bound(routes, index, slot, now, avoid, is_first)
    cheaper, saves = _cheapest(routes, index, slot, variant, now, avoid)
    return Choice(route, is_first) if cheaper is None else Choice(cheaper, False, saves)


def _first(routes: RouteSet, slot: int, look: bool) -> int:
    if slot >= 0:
        return routes.orders.first(slot)
    return routes.turns.near(1)[0] if look else routes.turns.next()


def fair_load(routes: RouteSet) -> int:
    """Requests in flight over the set's engines, the base of the load bound."""
    if len(routes.routes) <= CANDIDATES:
        return sum(route.state.in_flight for route in routes.routes)
    return routes.pool.in_flight


def choose_endpoint(
    engine: EngineView, slot: int, now: float, tried: Collection[tuple[str, str]], panic: bool = False
) -> EndpointState | None:
    """The same inside an engine, over its ready replicas; None if none is open (``panic``: any counts as open)."""
    endpoints = engine.endpoints
    if len(endpoints) == 1 and not tried:
        return endpoints[0] if panic or endpoints[0].open(now) else None
    open_ones = [e for e in endpoints if (panic or e.open(now)) and (engine.id, e.url) not in tried]
    bound = load_bound(1.0 / max(1, len(endpoints)), engine.state.in_flight, 1.0)
    fitting = {e.url for e in open_ones if e.in_flight + 1 <= bound} or {e.url for e in open_ones}
    if len(fitting) < 2 or engine.orders is None or engine.turns is None:
        return next((e for e in open_ones if e.url in fitting), None)

    def fits(index: int) -> bool:
        return endpoints[index].url in fitting

    if slot >= 0:
        return endpoints[next(filter(fits, engine.orders.walk(slot)))]
    return endpoints[engine.turns.find(fits)]


def _takes(route: RouteView, now: float, avoid: Collection[str]) -> bool:
    return route.id not in avoid and route.engine.open(now)


def _next_open(routes: RouteSet, slot: int, now: float, avoid: Collection[str], look: bool) -> int:
    """Index of whoever follows the first choice and takes the request; -1 if nobody does."""

    def takes(index: int) -> bool:
        return _takes(routes.routes[index], now, avoid)

    if slot < 0 and not look:
        return routes.turns.find(takes)
    return next(filter(takes, _others(routes, slot)), -1)


def _others(routes: RouteSet, slot: int) -> Iterator[int]:
    """Indices in the order in which they are asked, everyone once; no turn is taken."""
    return routes.orders.walk(slot) if slot >= 0 else iter(routes.turns.near(len(routes.routes)))


def _spare(routes: RouteSet, slot: int, now: float, avoid: Collection[str]) -> Choice | None:
    """Engines that the table gives no weight, once no other is left: the cheapest, else the least busy."""
    variant = routes.keyed if slot >= 0 else routes.keyless
    left = [route for route in routes.spare if _takes(route, now, avoid)]
    if not left:
        return None
    if variant is None:
        return Choice(min(left, key=lambda route: (route.state.in_flight, route.id)), False)
    return Choice(min(left, key=lambda route: (route.cost(variant), route.id)), False)


def _cheapest(
    routes: RouteSet, index: int, slot: int, variant: Variant, now: float, avoid: Collection[str]
) -> tuple[RouteView | None, float]:
    """An engine that is cheaper by more than the variant's slack, and by how much; (None, 0) to keep the choice."""
    own = routes.routes[index].cost(variant)
    if variant.nu == 0.0 and own <= variant.x:
        return None, 0.0  # no cost is negative then
    best = None
    least = own - variant.x
    for route in _candidates(routes, index, slot):
        price = route.price.cost(route.state.in_flight, variant)
        if price < least and _takes(route, now, avoid):
            best = route
            least = price
    return best, (0.0 if best is None else own - least)


def _candidates(routes: RouteSet, index: int, slot: int) -> tuple[RouteView, ...]:
    """Whom the guard compares: all of a small set from the choice on (ties fall evenly), else the nearest."""
    known = routes.routes
    if len(known) <= CANDIDATES:
        return known[index + 1 :] + known[:index] + routes.spare[:SPARE_CANDIDATES]
    near = routes.orders.order(slot)[:CANDIDATES] if slot >= 0 else routes.turns.near(CANDIDATES)
    return tuple(known[i] for i in near) + routes.spare[:SPARE_CANDIDATES]


def _within_bound(
    routes: RouteSet, index: int, slot: int, now: float, avoid: Collection[str], is_first: bool
) -> Choice:
    """Without prices: the first in order whose load is within its bound; the choice itself if none is."""
    route = routes.routes[index]
    in_flight = route.state.in_flight
    if in_flight + 1 <= route.engine.floor:
        return Choice(route, is_first)
    total = fair_load(routes)
    if in_flight + 1 <= load_bound(routes.shares[index], total, route.engine.floor):
        return Choice(route, is_first)
    for other in islice(_others(routes, slot), CANDIDATES):
        found = routes.routes[other]
        bound = load_bound(routes.shares[other], total, found.engine.floor)
        if other != index and found.state.in_flight + 1 <= bound and _takes(found, now, avoid):
            return Choice(found, False, over=True)
    return Choice(route, is_first)

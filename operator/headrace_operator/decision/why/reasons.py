"""Why this weight: one sentence a route, with the numbers, never a negative one.

On the routing-weight path; pure. A used engine says why it is used; an unused one is compared with the dearest engine
in use: slower by so much, or it would save so much, which is less than moving costs (the optimizer page, Explanations).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headrace_operator.decision.why.book import Book, per_second, short
from headrace_operator.decision.why.text import latency, plain
from headrace_operator.optimizer.solution import RouteResult
from headrace_operator.snapshot.model import SourceKey

SAME_SECONDS: Final = 5e-5  # differences that print as 0.0 ms are none


def route_reason(book: Book, route: RouteResult) -> str:
    """Why the route carries what it carries."""
    used = book.used(route.source)
    if not book.priced:
        return _by_rule(book, route, bool(used) and route in used)
    if route in used:
        return _used(book, route, used)
    return _unused(book, route)


def full_text(book: Book, engine: str) -> str:
    """How full an engine is: "100 of 100 requests/s"."""
    result = book.engines[engine]
    load, limit = per_second(result, result.load), per_second(result, result.capacity)
    return f"{plain(load)} of {plain(limit)} requests/s"


def _used(book: Book, route: RouteResult, used: Sequence[RouteResult]) -> str:
    others = [other for other in book.routes[route.source] if other.engine != route.engine]
    if not others:
        return "the only eligible engine" + (
            f"; full: {full_text(book, route.engine)}" if _at_brim(book, route) else ""
        )
    nearer = [other for other in others if other.unloaded < route.unloaded - SAME_SECONDS]
    return "; ".join(filter(None, [_place(book, route, others, nearer, used), _stays(book, route, others)]))


def _place(
    book: Book,
    route: RouteResult,
    others: Sequence[RouteResult],
    nearer: Sequence[RouteResult],
    used: Sequence[RouteResult],
) -> str:
    """What the route is among the others; empty where nothing but the price of moving keeps its traffic there."""
    if _at_brim(book, route):
        place = "fastest" if not nearer else f"{_behind(route, nearer)}"
        return f"{place}; full: {full_text(book, route.engine)}"
    if not nearer:
        equal = [other for other in others if abs(other.unloaded - route.unloaded) <= SAME_SECONDS and other in used]
        return f"fastest{f', level with {_names(equal)}' if equal else ''}; {_room(book, route)}"
    brimming = [other for other in nearer if book.full(other.engine)]
    if brimming:
        slower = latency(route.unloaded - min(other.unloaded for other in nearer))
        return f"takes what {_names(brimming)} can't; {slower} slower{_next_best(book, route)}"
    if _stays(book, route, others):
        return ""
    return f"relieves {_busiest(book, nearer)}; idle it is {_behind(route, nearer)}"


def _stays(book: Book, route: RouteResult, others: Sequence[RouteResult]) -> str:
    """That a dearer route keeps its traffic for now; at an optimum that moves freely there is no such route."""
    cheapest = min(others, key=lambda other: (book.cost(other), other.engine))
    saving = book.cost(route) - book.cost(cheapest)
    return f"stays for now: {short(cheapest.engine)} {_held_back(saving, cheapest)}" if saving > SAME_SECONDS else ""


def _at_brim(book: Book, route: RouteResult) -> bool:
    return book.full(route.engine)


def _behind(route: RouteResult, nearer: Sequence[RouteResult]) -> str:
    fastest = min(nearer, key=lambda other: (other.unloaded, other.engine))
    return f"{latency(route.unloaded - fastest.unloaded)} slower than {short(fastest.engine)}"


def _room(book: Book, route: RouteResult) -> str:
    """What the load of an engine that is not full costs a request."""
    queue = book.cost(route) - route.unloaded
    return f"its load adds {latency(queue)}" if queue > SAME_SECONDS else "has room"


def _busiest(book: Book, routes: Sequence[RouteResult]) -> str:
    """The faster engine whose load makes this one worth while, and what that load costs."""
    busiest = max(routes, key=lambda route: (book.cost(route) - route.unloaded, route.engine))
    return f"{short(busiest.engine)}, whose load adds {latency(book.cost(busiest) - busiest.unloaded)}"


def _names(routes: Sequence[RouteResult]) -> str:
    ranked = sorted(routes, key=lambda route: (route.unloaded, route.engine))
    names = [short(route.engine) for route in ranked[:2]]
    return " and ".join(names) if len(ranked) <= 2 else f"{', '.join(names)} and {len(ranked) - 2} more"


def _next_best(book: Book, route: RouteResult) -> str:
    """The cheapest engine not in use, as what was rejected."""
    used = book.used(route.source)
    spare = [other for other in book.routes[route.source] if other not in used]
    if not spare:
        return ""
    best = min(spare, key=lambda other: (book.cost(other), other.engine))
    behind = book.cost(best) - book.cost(route)
    if behind <= SAME_SECONDS:
        return ""
    return f"; next: {short(best.engine)}, {latency(behind)} more"


def _unused(book: Book, route: RouteResult) -> str:
    dearest = book.dearest(route.source)
    if dearest is None:
        return _nothing_routed(book, route.source)
    saving = book.cost(dearest) - book.cost(route)
    if saving > SAME_SECONDS:
        return _held_back(saving, route)
    full = ", and full" if book.full(route.engine) else ""
    if saving >= -SAME_SECONDS:
        return f"as fast as {short(dearest.engine)}; not needed{full}"
    return f"{latency(-saving)} slower than the marginal choice {short(dearest.engine)}{full}"


def _held_back(saving: float, route: RouteResult) -> str:
    """Why a move to ``route`` that would save waits: at an inner optimum the saving *is* the price of moving."""
    if abs(route.move_price - saving) <= SAME_SECONDS:
        return f"would save {latency(saving)}, no more than moving costs"
    if route.move_price > saving:
        return f"would save {latency(saving)}, less than the move price {latency(route.move_price)}"
    return f"would save {latency(saving)}; what one publication may move is used up"


def _nothing_routed(book: Book, source: SourceKey) -> str:
    if book.shed(source) > 0:
        return "nothing is routed: all of this demand is refused"
    return "nothing is routed"


def _by_rule(book: Book, route: RouteResult, used: bool) -> str:
    strategy = book.result.strategy
    over = f"; over its capacity: {full_text(book, route.engine)}" if _over(book, route) else ""
    if strategy == "Nearest":
        least = min(other.round_trip for other in book.routes[route.source])
        if used:
            return f"lowest round trip, {latency(route.round_trip)}{over}"
        return f"round trip {latency(route.round_trip)} against {latency(least)}"
    words = {"RoundRobin": "equal share", "Static": "by declared capacity", "Held": "as the last table says"}
    if used:
        return words.get(strategy, "as the weights that stand") + over
    return "no weight in the last table" if strategy == "Held" else "no share by this rule"


def _over(book: Book, route: RouteResult) -> bool:
    engine = book.engines[route.engine]
    return engine.load > engine.capacity * (1 + 1e-6)

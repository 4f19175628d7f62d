"""Why a request goes where it goes: the same choice made once more, written down, and nothing changed by it.

Off the request path, for ``/debug/explain?model=&key=``. It uses the very functions that pick, with ``look``, so that
an explanation can't tell another story than the selection.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from headrace_router.core.choose import NO_SLOT, choose, fair_load
from headrace_router.core.facts import Refusal, RequestFacts
from headrace_router.core.guard import Variant, load_bound
from headrace_router.core.routes import RouteSet, RouteView
from headrace_router.core.selection import Selector, last_resort, reason_of, why
from headrace_router.core.shedding import shed_draw
from headrace_router.core.slots import slot_of

# Candidates written down; a table may hold thousands.
MOST_SHOWN: Final = 200

State = Literal[
    "open",
    "at its limit",
    "full by its own word",
    "ejected",
    "trial due",
    "not ready",
    "no ready endpoint",
    "no address",
]


class GuardRule(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What may move a request from its first choice: prices, or without them the load bound.

    x: seconds that leaving the first choice must save; z: deviations above the expected in-flight that are taken for
    chance; nu: credit for an engine below its expected in-flight. All three only with prices.
    """

    rule: Literal["prices", "load bound"]
    x: float | None = None
    z: float | None = None
    nu: float | None = None


class Candidate(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """One engine that may serve the request.

    order: its place in the key's slot (keyed) or in the coming turns; None for engines without a weight. share: of 1.
    in_flight, expected: requests in flight of this router, and how many the solution wants. cost: seconds that one
    more request costs by price; bound: most requests without prices; only one of the two is given.
    """

    engine: str
    order: int | None
    weight: int
    share: float
    in_flight: int
    limit: int
    state: State
    expected: float | None = None
    reduced_cost: float | None = None
    cost: float | None = None
    bound: float | None = None


class Explanation(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """What a request with these facts would meet now; engine is None where it would be refused."""

    model: str
    verdict: str
    why: str
    engine: str | None = None
    policy: str | None = None
    revision: str | None = None
    keyed: bool = False
    slot: int | None = None
    prompt_class: int | None = None
    guard: GuardRule | None = None
    shed_share: float = 0.0
    shed_draw: float | None = None
    candidates: tuple[Candidate, ...] = ()


def explain(selector: Selector, request: RequestFacts, now: float) -> Explanation:
    """The verdict for one request and all that led to it. Unkeyed shed draws are by chance and left out."""
    model = selector.view.models.get(request.model)
    if model is None:
        return Explanation(
            model=request.model, verdict="model_not_found", why="no table in force knows this model", engine=None
        )
    tokens = request.body_bytes / model.bytes_per_token
    prompt_class = model.prompt_class(tokens)
    classed = model.classes[prompt_class]
    priority = model.policy.priority(request.priority).name
    share = classed.shed.get(priority, 0.0)
    draw = None if request.key is None else shed_draw(request.key, priority, now + selector.wall_offset, selector.rng)
    slot = NO_SLOT if request.key is None else slot_of(request.key)
    head = Explanation(
        model=request.model,
        verdict="",
        why="",
        policy=model.policy.key,
        revision=model.policy.revision,
        keyed=request.key is not None,
        slot=None if slot == NO_SLOT else slot,
        prompt_class=prompt_class,
        shed_share=share,
        shed_draw=draw,
    )
    routes = classed.eligible(request.needs, tokens)
    if isinstance(routes, Refusal):
        return msgspec.structs.replace(head, verdict=routes.code, why=routes.message)
    variant = routes.keyed if slot >= 0 else routes.keyless
    head = msgspec.structs.replace(
        head,
        guard=_guard_rule(variant),
        candidates=_candidates(routes, slot, variant, now),
    )
    if draw is not None and draw < share:
        return msgspec.structs.replace(
            head, verdict="shed", why=f"its draw {draw:.3f} is below the shed share {share:.3f} of {priority}"
        )
    return _judged(head, request, routes, slot, now)


def _guard_rule(variant: Variant | None) -> GuardRule:
    if variant is None:
        return GuardRule(rule="load bound")
    return GuardRule(rule="prices", x=variant.x, z=variant.z, nu=variant.nu)


def _judged(head: Explanation, request: RequestFacts, routes: RouteSet, slot: int, now: float) -> Explanation:
    avoid = {engine for engine, _ in request.tried}
    choice = choose(routes, slot, now, avoid, look=True)
    if choice is None:
        last = last_resort(routes, slot, now, avoid)
        if isinstance(last, Refusal):
            return msgspec.structs.replace(head, verdict=last.code, why=last.message)
        return msgspec.structs.replace(
            head,
            verdict="panic",
            why="every engine is ejected or not ready: any is better than none",
            engine=last.route.id,
        )
    reason = reason_of(request, choice)
    return msgspec.structs.replace(head, verdict=reason, why=why(choice, reason), engine=choice.route.id)


def _candidates(routes: RouteSet, slot: int, variant: Variant | None, now: float) -> tuple[Candidate, ...]:
    order = routes.orders.walk(slot) if slot >= 0 else iter(routes.turns.near(len(routes.routes)))
    total = fair_load(routes)
    shown = []
    for place, index in enumerate(order):
        if place >= MOST_SHOWN:
            break
        shown.append(_candidate(routes.routes[index], place, routes.shares[index], variant, total, now))
    spare = routes.spare[: MOST_SHOWN - len(shown)]
    return (*shown, *(_candidate(route, None, 0.0, variant, total, now) for route in spare))


def _candidate(
    route: RouteView, place: int | None, share: float, variant: Variant | None, total: int, now: float
) -> Candidate:
    engine = route.engine
    priced = variant is not None
    return Candidate(
        engine=route.id,
        order=place,
        weight=route.weight,
        share=share,
        in_flight=route.state.in_flight,
        limit=engine.limit,
        state=_state(route, now),
        expected=route.price.expected if priced else None,
        reduced_cost=route.price.rho if priced else None,
        cost=route.cost(variant) if variant is not None else None,
        bound=None if priced or place is None else load_bound(share, total, engine.floor),
    )


def _state(route: RouteView, now: float) -> State:
    engine = route.engine
    endpoints = engine.endpoints
    if not endpoints:
        return "no ready endpoint" if engine.addresses is not None else "no address"
    if engine.full():
        return "at its limit"
    if any(endpoint.healthy(now) for endpoint in endpoints):
        return "open"
    if any(endpoint.open(now) for endpoint in endpoints):
        return "trial due"
    if any(endpoint.full_until > now for endpoint in endpoints):
        return "full by its own word"
    return "ejected" if any(endpoint.ejected for endpoint in endpoints) else "not ready"

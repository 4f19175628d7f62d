"""What a solve says, as data: the JSON of ``headrace plan``, documented by its schema and stable.

Pure. Fractions are the solution's own, unrounded; a front-end's weights and its refused share sum to 1. Engines are
counted over all policies, in requests/s of the mix they carry. Field names are the command line page's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from headrace_operator.decision.why.book import Book, open_book
from headrace_operator.decision.why.expected import Expected
from headrace_operator.decision.why.reasons import route_reason
from headrace_operator.decision.why.sentences import why
from headrace_operator.decision.why.what_if import Relief
from headrace_operator.optimizer.solution import EngineResult, RouteResult
from headrace_operator.snapshot.eligibility import bare_name, namespace
from headrace_operator.snapshot.model import PolicyState, Snapshot, SourceKey
from headrace_operator.strategies.base import ComponentResult

Rate = Annotated[float, Meta(ge=0, description="Requests per second.")]
Fraction = Annotated[float, Meta(ge=0, le=1, description="Of the front-end's demand.")]
Seconds = Annotated[float, Meta(ge=0, description="Seconds.")]
Name = Annotated[str, Meta(description="Bare name; its namespace stands beside it.")]


class ReportStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of the report's parts: every field is always written."""


class PlanSolver(ReportStruct, frozen=True, kw_only=True):
    """The solves behind the plan. status: the worst of all components'."""

    status: Annotated[str, Meta(description="Optimal, Rule (weights by rule only) or Failed.")]
    objective: Annotated[float, Meta(description="Sum over components: latency and prices, seconds per second.")]
    seconds: Seconds


class PlanRoute(ReportStruct, frozen=True, kw_only=True):
    """One candidate of a front-end and model, in use or not."""

    engine: Name
    engine_namespace: str
    weight: Fraction
    previous_weight: Fraction
    reason: Annotated[str, Meta(description="Why it carries what it carries, with numbers.")]
    reduced_cost_seconds: Annotated[
        float, Meta(ge=0, description="What a request more costs than the marginal choice.")
    ]


class PlanIneligible(ReportStruct, frozen=True, kw_only=True):
    """An engine that the front-end may not use for the model, and the rule that excludes it."""

    engine: Name
    engine_namespace: str
    reason: str
    message: str


class PlanClass(ReportStruct, frozen=True, kw_only=True):
    """One prompt class of a front-end and model."""

    prompt_class: int
    demand: Rate
    shed: Rate
    marginal_latency_seconds: Seconds | None
    input_tokens: float
    output_tokens: float
    origin: Annotated[str, Meta(description="Where demand comes from: Measured, Held, Declared, Unknown.")]
    routes: tuple[PlanRoute, ...]


class PlanShed(ReportStruct, frozen=True, kw_only=True):
    """What is refused of one priority."""

    priority: str
    shed: Rate


class PlanFrontend(ReportStruct, frozen=True, kw_only=True):
    """One front-end and model; prompt classes are summed by demand, ``classes`` holds each.

    marginal_latency_seconds: what one more request/s costs; null where it would be refused.
    """

    name: Name
    model: str
    demand: Rate
    shed: Rate
    shed_by_priority: tuple[PlanShed, ...]
    marginal_latency_seconds: Seconds | None
    routes: tuple[PlanRoute, ...]
    ineligible: tuple[PlanIneligible, ...]
    classes: tuple[PlanClass, ...]


class PlanEngine(ReportStruct, frozen=True, kw_only=True):
    """One engine over all policies, in requests/s of the mix it carries (its reference mix when idle).

    utilization: load over capacity, may pass 1 where a rule overloads it. shadow_price_seconds: what one more
    request/s of load costs all; where utilization is 1 also what one more request/s of capacity saves.
    """

    name: Name
    namespace: str
    load: Rate
    capacity: Rate
    effective_capacity: Rate
    utilization: Annotated[float, Meta(ge=0)]
    shadow_price_seconds: Seconds


class PlanPolicy(ReportStruct, frozen=True, kw_only=True):
    """One policy."""

    name: Name
    namespace: str
    strategy: str
    mode: str
    demand: Rate
    shed: Rate
    mean_latency_seconds: Seconds | None
    frontends: tuple[PlanFrontend, ...]
    engines: tuple[PlanEngine, ...]
    why: tuple[str, ...]


class PlanReport(ReportStruct, frozen=True, kw_only=True):
    """The whole plan. notes: what was assumed where nothing was measured or declared."""

    solver: PlanSolver
    policies: tuple[PlanPolicy, ...]
    notes: tuple[str, ...]


def exact(value: float) -> float:
    """The value without the noise of its last bits: twelve decimals."""
    return round(value, 12) + 0.0


class _Total(NamedTuple):
    """An engine's own work and requests over all policies that are in force."""

    work: float
    requests: float


def plan_report(
    snapshot: Snapshot,
    results: Sequence[ComponentResult],
    *,
    seconds: float,
    reliefs: Sequence[Relief | None],
) -> PlanReport:
    """The report of all components; ``reliefs``: where one more replica helps most, by component."""
    totals = _totals(results)
    policies: list[PlanPolicy] = []
    for result, relief in zip(results, reliefs, strict=True):
        book = open_book(snapshot, result)
        policies += [_policy(book, book.policies[name], totals, relief) for name in result.policies]
    return PlanReport(
        solver=PlanSolver(
            status=_worst([result.solution.status for result in results if result.strategy != "Feedback"]),
            objective=exact(sum(result.solution.objective for result in results)),
            seconds=seconds,
        ),
        policies=tuple(sorted(policies, key=lambda policy: (policy.namespace, policy.name))),
        notes=(*snapshot.notes, *(f"{one.name}: {one.state}" for one in snapshot.states if one.state != "Fresh")),
    )


def _worst(statuses: Iterable[str]) -> str:
    found = set(statuses)
    return next((status for status in ("Failed", "Optimal", "Rule") if status in found), "Optimal")


def _totals(results: Iterable[ComponentResult]) -> dict[str, _Total]:
    totals: dict[str, _Total] = {}
    for result in results:
        if result.shadow:
            continue
        for engine in result.solution.engines:
            own = max(0.0, engine.load - engine.fixed)
            known = totals.get(engine.engine, _Total(0.0, 0.0))
            requests = own / engine.mean_work if engine.mean_work > 0 else 0.0
            totals[engine.engine] = _Total(known.work + own, known.requests + requests)
    return totals


def _policy(book: Book, policy: PolicyState, totals: dict[str, _Total], relief: Relief | None) -> PlanPolicy:
    sources = book.of_policy(policy.id)
    routes = [route for source in sources for route in book.routes.get(source, [])]
    mean = Expected(book.snapshot, book.solution).mean(routes)
    grouped: dict[tuple[str, str], list[SourceKey]] = {}
    for source in sources:
        grouped.setdefault((source.frontend, source.model), []).append(source)
    return PlanPolicy(
        name=bare_name(policy.id),
        namespace=namespace(policy.id),
        strategy=book.result.strategy,
        mode=policy.spec.mode,
        demand=exact(sum(book.sources[source].demand for source in sources)),
        shed=exact(sum(book.shed(source) for source in sources)),
        mean_latency_seconds=exact(mean.total) if mean else None,
        frontends=tuple(_frontend(book, keys) for _, keys in sorted(grouped.items())),
        engines=tuple(
            _engine(book, name, None if book.result.shadow else totals.get(name))
            for name in sorted({route.engine for route in routes})
        ),
        why=why(book, policy, relief),
    )


def _frontend(book: Book, sources: Sequence[SourceKey]) -> PlanFrontend:
    demand = sum(book.sources[source].demand for source in sources)
    marginals = [book.sources[source].marginal for source in sources]
    weights = [book.sources[source].demand / demand for source in sources]
    known = [marginal for marginal in marginals if marginal is not None]
    shed: dict[str, float] = {}
    for source in sources:
        for name, amount in book.sources[source].shed:
            shed[name] = shed.get(name, 0.0) + amount
    return PlanFrontend(
        name=sources[0].frontend,
        model=sources[0].model,
        demand=exact(demand),
        shed=exact(sum(shed.values())),
        shed_by_priority=tuple(PlanShed(priority=name, shed=exact(amount)) for name, amount in shed.items()),
        marginal_latency_seconds=exact(sum(part * value for part, value in zip(weights, known, strict=True)))
        if len(known) == len(marginals)
        else None,
        routes=_summed(book, sources, demand),
        ineligible=_ineligible(book, sources[0]),
        classes=tuple(_class(book, source) for source in sources),
    )


def _class(book: Book, source: SourceKey) -> PlanClass:
    result = book.sources[source]
    entry = next(entry for entry in book.snapshot.demand if entry.key == source)
    return PlanClass(
        prompt_class=source.prompt_class,
        demand=exact(result.demand),
        shed=exact(book.shed(source)),
        marginal_latency_seconds=None if result.marginal is None else exact(result.marginal),
        input_tokens=entry.input_tokens,
        output_tokens=entry.output_tokens,
        origin=entry.origin,
        routes=_ranked(_route(book, route, route.flow / result.demand) for route in book.routes.get(source, [])),
    )


def _route(book: Book, route: RouteResult, weight: float) -> PlanRoute:
    return PlanRoute(
        engine=bare_name(route.engine),
        engine_namespace=namespace(route.engine),
        weight=exact(min(1.0, weight)),
        previous_weight=exact(min(1.0, route.previous)),
        reason=route_reason(book, route),
        reduced_cost_seconds=exact(route.reduced_cost),
    )


def _summed(book: Book, sources: Sequence[SourceKey], demand: float) -> tuple[PlanRoute, ...]:
    """Routes of all classes as one; the reason is that of the class with the largest part on the engine."""
    by_engine: dict[str, list[RouteResult]] = {}
    for source in sources:
        for route in book.routes.get(source, []):
            by_engine.setdefault(route.engine, []).append(route)
    found: list[PlanRoute] = []
    for routes in by_engine.values():
        largest = max(routes, key=lambda route: (route.flow, -route.source.prompt_class))
        previous = sum(route.previous * book.sources[route.source].demand for route in routes) / demand
        found.append(
            msgspec.structs.replace(
                _route(book, largest, sum(route.flow for route in routes) / demand),
                previous_weight=exact(min(1.0, previous)),
                reduced_cost_seconds=exact(min(route.reduced_cost for route in routes)),
            )
        )
    return _ranked(found)


def _ranked(routes: Iterable[PlanRoute]) -> tuple[PlanRoute, ...]:
    return tuple(sorted(routes, key=lambda route: (-route.weight, route.reduced_cost_seconds, route.engine)))


def _ineligible(book: Book, source: SourceKey) -> tuple[PlanIneligible, ...]:
    return tuple(
        PlanIneligible(
            engine=bare_name(pair.engine),
            engine_namespace=namespace(pair.engine),
            reason=pair.reason,
            message=pair.message,
        )
        for pair in book.solution.ineligible
        if pair.source == source
    )


def _engine(book: Book, name: str, total: _Total | None) -> PlanEngine:
    engine: EngineResult = book.engines[name]
    work, load = engine.mean_work, engine.load
    if total is not None:
        background = book.states[name].background
        load = total.work + background
        work = total.work / total.requests if total.requests > 0 else work
    return PlanEngine(
        name=bare_name(name),
        namespace=namespace(name),
        load=exact(load / work),
        capacity=exact(engine.capacity / work),
        effective_capacity=exact(engine.effective / work),
        utilization=exact(load / engine.capacity),
        shadow_price_seconds=exact(max(0.0, engine.price * work)),
    )

"""Demand of every source: measured, held, declared, or one per cent of what could carry it. Never zero.

On the routing-weight path; pure. Demand is offered load. The order, the shares of models and priorities and the least
rate of a source are the API page's (Demand). A Shadow policy sees its models' demand as if it ruled, and so does a
policy that has just been promoted: signals of the same front-end and model count whoever they were counted for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import sqrt
from typing import Final, NamedTuple

from headrace_api.policy import Demand, Frontend
from headrace_api.units import number, seconds
from headrace_operator.snapshot.model import EngineState, Origin, PolicyState, SourceDemand
from headrace_operator.snapshot.read_signals import measurable
from headrace_operator.snapshot.readings import Ladder, Usable, usable
from headrace_operator.snapshot.signals import DemandSignal, Reading, Share
from headrace_operator.snapshot.work import REFERENCE_INPUT, REFERENCE_OUTPUT

MIN_REQUESTS_PER_SECOND: Final = 0.01  # of every source, so that weights always exist (the API page)
UNKNOWN_SHARE: Final = 0.01  # of the eligible capacity, where nothing is known of a source
DEFAULT_PRIORITY: Final = ("default", 0)
CLASS_GAIN_RATIO: Final = 1.1  # prompt classes bring nothing where prefill:decode costs differ by less (the optimizer)

Candidates = Callable[[PolicyState, Frontend, str], Sequence[EngineState]]
CarriedRate = Callable[[EngineState, float, float], float]
Priorities = tuple[tuple[str, int, float], ...]


class World(NamedTuple):
    """What demand is judged against: signals by (front-end, model), prompt classes, and the engines' side.

    candidates: engines eligible for a policy's front-end and served name. carried: requests/s of a mix (input, output
    tokens) that an engine carries at C_j.
    """

    signals: Mapping[tuple[str, str], Sequence[DemandSignal]]
    elapsed: float
    edges: tuple[int, ...]
    candidates: Candidates
    carried: CarriedRate
    notes: list[str]


class _Stream(NamedTuple):
    """One part of a front-end's demand for one model, before the least rate is applied."""

    prompt_class: int
    rate: float
    deviation: float
    input_tokens: float
    output_tokens: float
    origin: Origin
    priorities: Priorities


def by_frontend_and_model(signals: Iterable[DemandSignal]) -> dict[tuple[str, str], list[DemandSignal]]:
    """Demand signals grouped by front-end and model, each group in a stable order."""
    groups: dict[tuple[str, str], list[DemandSignal]] = {}
    for signal in sorted(signals, key=_signal_order):
        groups.setdefault((signal.frontend, signal.model), []).append(signal)
    return groups


def _signal_order(signal: DemandSignal) -> tuple[object, ...]:
    return (
        signal.policy,
        -1 if signal.prompt_class is None else signal.prompt_class,
        repr(signal.requests_per_second),
        repr(signal),
    )


def class_of(tokens: float, edges: Sequence[int]) -> int:
    """Prompt class of an input length; a length equal to an edge belongs to the class above it."""
    return sum(tokens >= edge for edge in edges)


def source_demands(policies: Iterable[PolicyState], world: World) -> tuple[SourceDemand, ...]:
    """Demand of every source of every policy, sorted by its key; what fell back is noted in ``world.notes``."""
    found: list[SourceDemand] = []
    for policy in policies:
        ruled_elsewhere = {(frontend, model) for frontend, model, _ in policy.conflicts}
        declared: list[str] = []
        for frontend in policy.spec.frontends:
            for base, model in policy.served:
                if (frontend.name, model) in ruled_elsewhere:
                    continue
                streams = _streams(policy, frontend, base, model, world)
                if streams[0].origin == "Declared":
                    declared.append(frontend.name)
                found.extend(_source(policy, frontend, model, stream) for stream in streams)
        if declared:
            count, of = len(set(declared)), len(policy.spec.frontends)
            world.notes.append(f"{policy.id}: demand as declared at {count} of {of} front-ends; not measured there")
    return tuple(sorted(found, key=lambda source: source.key))


def _source(policy: PolicyState, frontend: Frontend, model: str, stream: _Stream) -> SourceDemand:
    return SourceDemand(
        policy=policy.id,
        frontend=frontend.name,
        model=model,
        prompt_class=stream.prompt_class,
        requests_per_second=max(MIN_REQUESTS_PER_SECOND, stream.rate),
        deviation=stream.deviation,
        input_tokens=stream.input_tokens,
        output_tokens=stream.output_tokens,
        origin=stream.origin,
        priorities=stream.priorities,
    )


def _streams(policy: PolicyState, frontend: Frontend, base: str, model: str, world: World) -> list[_Stream]:
    """One stream a prompt class, in their order; one where classes are not told apart."""
    measured = _measured(policy, frontend, model, world)
    if not measured:
        return [_assumed(policy, frontend, base, model, world)]
    if not world.edges or _alike(world.candidates(policy, frontend, model)):
        return [_merged(0, measured)]
    classes = range(len(world.edges) + 1)
    found = {index: [stream for stream in measured if stream.prompt_class == index] for index in classes}
    whole = _merged(0, measured)
    return [
        _merged(index, found[index])
        if found[index]
        else whole._replace(
            prompt_class=index, rate=0.0, deviation=0.0, input_tokens=middle_of_class(index, world.edges)
        )
        for index in classes
    ]


def _mix(
    demand: Demand | None,
    tokens_in: float | None,
    tokens_out: float | None,
    candidates: Callable[[], Iterable[EngineState]],
) -> tuple[float, float]:
    """Mean tokens of a request: measured, else declared, else the engines' reference mixes.

    0 and 0 means that nothing is known; each engine's own reference mix then stands (work.py).
    """
    if tokens_in is not None and tokens_out is not None:
        return tokens_in, tokens_out
    stated = (float(demand.input_tokens), float(demand.output_tokens)) if demand is not None else (0.0, 0.0)
    if (tokens_in is not None or tokens_out is not None) and not any(stated):
        mixes = [engine.spec.profile.reference for engine in candidates()]
        known = [(float(mix.input_tokens), float(mix.output_tokens)) for mix in mixes if mix is not None]
        known = known or [(REFERENCE_INPUT, REFERENCE_OUTPUT)]
        stated = (sum(mix[0] for mix in known) / len(known), sum(mix[1] for mix in known) / len(known))
    return (stated[0] if tokens_in is None else tokens_in, stated[1] if tokens_out is None else tokens_out)


def _alike(candidates: Sequence[EngineState]) -> bool:
    """Whether prompt classes would bring nothing: prefill:decode cost ratios within a tenth of each other."""
    ratios: list[float | None] = []
    for engine in candidates:
        rates = engine.spec.capacity.per_replica
        if rates.prefill_tokens_per_second is None or rates.decode_tokens_per_second is None:
            ratios.append(None)
        else:
            ratios.append(number(rates.decode_tokens_per_second) / number(rates.prefill_tokens_per_second))
    known = [ratio for ratio in ratios if ratio is not None]
    if len(known) < len(ratios):
        return not known
    return not known or max(known) < CLASS_GAIN_RATIO * min(known)


def middle_of_class(prompt_class: int, edges: Sequence[int]) -> float:
    """An input length in the middle of a class (the last one: its lower edge)."""
    bounds = (0, *edges, edges[-1])
    return next((low + high) / 2 for index, (low, high) in enumerate(pairwise(bounds)) if index == prompt_class)


def _measured(policy: PolicyState, frontend: Frontend, model: str, world: World) -> list[_Stream]:
    """What was measured and is not too old; empty when nothing is."""
    signals = world.signals.get((frontend.name, model), ())
    own = [signal for signal in signals if signal.policy == policy.id]
    ladder = Ladder(seconds(policy.spec.staleness.hold), seconds(policy.spec.staleness.degrade))
    name = f"demand of {policy.id} {frontend.name} {model}"
    streams: list[_Stream] = []
    for signal in own or signals:
        rate = _judged(signal.requests_per_second, ladder, name, world)
        if rate.value is None:
            continue
        mix = _mix(
            frontend.demand,
            _judged(signal.input_tokens, ladder, f"input tokens, {name}", world).value,
            _judged(signal.output_tokens, ladder, f"output tokens, {name}", world).value,
            lambda: world.candidates(policy, frontend, model),
        )
        told = signal.prompt_class
        if told is None or not 0 <= told <= len(world.edges):
            told = class_of(mix[0] if any(mix) else REFERENCE_INPUT, world.edges)
        priorities = _priorities(policy, signal.priorities, frontend.demand)
        streams.append(_Stream(told, rate.value, _deviation(signal.requests_per_second), *mix, rate.origin, priorities))
    return streams


def _deviation(reading: Reading) -> float:
    return reading.deviation if measurable(reading.deviation) else 0.0


def _judged(reading: Reading | None, ladder: Ladder, name: str, world: World) -> Usable:
    found = usable(reading, world.elapsed, ladder, name)
    if found.note:
        world.notes.append(found.note)
    return found


def _worst(streams: Iterable[_Stream]) -> Origin:
    return "Held" if any(stream.origin == "Held" for stream in streams) else "Measured"


def _merged(prompt_class: int, streams: Sequence[_Stream]) -> _Stream:
    """Streams as one: rates and variances add, tokens and priorities by rate (equally where all are 0)."""
    rate = sum(stream.rate for stream in streams)
    parts = [stream.rate / rate if rate > 0 else 1 / len(streams) for stream in streams]
    shares = [0.0] * len(streams[0].priorities)
    for part, stream in zip(parts, streams, strict=True):
        for index, (_, _, share) in enumerate(stream.priorities):
            shares[index] += part * share
    return _Stream(
        prompt_class,
        rate,
        sqrt(sum(stream.deviation**2 for stream in streams)),
        sum(part * stream.input_tokens for part, stream in zip(parts, streams, strict=True)),
        sum(part * stream.output_tokens for part, stream in zip(parts, streams, strict=True)),
        _worst(streams),
        tuple((name, value, share) for (name, value, _), share in zip(streams[0].priorities, shares, strict=True)),
    )


def _assumed(policy: PolicyState, frontend: Frontend, base: str, model: str, world: World) -> _Stream:
    """Declared demand, else the share of the eligible capacity that stands for the unknown."""
    priorities = _priorities(policy, (), frontend.demand)
    mix = _mix(frontend.demand, None, None, tuple)
    if frontend.demand is not None:
        rate = number(frontend.demand.requests_per_second) * _model_share(policy, frontend.demand, model)
        return _Stream(0, rate, 0.0, *mix, "Declared", priorities)
    rate = 0.0
    if model == base:
        candidates = world.candidates(policy, frontend, model)
        rate = UNKNOWN_SHARE * sum(world.carried(engine, *mix) for engine in candidates)
        world.notes.append(
            f"demand of {policy.id} {frontend.name} {model}: neither measured nor declared (DemandUnknown); "
            f"{max(rate, MIN_REQUESTS_PER_SECOND):.3g} requests/s assumed, 1 % of the eligible capacity"
        )
    # With a deviation as large as itself, what is only assumed never opens shedding.
    return _Stream(0, rate, max(rate, MIN_REQUESTS_PER_SECOND), *mix, "Unknown", priorities)


def _model_share(policy: PolicyState, demand: Demand, model: str) -> float:
    """A served name's share of the front-end's declared demand; adapters have none unless listed."""
    if demand.models:
        listed = {share.name: share.percent for share in demand.models}
        total = sum(listed.values())
        if total > 0:
            return listed.get(model, 0) / total
    named = {entry.name for entry in policy.spec.models}
    return 1 / len(named) if model in named else 0.0


def _priorities(policy: PolicyState, measured: Sequence[Share], demand: Demand | None) -> Priorities:
    """Shares by priority, the lowest value first; what is not told apart or not known counts as the lowest."""
    declared = policy.spec.protection.shedding.priorities
    ranked = sorted((entry.value, entry.name) for entry in declared) or [DEFAULT_PRIORITY[::-1]]
    shares = dict.fromkeys((name for _, name in ranked), 0.0)
    lowest = ranked[0][1]
    parts = [(share.name, share.share) for share in measured]
    if not parts and demand is not None:
        parts = [(share.name, float(share.percent)) for share in demand.priorities]
    for name, part in parts:
        shares[name if name in shares else lowest] += part if measurable(part) else 0.0
    total = sum(shares.values())
    if not total > 0:
        shares[lowest] = total = 1.0
    return tuple((name, value, shares[name] / total) for value, name in ranked)

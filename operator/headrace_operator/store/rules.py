"""Rules across fields of one resource, in Python: a mirror of each CEL rule, with the values in its message.

On the routing-weight path. Runs on typed parts of a spec, so a fault elsewhere in the resource doesn't hide these:
where a whole doesn't convert, its parts are tried. A test holds that every CEL rule has its mirror here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple, get_type_hints

import msgspec
from msgspec import inspect

from headrace_api import rules
from headrace_api.engine import Endpoints, InferenceEngineSpec, PerReplica, Profile, ProfilePoint, ServedModel
from headrace_api.policy import (
    AffinityKey,
    Demand,
    Ejection,
    ModelShare,
    PriorityShare,
    RetryBudget,
    RoutingPolicySpec,
    Shedding,
    Staleness,
)
from headrace_api.rules import RULES, Rule
from headrace_api.units import seconds
from headrace_operator.store.faults import Path, shown
from headrace_operator.store.schema_check import Finding

Findings = Iterator[Finding]


def check_rules(kind: type[msgspec.Struct], raw: Any, path: Path) -> Findings:
    """Faults of every rule under a value of a type; raw data without nulls."""
    for part, at, dropped in typed_parts(kind, raw, path):
        for rule in RULES.get(type(part), ()):
            if dropped.isdisjoint(_mentioned(rule)):
                for finding in MIRRORS[rule](part):
                    yield finding._replace(path=at + finding.path)


class Part(NamedTuple):
    """A struct of the raw data, its path, and the JSON names of the fields it lacks because they don't convert."""

    value: msgspec.Struct
    path: Path
    dropped: frozenset[str] = frozenset()


def typed_parts(kind: type[msgspec.Struct], raw: Any, path: Path) -> Iterator[Part]:
    """Every struct in the raw data that converts, whole or without the fields that don't."""
    try:
        whole = msgspec.convert(raw, kind)
    except msgspec.ValidationError:
        if isinstance(raw, dict):
            yield from _rescued(kind, raw, path)
    else:
        yield from _structs(whole, path)


def _rescued(kind: type[msgspec.Struct], raw: dict[str, Any], path: Path) -> Iterator[Part]:
    """What converts of a mapping that doesn't as a whole; the rest is taken apart."""
    hints = _field_types(kind)
    good = {name: value for name, value in raw.items() if name in hints and _converts(value, hints[name])}
    dropped = frozenset(raw.keys() - good.keys())
    try:
        whole = msgspec.convert(good, kind)
    except msgspec.ValidationError:  # a required field is missing or wrong: its rules can't be judged
        dropped = frozenset(raw)
    else:
        own, *inner = _structs(whole, path)
        yield own._replace(dropped=dropped)
        yield from inner
    for name, inner_kind in _inner_types(kind):
        if name in dropped:
            for child, at in _entries(raw[name], (*path, name)):
                yield from typed_parts(inner_kind, child, at)


def _converts(value: Any, hint: Any) -> bool:
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError:
        return False
    return True


@cache
def _field_types(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Each field's type by its JSON name."""
    hints = get_type_hints(kind, include_extras=True)
    names = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
    return {encoded: hints[field] for encoded, field in names}


@cache
def _mentioned(rule: Rule) -> frozenset[str]:
    """The fields of ``self`` that a rule looks at."""
    return frozenset(re.findall(r"\bself\.(\w+)", rule.expression))


def _structs(value: Any, path: Path) -> Iterator[Part]:
    if isinstance(value, msgspec.Struct):
        yield Part(value, path)
        for name, field in zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True):
            for child, at in _entries(getattr(value, field), (*path, name)):
                yield from _structs(child, at)


def _entries(value: Any, path: Path) -> Iterator[tuple[Any, Path]]:
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield item, (*path, index)
    else:
        yield value, path


def _inner_types(kind: type[msgspec.Struct]) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """(JSON name, struct type) of the fields that hold structs or lists of them."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    for field in info.fields:
        inner = _struct_type(field.type)
        if inner is not None:
            yield field.encode_name, inner


def _struct_type(info: inspect.Type) -> type[msgspec.Struct] | None:
    match info:
        case inspect.Metadata():
            return _struct_type(info.type)
        case inspect.UnionType():
            return next((found for member in info.types if (found := _struct_type(member))), None)
        case inspect.VarTupleType():
            return _struct_type(info.item_type)
        case inspect.StructType():
            return info.cls
        case _:
            return None


def _short_name(_: Any) -> Findings:
    """The name's schema checks this already, with the same bound."""
    yield from ()


def _one_base_model(spec: InferenceEngineSpec) -> Findings:
    if len(spec.models) > 1:
        names = ", ".join(model.name for model in spec.models[:4])
        message = f"names {len(spec.models)} base models ({names}); right would be one entry, others as its adapters"
        yield Finding(("models",), "[…]", message)


def _adapter_is_not_base(model: ServedModel) -> Findings:
    if model.name in model.adapters:
        at = ("adapters", model.adapters.index(model.name))
        yield Finding(at, shown(model.name), f"{shown(model.name)} is the base model itself; right would be an adapter")


def _reachable(endpoints: Endpoints) -> Findings:
    if endpoints.service is None and not endpoints.urls:
        yield Finding((), "{}", "has neither service nor urls; right would be either or both")


def _replicas_once(endpoints: Endpoints) -> Findings:
    if endpoints.replicas is not None and endpoints.replicas_from is not None:
        message = f"stands beside replicas: {endpoints.replicas}; right would be one of the two"
        yield Finding(("replicasFrom",), shown(endpoints.replicas_from), message)


def _replicas_of_urls(endpoints: Endpoints) -> Findings:
    if endpoints.urls:
        return
    for name, value in (("replicas", endpoints.replicas), ("replicasFrom", endpoints.replicas_from)):
        if value is not None:
            message = (
                f"{shown(value)} counts what is behind urls, and there are none; right would be urls, or no {name}"
            )
            yield Finding((name,), shown(value), message)


def _some_capacity(figures: PerReplica) -> Findings:
    if not any(getattr(figures, name) is not None for name in figures.__struct_fields__):
        yield Finding((), "{}", "gives no figure; right would be at least one, such as requestsPerSecond: 12")


def _rising(name: str, points: tuple[ProfilePoint, ...]) -> Findings:
    for index in range(1, len(points)):
        before, here = points[index - 1].utilization_percent, points[index].utilization_percent
        if here <= before:
            message = f"{here} does not rise above {before}; right would be points by rising utilisation"
            yield Finding((name, index, "utilizationPercent"), str(here), message)


def _ttft_rises(profile: Profile) -> Findings:
    yield from _rising("ttft", profile.ttft)


def _tbot_rises(profile: Profile) -> Findings:
    yield from _rising("tbot", profile.tbot)


def _one_key(key: AffinityKey) -> Findings:
    named = [name for name in key.__struct_fields__ if getattr(key, name) is not None]
    if len(named) != 1:
        has = " and ".join(named) or "nothing"
        yield Finding((), "{…}" if named else "{}", f"has {has}; right would be exactly one of header, field, prefix")


def _sum_to_100(name: str, shares: tuple[ModelShare, ...] | tuple[PriorityShare, ...]) -> Findings:
    total = sum(share.percent for share in shares)
    if total > 100:
        yield Finding((name,), "[…]", f"sums to {total} percent; right would be at most 100")


def _models_sum(demand: Demand) -> Findings:
    yield from _sum_to_100("models", demand.models)


def _priorities_sum(demand: Demand) -> Findings:
    yield from _sum_to_100("priorities", demand.priorities)


def _budget_falls(budget: RetryBudget) -> Findings:
    low, high = budget.saturated_percent, budget.idle_percent
    if low > high:
        message = f"{low} is above idlePercent, {high}; right would be fewer retries when engines are full"
        yield Finding(("saturatedPercent",), str(low), message)


def _distinct_priorities(shedding: Shedding) -> Findings:
    counts = Counter(priority.value for priority in shedding.priorities)
    for index, priority in enumerate(shedding.priorities):
        if counts[priority.value] > 1:
            same = [other.name for other in shedding.priorities if other.value == priority.value]
            message = (
                f"{priority.value} is the value of {' and '.join(same)}; right would be a value of its own for each"
            )
            yield Finding(("priorities", index, "value"), str(priority.value), message)


def _ordered(low: tuple[str, str], high: tuple[str, str]) -> Findings:
    (low_name, low_text), (high_name, high_text) = low, high
    if seconds(low_text) > seconds(high_text):
        message = f"{low_text} is longer than {high_name}, {high_text}; right would be {low_name} <= {high_name}"
        yield Finding((low_name,), shown(low_text), message)


def _hold_before_degrade(staleness: Staleness) -> Findings:
    yield from _ordered(("hold", staleness.hold), ("degrade", staleness.degrade))


def _ejection_grows(ejection: Ejection) -> Findings:
    yield from _ordered(("base", ejection.base), ("max", ejection.max))


def _known_priorities(spec: RoutingPolicySpec) -> Findings:
    known = [priority.name for priority in spec.protection.shedding.priorities] or ["default"]
    for index, frontend in enumerate(spec.frontends):
        for position, share in enumerate(frontend.demand.priorities if frontend.demand else ()):
            if share.name not in known:
                at = ("frontends", index, "demand", "priorities", position, "name")
                message = (
                    f"{shown(share.name)} is no priority of protection.shedding; right would be {' or '.join(known)}"
                )
                yield Finding(at, shown(share.name), message)


MIRRORS: Final[dict[Rule, Callable[[Any], Findings]]] = {
    rules.SHORT_NAME: _short_name,
    rules.ONE_BASE_MODEL: _one_base_model,
    rules.ADAPTER_IS_NOT_BASE: _adapter_is_not_base,
    rules.REACHABLE: _reachable,
    rules.REPLICAS_ONCE: _replicas_once,
    rules.REPLICAS_OF_URLS: _replicas_of_urls,
    rules.SOME_CAPACITY: _some_capacity,
    rules.TTFT_RISES: _ttft_rises,
    rules.TBOT_RISES: _tbot_rises,
    rules.ONE_KEY: _one_key,
    rules.MODELS_SUM: _models_sum,
    rules.PRIORITIES_SUM: _priorities_sum,
    rules.BUDGET_FALLS: _budget_falls,
    rules.DISTINCT_PRIORITIES: _distinct_priorities,
    rules.HOLD_BEFORE_DEGRADE: _hold_before_degrade,
    rules.EJECTION_GROWS: _ejection_grows,
    rules.KNOWN_PRIORITIES: _known_priorities,
}

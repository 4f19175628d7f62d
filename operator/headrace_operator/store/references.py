"""References between resources: what a policy names, and nothing offers.

On the routing-weight path. Such a fault is "dangling": an engine may appear later (case CRD-04h), so the policy is
served where possible. Only two tables with one name are refused, because one would overwrite the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from headrace_api.engine import InferenceEngine
from headrace_api.policy import Demand, PolicyModel, RoutingPolicy
from headrace_operator.store.faults import Path, field_name, shown
from headrace_operator.store.schema_check import Finding, suggestion

_NAMED = 6


class Claim(NamedTuple):
    """A model that a refused engine would serve; its fault is told there, not once more as a dangling reference."""

    namespace: str
    model: str


def dangling(policy: RoutingPolicy, engines: Sequence[InferenceEngine], claims: frozenset[Claim]) -> Iterator[Finding]:
    """What a policy names and nothing offers. ``engines``: all good ones; ``claims``: of the refused ones."""
    namespace = policy.metadata.namespace
    here = [engine for engine in engines if engine.metadata.namespace == namespace]
    wanted = policy.spec.engine_selector.match_labels
    chosen = [engine for engine in here if wanted.items() <= engine.metadata.labels.items()]
    claimed = {claim.model for claim in claims if claim.namespace == namespace}
    if not chosen:
        if not claimed:
            yield _nothing_selected(policy, here)
        return
    for index, model in enumerate(policy.spec.models):
        serving = [engine for engine in chosen if model.name in served_names(engine)]
        path: Path = ("spec", "models", index)
        if not serving and model.name not in claimed:
            yield _unserved(path, model, chosen)
        elif serving:
            yield from _unmet(path, model, serving)
    yield from _shares(policy, chosen, claimed)
    yield from _residencies(policy, chosen)


def strange_places(policy: RoutingPolicy, engines: Iterable[InferenceEngine]) -> Iterator[Finding]:
    """Places in the round trips where nothing stands: perhaps a slip, perhaps for later."""
    locations = [engine.spec.location for engine in engines] + [one.location for one in policy.spec.frontends]
    known = {place for one in locations for place in (one.region, one.zone, one.cluster) if place}
    if not known:
        return
    for index, trip in enumerate(policy.spec.network.round_trip):
        for name, place in (("from", trip.from_), ("to", trip.to)):
            if place not in known:
                path = ("spec", "network", "roundTrip", index, name)
                yield Finding(path, shown(place), f"{shown(place)} is where no engine and no front-end stands")


def table_names(policy: RoutingPolicy) -> Iterator[tuple[str, Path]]:
    """The ConfigMap of each front-end, and the field that names it."""
    for index, frontend in enumerate(policy.spec.frontends):
        path: Path = ("spec", "frontends", index)
        if frontend.publish.config_map is not None:
            yield frontend.publish.config_map, (*path, "publish", "configMap")
        else:
            yield f"headrace-{policy.metadata.name}-{frontend.name}", (*path, "name")


def table_taken(name: str, path: Path, owner: str) -> Finding:
    """Two tables of one name."""
    taken = f"its table would be ConfigMap {shown(name)}, which is that of {owner}"
    return Finding(path, shown(name), f"{taken}; right would be a publish.configMap of its own")


def served_names(engine: InferenceEngine) -> set[str]:
    """Every name that clients may ask the engine for: base models and adapters."""
    return {name for model in engine.spec.models for name in (model.name, *model.adapters)}


def _nothing_selected(policy: RoutingPolicy, here: Sequence[InferenceEngine]) -> Finding:
    labels = policy.spec.engine_selector.match_labels
    namespace = policy.metadata.namespace
    if not labels or not here:
        return Finding(
            ("spec", "models"), "", f"no engine stands in namespace {namespace}; right would be one that serves them"
        )
    selector = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
    there = _list(f"{engine.metadata.name} ({_labels(engine)})" for engine in here)
    message = f"{selector} selects no engine of namespace {namespace}; there are {there}"
    return Finding(("spec", "engineSelector", "matchLabels"), selector, message)


def _labels(engine: InferenceEngine) -> str:
    return _list(f"{key}={value}" for key, value in sorted(engine.metadata.labels.items())) or "no labels"


def _unserved(path: Path, model: PolicyModel, chosen: Sequence[InferenceEngine]) -> Finding:
    known = {name for engine in chosen for name in served_names(engine)}
    message = f"{shown(model.name)} is served by no engine that the policy selects; {_suggest(model.name, known)}"
    return Finding((*path, "name"), shown(model.name), message)


def _unmet(path: Path, model: PolicyModel, serving: Sequence[InferenceEngine]) -> Iterator[Finding]:
    offered = {capability for engine in serving for capability in engine.spec.capabilities}
    missing = [name for name in model.requires if name not in offered]
    for name in missing:
        at = (*path, "requires", model.requires.index(name))
        offers = f"they offer {_list(sorted(offered))}" if offered else "they offer nothing"
        message = f"{shown(name)} is offered by no engine that serves {shown(model.name)}; {offers}"
        yield Finding(at, shown(name), message)
    if not missing and not any(set(model.requires) <= set(engine.spec.capabilities) for engine in serving):
        wanted = " and ".join(model.requires)
        message = f"{wanted} are offered together by no engine that serves {shown(model.name)}"
        yield Finding((*path, "requires"), wanted, message)


def _shares(policy: RoutingPolicy, chosen: Sequence[InferenceEngine], claimed: set[str]) -> Iterator[Finding]:
    """Models of declared demand: those of the policy, and adapters beside them on the engines it selects."""
    ruled = {model.name for model in policy.spec.models}
    adapters = {
        adapter
        for engine in chosen
        for model in engine.spec.models
        if model.name in ruled
        for adapter in model.adapters
    }
    for index, frontend in enumerate(policy.spec.frontends):
        demand: Demand | None = frontend.demand
        for position, share in enumerate(demand.models if demand else ()):
            if share.name not in ruled | adapters | claimed:
                path: Path = ("spec", "frontends", index, "demand", "models", position, "name")
                message = f"{shown(share.name)} is no model of this policy; {_suggest(share.name, ruled | adapters)}"
                yield Finding(path, shown(share.name), message)


def _residencies(policy: RoutingPolicy, chosen: Sequence[InferenceEngine]) -> Iterator[Finding]:
    offered = {place for engine in chosen for place in engine.spec.residency}
    for index, frontend in enumerate(policy.spec.frontends):
        if frontend.residency and not offered & set(frontend.residency):
            wanted = " or ".join(frontend.residency)
            offers = f"they state {_list(sorted(offered))}" if offered else "they state none"
            path: Path = ("spec", "frontends", index, "residency")
            yield Finding(path, wanted, f"residency {wanted} is stated by no engine that the policy selects; {offers}")


def _suggest(name: str, known: set[str]) -> str:
    if len(known) > _NAMED:
        known = set(sorted(known)[:_NAMED])
    return suggestion(name, known)


def _list(words: Iterable[str]) -> str:
    words = list(words)
    more = f" and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
    return ", ".join(words[:_NAMED]) + more


def owner_words(file: str, line: int, resource: str, path: Path) -> str:
    """How a message names the field of another resource."""
    return f"{field_name(path)} of {resource} at {file}:{line}"

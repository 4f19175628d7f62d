"""Why did the weights change? Solved again with one group of inputs put back; what then differs is that group's share.

On the routing-weight path; pure. Groups: demand, health (liveness, penalties, ramps, trims, staleness), capacity (ready
replicas, background, declared figures), network, profiles, policy (edits of policies and of anything else an engine
declares). Two groups that hide each other (an engine dead, its replicas 0) would each explain nothing: an engine's
replicas belong to its health when its liveness flipped, and where putting back explains nothing, bringing each group
forward alone is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from headrace_api.largest_remainder import largest_remainder
from headrace_operator.optimizer.solution import Solution
from headrace_operator.snapshot.model import EngineState, PairNetwork, PolicyState, Snapshot, SourceDemand, SourceKey

Shares = dict[tuple[SourceKey, str], float]
SolveAll = Callable[[Snapshot], Shares]
Causes = tuple[tuple[str, int], ...]

SETTLING: Final = "settling"  # no input changed that matters: a move that had waited, or a step of a bounded shift
RESTART: Final = "restart"  # nothing is known of the inputs before
CLASSES: Final = "prompt classes"  # what demand is called where its classes came, went, or have other edges
NOTICEABLE: Final = 1e-6  # requests/s that a put-back must shift to count


def shares_of(solution: Solution) -> Shares:
    """Flows of a solution by source and engine, requests/s; a class that came or went counts as a change of demand."""
    return {(route.source, route.engine): route.flow for route in solution.routes if route.flow > 0}


class PutBack:
    """What was solved with one group of inputs put back; solved once, however many policies ask."""

    def __init__(self, before: Snapshot | None, now: Snapshot, solve: SolveAll) -> None:
        """before: when weights last changed. solve: flows of all policies in question, for any snapshot."""
        self._before = before
        self._now = now
        self._solve = solve
        self._known: dict[tuple[str, str], Shares] = {}
        self._changed: list[str] | None = None

    def causes(self, policy: str | None = None) -> Causes:
        """Causes of what ``solve(now)`` changed of a policy (id; None: of all), in percent that sum to 100.

        The largest first. It is solved once a changed group, once with all of them put back, and once more a group
        where they hide each other. What moves with all put back is settling.
        """
        if self._before is None:
            return ((RESTART, 100),)
        if self._changed is None:
            self._changed = [group for group in GROUPS if GROUPS[group](self._now, self._before) != self._now]
        if not self._changed:
            return ((SETTLING, 100),)
        reached, start = self._flows("now", "", policy), self._flows("back", "", policy)
        effects = {group: _moved(reached, self._flows("without", group, policy)) for group in self._changed}
        if max(effects.values()) <= NOTICEABLE:
            effects = {group: _moved(start, self._flows("only", group, policy)) for group in self._changed}
        effects[SETTLING] = _moved(_standing(self._now, start, policy), start)
        if max(effects.values()) <= NOTICEABLE:
            return ((SETTLING, 100),)
        counts = dict(zip(effects, largest_remainder(list(effects.values()), 100), strict=True))
        order = [*GROUPS, SETTLING]
        ranked = sorted(counts.items(), key=lambda pair: (-pair[1], order.index(pair[0])))
        renamed = {"demand": CLASSES} if self._before.class_edges != self._now.class_edges else {}
        return tuple((renamed.get(group, group), count) for group, count in ranked if count > 0)

    def _flows(self, which: str, group: str, policy: str | None) -> Shares:
        known = self._known.get((which, group))
        if known is None:
            known = self._known[which, group] = self._solve(self._world(which, group))
        return known if policy is None else {key: flow for key, flow in known.items() if key[0].policy == policy}

    def _world(self, which: str, group: str) -> Snapshot:
        assert self._before is not None
        if which == "now":
            return self._now
        if which == "without":
            return GROUPS[group](self._now, self._before)
        back = _all_back(self._now, self._before)
        return back if which == "back" else GROUPS[group](back, self._now)


def attribute(before: Snapshot | None, now: Snapshot, solve: SolveAll) -> Causes:
    """The causes of all that ``solve`` gives the flows of."""
    return PutBack(before, now, solve).causes()


def _standing(now: Snapshot, like: Shares, policy: str | None) -> Shares:
    """The weights that stand, as flows of the same requests; sources without a table are taken as they come."""
    totals = _totals(like)
    known = {
        (SourceKey(route.policy, route.frontend, route.model, route.prompt_class), route.engine): route.weight
        for route in now.previous
        if policy in (None, route.policy)
    }
    sources = {key[0] for key in known}
    flows = {key: weight * totals[key[0]] for key, weight in known.items() if totals.get(key[0], 0.0) > 0}
    return flows | {key: flow for key, flow in like.items() if key[0] not in sources}


def _moved(one: Shares, other: Shares) -> float:
    """Half the L1 distance of two splits, each as fractions of its source's routed requests, weighted by them."""
    totals = _totals(one), _totals(other)
    moved = 0.0
    for key in one.keys() | other.keys():
        fractions = [
            split.get(key, 0.0) / total[key[0]] if total.get(key[0], 0.0) > 0 else 0.0
            for split, total in zip((one, other), totals, strict=True)
        ]
        moved += abs(fractions[0] - fractions[1]) * max(total.get(key[0], 0.0) for total in totals)
    routed = [sum(total.values()) for total in totals]
    return moved / 2 + abs(routed[0] - routed[1]) * _SHED_WEIGHT


_SHED_WEIGHT: Final = 1e-3  # demand moves what is routed without moving weights; that alone explains little


def _totals(shares: Shares) -> dict[SourceKey, float]:
    totals: dict[SourceKey, float] = {}
    for (source, _), flow in shares.items():
        totals[source] = totals.get(source, 0.0) + flow
    return totals


def _all_back(now: Snapshot, before: Snapshot) -> Snapshot:
    for put_back in GROUPS.values():
        now = put_back(now, before)
    return now


def _demand(now: Snapshot, before: Snapshot) -> Snapshot:
    """Demand of models that stood before, with their prompt classes; new ones keep theirs."""
    old: dict[tuple[str, str, str], list[SourceDemand]] = {}
    for entry in before.demand:
        old.setdefault((entry.policy, entry.frontend, entry.model), []).append(entry)
    kept = [entry for entry in now.demand if (entry.policy, entry.frontend, entry.model) not in old]
    present = {(entry.policy, entry.frontend, entry.model) for entry in now.demand}
    back = [entry for key, entries in old.items() if key in present for entry in entries]
    demand = tuple(sorted([*kept, *back], key=lambda entry: entry.key))
    return msgspec.structs.replace(now, demand=demand, class_edges=before.class_edges, shedding=before.shedding)


def _engines(now: Snapshot, before: Snapshot, put_back: Callable[[EngineState, EngineState], EngineState]) -> Snapshot:
    old = {engine.id: engine for engine in before.engines}
    engines = tuple(put_back(engine, old[engine.id]) if engine.id in old else engine for engine in now.engines)
    return msgspec.structs.replace(now, engines=engines)


def _died_or_rose(now: EngineState, before: EngineState) -> bool:
    return now.alive != before.alive


def _health(now: Snapshot, before: Snapshot) -> Snapshot:
    def back(engine: EngineState, old: EngineState) -> EngineState:
        return msgspec.structs.replace(
            engine,
            alive=old.alive,
            ready=old.ready if _died_or_rose(engine, old) else engine.ready,
            penalty=old.penalty,
            ramp=old.ramp,
            trim=old.trim,
            staleness=old.staleness,
        )

    return _engines(now, before, back)


def _capacity(now: Snapshot, before: Snapshot) -> Snapshot:
    def back(engine: EngineState, old: EngineState) -> EngineState:
        return msgspec.structs.replace(
            engine,
            ready=engine.ready if _died_or_rose(engine, old) else old.ready,
            background=old.background,
            hit_share=old.hit_share,
            spec=msgspec.structs.replace(engine.spec, capacity=old.spec.capacity),
        )

    return _engines(now, before, back)


def _profiles(now: Snapshot, before: Snapshot) -> Snapshot:
    def back(engine: EngineState, old: EngineState) -> EngineState:
        return msgspec.structs.replace(engine, spec=msgspec.structs.replace(engine.spec, profile=old.spec.profile))

    return _engines(now, before, back)


def _network(now: Snapshot, before: Snapshot) -> Snapshot:
    old = {_pair(pair): pair for pair in before.network}
    return msgspec.structs.replace(now, network=tuple(old.get(_pair(pair), pair) for pair in now.network))


def _pair(pair: PairNetwork) -> tuple[str, str, str]:
    return (pair.policy, pair.frontend, pair.engine)


def _policy(now: Snapshot, before: Snapshot) -> Snapshot:
    """Edits: policies' specs, engines' states, labels and declarations, engines that came or went."""
    old_engines = {engine.id: engine for engine in before.engines}
    present = {engine.id: engine for engine in now.engines}
    engines = [
        msgspec.structs.replace(
            present[name],
            state=old.state,
            message=old.message,
            labels=old.labels,
            spec=msgspec.structs.replace(
                old.spec, capacity=present[name].spec.capacity, profile=present[name].spec.profile
            ),
        )
        if name in present
        else old
        for name, old in sorted(old_engines.items())
    ]
    old_policies = {policy.id: policy for policy in before.policies}
    policies = tuple(_edited_back(policy, old_policies.get(policy.id)) for policy in now.policies)
    gone = {_pair(pair) for pair in now.network}
    network = (*now.network, *(pair for pair in before.network if _pair(pair) not in gone))
    return msgspec.structs.replace(
        now, engines=tuple(engines), policies=policies, network=tuple(sorted(network, key=_pair))
    )


def _edited_back(policy: PolicyState, old: PolicyState | None) -> PolicyState:
    """The policy as it was, with today's front-ends (their demand stands in today's sources)."""
    if old is None:
        return policy
    known = {frontend.name: frontend for frontend in old.spec.frontends}
    frontends = tuple(known.get(frontend.name, frontend) for frontend in policy.spec.frontends)
    return msgspec.structs.replace(
        policy,
        spec=msgspec.structs.replace(
            old.spec, frontends=frontends, models=policy.spec.models, network=policy.spec.network
        ),
        frozen=old.frozen,
    )


GROUPS: Final[Mapping[str, Callable[[Snapshot, Snapshot], Snapshot]]] = {
    "demand": _demand,
    "health": _health,
    "capacity": _capacity,
    "network": _network,
    "profiles": _profiles,
    "policy": _policy,
}

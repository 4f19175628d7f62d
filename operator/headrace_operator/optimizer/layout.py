"""Layout: who takes part in a solve, in canonical order. What changes only with an edit, not with a signal.

On the routing-weight path, pure. The warm model keeps one as long as it holds, so that a tick reads numbers and asks
no rule twice. Whether an engine is in service now is not part of it: a failed engine keeps its columns, with bounds
of 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace_api.engine import InferenceEngineSpec
from headrace_api.policy import Frontend
from headrace_api.units import seconds
from headrace_operator.snapshot.curves import Floats
from headrace_operator.snapshot.eligibility import Exclusion, frontend_exclusion, model_exclusion, namespace
from headrace_operator.snapshot.model import EngineState, PolicyState, Snapshot, SourceKey
from headrace_operator.snapshot.work import EngineFigures, engine_figures

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

type_of_engine = tuple[str, InferenceEngineSpec, tuple[tuple[str, str], ...]]
KEPT = 64  # layouts remembered: components, and a few policies evaluated beside them


class Rules(NamedTuple):
    """What excludes pairs by their specs, for all engines of a snapshot by id; None where nothing does.

    home: engines of each policy's namespace. models: by (policy, model); reach: by (policy, front-end).
    """

    home: dict[str, Bools]
    models: dict[tuple[str, str], tuple[Exclusion | None, ...]]
    reach: dict[tuple[str, str], tuple[Exclusion | None, ...]]


@dataclass(frozen=True, slots=True)
class Layout:
    """Sources and engines of some policies, sorted, with what their specs say.

    possible: sources x engines, pairs that the specs allow. frontends: (policy id, front-end), ``frontend_of`` the
    source's row in it. target: lowest target utilisation asked of each engine, NaN where none. move_cost: seconds;
    shift: the share of a source that one publication may move. default_round_trip: seconds by front-end row.
    """

    policies: tuple[PolicyState, ...]
    sources: tuple[SourceKey, ...]
    known_engines: tuple[type_of_engine, ...]
    engines: tuple[str, ...]
    possible: Bools
    figures: EngineFigures
    frontends: tuple[tuple[str, str], ...]
    frontend_of: Ints
    target: Floats
    move_cost: Floats
    shift: Floats
    default_round_trip: Floats
    rules: Rules

    def holds(self, snapshot: Snapshot, policies: tuple[str, ...]) -> bool:
        """Whether the snapshot still has this layout."""
        return (
            self.policies == chosen_policies(snapshot, policies)
            and self.sources == source_keys(snapshot, policies)
            and self.known_engines == _known_engines(snapshot)
        )


def chosen_policies(snapshot: Snapshot, policies: tuple[str, ...]) -> tuple[PolicyState, ...]:
    """The named policies of a snapshot, by id."""
    names = set(policies)
    return tuple(sorted((state for state in snapshot.policies if state.id in names), key=lambda state: state.id))


def source_keys(snapshot: Snapshot, policies: tuple[str, ...]) -> tuple[SourceKey, ...]:
    """The sources of the named policies, sorted."""
    names = set(policies)
    return tuple(sorted(demand.key for demand in snapshot.demand if demand.policy in names))


def sorted_engines(snapshot: Snapshot) -> list[EngineState]:
    """Engines by id."""
    return sorted(snapshot.engines, key=lambda engine: engine.id)


def _known_engines(snapshot: Snapshot) -> tuple[type_of_engine, ...]:
    return tuple((engine.id, engine.spec, engine.labels) for engine in sorted_engines(snapshot))


def frontend_of(policy: PolicyState, name: str) -> Frontend:
    """The policy's front-end of that name; one that nothing is known of if it has none."""
    return next((entry for entry in policy.spec.frontends if entry.name == name), Frontend(name=name))


def _rules(policies: tuple[PolicyState, ...], sources: tuple[SourceKey, ...], engines: list[EngineState]) -> Rules:
    by_id = {policy.id: policy for policy in policies}
    fronts = {(key.policy, key.frontend): frontend_of(by_id[key.policy], key.frontend) for key in sources}
    spaces = [namespace(engine.id) for engine in engines]
    return Rules(
        home={name: np.array([space == namespace(name) for space in spaces], dtype=np.bool_) for name in by_id},
        models={
            (name, model): tuple(model_exclusion(by_id[name], model, engine) for engine in engines)
            for name, model in sorted({(key.policy, key.model) for key in sources})
        },
        reach={
            pair: tuple(frontend_exclusion(front, engine) for engine in engines)
            for pair, front in sorted(fronts.items())
        },
    )


def _possible(rules: Rules, sources: tuple[SourceKey, ...], engines: int) -> Bools:
    """Sources x engines: pairs that the specs allow, whatever the engines' state."""

    def free(excluded: tuple[Exclusion | None, ...]) -> Bools:
        return np.array([rule is None for rule in excluded], dtype=np.bool_)

    serves = {pair: free(excluded) for pair, excluded in rules.models.items()}
    reaches = {pair: free(excluded) for pair, excluded in rules.reach.items()}
    possible = np.zeros((len(sources), engines), dtype=np.bool_)
    for row, key in enumerate(sources):
        possible[row] = rules.home[key.policy] & serves[key.policy, key.model] & reaches[key.policy, key.frontend]
    return possible


_recent: tuple[Layout, ...] = ()


def build_layout(snapshot: Snapshot, policies: tuple[str, ...]) -> Layout:
    """The layout of the named policies; names that the snapshot doesn't hold are left out.

    A tick asks for the same layouts again and again, so the last few are remembered; one is used only when it holds
    for this snapshot in every part. Replaced as a whole, so that threads can't see half of it.
    """
    global _recent  # noqa: PLW0603
    names = frozenset(policies)
    likely = (layout for layout in _recent if names.issuperset(state.id for state in layout.policies))
    known = next((layout for layout in likely if layout.holds(snapshot, policies)), None)
    layout = known if known is not None else _built(snapshot, policies)
    _recent = (layout, *(other for other in _recent if other is not layout))[:KEPT]
    return layout


def _built(snapshot: Snapshot, policies: tuple[str, ...]) -> Layout:
    states = chosen_policies(snapshot, policies)
    sources = source_keys(snapshot, tuple(state.id for state in states))
    everyone = sorted_engines(snapshot)
    rules = _rules(states, sources, everyone)
    possible = _possible(rules, sources, len(everyone))
    used = np.flatnonzero(possible.any(axis=0))
    engines = [everyone[index] for index in used]
    possible = possible[:, used]
    rows = {state.id: row for row, state in enumerate(states)}
    frontends = tuple(sorted({(key.policy, key.frontend) for key in sources}))
    front_rows = {pair: row for row, pair in enumerate(frontends)}
    policy_of = np.array([rows[key.policy] for key in sources], dtype=np.int64)
    move_cost = np.array([seconds(state.spec.objective.move_cost) for state in states])
    shift = np.array([state.spec.publication.max_shift_percent / 100.0 for state in states])
    return Layout(
        policies=states,
        sources=sources,
        known_engines=_known_engines(snapshot),
        engines=tuple(engine.id for engine in engines),
        possible=possible,
        figures=engine_figures([engine.spec for engine in engines]),
        frontends=frontends,
        frontend_of=np.array([front_rows[key.policy, key.frontend] for key in sources], dtype=np.int64),
        target=_targets(states, policy_of, possible),
        move_cost=move_cost[policy_of],
        shift=shift[policy_of],
        default_round_trip=np.array([seconds(states[rows[name]].spec.network.default) for name, _ in frontends]),
        rules=rules,
    )


def _targets(states: tuple[PolicyState, ...], policy_of: Ints, possible: Bools) -> Floats:
    """Each engine's lowest target among the policies that may use it, as a fraction; NaN where none asks."""
    target = np.full(possible.shape[1], np.nan)
    for row, state in enumerate(states):
        percent = state.spec.objective.target_utilization_percent
        if percent is not None:
            asked = possible[policy_of == row].any(axis=0)
            target[asked] = np.fmin(target[asked], percent / 100.0)
    return target

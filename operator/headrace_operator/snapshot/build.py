"""Resources and signals -> Snapshot: every default resolved, every fallback named, everything in one order.

On the routing-weight path; pure, ``at`` is the clock. This is the only place where what was declared meets what was
measured; behind it nothing is unknown. It never raises on a signal's value: what can't be a measurement is unknown,
and a note says what stands instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Final

from headrace_api.engine import InferenceEngine
from headrace_api.policy import Frontend, RoutingPolicy
from headrace_api.table import RoutingTable
from headrace_operator.snapshot.background import with_background
from headrace_operator.snapshot.build_demand import World, by_frontend_and_model, source_demands
from headrace_operator.snapshot.build_engines import engine_states
from headrace_operator.snapshot.build_network import pair_networks, unmeasured
from headrace_operator.snapshot.build_policies import policy_states
from headrace_operator.snapshot.build_previous import previous_routes
from headrace_operator.snapshot.clock import epoch_seconds
from headrace_operator.snapshot.eligibility import exclusion
from headrace_operator.snapshot.model import EngineState, PolicyState, SavingSince, Snapshot
from headrace_operator.snapshot.read_signals import measurable
from headrace_operator.snapshot.selection import Selection
from headrace_operator.snapshot.signals import Signals
from headrace_operator.snapshot.work import work_of

MAX_EDGES: Final = 7  # of a table


def build_snapshot(
    engines: Iterable[InferenceEngine],
    policies: Iterable[RoutingPolicy],
    signals: Signals,
    *,
    at: float,
    previous: Sequence[RoutingTable] = (),
    savings: Sequence[SavingSince] = (),
    shedding: Sequence[str] = (),
) -> Snapshot:
    """The world at ``at`` (seconds since the epoch).

    previous: the tables that stand (and the virtual ones of Shadow policies). savings, shedding: what the last
    decision handed on. Ages in signals count from ``signals.at``, or from ``at`` where that is empty.
    """
    notes: list[str] = []
    taken = epoch_seconds(signals.at) if signals.at else at
    if taken is None:
        notes.append(f"signals.at: {signals.at!r} is not RFC 3339; ages are counted from now")
        taken = at
    elapsed = max(0.0, at - taken)
    states = engine_states(engines, signals.engines, at=at, elapsed=elapsed, notes=notes)
    states = with_background(states, signals.engines, elapsed=elapsed, notes=notes)
    selection = Selection(states)
    ruling = policy_states(policies, selection, at=at, notes=notes)
    selected = {policy.id: selection.of(policy.id, policy.spec) for policy in ruling}
    edges = _edges(signals.class_edges, notes)
    demand = source_demands(
        ruling,
        World(
            signals=by_frontend_and_model(signals.demand),
            elapsed=elapsed,
            edges=edges,
            candidates=lambda policy, frontend, model: _candidates(policy, frontend, model, selected[policy.id]),
            carried=_carried,
            notes=notes,
        ),
    )
    if not any(source.prompt_class for source in demand):
        edges = ()  # where nothing is told apart, edges that move must not look like news
    _name_strangers(signals, ruling, notes)
    network = pair_networks(ruling, selected, signals.round_trips, elapsed=elapsed, notes=notes)
    routes = previous_routes(previous, demand, edges)
    told = (*signals.states, *unmeasured(ruling, network, routes))
    return Snapshot(
        at=at,
        engines=states,
        policies=ruling,
        demand=demand,
        network=network,
        previous=routes,
        savings=tuple(sorted(savings, key=_saving_key)),
        shedding=tuple(sorted(set(shedding))),
        class_edges=edges,
        routers=tuple(sorted((name, count) for name, count in dict(signals.routers).items() if count >= 1)),
        bytes_per_token=tuple(
            sorted(
                (model, ratio) for model, ratio in dict(signals.bytes_per_token).items() if measurable(ratio) and ratio
            )
        ),
        drifts=tuple(
            sorted((drift for drift in signals.drifts if measurable(drift.factor)), key=lambda one: one.model)
        ),
        states=tuple(sorted(told, key=lambda state: (state.name, state.state, state.since))),
        notes=tuple(dict.fromkeys(notes)),
    )


def _saving_key(saving: SavingSince) -> tuple[str, str, str, int, str]:
    return (saving.policy, saving.frontend, saving.model, saving.prompt_class, saving.engine)


def _edges(edges: Sequence[int], notes: list[str]) -> tuple[int, ...]:
    """Edges that rise from above 0; anything else means one class."""
    if all(low < high for low, high in zip((0, *edges), edges, strict=False)) and len(edges) <= MAX_EDGES:
        return tuple(edges)
    notes.append(f"classEdges {list(edges)}: must be at most {MAX_EDGES} rising numbers above 0; one class used")
    return ()


def _candidates(
    policy: PolicyState, frontend: Frontend, model: str, engines: Iterable[EngineState]
) -> tuple[EngineState, ...]:
    return tuple(engine for engine in engines if exclusion(policy, frontend, model, engine) is None)


def _carried(engine: EngineState, input_tokens: float, output_tokens: float) -> float:
    """Requests/s of a mix at C_j; 0 where the engine states nothing usable."""
    work = work_of(engine, input_tokens, output_tokens)
    return engine.ready / work if isfinite(work) and work > 0 else 0.0


def _name_strangers(signals: Signals, policies: Iterable[PolicyState], notes: list[str]) -> None:
    """Demand that no policy rules is ignored, and said."""
    ruled = {
        (frontend.name, model)
        for policy in policies
        for frontend in policy.spec.frontends
        for _, model in policy.served
    }
    strangers = sorted({(signal.frontend, signal.model) for signal in signals.demand} - ruled)
    for frontend_name, model in strangers:
        notes.append(f"signals of demand for {model} at {frontend_name}: no policy rules it; ignored")

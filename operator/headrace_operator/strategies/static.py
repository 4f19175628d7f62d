"""Static: shares by declared capacity, whatever is measured. Pure; sees neither load nor distance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace_operator.optimizer import EligiblePair
from headrace_operator.optimizer.solution import Solution
from headrace_operator.snapshot.build_engines import declared_replicas
from headrace_operator.snapshot.model import EngineState, Snapshot
from headrace_operator.snapshot.work import reference_work_of
from headrace_operator.strategies.base import ruled


def static(snapshot: Snapshot, policy: str, fixed: Mapping[str, float]) -> Solution:
    """The split of a Static policy."""
    return ruled(snapshot, policy, fixed, _shares)


def _shares(snapshot: Snapshot, pairs: Sequence[EligiblePair]) -> Sequence[float]:
    engines = {engine.id: engine for engine in snapshot.engines}
    return [_declared(engines[pair.engine]) for pair in pairs]


def _declared(engine: EngineState) -> float:
    """Requests/s of its reference mix that the engine declares; replicas nobody declared are those now ready."""
    replicas, assumed = declared_replicas(engine.spec.endpoints)
    work = reference_work_of(engine)
    counted = engine.ready if assumed and not engine.spec.endpoints.urls else replicas
    return counted / work if work > 0 else 0.0

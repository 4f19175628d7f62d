"""Trims of all engines: samples out of their windows, factors and drifting profiles out.

On the engine-signal path. A sample covers what was read since the one before, so that none is counted twice, and is
taken once it stands on enough tokens. A penalised engine has no trim: both would count one fault twice. Must not read
clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace_api.engine import InferenceEngineSpec
from headrace_operator.estimators import trim as trims
from headrace_operator.estimators.replica import ReplicaWindow, combine
from headrace_operator.estimators.trim import Trim
from headrace_operator.loader.expectation import token_time_ratio
from headrace_operator.snapshot.signals import Factor, ProfileDrift


@dataclass(slots=True)
class _Engine:
    models: frozenset[str]
    trim: Trim = field(default_factory=Trim)
    since: float = float("-inf")


class TrimTrackers:
    """State of all engines' trims between samples."""

    def __init__(self) -> None:
        self._engines: dict[str, _Engine] = {}
        self._drifts: dict[str, float] = {}
        self._restored: dict[str, float] = {}

    def restore(self, told: Mapping[str, float]) -> None:
        """Trims of an earlier start, for engines that appear."""
        self._restored = dict(told)

    def retarget(self, engines: Mapping[str, InferenceEngineSpec]) -> None:
        """Which engines there are."""
        self._engines = {name: one for name, one in self._engines.items() if name in engines}
        for name, spec in engines.items():
            models = frozenset(model.name for model in spec.models)
            engine = self._engines.get(name)
            if engine is None:
                told = self._restored.pop(name, 1.0)
                self._engines[name] = _Engine(models, Trim(factor=told, told=told))
            else:
                engine.models = models
        self._judge_profiles()

    def observe(
        self,
        name: str,
        at: float,
        spec: InferenceEngineSpec,
        ready: float,
        windows: Sequence[ReplicaWindow],
        *,
        penalized: bool,
    ) -> None:
        """Take what an engine's windows hold since its last sample; they end at ``at``. ``settle`` ends a batch."""
        engine = self._engines[name]
        if penalized:
            engine.trim, engine.since = Trim(), at
        else:
            seen = combine([window.since(engine.since) for window in windows])
            if trims.enough(seen.tbot_count, max(seen.ttft_count, seen.finished), seen.seconds, seen.tbot):
                engine.trim = trims.observe(engine.trim, at, token_time_ratio(spec, ready, seen))
                engine.since = at
            else:
                engine.trim = trims.observe(engine.trim, at, None)

    def settle(self) -> None:
        """After a batch of samples: which models' profiles are off for most engines."""
        self._judge_profiles()

    def factor(self, name: str) -> Factor | None:
        """What is said of an engine; None where it does as its profile says, or where the profile is wrong for all."""
        engine = self._engines[name]
        if engine.trim.told == 1.0 or engine.models & self._drifts.keys():
            return None
        return Factor(value=engine.trim.told, reason=trims.reason(engine.trim.told))

    def drifts(self) -> tuple[ProfileDrift, ...]:
        """Models whose profiles are wrong for most engines."""
        return tuple(ProfileDrift(model=model, factor=factor) for model, factor in sorted(self._drifts.items()))

    def _judge_profiles(self) -> None:
        by_model: dict[str, list[Trim]] = {}
        for engine in self._engines.values():
            for model in engine.models:
                by_model.setdefault(model, []).append(engine.trim)
        found = {model: self._drift_of(model, all_of_it) for model, all_of_it in by_model.items()}
        self._drifts = {model: factor for model, factor in found.items() if factor is not None}

    def _drift_of(self, model: str, all_of_it: Iterable[Trim]) -> float | None:
        """The median where it is off; while it stays off, as it was first said (status holds nothing that moves)."""
        told = self._drifts.get(model)
        now = trims.drift(all_of_it, drifting=told is not None)
        return told if now is not None and told is not None else now

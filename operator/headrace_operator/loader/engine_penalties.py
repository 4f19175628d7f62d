"""Penalties over one batch of samples: each engine beside its peers, never too many of a model at once.

On the engine-signal path; no I/O, no clocks. What is the same for all engines of a batch is found once: a fleet of
thousands is judged in the time that its samples take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from headrace_api.engine import Hardware
from headrace_operator.estimators import penalty as penalties
from headrace_operator.estimators.penalty import Measured, PenaltyRules
from headrace_operator.loader.engine_state import Engine
from headrace_operator.loader.expectation import reference_rate

# A median over so many peers is as good as one over thousands; they are taken evenly from all.
PEERS: Final = 64


class PenaltyRound:
    """All engines as they are when a batch begins; only their penalties change while it goes on."""

    def __init__(self, engines: Mapping[str, Engine], rules: PenaltyRules, ready: Callable[[str], float]) -> None:
        """ready: replicas by engine."""
        self._engines = engines
        self._rules = rules
        self._ready = ready
        self._sharing: dict[str, list[str]] = {}
        self._alike: dict[tuple[str, Hardware | None], list[str]] = {}
        for name, engine in engines.items():
            for model in engine.models:
                self._sharing.setdefault(model, []).append(name)
                self._alike.setdefault((model, engine.spec.hardware), []).append(name)

    def judge(self, name: str, at: float) -> None:
        """Advance one engine's penalty by what was measured at ``at``."""
        engine = self._engines[name]
        if engine.measured is None:
            return
        punished = engine.penalty.phase == "Penalized"
        verdict = penalties.judge(engine.measured, self._peers(name, engine), self._rules, penalized=punished)
        allowed = verdict.kind != "Bad" or self._allowed(name, engine)
        engine.penalty = penalties.advance(engine.penalty, at, verdict, self._rules, allowed=allowed)

    def _peers(self, name: str, engine: Engine) -> list[Measured]:
        """Engines that share a model: those of the same hardware, or all where none has the same."""
        alike = {key: None for model in engine.models for key in self._alike[model, engine.spec.hardware]}
        if len(alike) < 2:
            alike = {key: None for model in engine.models for key in self._sharing[model]}
        others = [key for key in alike if key != name]
        chosen = others[:: max(1, len(others) // PEERS)]
        return [measured for key in chosen if (measured := self._engines[key].measured) is not None]

    def _allowed(self, name: str, engine: Engine) -> bool:
        serving = {key for model in engine.models for key in self._sharing[model]}
        penalized = [key for key in serving if self._engines[key].penalty.factor < 1.0 and key != name]
        capacity = {key: self._ready(key) * reference_rate(self._engines[key].spec) for key in serving}
        models = {key: self._engines[key].models for key in serving}
        return penalties.may_penalize(name, penalized, capacity, models, self._rules.max_share)

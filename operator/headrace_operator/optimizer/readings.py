"""Readings: the numbers of a snapshot as arrays in a layout's order. The one place that walks the snapshot's tuples.

On the routing-weight path, pure. A tick at 50 front-ends x 200 engines holds 10,000 round trips; the reader keeps
where each of them belongs, so that a tick costs one pass over the values and none over the names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from headrace_operator.optimizer.layout import Bools, Ints, Layout
from headrace_operator.snapshot.curves import Floats
from headrace_operator.snapshot.eligibility import service_exclusion
from headrace_operator.snapshot.model import (
    EngineState,
    PairNetwork,
    PreviousRoute,
    SavingSince,
    Snapshot,
    SourceDemand,
)
from headrace_operator.snapshot.work import TRIM_FLOOR

MOST_FACTOR = 2.0  # as the signals allow
MOST_ROUND_TRIP = 3600.0  # s; beyond it a round trip is no measurement
MOST_HITS = 0.99  # a request always costs its engine something


class EngineReadings(NamedTuple):
    """Engines now: hard C_j (0 when out of service), factor c_j/C_j in [0, 1], trim, prefix-hit share, background."""

    in_service: Bools
    hard: Floats
    factor: Floats
    trim: Floats
    hit_share: Floats
    background: Floats


class Readings(NamedTuple):
    """One instant, in a layout's order. previous_elsewhere: weight on engines that the layout doesn't hold.

    tabled: sources that a table stands for, also one that refuses all of them.
    """

    at: float
    demand: tuple[SourceDemand, ...]
    rate: Floats
    input_tokens: Floats
    output_tokens: Floats
    engines: EngineReadings
    round_trip: Floats
    previous: Floats
    previous_elsewhere: Floats
    tabled: Bools
    saving_since: Floats


class _Routed(Protocol):
    """What previous routes and savings share: a source and an engine."""

    @property
    def policy(self) -> str: ...
    @property
    def frontend(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def prompt_class(self) -> int: ...
    @property
    def engine(self) -> str: ...


class Reader:
    """Reads snapshots of one layout; keeps positions between reads, never values that could go stale."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._engine_rows = {name: row for row, name in enumerate(layout.engines)}
        self._source_rows = {tuple(key): row for row, key in enumerate(layout.sources)}
        self._front_rows = {pair: row for row, pair in enumerate(layout.frontends)}
        self._network: tuple[PairNetwork, ...] | None = None
        self._network_names: list[tuple[str, str, str]] = []
        self._network_at: Ints = np.zeros(0, dtype=np.int64)
        self._round_trip: Floats = np.zeros((0, 0))

    def read(self, snapshot: Snapshot) -> Readings:
        """The snapshot's numbers; the snapshot must hold the layout's sources and engines."""
        by_key = {(d.policy, d.frontend, d.model, d.prompt_class): d for d in snapshot.demand}
        demand = tuple(by_key[key.policy, key.frontend, key.model, key.prompt_class] for key in self._layout.sources)
        previous, elsewhere, tabled = self._weights(snapshot.previous)
        return Readings(
            at=snapshot.at,
            demand=demand,
            rate=np.array([entry.requests_per_second for entry in demand], dtype=np.float64),
            input_tokens=np.array([entry.input_tokens for entry in demand], dtype=np.float64),
            output_tokens=np.array([entry.output_tokens for entry in demand], dtype=np.float64),
            engines=read_engines(self._layout, snapshot),
            round_trip=self._round_trips(snapshot.network)[self._layout.frontend_of],
            previous=previous,
            previous_elsewhere=elsewhere,
            tabled=tabled,
            saving_since=self._savings(snapshot.savings),
        )

    def _round_trips(self, network: tuple[PairNetwork, ...]) -> Floats:
        """Front-ends x engines, seconds; the policy's default where a pair is absent or no measurement."""
        if self._network is not None and network is self._network:
            return self._round_trip
        names = [(pair.policy, pair.frontend, pair.engine) for pair in network]
        if self._network is None or names != self._network_names:
            self._network_names = names
            self._network_at = self._positions(names)
        width = len(self._layout.engines)
        flat = np.full(len(self._layout.frontends) * width + 1, np.nan)
        flat[self._network_at] = np.fromiter((pair.round_trip for pair in network), np.float64, len(network))
        measured = flat[:-1].reshape(len(self._layout.frontends), width)
        usable = (measured >= 0.0) & (measured <= MOST_ROUND_TRIP)
        self._round_trip = np.where(
            usable, measured, np.minimum(self._layout.default_round_trip, MOST_ROUND_TRIP)[:, None]
        )
        self._network = network
        return self._round_trip

    def _positions(self, names: Sequence[tuple[str, str, str]]) -> Ints:
        """Where each named pair stands in the flat matrix; pairs of no one's in the last place."""
        width = len(self._layout.engines)
        nowhere = len(self._layout.frontends) * width
        at = []
        for policy, frontend, engine in names:
            row, column = self._front_rows.get((policy, frontend)), self._engine_rows.get(engine)
            at.append(nowhere if row is None or column is None else row * width + column)
        return np.array(at, dtype=np.int64)

    def _place(self, entry: _Routed) -> tuple[int | None, int | None]:
        source = self._source_rows.get((entry.policy, entry.frontend, entry.model, entry.prompt_class))
        return source, self._engine_rows.get(entry.engine)

    def _weights(self, previous: tuple[PreviousRoute, ...]) -> tuple[Floats, Floats, Bools]:
        weights = np.zeros((len(self._layout.sources), len(self._layout.engines)))
        elsewhere = np.zeros(len(self._layout.sources))
        tabled = np.zeros(len(self._layout.sources), dtype=np.bool_)
        for entry in previous:
            source, engine = self._place(entry)
            if source is not None:
                tabled[source] = True
            if source is not None and engine is not None:
                weights[source, engine] = entry.weight
            elif source is not None and entry.weight > 0.0:
                elsewhere[source] += min(entry.weight, 1.0)
        return weights, elsewhere, tabled

    def _savings(self, savings: tuple[SavingSince, ...]) -> Floats:
        since = np.full((len(self._layout.sources), len(self._layout.engines)), np.inf)
        for entry in savings:
            source, engine = self._place(entry)
            if source is not None and engine is not None and np.isfinite(entry.since):
                since[source, engine] = entry.since
        return since


def read_engines(layout: Layout, snapshot: Snapshot) -> EngineReadings:
    """The engines' arrays; a factor out of range is unknown, and unknown factors are 1."""
    by_id = {engine.id: engine for engine in snapshot.engines}
    engines = [by_id[name] for name in layout.engines]
    in_service = np.array([service_exclusion(engine) is None for engine in engines], dtype=np.bool_)
    ready = _column(engines, lambda engine: engine.ready)
    trim = _factor(_column(engines, lambda engine: engine.trim.value))
    product = (
        trim
        * _factor(_column(engines, lambda engine: engine.penalty.value))
        * _factor(_column(engines, lambda engine: engine.ramp.value))
        * _factor(_column(engines, lambda engine: engine.staleness.value))
    )
    hit_share = _column(engines, lambda engine: engine.hit_share)
    background = _column(engines, lambda engine: engine.background)
    return EngineReadings(
        in_service=in_service,
        hard=np.where(in_service, np.minimum(np.nan_to_num(ready, nan=0.0, posinf=0.0), 1e9), 0.0),
        factor=np.minimum(product, 1.0),
        trim=np.maximum(trim, TRIM_FLOOR),
        hit_share=np.clip(np.where(np.isfinite(hit_share), hit_share, 0.0), 0.0, MOST_HITS),
        background=np.clip(np.where(np.isfinite(background), background, 0.0), 0.0, 1e9),
    )


def _column(engines: Sequence[EngineState], value: Callable[[EngineState], float]) -> Floats:
    return np.array([value(engine) for engine in engines], dtype=np.float64)


def _factor(values: Floats) -> Floats:
    return np.where((values >= 0.0) & (values <= MOST_FACTOR), values, 1.0)

"""Metrics pages to figures: an engine's signals by the names of its runtime, a router's counts by policy and model.

On the engine-signal path. prometheus_client parses; only lines with wanted names are handed to it, so that a page of
hundreds of series costs little. NaN, infinite and negative values, broken lines and missing names are unknown.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, cast

from prometheus_client.parser import text_string_to_metric_families

from headrace_api.names import (
    METRIC_CLIENT_RETRIES,
    METRIC_EJECTED,
    METRIC_ENDED,
    METRIC_OFFERED,
    METRIC_OFFERED_INPUT_TOKENS,
    METRIC_OFFERED_OUTPUT_TOKENS,
    METRIC_PROMPT_TOKENS,
    METRIC_REQUESTS,
    METRIC_ROUND_TRIP,
    METRIC_ROUND_TRIP_SAMPLES,
    METRIC_USAGE_BYTES,
    METRIC_USAGE_TOKENS,
)
from headrace_operator.estimators.counters import is_measured
from headrace_operator.estimators.replica import Signal
from headrace_operator.loader.metric_names import Names
from headrace_operator.loader.source import DemandKey, LengthKey, RouterCounts

# Ratios of ranks are averaged, everything else is added.
AVERAGED: Final = frozenset({"kv_usage", "hit_rate"})
# Series of one replica that repeat what rank 0 says (SGLang); data-parallel ranks are summed.
FIRST_RANK: Final = ("tp_rank", "pp_rank")
MODEL_LABELS: Final = ("model_name", "model")
_SELECTOR: Final = re.compile(r'([^{]+)(?:\{(\w+)="([^"]*)"\})?')
_LINE_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


class Series(NamedTuple):
    """One sample of a page."""

    labels: Mapping[str, str]
    value: float


class EnginePage(NamedTuple):
    """Known figures of a page, and why others are unknown (empty: nothing to say)."""

    values: dict[Signal, float]
    problem: str


def read_series(text: str, wanted: Iterable[str]) -> tuple[dict[str, list[Series]], set[str]]:
    """Series of the wanted sample names, and the names with a line that can't be parsed.

    A last line without its line feed is cut, and so left out. The same labels twice count once.
    """
    names = set(wanted)
    lines = text.split("\n")[:-1]
    found: dict[str, dict[tuple[tuple[str, str], ...], Series]] = {}
    broken: set[str] = set()
    for line in lines:
        match = _LINE_NAME.match(line)
        if match is None or match[0] not in names:
            continue
        try:
            samples = [sample for family in text_string_to_metric_families(line + "\n") for sample in family.samples]
        except (ValueError, KeyError, IndexError):
            broken.add(match[0])
            continue
        for sample in samples:
            key = tuple(sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[key] = Series(sample.labels, float(sample.value))
    return {name: list(series.values()) for name, series in found.items()}, broken


def engine_page(text: str, names: Names, models: frozenset[str]) -> EnginePage:
    """The figures of an engine's page for the models that the engine serves."""
    return engine_figures(*read_series(text, sample_names(names)), names, models)


def sample_names(names: Names) -> set[str]:
    """Names of the samples that a runtime's signals are read from, without their labels."""
    return {_parsed(name)[0] for known in names.values() for name in known}


def engine_figures(
    series: Mapping[str, Sequence[Series]], broken: Collection[str], names: Names, models: frozenset[str]
) -> EnginePage:
    """The figures out of one engine's series of one time, by name; broken: names that could not be read."""
    selectors = {signal: [_parsed(name) for name in known] for signal, known in names.items()}
    values: dict[Signal, float] = {}
    foreign: set[str] = set()
    for signal, known in selectors.items():
        value = _signal(signal, known, series, broken, models, foreign)
        if value is not None:
            values[cast(Signal, signal)] = value
    if broken:
        return EnginePage(values, f"lines of {', '.join(sorted(broken))} can't be parsed")
    if values:
        return EnginePage(values, "")
    if foreign:
        return EnginePage({}, f"the page is of {', '.join(sorted(foreign))}, not of {', '.join(sorted(models))}")
    return EnginePage({}, "no known metric on the page; is the runtime right?")


@lru_cache(maxsize=4096)
def _parsed(name: str) -> tuple[str, str, str]:
    match = _SELECTOR.fullmatch(name)
    return (match[1], match[2] or "", match[3] or "") if match else (name, "", "")


def _signal(
    signal: str,
    selectors: list[tuple[str, str, str]],
    series: Mapping[str, Sequence[Series]],
    broken: Collection[str],
    models: frozenset[str],
    foreign: set[str],
) -> float | None:
    """The value of one signal under the first of its names that the page has."""
    for name, label, value in selectors:
        if name in broken:
            return None
        chosen = [one for one in series.get(name, ()) if not label or one.labels.get(label) == value]
        chosen = _of_models(_ranks(chosen), models, foreign)
        if chosen:
            return _combined(signal, [one.value for one in chosen])
    return None


def _ranks(series: Sequence[Series]) -> Sequence[Series]:
    first = [one for one in series if all(one.labels.get(label, "0") == "0" for label in FIRST_RANK)]
    totals = [one for one in first if one.labels.get("priority") == ""]
    return totals or first


def _of_models(series: Sequence[Series], models: frozenset[str], foreign: set[str]) -> list[Series]:
    kept = []
    for one in series:
        name = next((one.labels[label] for label in MODEL_LABELS if label in one.labels), None)
        if name is None or name in models:
            kept.append(one)
        else:
            foreign.add(name)
    return kept


def _combined(signal: str, values: list[float]) -> float | None:
    if not all(is_measured(value) for value in values):
        return None
    return sum(values) / len(values) if signal in AVERAGED else sum(values)


_ROUTER: Final = {
    METRIC_OFFERED: "offered",
    METRIC_CLIENT_RETRIES: "client_retries",
    METRIC_ENDED: "ended",
    METRIC_OFFERED_INPUT_TOKENS: "input_tokens",
    METRIC_OFFERED_OUTPUT_TOKENS: "output_tokens",
}
_USAGE: Final = (METRIC_USAGE_BYTES, METRIC_USAGE_TOKENS)
_LENGTHS: Final = f"{METRIC_PROMPT_TOKENS}_bucket"
_BY_ENGINE: Final = (METRIC_REQUESTS, METRIC_EJECTED, METRIC_ROUND_TRIP, METRIC_ROUND_TRIP_SAMPLES)
ROUTER_SAMPLES: Final = frozenset({*_ROUTER, *_USAGE, *_BY_ENGINE, _LENGTHS})


def router_page(text: str, frontend: str) -> tuple[RouterCounts, str]:
    """A router's counts for its front-end, and why something is unknown."""
    return router_counts(*read_series(text, ROUTER_SAMPLES), frontend)


def router_counts(
    series: Mapping[str, Sequence[Series]], broken: Collection[str], frontend: str
) -> tuple[RouterCounts, str]:
    """The same out of one router's series of one time, by name."""
    counts: dict[str, dict[DemandKey, float]] = {field: {} for field in _ROUTER.values()}
    foreign: set[str] = set()
    for metric, field in _ROUTER.items():
        if metric in broken:
            continue
        for labels, value in series.get(metric, ()):
            if labels.get("frontend") != frontend:
                foreign.add(labels.get("frontend", "(no label frontend)"))
            elif is_measured(value):
                key = DemandKey(*_owner(labels), labels.get("priority", ""), labels.get("prompt_class", ""))
                counts[field][key] = counts[field].get(key, 0.0) + value
    if broken:
        problem = f"lines of {', '.join(sorted(broken))} can't be parsed"
    elif foreign:
        problem = f"the page is of front-end {', '.join(sorted(foreign))}, not of {frontend}"
    else:
        problem = "" if METRIC_OFFERED in series else f"no {METRIC_OFFERED} on the page"
    by_engine = {name: _by([] if name in broken else series.get(name, ()), "engine") for name in _BY_ENGINE}
    by_model = {name: _by([] if name in broken else series.get(name, ()), "model") for name in _USAGE}
    return RouterCounts(
        **counts,
        sent=by_engine[METRIC_REQUESTS],
        ejected=by_engine[METRIC_EJECTED],
        usage_bytes=by_model[METRIC_USAGE_BYTES],
        usage_tokens=by_model[METRIC_USAGE_TOKENS],
        lengths={} if _LENGTHS in broken else _lengths(series.get(_LENGTHS, ()), frontend),
        round_trips={
            engine: (trip, by_engine[METRIC_ROUND_TRIP_SAMPLES].get(engine, 0.0))
            for engine, trip in by_engine[METRIC_ROUND_TRIP].items()
        },
    ), problem


def _owner(labels: Mapping[str, str]) -> tuple[str, str]:
    """Policy id and model."""
    return f"{labels.get('policy_namespace', '')}/{labels.get('policy', '')}", labels.get("model", "")


def _lengths(series: Iterable[Series], frontend: str) -> dict[LengthKey, float]:
    """Cumulative counts by upper bound; a bound that is no number is left out."""
    found: dict[LengthKey, float] = {}
    for labels, value in series:
        try:
            bound = float(labels.get("le", ""))
        except ValueError:
            continue
        if bound > 0 and labels.get("frontend") == frontend and is_measured(value):
            found[LengthKey(*_owner(labels), bound)] = value
    return found


def _by(series: Iterable[Series], label: str) -> dict[str, float]:
    """Values by one label, added over all others."""
    found: dict[str, float] = {}
    for labels, value in series:
        if label in labels and is_measured(value):
            found[labels[label]] = found.get(labels[label], 0.0) + value
    return found

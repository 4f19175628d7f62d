"""Work: how many seconds of one replica a request takes, and how long it stays, for every pair at once.

On the routing-weight path, pure. Capacity counts replicas, so work is the exchange rate between requests and
capacity; it differs by hardware and prompt class. The formulas are those of the API page, Capacity. What an engine
does not state takes no part; an engine that states nothing usable has no work (NaN or infinite), and so no column:
unknown is neither zero nor endless.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace_api.engine import InferenceEngineSpec
from headrace_api.units import number
from headrace_operator.snapshot.curves import (
    RESIDENCE_UTILISATION,
    CurveBank,
    Floats,
    LatencyCurve,
    curve_bank,
    declared_curves,
    reference_curve,
)
from headrace_operator.snapshot.model import EngineState

# The mix a profile without `reference` is taken for: the API page's example; Azure's 2023 conversation trace has
# means of 1,155 and 211.
REFERENCE_INPUT = 900.0
REFERENCE_OUTPUT = 220.0
LEAST_WORK, MOST_WORK = 1e-9, 1e6  # replica-seconds a request; outside them a figure is a slip, not a capacity
TRIM_FLOOR = 0.01  # a guard against division by nothing; trims live in [0.2, 1.5]


class EngineFigures(NamedTuple):
    """What engines declare, as arrays over engines (NaN: not stated). Rates per second and replica; latencies seconds.

    token_seconds: c, seconds a prompt token beyond the reference. curves: TTFT and TBOT against utilisation.
    """

    requests: Floats
    prefill: Floats
    decode: Floats
    concurrency: Floats
    cache_tokens: Floats
    reference_input: Floats
    reference_output: Floats
    token_seconds: Floats
    ttft_unloaded: Floats
    tbot_unloaded: Floats
    ttft_busy: Floats
    tbot_busy: Floats
    curves: tuple[tuple[LatencyCurve, LatencyCurve], ...]
    reference: CurveBank


def engine_figures(specs: Sequence[InferenceEngineSpec]) -> EngineFigures:
    """Figures of engines, in the order given; an engine without a profile borrows the slowest of its model's others."""
    profiles = _profiles(specs)
    curves = tuple(declared_curves(spec.profile) for spec in profiles)
    stated = [spec.capacity.per_replica for spec in specs]
    mixes = [spec.profile.reference for spec in profiles]
    prefill = _stated(figure.prefill_tokens_per_second for figure in stated)
    reference_output = np.array([float(mix.output_tokens) if mix else REFERENCE_OUTPUT for mix in mixes])
    known = np.array([mix is not None for mix in mixes], dtype=np.bool_) & (prefill > 0)
    return EngineFigures(
        requests=_stated(figure.requests_per_second for figure in stated),
        prefill=prefill,
        decode=_stated(figure.decode_tokens_per_second for figure in stated),
        concurrency=_stated(figure.max_concurrency for figure in stated),
        cache_tokens=_stated(figure.kv_cache_tokens for figure in stated),
        reference_input=np.array([float(mix.input_tokens) if mix else REFERENCE_INPUT for mix in mixes]),
        reference_output=reference_output,
        token_seconds=np.where(known, 1.0 / np.where(known, prefill, 1.0), 0.0),
        ttft_unloaded=np.array([float(ttft(0.0)) for ttft, _ in curves]),
        tbot_unloaded=np.array([float(tbot(0.0)) for _, tbot in curves]),
        ttft_busy=np.array([float(ttft(RESIDENCE_UTILISATION)) for ttft, _ in curves]),
        tbot_busy=np.array([float(tbot(RESIDENCE_UTILISATION)) for _, tbot in curves]),
        curves=curves,
        reference=curve_bank(
            [reference_curve(spec.profile, float(out)) for spec, out in zip(profiles, reference_output, strict=True)]
        ),
    )


def _stated(values: Iterable[int | str | None]) -> Floats:
    return np.array([np.nan if value is None else number(value) for value in values], dtype=np.float64)


def _profiles(specs: Sequence[InferenceEngineSpec]) -> list[InferenceEngineSpec]:
    """Whose profile each engine uses: its own, else the slowest of those serving one of its models, else its own."""
    declared = [spec for spec in specs if spec.profile.ttft or spec.profile.tbot]
    if len(declared) == len(specs):
        return list(specs)
    ranked = sorted(declared, key=lambda spec: (-_busy_latency(spec), spec.models[0].name))
    return [spec if spec.profile.ttft or spec.profile.tbot else _borrowed(spec, ranked) for spec in specs]


def _borrowed(spec: InferenceEngineSpec, slowest_first: Sequence[InferenceEngineSpec]) -> InferenceEngineSpec:
    names = {model.name for model in spec.models}
    return next((other for other in slowest_first if names & {model.name for model in other.models}), spec)


def _busy_latency(spec: InferenceEngineSpec) -> float:
    ttft, tbot = declared_curves(spec.profile)
    out = spec.profile.reference.output_tokens if spec.profile.reference else REFERENCE_OUTPUT
    return float(ttft(RESIDENCE_UTILISATION) + out * tbot(RESIDENCE_UTILISATION))


def tokens(figures: EngineFigures, input_tokens: Floats, output_tokens: Floats) -> tuple[Floats, Floats]:
    """Tokens in and out (sources x engines); a source without any takes each engine's reference mix."""
    unknown = ~((input_tokens > 0) | (output_tokens > 0))[:, None]
    return (
        np.where(unknown, figures.reference_input[None, :], input_tokens[:, None]),
        np.where(unknown, figures.reference_output[None, :], output_tokens[:, None]),
    )


def work(figures: EngineFigures, tokens_in: Floats, tokens_out: Floats, hit_share: Floats) -> Floats:
    """w_ij, replica-seconds a request (sources x engines): the largest of what the engine states.

    1/requestsPerSecond; un/prefill + out/decode; T/maxConcurrency; (in + out/2) T/kvCacheTokens, with T the residence
    at 85 % utilisation and un the input without the measured prefix hits. NaN: nothing stated; infinite: a rate of 0.
    """
    fresh = tokens_in * (1.0 - hit_share)
    busy = residence(figures, fresh, tokens_out, figures.ttft_busy, figures.tbot_busy)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = (
            np.broadcast_to(_per(1.0, figures.requests), fresh.shape),
            _sum_of_stated(_per(fresh, figures.prefill), _per(tokens_out, figures.decode)),
            _per(busy, figures.concurrency),
            _per((tokens_in + 0.5 * tokens_out) * busy, figures.cache_tokens),
        )
    largest = parts[0]
    for part in parts[1:]:
        largest = np.fmax(largest, part)
    return np.asarray(np.where(largest > 0.0, largest, np.nan), dtype=np.float64)


def _per(amount: Floats | float, rate: Floats) -> Floats:
    """amount / rate; NaN where the rate is not stated, infinite where it is 0."""
    return np.asarray(np.where(rate == 0.0, np.inf, amount / rate), dtype=np.float64)


def _sum_of_stated(first: Floats, second: Floats) -> Floats:
    known = ~(np.isnan(first) & np.isnan(second))
    return np.where(known, np.nan_to_num(first, posinf=np.inf) + np.nan_to_num(second, posinf=np.inf), np.nan)


def residence(figures: EngineFigures, fresh: Floats, tokens_out: Floats, ttft: Floats, tbot: Floats) -> Floats:
    """Seconds a request stays at given TTFT and TBOT of the reference."""
    return first_token(figures, fresh, ttft) + tokens_out * tbot


def first_token(figures: EngineFigures, fresh: Floats, ttft: Floats) -> Floats:
    """TTFT_ij at a given TTFT of the reference: c seconds more for each prompt token beyond it, at least 0."""
    return np.maximum(ttft + (fresh - figures.reference_input) * figures.token_seconds, 0.0)


def usable_work(values: Floats) -> NDArray[np.bool_]:
    """Which works are capacities at all."""
    return np.asarray((values >= LEAST_WORK) & (values <= MOST_WORK), dtype=np.bool_)


def reference_work(figures: EngineFigures, hit_share: Floats) -> Floats:
    """w_j of each engine's own reference mix; NaN where nothing usable is stated."""
    tokens_in, tokens_out = figures.reference_input[None, :], figures.reference_output[None, :]
    return np.asarray(work(figures, tokens_in, tokens_out, hit_share)[0], dtype=np.float64)


def work_of(engine: EngineState, input_tokens: float, output_tokens: float) -> float:
    """w of one request on one engine, replica-seconds, by its own profile; NaN or infinite where unusable."""
    figures = engine_figures((engine.spec,))
    tokens_in, tokens_out = tokens(figures, np.array([input_tokens]), np.array([output_tokens]))
    return float(work(figures, tokens_in, tokens_out, np.array([engine.hit_share]))[0, 0])


def reference_work_of(engine: EngineState) -> float:
    """w_j of the engine's reference mix, replica-seconds."""
    return float(reference_work(engine_figures((engine.spec,)), np.array([engine.hit_share]))[0])

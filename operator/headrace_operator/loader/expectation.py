"""What an engine's declared profile expects at the load that the engine itself reports, and how far it is from that.

On the engine-signal path; pure. Time between tokens is judged at the measured concurrency or at the engine's own
throughput, whichever expects more. Concurrency, because a step takes as long as its batch is large (the optimizer's
page, Estimators: against utilisation a slow engine that fills up is confounded by its load); throughput, because
prompts being prefilled lengthen steps too. Where the prefill rate is declared the two are told apart (see
``token_time_ratio``). Time to first token is judged at the throughput.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from headrace_api.engine import InferenceEngineSpec, PerReplica, ProfilePoint
from headrace_api.units import number, seconds
from headrace_operator.estimators.penalty import Measured
from headrace_operator.estimators.replica import EngineFigures


def measured(spec: InferenceEngineSpec, ready: float, figures: EngineFigures) -> Measured:
    """Measured over expected latency of an engine with ``ready`` replicas; ratios are None where either is unknown."""
    load = utilization(spec.capacity.per_replica, ready, figures)
    at = figures.at if figures.at is not None else float("-inf")
    if load is None:
        return Measured(at, error_share=figures.error_share, finished=figures.finished)
    ttft = at_utilization(spec.profile.ttft, load)
    return Measured(
        at=at,
        ttft_ratio=_ratio(figures.ttft, None if ttft is None else ttft + _longer_prompts(spec, figures)),
        tbot_ratio=_slowness(spec, ready, load, figures),
        requests=figures.ttft_count,
        tokens=figures.tbot_count,
        utilization=load,
        error_share=figures.error_share,
        finished=figures.finished,
    )


def _slowness(spec: InferenceEngineSpec, ready: float, load: float, figures: EngineFigures) -> float | None:
    """Measured over expected token time.

    Where the prefill rate is declared it is that of the trim, which holds for any mix of prompts: an engine that is
    sent long prompts alone would else hide behind the batch of its profile's mix.
    """
    ratio = None
    if spec.capacity.per_replica.prefill_tokens_per_second is not None:
        ratio = token_time_ratio(spec, ready, figures)
    return 1 / ratio if ratio else _ratio(figures.tbot, expected_tbot(spec, ready, load, figures))


def utilization(capacity: PerReplica, ready: float, figures: EngineFigures) -> float | None:
    """Share of the engine's declared capacity that its own counters show; the largest of what can be judged."""
    if ready <= 0:
        return None
    shares = []
    if capacity.requests_per_second is not None and figures.request_rate is not None:
        shares.append(figures.request_rate / number(capacity.requests_per_second))
    tokens = 0.0
    if capacity.prefill_tokens_per_second is not None and figures.prompt_rate is not None:
        uncached = figures.prompt_rate * (1 - (figures.hit_share or 0.0))
        tokens += uncached / number(capacity.prefill_tokens_per_second)
    if capacity.decode_tokens_per_second is not None and figures.generation_rate is not None:
        tokens += figures.generation_rate / number(capacity.decode_tokens_per_second)
    if tokens:
        shares.append(tokens)
    return max(shares) / ready if shares else None


def token_time_ratio(spec: InferenceEngineSpec, ready: float, figures: EngineFigures) -> float | None:
    """Predicted over measured token time at measured concurrency; None where either is unknown.

    The prediction is (the optimizer's page, Estimators) a + b running + c prompt tokens/s x the measured token time.
    a + b n: the profile's points by concurrency, each without its part of time in which its prompts are prefilled; the
    line goes on straight beyond the last point, or a sound engine that is overloaded would look slow.
    """
    reference, running, token_time = spec.profile.reference, figures.mean_running, figures.tbot
    if reference is None or not reference.output_tokens or running is None or ready <= 0 or not token_time:
        return None
    rate = reference_rate(spec)
    curve = [
        (
            share * rate * reference.output_tokens * latency,
            latency * (1 - _prefill(spec, share * rate * reference.input_tokens)),
        )
        for share, latency in _points(spec.profile.tbot)
    ]
    step = _along(sorted(curve), running / ready, straight_on=True)
    uncached = (figures.prompt_rate or 0.0) * (1 - (figures.hit_share or 0.0)) / ready
    return None if step is None else step / token_time + _prefill(spec, uncached)


def _prefill(spec: InferenceEngineSpec, tokens: float) -> float:
    """Part of a replica's time that prefilling so many tokens/s takes, in [0, 0.95]; 0 where its rate is unknown."""
    rate = spec.capacity.per_replica.prefill_tokens_per_second
    return 0.0 if rate is None else min(0.95, tokens / max(number(rate), 1e-9))


def expected_tbot(spec: InferenceEngineSpec, ready: float, load: float, figures: EngineFigures) -> float | None:
    """Seconds between tokens that the profile expects at the utilisation ``load`` or with as many requests running.

    The profile's points become points of concurrency by Little's law: at utilisation u a replica makes
    u x (requests/s of the reference mix) x (its output tokens) tokens a second, each taking T(u), so that many run.
    Without a reference mix, or where concurrency is unknown, only the utilisation counts.
    """
    reference = spec.profile.reference
    running = figures.mean_running
    loaded = at_utilization(spec.profile.tbot, load)
    if loaded is None or reference is None or not reference.output_tokens or running is None:
        return loaded
    tokens = reference_rate(spec) * reference.output_tokens
    curve = [(share * tokens * latency, latency) for share, latency in _points(spec.profile.tbot)]
    return max(loaded, _along(sorted(curve), running / ready) or 0.0)


def at_utilization(points: Sequence[ProfilePoint], load: float) -> float | None:
    """Latency in seconds on a declared curve: straight between its points, flat beyond them; None without points."""
    return _along(_points(points), load)


def _points(points: Sequence[ProfilePoint]) -> list[tuple[float, float]]:
    return sorted((point.utilization_percent / 100, seconds(point.latency)) for point in points)


def _along(curve: Sequence[tuple[float, float]], at: float, *, straight_on: bool = False) -> float | None:
    if not curve:
        return None
    if at <= curve[0][0]:
        return curve[0][1]
    for (left, low), (right, high) in pairwise(curve):
        if at < right:
            return low + (high - low) * (at - left) / (right - left)
    (left, low), (right, high) = curve[-2 if len(curve) > 1 else -1], curve[-1]
    slope = max(0.0, high - low) / (right - left) if straight_on and right > left else 0.0
    return high + slope * (at - right)


def _longer_prompts(spec: InferenceEngineSpec, figures: EngineFigures) -> float:
    """Seconds that this mix's prompts take longer to prefill than the profile's reference; at least 0."""
    rate, reference = spec.capacity.per_replica.prefill_tokens_per_second, spec.profile.reference
    if rate is None or reference is None or not figures.request_rate or figures.prompt_rate is None:
        return 0.0
    uncached = figures.prompt_rate / figures.request_rate * (1 - (figures.hit_share or 0.0))
    return max(0.0, uncached - reference.input_tokens) / number(rate)


def _ratio(actual: float | None, expected: float | None) -> float | None:
    return None if actual is None or expected is None or expected <= 0 else actual / expected


def reference_rate(spec: InferenceEngineSpec) -> float:
    """Requests/s of one replica for the profile's reference mix (512 in, 128 out without one), to compare engines."""
    capacity, reference = spec.capacity.per_replica, spec.profile.reference
    tokens_in, tokens_out = (512, 128) if reference is None else (reference.input_tokens, reference.output_tokens)
    work = 0.0 if capacity.requests_per_second is None else 1 / max(number(capacity.requests_per_second), 1e-9)
    tokens = 0.0
    if capacity.prefill_tokens_per_second is not None:
        tokens += tokens_in / max(number(capacity.prefill_tokens_per_second), 1e-9)
    if capacity.decode_tokens_per_second is not None:
        tokens += tokens_out / max(number(capacity.decode_tokens_per_second), 1e-9)
    work = max(work, tokens)
    return 1 / work if work > 0 else 1.0

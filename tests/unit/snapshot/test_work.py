"""Work and residence: numbers a person can check, and what happens where something isn't stated."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headrace_api.engine import PerReplica, Profile
from headrace_operator.snapshot.work import (
    engine_figures,
    reference_work_of,
    residence,
    tokens,
    usable_work,
    work_of,
)
from support.fleet import FLAT, RISING, engine, profile

BOTH_RATES = PerReplica(prefill_tokens_per_second=40000, decode_tokens_per_second=6000)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        pytest.param(PerReplica(requests_per_second="12"), 1 / 12, id="requests"),
        pytest.param(PerReplica(requests_per_second="500m"), 2.0, id="half-a-request"),
        pytest.param(BOTH_RATES, 1000 / 40000 + 200 / 6000, id="tokens"),
        pytest.param(PerReplica(prefill_tokens_per_second=40000), 1000 / 40000, id="prefill-alone"),
        pytest.param(PerReplica(decode_tokens_per_second=6000), 200 / 6000, id="decode-alone"),
        # FLAT: 100 ms to the first token and nothing after.
        pytest.param(PerReplica(max_concurrency=10), 0.1 / 10, id="concurrency"),
        pytest.param(PerReplica(kv_cache_tokens=5000), 1100 * 0.1 / 5000, id="cache"),
        pytest.param(PerReplica(requests_per_second=1000, max_concurrency=10), 0.01, id="the-largest"),
        pytest.param(PerReplica(requests_per_second=0), math.inf, id="zero"),
        pytest.param(PerReplica(prefill_tokens_per_second=0, decode_tokens_per_second=10), math.inf, id="zero-prefill"),
        pytest.param(PerReplica(), math.nan, id="nothing"),
    ],
)  # fmt: skip
def test_work_is_the_largest_of_what_is_stated(stated: PerReplica, expected: float) -> None:
    found = work_of(engine("x", per_replica=stated, shape=FLAT), 1000, 200)
    assert found == pytest.approx(expected, nan_ok=True)


def test_residence_is_read_at_85_percent_and_moves_with_the_prompt() -> None:
    """RISING at 85 %: TTFT 800 ms, TBOT 27 ms; c = 1/40000 s for each token beyond 900."""
    stated = PerReplica(prefill_tokens_per_second=40000, max_concurrency=4)
    found = work_of(engine("x", per_replica=stated, shape=RISING), 4900, 100)
    assert found == pytest.approx((0.8 + 4000 / 40000 + 100 * 0.027) / 4)


def test_a_short_prompt_never_makes_ttft_negative() -> None:
    stated = PerReplica(prefill_tokens_per_second=1000, max_concurrency=1)
    figures = engine_figures((engine("x", per_replica=stated, shape=RISING).spec,))
    first = residence(figures, np.array([[0.0]]), np.array([[0.0]]), figures.ttft_unloaded, figures.tbot_unloaded)
    assert first[0, 0] == 0.0


def test_prefix_hits_save_prefill_and_not_cache() -> None:
    stated = PerReplica(prefill_tokens_per_second=1000)
    assert work_of(engine("x", per_replica=stated, hit_share=0.25), 1000, 0) == pytest.approx(0.75)
    cache = PerReplica(kv_cache_tokens=1000)
    assert work_of(engine("x", per_replica=cache, hit_share=0.25), 1000, 0) == pytest.approx(0.1)


def test_unknown_tokens_take_the_engines_reference_mix() -> None:
    stated = PerReplica(prefill_tokens_per_second=40000, decode_tokens_per_second=6000)
    known = engine("x", per_replica=stated, shape=profile({0: 100}, mix=(500, 50)))
    assert work_of(known, 0, 0) == pytest.approx(500 / 40000 + 50 / 6000)
    assert reference_work_of(known) == work_of(known, 0, 0)
    assert work_of(engine("y", per_replica=stated), 0, 0) == pytest.approx(900 / 40000 + 220 / 6000)
    figures = engine_figures((known.spec,))
    tokens_in, tokens_out = tokens(figures, np.array([0.0, 7.0]), np.array([0.0, 0.0]))
    assert tokens_in.tolist() == [[500.0], [7.0]]
    assert tokens_out.tolist() == [[50.0], [0.0]]


def test_an_engine_without_a_profile_borrows_the_slowest_of_its_model() -> None:
    """No profile is an unknown latency, not none: it must not look faster than engines that say how slow they are."""
    none = engine("a", shape=Profile()).spec
    other = engine("b", shape=RISING, models=("other",)).spec
    fast = engine("c", shape=profile({0: 100})).spec
    slow = engine("d", shape=profile({0: 300})).spec
    figures = engine_figures((none, other, fast, slow))
    assert figures.ttft_unloaded.tolist() == pytest.approx([0.3, 0.1, 0.1, 0.3])
    alone = engine_figures((none, other))
    assert alone.ttft_unloaded.tolist() == pytest.approx([0.0, 0.1])


def test_works_outside_reason_are_no_capacity() -> None:
    values = np.array([math.nan, 0.0, -1.0, 1e-12, 1e-3, 10.0, 1e9, math.inf])
    assert usable_work(values).tolist() == [False, False, False, False, True, True, False, False]

"""Demand by prompt class: parts of one sum, never mixed over a change of edges."""

from __future__ import annotations

from math import sqrt

import pytest

from headrace_operator.loader.classes import PRIOR, ClassCounts, Expected, by_class
from headrace_operator.snapshot.signals import DemandSignal, Reading, Share

EDGES = (600, 1500)
PRIORS = (Expected(0.5, 300.0), Expected(0.25, 1000.0), Expected(0.25, 2000.0))
WHOLE = DemandSignal(
    policy="i/chat",
    frontend="fe",
    model="m",
    requests_per_second=Reading(value=40.0, deviation=2.0, age=1.0, interval=5.0),
    input_tokens=Reading(value=900.0),
    output_tokens=Reading(value=200.0),
    priorities=(Share(name="hi", share=1.0),),
)


def rates(signals: tuple[DemandSignal, ...]) -> list[float]:
    return [signal.requests_per_second.value for signal in signals]


def test_with_nothing_counted_the_histogram_speaks() -> None:
    found = by_class(WHOLE, {}, PRIORS, EDGES)
    assert [signal.prompt_class for signal in found] == [0, 1, 2]
    assert rates(found) == [20, 10, 10]
    assert [signal.input_tokens and signal.input_tokens.value for signal in found] == [300, 1000, 2000]
    assert [signal.output_tokens and signal.output_tokens.value for signal in found] == [200, 200, 200]
    first = found[0].requests_per_second
    assert (first.deviation, first.age, first.interval) == (2 * sqrt(0.5), 1, 5)
    assert all(signal.priorities == WHOLE.priorities for signal in found)


def test_the_histograms_lengths_are_scaled_to_the_measured_mean() -> None:
    whole = DemandSignal(
        policy="p", frontend="f", model="m", requests_per_second=Reading(value=1.0), input_tokens=Reading(value=450.0)
    )
    found = by_class(whole, {}, PRIORS, EDGES)
    assert [signal.input_tokens and signal.input_tokens.value for signal in found] == [150, 500, 1000]
    assert [signal.output_tokens for signal in found] == [None, None, None]


def test_what_was_counted_outweighs_it() -> None:
    many = 1e6
    counted = {
        "0-600": ClassCounts(many, many, 250 * many, 100 * many),
        "600-1500": ClassCounts(2 * many, many, 900 * many, 200 * many),
        "1500-": ClassCounts(many, many, 4000 * many, 400 * many),
    }
    found = by_class(WHOLE, counted, PRIORS, EDGES)
    assert rates(found) == pytest.approx([10, 20, 10], rel=1e-3)
    assert [signal.input_tokens and signal.input_tokens.value for signal in found] == pytest.approx(
        [250, 900, 4000], rel=1e-3
    )
    assert [signal.output_tokens and signal.output_tokens.value for signal in found] == pytest.approx(
        [100, 200, 400], rel=1e-3
    )


def test_few_requests_move_it_little() -> None:
    found = by_class(WHOLE, {"1500-": ClassCounts(PRIOR, PRIOR, 0.0, 0.0)}, PRIORS, EDGES)
    assert rates(found) == [10, 5, 25]


def test_what_was_counted_under_other_edges_counts_for_nothing() -> None:
    """The counter of class k means something else after the edges moved: its label says between which it counted."""
    old = {"0": ClassCounts(1e6), "0-300": ClassCounts(1e6), "300-1500": ClassCounts(1e6), "2000-": ClassCounts(1e6)}
    assert by_class(WHOLE, old, PRIORS, EDGES) == by_class(WHOLE, {}, PRIORS, EDGES)


@pytest.mark.parametrize("counted", [{}, {"0-600": ClassCounts(7.0, 3.0, 500.0, 100.0)}])
def test_the_sum_is_held(counted: dict[str, ClassCounts]) -> None:
    found = by_class(WHOLE, counted, PRIORS, EDGES)
    assert sum(rates(found)) == pytest.approx(40.0)
    assert sum(signal.requests_per_second.deviation**2 for signal in found) == pytest.approx(4.0)


def test_without_known_tokens_they_stay_unknown() -> None:
    whole = DemandSignal(policy="p", frontend="f", model="m", requests_per_second=Reading(value=1.0))
    empty = tuple(Expected(1 / 3, 0.0) for _ in range(3))
    assert [signal.input_tokens for signal in by_class(whole, {}, empty, EDGES)] == [None, None, None]

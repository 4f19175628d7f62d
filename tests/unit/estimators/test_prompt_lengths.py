"""Prompt classes: edges at terciles, readable, and still."""

from __future__ import annotations

import math

import pytest

from headrace_operator.estimators.prompt_lengths import MEMORY, MIN_SECONDS, Edges, Lengths, choose, classes_of

INF = math.inf
EVEN = {100.0: 200.0, 300.0: 200.0, 600.0: 200.0, 1000.0: 200.0, 1500.0: 200.0, INF: 200.0}


def lengths(counts: dict[float, float], at: float = 0.0) -> Lengths:
    return Lengths().add(at, counts)


def test_edges_at_the_terciles() -> None:
    assert choose(Edges(), 7.0, lengths(EVEN)) == Edges((300, 1000), 7.0)


def test_one_class_until_a_thousand_lengths_were_seen() -> None:
    few = {bound: count * 0.8 for bound, count in EVEN.items()}
    assert choose(Edges(), 1.0, lengths(few)) == Edges()
    assert choose(Edges(), 2.0, lengths(few).add(1.0, few)).values == (300, 1000)


def test_lengths_of_long_ago_choose_nothing() -> None:
    late = lengths(EVEN).add(5 * MEMORY, {300.0: 1.0})
    assert late.seen == 1201
    assert choose(Edges(), 5 * MEMORY, late) == Edges()


@pytest.mark.parametrize(
    "counts",
    [
        pytest.param({600.0: 5000.0, INF: 10.0}, id="all alike"),
        pytest.param({INF: 5000.0}, id="all beyond the last bound"),
        pytest.param({100.0: 4000.0, 200.0: 100.0, 300.0: 4000.0, INF: 100.0}, id="two heaps"),
    ],
)
def test_no_classes_where_no_edge_tells_lengths_apart(counts: dict[float, float]) -> None:
    assert choose(Edges(), 1.0, lengths(counts)) == Edges()


def test_edges_stay_while_they_are_of_use() -> None:
    """A changed edge changes every table: the mix may wander a good way first."""
    current = Edges((300, 1000), 0.0)
    wandered = lengths(EVEN | {1500.0: 600.0})
    assert choose(current, 2 * MIN_SECONDS, wandered) is current
    other = lengths({bound * 4: count for bound, count in EVEN.items()})
    assert choose(current, MIN_SECONDS - 1, other) is current
    assert choose(current, MIN_SECONDS, other) == Edges((1200, 4000), MIN_SECONDS)


def test_edges_stay_where_no_better_ones_are_known() -> None:
    current = Edges((300, 1000), 0.0)
    assert choose(current, MIN_SECONDS, lengths({600.0: 5000.0})) is current


def test_the_past_fades_and_late_samples_change_nothing() -> None:
    seen = lengths({100.0: 10.0}).add(MEMORY, {200.0: 1.0})
    assert seen.counts == {100.0: pytest.approx(10 / math.e), 200.0: 1.0}
    assert seen.seen == 11
    assert seen.add(MEMORY, {200.0: 1.0}) is seen
    assert seen.add(math.nan, {200.0: 1.0}) is seen


def test_count_and_mean_of_classes() -> None:
    assert classes_of({100.0: 2.0, 300.0: 1.0, 1000.0: 4.0, INF: 1.0}, (300, 1000)) == (
        (3.0, pytest.approx(100.0)),
        (4.0, 650.0),
        (1.0, 1500.0),
    )
    assert classes_of({}, (300, 1000)) == ((0, 150), (0, 650), (0, 1500))
    assert classes_of({100.0: 2.0}, ()) == ((2.0, 50.0),)

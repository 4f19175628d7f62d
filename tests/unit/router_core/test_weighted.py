"""Turns by weight: even, exact over time, kept over a swap."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from headrace_router.core.weighted import Turns, succeed


def taken(turns: Turns, count: int) -> list[str]:
    return [turns.ids[turns.next()] for _ in range(count)]


@pytest.mark.parametrize("phase", [0.0, 0.37, 0.99])
@pytest.mark.parametrize(
    "weights",
    [(5000, 3000, 2000), (9000, 1000), (3333, 3333, 3334), (4, 9996), (1, 2)],
    ids=str,
)
def test_shares_are_exact_to_a_turn(weights: tuple[int, ...], phase: float) -> None:
    """WEI-01: also 0.0004 of all gets its 4 of 10,000. https://github.com/hashicorp/consul/pull/16531"""
    ids = tuple("abc"[: len(weights)])
    counted = Counter(taken(Turns(ids, tuple(map(float, weights)), phase), 10_000))
    for name, weight in zip(ids, weights, strict=True):
        assert abs(counted[name] - 10_000 * weight / sum(weights)) <= 2


def test_turns_are_evenly_spread() -> None:
    turns = taken(Turns(("a", "b"), (9.0, 1.0)), 1000)
    places = [index for index, name in enumerate(turns) if name == "b"]
    gaps = {after - before for before, after in pairwise(places)}
    assert gaps <= {9, 10, 11}


def test_equal_engines_go_round() -> None:
    turns = Turns(tuple("abcd"), (1.0,) * 4)
    assert set(taken(turns, 4)) == set(taken(turns, 4)) == set("abcd")


def test_processes_start_at_different_places() -> None:
    starts = {taken(Turns(tuple("abcd"), (1.0,) * 4, phase / 20), 1)[0] for phase in range(20)}
    assert starts == set("abcd")


def test_credits_are_kept_over_a_swap() -> None:
    """A rare engine gets its turns although tables change far more often than it is chosen."""
    turns = Turns(("a", "b"), (99.0, 1.0))
    counted: Counter[str] = Counter()
    for table in range(500):
        counted.update(taken(turns, 5))
        turns = succeed(("a", "b"), (99.0, 1.0 + table % 2), 0.0, turns)
    assert counted["b"] == pytest.approx(2500 * 1.5 / 100.5, abs=4)


def test_unchanged_weights_keep_the_turns_themselves() -> None:
    turns = Turns(("a", "b"), (2.0, 1.0))
    assert succeed(("a", "b"), (2.0, 1.0), 0.0, turns) is turns
    assert succeed(("a", "b"), (2.0, 1.0), 0.0, None) is not turns


def test_tables_without_traffic_build_no_chain() -> None:
    first = Turns(("a", "b"), (2.0, 1.0))
    first.next()
    last = first
    for weight in range(3, 50):
        last = succeed(("a", "b"), (float(weight), 1.0), 0.0, last)
    assert last.lineage() is first
    last.next()
    assert last.lineage() is last


def test_a_newcomer_joins_and_a_leaver_is_forgotten() -> None:
    turns = Turns(("a", "b"), (1.0, 1.0))
    taken(turns, 3)
    after = succeed(("a", "c"), (1.0, 1.0), 0.0, turns)
    assert Counter(taken(after, 100))["c"] == pytest.approx(50, abs=2)


def test_looking_ahead_takes_no_turn() -> None:
    turns = Turns(tuple("abc"), (3.0, 2.0, 1.0))
    ahead = turns.near(3)
    assert ahead[0] == turns.near(1)[0] == turns.next()
    assert sorted(ahead) == [0, 1, 2]


def test_whoever_takes_the_request_is_found_behind_any_weight() -> None:
    turns = Turns(("a", "b", "c"), (9998.0, 1.0, 1.0))
    found = Counter(turns.ids[turns.find(lambda index: index != 0)] for _ in range(100))
    assert found == {"b": 50, "c": 50}
    assert turns.find(lambda _: False) == -1


@pytest.mark.parametrize("weights", [(9.0, 1.0, 2.0), (999.0, 1.0, 1.0)], ids=str)
def test_turns_of_those_who_could_not_serve_are_lost_and_the_others_owe_nothing(weights: tuple[float, ...]) -> None:
    """After an outage of the heavy engine shares are the weights again at once: no backlog, no debt."""
    turns = Turns(("a", "b", "c"), weights)
    taken(turns, 7)
    for _ in range(500):
        turns.find(lambda index: index != 0)
    counted = Counter(taken(turns, 5000))
    for name, weight in zip("abc", weights, strict=True):
        assert abs(counted[name] - 5000 * weight / sum(weights)) <= 3


def test_finding_is_the_same_as_taking_turns_one_by_one() -> None:
    quick, slow = Turns(("a", "b", "c"), (400.0, 1.0, 2.0)), Turns(("a", "b", "c"), (400.0, 1.0, 2.0))
    for _ in range(50):
        found = quick.find(lambda index: index > 0)
        index = slow.next()
        while index == 0:
            index = slow.next()
        assert found == index
    assert [quick.next() for _ in range(900)] == [slow.next() for _ in range(900)]

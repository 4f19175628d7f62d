"""The workload: real traces read whole, rates exact, conversations kept together, prefixes kept, nothing by chance."""

from __future__ import annotations

from itertools import islice

import pytest

from headrace_lab.workload import traces
from headrace_lab.workload.arrivals import Rate, operational_times, rescaled
from headrace_lab.workload.frontends import FRONTENDS, FrontendShare
from headrace_lab.workload.requests import Request, Surge, WorkloadSpec, build, home, rates
from headrace_lab.workload.traces import Arrival, TraceError, Turn

TURNS = traces.read_conversations(traces.packaged(traces.CONVERSATIONS_FILE))
ARRIVALS = traces.read_arrivals(traces.packaged(traces.ARRIVALS_FILE))
SURGE = Surge("fe-ap-southeast", start=100, end=200, factor=1.5)


def test_the_cut_traces_are_the_real_ones() -> None:
    assert len(TURNS) == 1500
    assert TURNS[0].hash_ids[:3] == (0, 1, 2)
    assert {turn.hash_ids[0] for turn in TURNS} == {0}
    assert len(ARRIVALS) == 3000
    assert ARRIVALS[0].at == 0
    assert 4.9 < 3000 / ARRIVALS[-1].at < 5.3


def test_conversations_keep_shared_prefixes_beyond_the_common_block() -> None:
    seen: set[int] = set()
    shared = 0
    for turn in TURNS:
        shared += len(turn.hash_ids) > 1 and turn.hash_ids[1] in seen
        seen.update(turn.hash_ids[1:2])
    assert shared > 300


@pytest.mark.parametrize(
    ("text", "word"),
    [
        pytest.param("", "empty", id="empty"),
        pytest.param('{"timestamp": 0}', "line 1", id="missing-field"),
        pytest.param("not json", "line 1", id="no-json"),
        pytest.param(
            '{"timestamp": 0, "input_length": -5, "output_length": 1, "hash_ids": [1]}', "input_length", id="negative"
        ),
        pytest.param('{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": []}', "hash_ids", id="none"),
        pytest.param('{"timestamp": 0, "input_length": NaN, "output_length": 1, "hash_ids": [1]}', "line 1", id="nan"),
    ],
)
def test_a_bad_conversation_line_is_named(text: str, word: str) -> None:
    with pytest.raises(TraceError, match=word):
        traces.read_conversations(text)


HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROW = "2023-11-16 18:15:46.6805900,374,44\n"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        pytest.param(HEADER, "fewer than two", id="empty"),
        pytest.param(HEADER + ROW + ROW, "fewer than two different", id="one-instant"),
        pytest.param(HEADER + ROW + "yesterday,374,44\n", "line 3", id="no-time"),
        pytest.param(HEADER + ROW + "2023-11-16 18:15:47.0,374,\n", "line 3", id="no-tokens"),
        pytest.param(HEADER + ROW + "2023-11-16 18:15:47.0,374,-4\n", "GeneratedTokens is -4", id="negative"),
        pytest.param("WHEN,HOW\n1,2\n", "line 2", id="other-columns"),
        pytest.param(HEADER + ROW + "2023-11-16 18:15:47.0\n", "line 3", id="cut-line"),
    ],
)
def test_a_bad_arrival_line_is_named(text: str, word: str) -> None:
    with pytest.raises(TraceError, match=word):
        traces.read_arrivals(text)


def test_arrivals_are_sorted_and_count_from_the_first() -> None:
    late, early = "2023-11-16 18:15:48.6805900,1,2\n", "2023-11-16 18:15:47.1805900,1,0\n"
    assert traces.read_arrivals(HEADER + late + early) == (Arrival(0.0, 1), Arrival(1.5, 2))


def test_round_trips_are_seconds_by_direction() -> None:
    trips = traces.read_round_trips(traces.packaged(traces.ROUND_TRIPS_FILE))
    assert trips["eastus", "westeurope"] == 0.083
    assert trips["westeurope", "eastus"] == 0.085
    assert ("eastus", "eastus") not in trips
    assert len(trips) == 30


@pytest.mark.parametrize("cell", ["", "-1", "NaN", "far"])
def test_a_bad_round_trip_is_named(cell: str) -> None:
    with pytest.raises(TraceError, match="A to B"):
        traces.read_round_trips(f"Source,A,B\nA,,{cell}\nB,1,\n")


def test_operational_time_goes_on_around_the_trace() -> None:
    arrivals = (Arrival(0, 1), Arrival(1, 2), Arrival(4, 3))  # mean gap 2
    times = list(islice(operational_times(arrivals, 1), 7))
    assert times == [(0, 2), (1.5, 3), (2.5, 1), (3.0, 2), (4.5, 3), (5.5, 1), (6.0, 2)]


def test_rescaling_meets_the_rates_exactly() -> None:
    unit = ((float(k), 1) for k in range(1000))
    times = [at for at, _ in rescaled(unit, [Rate(0, 2.0), Rate(10, 3.0), Rate(20, 2.0)], 30)]
    assert [sum(low <= at < low + 10 for at in times) for low in (0, 10, 20)] == [20, 30, 20]
    assert times == sorted(times)


def test_rescaling_stops_at_the_end_even_before_a_rate_begins() -> None:
    unit = ((float(k), 1) for k in range(1000))
    times = [at for at, _ in rescaled(unit, [Rate(0, 2.0), Rate(10, 3.0)], 5)]
    assert times == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5]


@pytest.fixture(scope="module")
def surged() -> tuple[Request, ...]:
    return build(WorkloadSpec(duration=300, per_second=30, surges=(SURGE,)), TURNS, ARRIVALS)


def test_requests_come_in_order_at_the_wanted_rates(surged: tuple[Request, ...]) -> None:
    assert [r.at for r in surged] == sorted(r.at for r in surged)
    assert 0 <= surged[0].at < surged[-1].at < 300
    total = sum(frontend.share for frontend in FRONTENDS)
    for frontend in FRONTENDS:
        own = [r for r in surged if r.frontend == frontend.name]
        extra = 50 if frontend.name == SURGE.frontend else 0
        wanted = 30 * frontend.share / total * (300 + extra)
        assert len(own) == pytest.approx(wanted, rel=0.12)


def test_a_surge_is_of_one_frontend_alone(surged: tuple[Request, ...]) -> None:
    calm = build(WorkloadSpec(duration=300, per_second=30), TURNS, ARRIVALS)
    for frontend in ("fe-us-east", "fe-eu-west"):
        assert [r for r in surged if r.frontend == frontend] == [r for r in calm if r.frontend == frontend]
    more = [sum(SURGE.start <= r.at < SURGE.end for r in run if r.frontend == SURGE.frontend) for run in (surged, calm)]
    assert more[0] == pytest.approx(1.5 * more[1], rel=0.1)


def test_the_same_spec_gives_the_same_requests(surged: tuple[Request, ...]) -> None:
    assert build(WorkloadSpec(duration=300, per_second=30, surges=(SURGE,)), TURNS, ARRIVALS) == surged


def test_a_conversation_stays_at_one_frontend_with_one_priority(surged: tuple[Request, ...]) -> None:
    homes: dict[str, set[tuple[str, str]]] = {}
    for request in surged:
        homes.setdefault(request.session, set()).add((request.frontend, request.priority))
    assert {len(seen) for seen in homes.values()} == {1}
    assert {request.priority for request in surged} == {"interactive", "batch"}


def test_repeated_conversations_are_new_ones_but_for_the_shared_block(surged: tuple[Request, ...]) -> None:
    first = {block for r in surged if r.session.startswith("0-") for block in r.blocks}
    again = {block for r in surged if not r.session.startswith("0-") for block in r.blocks}
    assert again
    assert first & again == {0}


def test_lengths_are_divided_by_the_stated_factor() -> None:
    whole = build(WorkloadSpec(duration=20, per_second=30, length_divisor=1), TURNS, ARRIVALS)
    eighth = build(WorkloadSpec(duration=20, per_second=30, length_divisor=8), TURNS, ARRIVALS)
    for long, short in zip(whole, eighth, strict=True):
        assert short.input_tokens == max(1, long.input_tokens // 8)
        assert short.output_tokens == max(1, long.output_tokens // 8)
        assert short.blocks == long.blocks
        assert short.input_tokens <= len(short.blocks) * 64


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        pytest.param(WorkloadSpec(duration=0, per_second=1), "duration: 0", id="no-time"),
        pytest.param(WorkloadSpec(duration=float("nan"), per_second=1), "duration: nan", id="nan-time"),
        pytest.param(WorkloadSpec(duration=1, per_second=float("inf")), "rate: inf", id="endless-rate"),
        pytest.param(WorkloadSpec(duration=1, per_second=1, length_divisor=3), "length-divisor: 3", id="divisor"),
        pytest.param(WorkloadSpec(1, 1, surges=(Surge("a", 5, 2, 1.5),)), "surge of a", id="surge-backwards"),
        pytest.param(WorkloadSpec(1, 1, surges=(Surge("a", 0, 2, float("nan")),)), "surge of a", id="surge-nan"),
    ],
)
def test_a_meaningless_spec_is_refused(spec: WorkloadSpec, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        build(spec, TURNS, ARRIVALS)


def test_a_frontend_without_conversations_is_refused() -> None:
    crowd = (FrontendShare("a", "x", 1), FrontendShare("b", "y", 1e-9))
    with pytest.raises(ValueError, match="front-end b"):
        build(WorkloadSpec(10, 1, frontends=crowd), TURNS, ARRIVALS)


def test_overlapping_surges_multiply() -> None:
    spec = WorkloadSpec(
        100, 10, surges=(Surge("a", 10, 30, 2), Surge("a", 20, 40, 3)), frontends=(FrontendShare("a", "x", 1),)
    )
    assert rates(spec, spec.frontends[0]) == [Rate(0, 10), Rate(10, 20), Rate(20, 60), Rate(30, 30), Rate(40, 10)]


def test_homes_follow_the_shares() -> None:
    shares = (FrontendShare("a", "x", 3), FrontendShare("b", "y", 1))
    homes = [home(session, shares) for session in range(4000)]
    assert homes.count("a") == pytest.approx(3000, abs=120)


def test_a_turn_of_one_block_has_a_session_of_its_own() -> None:
    assert Turn(0, 300, 5, (0,)).session < 0

"""The demo's story: its script, what it declares, what moved and why, and when a fault was corrected."""

from __future__ import annotations

import json

import pytest

from headrace_api.units import number, seconds
from headrace_lab.demo import manifests
from headrace_lab.demo.changes import changes, moves
from headrace_lab.demo.corrections import correction_time, engine_share, weights_at
from headrace_lab.demo.fleet import ENGINES, SAME_REGION, fleet_spec, round_trip
from headrace_lab.demo.observe import Publication, untimed
from headrace_lab.demo.script import SURGE_FACTOR, WARM_UP, Fault, script
from headrace_lab.engine.fleet import parse_spec
from headrace_lab.workload import traces
from headrace_lab.workload.frontends import FRONTENDS
from headrace_lab.workload.requests import WorkloadSpec, build
from headrace_operator.decision.status.audit import history_line

TRIPS = traces.read_round_trips(traces.packaged(traces.ROUND_TRIPS_FILE))
SHARES = {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize("duration", [10, 60, 3600])
def test_the_script_fills_the_run_without_gaps(duration: float) -> None:
    story = script(duration)
    assert story.phases[0].start == 0
    assert story.phases[-1].end == duration
    for left, right in zip(story.phases, story.phases[1:], strict=False):
        assert left.end == right.start
        assert left.start < left.end
    assert [fault.kind for fault in story.faults] == ["surge", "slow", "killed", "restored"]
    assert all(fault.at < fault.until <= duration for fault in story.faults)
    assert story.phase(-1).name == WARM_UP
    assert all(fault.at > story.phases[0].end for fault in story.faults)
    assert story.phase(duration + 5).name == "restored"


@pytest.mark.parametrize("duration", [0, 9.9, 3601, float("nan"), float("inf")])
def test_a_run_of_no_useful_length_is_refused(duration: float) -> None:
    with pytest.raises(ValueError, match="right would be 10 to 3600"):
        script(duration)


def test_the_script_names_things_that_exist() -> None:
    names = {site.name for site in ENGINES} | {frontend.name for frontend in FRONTENDS}
    story = script(60)
    assert {fault.target for fault in story.faults} <= names
    assert [(surge.frontend, surge.factor) for surge in story.surges] == [(story.faults[0].target, SURGE_FACTOR)]


def test_the_world_has_three_kinds_of_hardware_in_four_regions_or_more() -> None:
    assert len({site.hardware.partition("x")[0] for site in ENGINES}) >= 3
    assert len({site.region for site in ENGINES}) >= 4


def test_round_trips_are_the_mean_of_both_directions() -> None:
    assert round_trip(TRIPS, "eastus", "westeurope") == pytest.approx(0.084)
    assert round_trip(TRIPS, "eastus", "eastus") == SAME_REGION


def test_the_engines_take_the_fleet_spec() -> None:
    spec = parse_spec(json.dumps(fleet_spec(TRIPS, 128)).encode(), "spec")
    assert [engine.name for engine in spec.engines] == [site.name for site in ENGINES]
    assert set(spec.round_trips) == {frontend.name for frontend in FRONTENDS}


def test_the_policy_declares_the_planned_demand_and_every_pair_of_regions() -> None:
    spec = WorkloadSpec(20, 24)
    requests = build(
        spec,
        traces.read_conversations(traces.packaged(traces.CONVERSATIONS_FILE)),
        traces.read_arrivals(traces.packaged(traces.ARRIVALS_FILE)),
    )
    policy = manifests.policy(spec, requests, TRIPS)["spec"]
    rates = [number(frontend["demand"]["requestsPerSecond"]) for frontend in policy["frontends"]]
    assert sum(rates) == pytest.approx(24, abs=0.01)
    assert 1000 < policy["frontends"][0]["demand"]["inputTokens"] < 10_000
    regions = {frontend.region for frontend in FRONTENDS} | {site.region for site in ENGINES}
    pairs = {frozenset((trip["from"], trip["to"])) for trip in policy["network"]["roundTrip"]}
    assert len(pairs) == len(regions) * (len(regions) - 1) // 2
    assert all(0 < seconds(trip["latency"]) < 1 for trip in policy["network"]["roundTrip"])


def test_moves_name_the_largest_first_and_leave_out_trifles() -> None:
    before = {"a": {"x": 0.5, "y": 0.5}, "b": {"x": 1.0}}
    after = {"a": {"x": 0.495, "y": 0.505}, "b": {"x": 0.6, "z": 0.4}}
    assert moves(before, after) == ("b: x 100 -> 60 %", "b: z 0 -> 40 %")


def publication(at: float, frontend: str, revision: int, **weights: float) -> Publication:
    return Publication(at, frontend, 1, revision, weights, {})


STORY = [
    publication(-1, "a", 1, x=0.5, y=0.5),
    publication(-1, "b", 1, x=0.5, y=0.5),
    publication(12, "a", 2, x=0.3, y=0.7),
    publication(14, "a", 3, x=0.1, y=0.9),
    publication(14, "b", 3, x=0.1, y=0.9),
    publication(30, "a", 4, x=0.0, y=1.0),
    publication(30, "b", 4, x=0.0, y=1.0),
]


def test_weights_at_an_instant_are_the_last_published() -> None:
    assert weights_at(STORY, 13) == {"a": {"x": 0.3, "y": 0.7}, "b": {"x": 0.5, "y": 0.5}}
    assert weights_at(STORY, -5) == {}


def test_a_slow_engine_is_corrected_when_three_quarters_of_the_way_are_gone() -> None:
    fault = Fault("slow", "x", 10, 20, "")
    assert engine_share(weights_at(STORY, 20), "x", SHARES) == pytest.approx(0.1)
    assert correction_time(STORY, fault, SHARES) == 4


def test_a_surge_is_judged_by_its_own_frontend_alone() -> None:
    calm = [*STORY[:2], publication(12, "b", 2, x=0.0, y=1.0), publication(13, "a", 3, x=0.2, y=0.8)]
    assert correction_time(calm, Fault("surge", "a", 10, 20, ""), SHARES) == 3


def test_no_reaction_is_no_correction() -> None:
    assert correction_time(STORY[:2], Fault("killed", "x", 10, 20, ""), SHARES) is None
    assert correction_time(STORY, Fault("killed", "z", 10, 20, ""), SHARES) is None
    late = [*STORY[:2], publication(21, "a", 2, x=0.0, y=1.0)]
    assert correction_time(late, Fault("killed", "x", 10, 20, ""), SHARES) is None


def test_changes_join_history_with_its_tables() -> None:
    causes = (("prompt classes", 80), ("health", 20))
    history = {
        untimed(history_line("2026-11-29T12:00:14Z", 3, causes, ["a: x 30 % -> 10 %"])): 15.0,
        untimed(history_line("2026-11-29T12:00:12Z", 2, (("settling", 100),), [])): 15.0,
    }
    joined = changes(history, STORY)
    assert [change.revision for change in joined] == [2, 3]
    assert [change.at for change in joined] == [12, 14]
    assert joined[1].causes == (("prompt classes", 80.0), ("health", 20.0))
    assert joined[0].causes == (("settling", 100.0),)
    assert joined[0].moves == ("a: x 50 -> 30 %", "a: y 50 -> 70 %")
    assert len(joined[1].moves) == 4


def test_a_line_of_history_that_says_nothing_known_is_kept_as_it_is() -> None:
    (change,) = changes({"something happened": 3.0}, STORY)
    assert (change.at, change.revision, change.causes, change.moves) == (3.0, -1, (), ())

"""History names who edited what, beside the causes that the edit can have had, and beside nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_api.policy import RoutingPolicy
from support.operator_ticks import FAR, SLOW, TARGET, Ticks, offered, one, quiet, three
from support.world import engine, policy

EDIT = {"metadata": {"editor": "kubectl edit"}}
ARGO = "Argo CD at 3f2a91c"
FLAT = {"ttft": [{"utilizationPercent": 0, "latency": "10ms"}]}


def edited(rps: int = 20, **more: Any) -> list[Any]:
    """The three engines, a of them edited by Argo CD."""
    spec = {"profile": FLAT} | more
    return [engine("a", rps, region="r1", metadata={"editor": ARGO}, **spec), *three()[1:]]


def near(latency: str, **more: Any) -> RoutingPolicy:
    trips = [FAR["roundTrip"][0] | {"latency": latency}, FAR["roundTrip"][1]]
    return policy(network={"roundTrip": trips}, objective=TARGET, **more)


def cause(ticks: Ticks) -> str:
    """The part of the newest line between revision and changes."""
    return ticks.statuses["ns/p"].history[0].split(": ", 1)[1].split(";")[0]


def test_the_first_weights_name_who_applied_the_policy() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one(metadata={"editor": "kubectl apply"})])
    assert cause(ticks) == "first weights (p by kubectl apply)"


@pytest.mark.parametrize(
    ("engines", "rule", "told"),
    [
        (three(), near("1s", **EDIT), "network 100 % (p by kubectl edit)"),
        (three(), near("40ms", strategy={"type": "RoundRobin"}, **EDIT), "policy 100 % (p by kubectl edit)"),
        (three(), near("40ms", strategy={"type": "RoundRobin"}), "policy 100 %"),
        (edited(rps=25), near("40ms"), f"capacity 100 % (a by {ARGO})"),
        (edited(state="Disabled"), near("40ms"), f"policy 100 % (a by {ARGO})"),
        (edited(profile=SLOW), near("40ms"), f"profiles 100 % (a by {ARGO})"),
        (three()[:1] + three()[2:], near("40ms"), "policy 100 %"),
    ],
    ids=["round-trip", "strategy", "editor-unknown", "capacity", "state", "profile", "engine-deleted"],
)
def test_an_edit_that_is_a_cause_names_its_editor(engines: list[Any], rule: RoutingPolicy, told: str) -> None:
    ticks = Ticks()
    ticks.tick(three(), [near("40ms")], offered(30))
    ticks.tick(engines, [rule], offered(30))
    assert cause(ticks) == told


def test_declared_demand_is_an_edit_and_measured_demand_is_none() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one(**EDIT)], offered(15))
    ticks.tick(three(), [one(**EDIT)], offered(35))
    assert cause(ticks) == "demand 100 %"
    more = [{"name": "fe", "location": {"region": "r1"}, "demand": {"requestsPerSecond": rps}} for rps in (10, 35)]
    ticks = Ticks()
    ticks.tick(three(), [one(frontends=more[:1])])
    ticks.tick(three(), [one(frontends=more[1:], **EDIT)])
    assert cause(ticks) == "demand 100 % (p by kubectl edit)"


def test_an_edit_long_ago_is_not_blamed_for_what_demand_does_now() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()], offered(15))
    assert ticks.tick(three(), [one(queue={"max": 7}, **EDIT)], offered(15)).history == ()
    ticks.tick(three(), [one(queue={"max": 7}, **EDIT)], offered(35))
    assert cause(ticks) == "demand 100 %"


def test_an_editor_alone_is_no_news() -> None:
    """Argo CD that takes over from kubectl without a change of spec moves nothing and writes nothing."""
    ticks = Ticks()
    ticks.tick(three(), [one(metadata={"editor": "kubectl apply"})], offered(15))
    assert quiet(ticks.tick(three(), [one(metadata={"editor": ARGO})], offered(15)))


def test_a_drain_by_annotation_and_its_end_are_named_in_history() -> None:
    ticks = Ticks()
    until = {"annotations": {"headrace.dev/drain-until": "2026-11-29T12:30:00Z"}, "editor": "kubectl apply"}
    drained = [engine("a", 20, region="r1", profile=FLAT, metadata=until), *three()[1:]]
    ticks.tick(three(), [one()], offered(15))
    ticks.tick(drained, [one()], offered(15))
    assert cause(ticks) == "policy 100 % (a drained)"
    ticks.tick(three(), [one()], offered(15))
    assert cause(ticks) == "policy 100 % (a resumed)"


def test_many_editors_leave_room_for_the_changes() -> None:
    ticks = Ticks()
    names = [f"engine-with-a-long-name-{number:02}" for number in range(12)]
    ticks.tick([engine("a"), *[engine(name, state="Disabled") for name in names]], [policy()], offered(30))
    editor = "some-tool-of-theirs-with-a-name-as-long-as"
    more = [engine(name, metadata={"editor": editor}) for name in names]
    ticks.tick([engine("a", 1), *more], [policy()], offered(30))
    line = ticks.statuses["ns/p"].history[0]
    assert len(line) <= 240
    assert f"({names[0]} by {editor} and 11 others)" in line
    assert "; fe: a 100 % -> " in line


def test_an_edit_that_takes_an_engine_out_of_the_selection_is_named() -> None:
    ticks = Ticks()
    selector = {"matchLabels": {"tier": "prod"}}

    def fleet(tier: str) -> list[Any]:
        metadata = {"labels": {"tier": tier}, "editor": "kubectl label"}
        rest = [engine(name, 20, region="r2", metadata={"labels": {"tier": "prod"}}) for name in "bc"]
        return [engine("a", 20, region="r1", profile=FLAT, metadata=metadata), *rest]

    ticks.tick(fleet("prod"), [one(engineSelector=selector)], offered(15))
    ticks.tick(fleet("test"), [one(engineSelector=selector)], offered(15))
    assert cause(ticks) == "policy 100 % (a by kubectl label)"

"""Parts of a decision on their own: conditions that stay, lines that are bounded, effects of what-ifs, warm models."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace_api.status import Condition
from headrace_api.table import RoutingTable
from headrace_operator.decision import warm
from headrace_operator.decision.losses import emptied_by_edit
from headrace_operator.decision.status.audit import history_line
from headrace_operator.decision.status.changes import change_lines, weight_lines
from headrace_operator.decision.status.conditions import Finding, merged, reason_of, status_of
from headrace_operator.decision.tables.build import build_table, view_of
from headrace_operator.decision.tables.carry import with_lost_models
from headrace_operator.decision.tables.slack import held_slack, slack_of
from headrace_operator.decision.why.attribution import PutBack, attribute, shares_of
from headrace_operator.decision.why.book import open_book
from headrace_operator.decision.why.expected import Expected
from headrace_operator.decision.why.what_if import effect, outcome, with_demand, with_replicas
from headrace_operator.snapshot.model import Snapshot
from headrace_operator.strategies.optimized import optimized
from headrace_operator.strategies.run import run_strategies
from support.operator_ticks import Ticks
from support.world import classic, engine, frontend, policy, snapshot

SINCE = "2026-01-01T00:00:00Z"
SAID = "3 tables in force"
READY = Finding("Ready", "True", "Published", "3 tables in force")


def condition(name: str = "Ready", status: Any = "True", reason: str = "Published", generation: int = 1) -> Condition:
    return Condition(
        type=name,
        status=status,
        reason=reason,
        message="as it was",
        last_transition_time="2026-01-01T00:00:00Z",
        observed_generation=generation,
    )


@pytest.mark.parametrize(
    ("old", "finding", "message", "since"),
    [
        pytest.param([], READY, SAID, "now", id="new"),
        pytest.param([condition()], READY, "as it was", SINCE, id="still so: word for word"),
        pytest.param([condition(generation=0)], READY, SAID, SINCE, id="still so after an edit"),
        pytest.param([condition(reason="Frozen")], READY, SAID, SINCE, id="another reason"),
        pytest.param([condition(status="False")], READY, SAID, "now", id="flipped"),
    ],
)
def test_a_condition_changes_when_it_flips(old: list[Condition], finding: Finding, message: str, since: str) -> None:
    """Case STS-01: lastTransitionTime is the last change of status."""
    (found,) = merged(old, [finding], generation=1, at="now")
    assert (found.message, found.last_transition_time, found.observed_generation) == (message, since, 1)


def test_conditions_of_others_stay_and_ours_go_when_not_found() -> None:
    old = [condition("Somebodys"), condition("Stalled"), condition("Solved")]
    found = merged(old, [READY], kept=("Solved",), generation=2, at="now")
    assert [entry.type for entry in found] == ["Ready", "Solved", "Somebodys"]
    assert [entry.observed_generation for entry in found] == [2, 2, 1]
    assert (status_of(found, "Ready"), status_of(found, "Stalled")) == ("True", "Unknown")
    assert (reason_of(found, "Ready"), reason_of(found, "Stalled")) == ("Published", "")


def tables(world: Snapshot) -> list[RoutingTable]:
    (result,) = run_strategies(world)
    (state,) = world.policies
    views = [view_of(world, state, front, result.solution) for front in state.spec.frontends]
    found = [build_table(view, held_slack(None, slack_of(view))) for view in views]
    return [table for table in found if table is not None]


def test_weight_lines_are_bounded() -> None:
    fronts = [frontend(f"front-end-{index:03d}", 1) for index in range(70)]
    engines = [engine(f"an-engine-with-a-long-name-{index:02d}", 5) for index in range(15)]
    lines = weight_lines(tables(snapshot(engines, [policy(frontends=fronts)])))
    assert len(lines) == 64
    assert all(len(line) <= 160 for line in lines)
    assert lines[-1] == "and 7 more; headrace explain shows all"


def test_several_models_are_named() -> None:
    engines = [engine("a"), engine("b", models=[{"name": "n"}])]
    found = tables(snapshot(engines, [policy(models=[{"name": "m"}, {"name": "n"}])]))
    assert weight_lines(found) == ("fe m: a 100 %", "fe n: b 100 %")
    assert change_lines([], found) == ("fe m: a 100 %", "fe n: b 100 %")


def test_changes_of_what_is_refused() -> None:
    calm, short = tables(snapshot(*classic())), tables(snapshot(*classic(b=50)))
    assert change_lines(calm, calm) == ()
    lines = change_lines(calm, short)
    assert lines[0] == "fe-b: b 83 % -> 46 %, c 17 % -> 41 %, a 0 % -> 13 %, refused nothing -> 10 % of default"
    assert "fe-c: refused nothing -> 10 % of default" in lines
    assert "fe-c: refused 10 % of default -> nothing" in change_lines(short, calm)


def test_a_move_that_reads_as_none_is_not_listed_beside_others() -> None:
    """A line of "22 % -> 22 %" tells nothing; where nothing larger moved, it is told in full."""
    one, other, small = (table_of(weights) for weights in ((2210, 5790, 2000), (2240, 5760, 2000), (2240, 5660, 2100)))
    assert change_lines([one], [other]) == ("fe: a 22.10 % -> 22.40 %",)
    assert change_lines([other], [small]) == ("fe: b 58 % -> 57 %, c 20 % -> 21 %",)
    assert change_lines([one], [small]) == ("fe: b 58 % -> 57 %, c 20 % -> 21 %",)
    assert change_lines([one], [one]) == ()


def table_of(weights: tuple[int, ...]) -> RoutingTable:
    """The sample's table of one front-end with these weights for a, b and c."""
    world = snapshot([engine(name, 10) for name in "abc"], [policy(frontends=[frontend("fe", 1)])])
    (found,) = tables(world)
    [model] = found.models
    [routes] = model.classes
    changed = tuple(
        msgspec.structs.replace(route, weight=weight) for route, weight in zip(routes.routes, weights, strict=True)
    )
    models = (msgspec.structs.replace(model, classes=(msgspec.structs.replace(routes, routes=changed),)),)
    return msgspec.structs.replace(found, models=models)


def test_a_history_line_always_shows_the_largest_change() -> None:
    long = ["fe-eu-west: " + ", ".join(f"engine-{index} 10 % -> 11 %" for index in range(20)), "fe-b: a 1 % -> 2 %"]
    line = history_line("2026-11-29T12:00:00Z", 52, (("capacity", 91), ("demand", 9)), long)
    assert len(line) <= 240
    assert line.startswith("2026-11-29T12:00:00Z rev 52: capacity 91 %, demand 9 %; fe-eu-west: engine-0 10 % -> 11 %")
    assert line.endswith("and 1 other")
    assert history_line("t", 1, (), []) == "t rev 1: first weights"


def test_effects_of_what_ifs() -> None:
    world = snapshot(*classic())
    book = open_book(world, run_strategies(world)[0])
    more = effect(book, with_demand(world, book.of_policy("ns/classic")[1], 10.0), optimized, {})
    assert more is not None
    assert more.cost == pytest.approx(10 * 0.240)
    assert [(source.frontend, name, round(amount, 6)) for source, name, amount in more.moved] == [
        ("fe-b", "ns/c", 10.0)
    ]
    gone = effect(book, with_replicas(world, "ns/c", -5.0), optimized, {})
    assert gone is not None
    assert (gone.before.refused, gone.after.refused) == (0, pytest.approx(50))

    def failing(*_: Any) -> Any:
        return msgspec.structs.replace(book.solution, status="Failed")

    assert effect(book, world, failing, {}) is None


def test_an_outcome_counts_the_higher_priorities_first() -> None:
    levels = {"shedding": {"priorities": [{"name": "high", "value": 9}, {"name": "low", "value": 1}]}}
    shares = [{"name": "high", "percent": 50}, {"name": "low", "percent": 50}]
    world = snapshot(
        [engine("a", 3)], [policy(frontends=[frontend(rps=10, demand={"priorities": shares})], protection=levels)]
    )
    found = outcome(world, run_strategies(world)[0].solution)
    assert found.shed == (pytest.approx(2), pytest.approx(5))
    assert outcome(snapshot([], [policy()]), run_strategies(snapshot([], [policy()]))[0].solution).latency == 0.0


def test_expected_latency_by_hand() -> None:
    profile = {
        "reference": {"inputTokens": 900, "outputTokens": 100},
        "ttft": [{"utilizationPercent": 0, "latency": "100ms"}, {"utilizationPercent": 100, "latency": "300ms"}],
        "tbot": [{"utilizationPercent": 0, "latency": "10ms"}, {"utilizationPercent": 100, "latency": "20ms"}],
    }
    mix = {"inputTokens": 900, "outputTokens": 50}
    world = snapshot([engine("a", 20, profile=profile)], [policy(frontends=[frontend(rps=10, demand=mix)])])
    solution = run_strategies(world)[0].solution
    found = Expected(world, solution)
    (route,) = solution.routes
    # Half full: 200 ms to the first token, 15 ms between tokens, 50 of them, 1 ms away.
    assert found.route(route) == (0.001, pytest.approx(0.2), pytest.approx(0.75))
    assert found.route(route) is found.route(route)
    mean = found.mean(solution.routes)
    assert mean is not None
    assert mean.total == pytest.approx(0.951)
    assert found.mean([]) is None


def test_a_new_policy_is_its_own_cause() -> None:
    before = snapshot([engine("a", 20), engine("b", 20, region="r2")], [policy("p")])
    now = snapshot([engine("a", 20), engine("b", 20, region="r2")], [policy("p"), policy("q", [frontend("fe-2", 18)])])

    def solve(world: Snapshot) -> Any:
        return shares_of(run_strategies(world)[0].solution)

    assert attribute(before, now, solve)[0][0] in ("policy", "settling")
    assert attribute(None, now, solve) == (("restart", 100),)
    assert attribute(now, now, solve) == (("settling", 100),)


def test_policies_of_a_component_share_what_was_solved_for_their_causes() -> None:
    before = snapshot(
        [engine("a", 20), engine("b", 20, region="r2")], [policy("p"), policy("q", [frontend("fe-2", 18)])]
    )
    now = snapshot([engine("a", 12), engine("b", 20, region="r2")], [policy("p"), policy("q", [frontend("fe-2", 18)])])
    solved: list[Snapshot] = []

    def solve(world: Snapshot) -> Any:
        solved.append(world)
        return shares_of(run_strategies(world)[0].solution)

    causes = PutBack(before, now, solve)
    first = causes.causes("ns/p")
    count = len(solved)
    assert sum(share for _, share in first) == sum(share for _, share in causes.causes("ns/q")) == 100
    assert causes.causes("ns/p") == first
    assert causes.causes() == attribute(before, now, lambda world: shares_of(run_strategies(world)[0].solution))
    assert len(solved) <= count + 1, "one more only where groups hide each other"


def test_groups_that_hide_each_other_are_brought_forward_alone() -> None:
    calls: list[Snapshot] = []
    before = snapshot([engine("a", replicas=2)], [policy()])
    edited = engine("a", replicas=0, capacity={"perReplica": {"requestsPerSecond": 9}})
    now = snapshot([edited], [policy("p", network={"default": "1ms"})])

    def solve(world: Snapshot) -> Any:
        calls.append(world)
        both = world.engines[0].ready == 2 and world.policies[0].spec.network.default == "150ms"
        key = world.demand[0].key
        return {(key, "ns/a"): 10.0} if both else {(key, "ns/b"): 10.0}

    causes = dict(attribute(before, now, solve))
    assert sum(causes.values()) == 100
    assert len(calls) > 3


def test_emptied_needs_a_before() -> None:
    world = snapshot([engine()], [policy()])
    empty = snapshot([], [policy()])
    (state,) = empty.policies
    assert not emptied_by_edit(None, empty, state, ["m"])
    assert not emptied_by_edit(snapshot([engine()], []), empty, state, ["m"])
    assert emptied_by_edit(world, empty, state, ["m"])
    assert not emptied_by_edit(world, snapshot([engine(replicas=0)], [policy()]), state, ["m"])
    assert not emptied_by_edit(snapshot([], [policy()]), empty, state, ["m"])


def test_an_edit_of_residency_empties() -> None:
    world = snapshot([engine()], [policy()])
    after = snapshot([engine()], [policy(frontends=[frontend(residency=["eu"])])])
    assert emptied_by_edit(world, after, after.policies[0], ["m"])


def test_warm_models_forget_the_longest_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "KEPT", 1)
    ticks = Ticks()
    engines = [engine("a"), engine("b", models=[{"name": "n"}])]
    apart = [policy("p"), policy("q", [frontend("fe-2")], models=[{"name": "n"}])]
    ticks.tick(engines, apart)
    assert ticks.tick(engines, apart).tables == ()


def test_tables_of_two_policies_on_a_restart() -> None:
    ticks = Ticks()
    both = [policy("p"), policy("q", [frontend("fe-2")])]
    ticks.tick([engine()], both)
    ticks.restart()
    assert ticks.tick([engine()], both).tables == ()
    ticks.restart()
    grown = [policy("p"), policy("q", [frontend("fe-2"), frontend("fe-3")])]
    # fe-2's table changes too: its engine is shared with fe-3 now (N*_j, limits); fe's policy has its own.
    assert [table.frontend for table in ticks.tick([engine()], grown).tables] == ["fe-2", "fe-3"]


def test_no_concurrency_share_while_nothing_is_in_flight() -> None:
    capacity = {"perReplica": {"maxConcurrency": 80}}
    engines = [engine("a", capacity=capacity), engine("b", capacity=capacity, region="r2")]
    (table,) = tables(snapshot(engines, [policy()]))
    idle = next(entry for entry in table.engines if entry.id == "ns/b")
    assert (idle.in_flight_here, idle.concurrency_limit) == (0.0, 26)  # 1.3 x 80 / (4 x 1 front-end)


def test_a_lost_model_fits_the_prompt_classes_of_the_new_table() -> None:
    engines = [engine("a"), engine("b", models=[{"name": "n"}])]
    (old,) = tables(snapshot(engines, [policy(models=[{"name": "m"}, {"name": "n"}])]))
    (new,) = tables(snapshot(engines, [policy()]))
    split = msgspec.structs.replace(
        new,
        class_edges=(600,),
        models=tuple(msgspec.structs.replace(model, classes=model.classes * 2) for model in new.models),
    )
    kept = with_lost_models(old, split, ("n",))
    assert [(model.model, len(model.classes)) for model in kept.models] == [("m", 2), ("n", 2)]
    assert [entry.id for entry in kept.engines] == ["ns/a", "ns/b"]
    assert with_lost_models(old, split, ()) is split

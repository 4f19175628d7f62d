"""Why this weight: sentences with numbers, never a negative one, the classic example word by word."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace_api.policy import RoutingPolicy
from headrace_api.table import RoutingTable
from headrace_operator.decision.decide import decide
from headrace_operator.decision.memory import Memory
from headrace_operator.decision.why.book import Book, label, open_book
from headrace_operator.decision.why.reasons import route_reason
from headrace_operator.decision.why.sentences import bounded, relief_text, why
from headrace_operator.decision.why.what_if import best_replica
from headrace_operator.optimizer.solution import RouteResult
from headrace_operator.snapshot.model import Snapshot
from headrace_operator.snapshot.signals import Factor, Reading, Signals
from headrace_operator.strategies.optimized import optimized
from headrace_operator.strategies.run import run_strategies
from support.world import classic, demand, engine, frontend, measured, policy, snapshot

TARGET = {"targetUtilizationPercent": 100}


def book_of(world: Snapshot, index: int = 0) -> Book:
    return open_book(world, run_strategies(world)[index])


def reasons(book: Book) -> dict[str, str]:
    return {
        f"{label(source, book)} {route.engine.removeprefix('ns/')}": route_reason(book, route)
        for source, routes in book.routes.items()
        for route in routes
    }


def sentences(world: Snapshot, index: int = 0, relief: bool = False) -> tuple[str, ...]:
    book = book_of(world, index)
    found = best_replica(book, optimized, {}) if relief else None
    return why(book, book.policies[book.result.policies[0]], found)


def test_classic_says_why_c_and_not_a() -> None:
    found = reasons(book_of(snapshot(*classic())))
    assert found["fe-b b"] == "fastest; full: 100 of 100 requests/s"
    assert found["fe-b c"] == "takes what b can't; 39 ms slower; next: a, 20 ms more"
    assert found["fe-b a"] == "20 ms slower than the marginal choice c"
    assert found["fe-a a"] == "fastest; has room"
    assert found["fe-a b"] == "98 ms slower than the marginal choice a, and full"


def test_classic_policy() -> None:
    assert sentences(snapshot(*classic()))[:3] == (
        "b full: 100 of 100 requests/s; one more request/s of capacity here saves 39 ms on each request it takes",
        "fe-b sends 20 requests/s to c (40 ms away): takes what b can't; 39 ms slower; next: a, 20 ms more",
        "a unused by fe-b: 20 ms slower than the marginal choice c",
    )


def test_classic_short_of_capacity() -> None:
    found = sentences(snapshot(*classic(b=50)), relief=True)
    assert found[:2] == (
        "short of capacity: 20 of 250 requests/s (8 %) refused: 12 at fe-b, 4 at fe-a, 4 at fe-c",
        "one more replica helps most at b: then nothing is refused",
    )
    assert "b full: 50 of 50 requests/s; one more request/s of capacity here is one fewer refused" in found


def test_a_replica_that_helps_only_some() -> None:
    engines = [engine("a", 10), engine("b", 5)]
    world = snapshot(engines, [policy(frontends=[frontend(rps=40)])])
    found = best_replica(book_of(world), optimized, {})
    assert found is not None
    assert found.engine == "ns/a"
    assert relief_text(found) == "one more replica helps most at a: then 15 requests/s are refused instead of 25"
    assert relief_text(None) == ""


def test_where_nothing_is_refused_a_replica_saves_latency() -> None:
    found = best_replica(book_of(snapshot(*classic())), optimized, {})
    assert relief_text(found) == "one more replica helps most at b: then mean latency 201 ms instead of 204 ms"


def test_no_replica_helps_where_none_is_full() -> None:
    assert best_replica(book_of(snapshot([engine()], [policy()])), optimized, {}) is None


def test_no_replica_helps_where_there_is_no_answer() -> None:
    world = snapshot(*classic())
    book = book_of(world)

    def failing(*_: Any) -> Any:
        return msgspec.structs.replace(book.solution, status="Failed")

    assert best_replica(book, failing, {}) is None


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("Nearest", {"fe a": "lowest round trip, 1 ms", "fe b": "round trip 150 ms against 1 ms"}),
        ("RoundRobin", {"fe a": "equal share", "fe b": "equal share"}),
        ("Static", {"fe a": "by declared capacity", "fe b": "by declared capacity"}),
    ],
)
def test_rules(strategy: str, expected: dict[str, str]) -> None:
    engines = [engine("a", region="r1"), engine("b", region="r2")]
    world = snapshot(engines, [policy(strategy={"type": strategy})])
    assert reasons(book_of(world)) == expected


def test_a_rule_that_overloads_says_so() -> None:
    world = snapshot([engine("a", 5), engine("b", 50, region="r2")], [policy(strategy={"type": "Nearest"})])
    assert reasons(book_of(world))["fe a"] == "lowest round trip, 1 ms; over its capacity: 10 of 5 requests/s"


def test_no_share_by_a_rule() -> None:
    engines = [engine("a"), engine("b", replicas=0)]
    signals = Signals(engines=(measured("b", ready_replicas=Reading(value=1)),))
    assert reasons(book_of(snapshot(engines, [policy(strategy={"type": "Static"})], signals)))["fe b"] == (
        "no share by this rule"
    )


def published(engines: Any, policies: list[RoutingPolicy]) -> tuple[RoutingTable, ...]:
    return decide(snapshot(engines, policies), Memory(), (), uid="u", term=1).tables


def test_held_weights() -> None:
    engines = [engine("a"), engine("b", region="r2")]
    tables = published(engines, [policy()])
    frozen = policy(metadata={"annotations": {"headrace.dev/freeze-until": "2026-11-29T13:00:00Z"}})
    world = snapshot(engines, [frozen], previous=tables)
    assert reasons(book_of(world)) == {"fe a": "as the last table says", "fe b": "no weight in the last table"}
    assert sentences(world)[0] == "frozen until 2026-11-29T13:00:00Z"


def test_a_saving_below_the_move_price() -> None:
    before = [engine("a", region="r2"), engine("b", region="r3")]
    trips = [{"from": "r1", "to": "r2", "latency": "20ms"}, {"from": "r1", "to": "r3", "latency": "25ms"}]
    tables = published(before, [policy(network={"roundTrip": trips}, objective=TARGET)])
    nearer = [*trips[:1], {"from": "r1", "to": "r3", "latency": "15ms"}]
    world = snapshot(before, [policy(network={"roundTrip": nearer}, objective=TARGET)], previous=tables)
    assert reasons(book_of(world)) == {
        "fe a": "stays for now: b would save 5 ms, less than the move price 10 ms",
        "fe b": "would save 5 ms, less than the move price 10 ms",
    }


def test_an_inner_optimum_stays_for_the_price_of_moving_and_blames_no_bound() -> None:
    """Between two curves the saving is the move price, to the last digit; the bound on shifts is far from used up."""
    curve = {"ttft": [{"utilizationPercent": 0, "latency": "100ms"}, {"utilizationPercent": 100, "latency": "9s"}]}
    engines = [engine("a", 20, region="r2", profile=curve), engine("b", 20, region="r3", profile=curve)]
    held = []
    for near in range(20, 150, 10):
        trips = [{"from": "r1", "to": "r2", "latency": "20ms"}, {"from": "r1", "to": "r3", "latency": "20ms"}]
        tables = published(engines, [policy(network={"roundTrip": trips})])
        trips[1] = {"from": "r1", "to": "r3", "latency": f"{near}ms"}
        world = snapshot(engines, [policy(network={"roundTrip": trips})], previous=tables)
        held += [text for text in reasons(book_of(world)).values() if "would save" in text]
    assert any("no more than moving costs" in text for text in held), held
    assert not any("used up" in text for text in held), held


def test_a_move_away_from_the_fastest_engine_that_is_held_is_told_there_too() -> None:
    """Idle it is the fastest; with its load another one would be, and only the price of moving keeps the rest there."""
    curve = {"ttft": [{"utilizationPercent": 0, "latency": "10ms"}, {"utilizationPercent": 100, "latency": "2s"}]}
    engines = [engine("a", 20, region="r2", profile=curve), engine("b", 20, region="r3", profile=curve)]
    trips = [{"from": "r1", "to": "r2", "latency": "1ms"}, {"from": "r1", "to": "r3", "latency": "900ms"}]
    rule = [policy(network={"roundTrip": trips})]
    tables = published(engines, rule)
    near = [policy(network={"roundTrip": [trips[0], {"from": "r1", "to": "r3", "latency": "2ms"}]})]
    found = reasons(book_of(snapshot(engines, near, previous=tables)))["fe a"]
    assert found.startswith("fastest; its load adds "), found
    assert "; stays for now: b would save " in found
    assert "moving costs" in found or "move price" in found or "used up" in found


def test_a_saving_that_the_bound_on_shifts_holds_back() -> None:
    engines = [engine("a", region="r2"), engine("b", region="r3")]
    trips = [{"from": "r1", "to": "r2", "latency": "20ms"}, {"from": "r1", "to": "r3", "latency": "250ms"}]
    tables = published(engines, [policy(network={"roundTrip": trips}, objective=TARGET)])
    near = [trips[0], {"from": "r1", "to": "r3", "latency": "1ms"}]
    more = {"publication": {"maxShiftPercent": 0}}
    world = snapshot(engines, [policy(network={"roundTrip": near}, objective=TARGET, **more)], previous=tables)
    found = reasons(book_of(world))
    assert found["fe b"] == "would save 19 ms; what one publication may move is used up"
    assert found["fe a"] == "stays for now: b would save 19 ms; what one publication may move is used up"


def test_equal_engines() -> None:
    engines = [engine("a", 20), engine("b", 20), engine("c", 20, region="r2")]
    world = snapshot(engines, [policy(network={"default": "1ms"}, objective=TARGET)])
    found = reasons(book_of(world))
    used = [text for text in found.values() if text.startswith("fastest, level with ")]
    assert len(used) >= 2
    assert all("slower" not in text for text in found.values())


def altered(book: Book, **flows: float) -> Book:
    """The book with the flows of some engines set by hand."""

    def change(route: RouteResult) -> RouteResult:
        name = route.engine.removeprefix("ns/")
        return msgspec.structs.replace(route, flow=flows[name]) if name in flows else route

    solution = msgspec.structs.replace(book.solution, routes=tuple(change(route) for route in book.solution.routes))
    return open_book(book.snapshot, book.result._replace(solution=solution))


def test_as_fast_and_not_needed() -> None:
    book = book_of(snapshot([engine("a", 20), engine("b", 20)], [policy(objective=TARGET)]))
    assert reasons(altered(book, a=10, b=0))["fe b"] == "as fast as a; not needed"


def test_nothing_routed() -> None:
    book = book_of(snapshot([engine("a"), engine("b")], [policy()]))
    assert set(reasons(altered(book, a=0, b=0)).values()) == {"nothing is routed"}


def test_nothing_routed_because_all_is_refused() -> None:
    policies = [policy("p", [frontend(rps=5)]), policy("q", [frontend("fe-2", 500)], strategy={"type": "Nearest"})]
    world = snapshot([engine("a", 10)], policies)
    book = book_of(world, 1)
    assert book.result.policies == ("ns/p",)
    assert reasons(book) == {"fe a": "nothing is routed: all of this demand is refused"}


def test_the_only_engine() -> None:
    assert reasons(book_of(snapshot([engine("a", 20)], [policy()]))) == {"fe a": "the only eligible engine"}
    assert reasons(book_of(snapshot([engine("a", 5)], [policy()]))) == {
        "fe a": "the only eligible engine; full: 5 of 5 requests/s"
    }


def test_names_of_many_full_engines() -> None:
    trips = [{"from": "r1", "to": f"x{index}", "latency": f"{index + 2}ms"} for index in range(4)]
    engines = [engine(f"e{index}", 5, region=f"x{index}") for index in range(4)]
    world = snapshot(engines, [policy(frontends=[frontend(rps=17)], network={"roundTrip": trips}, objective=TARGET)])
    found = reasons(book_of(world))
    assert found["fe e3"] == "takes what e0, e1 and 1 more can't; 3 ms slower"
    assert found["fe e2"] == "2 ms slower than e0; full: 5 of 5 requests/s"


def test_relieving_an_engine_that_is_not_full() -> None:
    engines = [engine("a", 20, region="r1"), engine("b", 40, region="r2")]
    world = snapshot(engines, [policy(frontends=[frontend(rps=19)], network={"default": "20ms"})])
    found = reasons(book_of(world))
    assert found["fe b"] == "relieves a, whose load adds 19 ms; idle it is 19 ms slower than a"
    assert found["fe a"] == "fastest; its load adds 19 ms"


def test_engines_that_are_weakened_or_out() -> None:
    signals = Signals(
        engines=(
            measured("a", penalty=Factor(value=0.4, reason="TTFT 3.2 times its profile for 90 s")),
            measured("b", trim=Factor(value=0.8), background=Reading(value=20), request_rate=Reading(value=30)),
            measured("c", alive=False),
        )
    )
    engines = [engine("a"), engine("b"), engine("c"), engine("d", state="Draining")]
    found = sentences(snapshot(engines, [policy()], signals))
    assert "a x0.4: TTFT 3.2 times its profile for 90 s" in found
    assert "b x0.8: trimmed" in found
    assert "b: 20 requests/s on it are not ours; subtracted from its capacity" in found
    assert "c doesn't answer" in found
    assert "d is draining" in found


def test_who_is_excluded_for_whom() -> None:
    engines = [engine("a"), engine("eu", residency=["eu"])]
    policies = [policy(frontends=[frontend("fe-1", residency=["eu"]), frontend("fe-2")])]
    found = sentences(snapshot(engines, policies))
    assert "fe-1 demands residency eu, a lacks it" in found


def test_exclusions_of_another_policy_are_not_mine() -> None:
    engines = [engine("a"), engine("eu", residency=["eu"])]
    policies = [policy("p", [frontend("fe-1")]), policy("q", [frontend("fe-2", residency=["eu"])])]
    book = book_of(snapshot(engines, policies))
    assert book.result.policies == ("ns/p", "ns/q")
    assert not any("residency" in text for text in why(book, book.policies["ns/p"]))
    assert any("residency" in text for text in why(book, book.policies["ns/q"]))


def test_a_front_end_without_any_engine() -> None:
    policies = [policy(frontends=[frontend("fe-1", residency=["eu"]), frontend("fe-2")])]
    found = sentences(snapshot([engine("a")], policies))
    assert found[0] == "no eligible engine for fe-1: 10 requests/s have nowhere to go"
    assert "fe-1 demands residency eu, a lacks it" in found


def test_engines_of_other_models_are_no_news_where_a_policy_has_its_own() -> None:
    """Seen by a newcomer: two policies in one namespace, and 13 lines of "x doesn't serve y" before anything useful."""
    engines = [engine("a"), *(engine(f"other-{number}", models=[{"name": "n"}]) for number in range(5))]
    assert not [line for line in sentences(snapshot(engines, [policy()])) if "doesn't serve" in line]
    assert [line for line in sentences(snapshot(engines[1:], [policy()])) if "doesn't serve" in line]


def test_an_exclusion_of_some_front_ends_names_them() -> None:
    engines = [engine("a"), engine("b", models=[{"name": "n"}])]
    policies = [policy(models=[{"name": "m"}, {"name": "n"}])]
    found = sentences(snapshot(engines, policies))
    assert "a doesn't serve n" in found
    assert "b doesn't serve m" in found
    lacking = [policy(frontends=[frontend("fe-1", residency=["eu"]), frontend("fe-2")])]
    told = sentences(snapshot([engine("a"), engine("b", residency=["eu"])], lacking))
    assert "fe-1 demands residency eu, a lacks it" in told


def test_policies_that_share_and_policies_that_lose() -> None:
    shared = [policy("p", [frontend("fe-1")]), policy("q", [frontend("fe-2")])]
    assert sentences(snapshot([engine()], shared))[0] == "shares engines with ns/q: solved together"
    contested = [policy("p"), policy("q", [frontend(), frontend("fe-2")])]
    world = snapshot([engine()], contested)
    book = book_of(world)
    assert "1 front-end and model pair ruled by ns/p, which is older" in why(book, book.policies["ns/q"])


def test_priorities_are_counted_apart() -> None:
    levels = [{"name": "high", "value": 9}, {"name": "low", "value": 1}]
    shares = [{"name": "high", "percent": 50}, {"name": "low", "percent": 50}]
    fronts = [frontend(rps=10, demand={"priorities": shares})]
    world = snapshot([engine("a", 3)], [policy(frontends=fronts, protection={"shedding": {"priorities": levels}})])
    assert "refused by priority: low 5, high 2" in sentences(world)


def test_a_failed_solve_says_why() -> None:
    found = sentences(snapshot([engine()], [policy(strategy={"type": "Feedback"})]))
    assert found[0].startswith("strategy.type Feedback is not available")


def test_a_target_passed_or_met() -> None:
    target = {"targetUtilizationPercent": 50}
    met = sentences(snapshot([engine("a", 20), engine("b", 20, region="r2")], [policy(objective=target)]))
    assert met[0].startswith("a at target: 10 of 20 requests/s")
    passed = sentences(snapshot([engine("a", 12)], [policy(objective=target)]))
    assert passed[0].startswith("a above target: 10 of 12 requests/s")


def test_assumptions_are_told() -> None:
    found = sentences(snapshot([engine(replicas=None)], [policy()], Signals(demand=(demand("x"),))))
    assert "ready replicas of a: neither measured nor declared; one per url assumed" in found
    assert "demand as declared at 1 of 1 front-ends; not measured there" in found


def test_bounds() -> None:
    long = bounded(["x" * 500, *(f"sentence {index}" for index in range(50)), "x" * 500])
    assert len(long) == 40
    assert all(len(text) <= 160 for text in long)
    assert long[-1] == "and 12 more; headrace explain shows all"


def test_many_detours_are_counted() -> None:
    fronts = [frontend(f"fe-{index}", 10, region=f"x{index}") for index in range(12)]
    found = sentences(snapshot([engine("a", 10), engine("b", 500)], [policy(frontends=fronts, objective=TARGET)]))
    assert all(len(text) <= 160 for text in found)


def test_no_sentence_has_a_negative_number() -> None:
    for b in range(20, 200, 12):
        world = snapshot(*classic(b=b))
        for text in (*sentences(world, relief=True), *reasons(book_of(world)).values()):
            assert " -" not in text, text

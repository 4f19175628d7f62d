"""A component's cut of the snapshot: what it holds, and that nothing is decided otherwise on it than on the whole."""

from __future__ import annotations

import msgspec
import pytest

from headrace_api.policy import EngineSelector
from headrace_operator.optimizer import components
from headrace_operator.snapshot.cut import Cutter, ids_in
from headrace_operator.snapshot.model import EngineState, PolicyState, PreviousRoute, Snapshot
from headrace_operator.snapshot.selection import LabelIndex, Selection
from headrace_operator.snapshot.signals import SignalStatus
from headrace_operator.strategies.run import run_strategies
from support.fleet import demand, engine, policy


def labelled(name: str, **labels: str) -> EngineState:
    return msgspec.structs.replace(engine(name), labels=tuple(sorted(labels.items())))


def choosing(name: str, **labels: str) -> PolicyState:
    return policy(name, frontends="a", engine_selector=EngineSelector(match_labels=labels))


ENGINES = (
    labelled("g1", tier="gold", place="us"),
    labelled("g2", tier="gold", place="eu"),
    labelled("s1", tier="silver", place="us"),
    labelled("u1", tier="unused"),
)
POLICIES = (choosing("gold", tier="gold"), choosing("none", tier="nobody"), choosing("silver", tier="silver"))
WORLD = Snapshot(
    at=0.0,
    engines=ENGINES,
    policies=POLICIES,
    demand=tuple(demand("a", 10, policy=name) for name in ("gold", "none", "silver")),
    previous=(
        PreviousRoute(
            policy="default/silver", frontend="a", model="m", prompt_class=0, engine="default/u1", weight=0.5
        ),
        PreviousRoute(
            policy="default/silver", frontend="a", model="m", prompt_class=0, engine="default/zz", weight=0.5
        ),
    ),
    states=(
        SignalStatus(name="engine default/g1 from prom", state="Held"),
        SignalStatus(name="engine default/g10", state="Held"),
        SignalStatus(name="metric source prom", state="Held"),
    ),
    notes=("default/gold: demand as declared", "request rate of default/s1: NaN", "classEdges [1]: one class used"),
)


def names(snapshot: Snapshot) -> list[str]:
    return [one.id.partition("/")[2] for one in snapshot.engines]


@pytest.mark.parametrize(
    ("policies", "engines"),
    [
        (("default/gold",), ["g1", "g2"]),
        (("default/silver",), ["s1", "u1"]),
        (("default/none",), ["g1", "g2", "s1", "u1"]),
        (("default/gold", "default/silver"), ["g1", "g2", "s1", "u1"]),
        (("default/gone",), []),
    ],
    ids=["selected", "still sent to", "selects none: why is asked of all", "together", "unknown"],
)
def test_a_cut_has_the_engines_that_concern_its_policies(policies: tuple[str, ...], engines: list[str]) -> None:
    assert names(Cutter(WORLD)(policies)) == engines


def test_a_cut_has_what_is_said_of_its_parts() -> None:
    cut = Cutter(WORLD)
    gold = cut(("default/gold",))
    assert [state.name for state in gold.states] == ["engine default/g1 from prom", "metric source prom"]
    assert gold.notes == ("default/gold: demand as declared",)
    assert [entry.policy for entry in gold.demand] == ["default/gold"]
    assert cut(("default/gold",)) is gold
    assert cut(("default/silver",)).notes == ("request rate of default/s1: NaN",)
    assert names(cut.also(("default/gold",), ["default/s1", "default/zz"])) == ["g1", "g2", "s1"]


def test_components_are_solved_on_their_cut_as_on_the_whole() -> None:
    whole = run_strategies(WORLD)
    parts = run_strategies(WORLD, cut=Cutter(WORLD))
    assert [result.policies for result in parts] == [*components(WORLD)]
    for one, other in zip(whole, parts, strict=True):
        assert (one.solution.sources, one.solution.routes, one.solution.engines) == (
            other.solution.sources,
            other.solution.routes,
            other.solution.engines,
        )
        assert set(other.solution.ineligible) <= set(one.solution.ineligible)


def test_ids_in_sentences() -> None:
    assert ids_in("round trip fe to ns/e1: 1/2 s, ns/e10.") == {"ns/e1", "1/2", "ns/e10"}
    assert ids_in("no one") == frozenset()


def test_an_index_of_labels() -> None:
    index = LabelIndex([("a", [("x", "1"), ("y", "1")]), ("a", [("x", "1")]), ("b", [("x", "1")])])
    assert index.matching("a", {}) == {0, 1}
    assert index.matching("a", {"x": "1"}) == {0, 1}
    assert index.matching("a", {"x": "1", "y": "1"}) == {0}
    assert index.matching("a", {"x": "2"}) == index.matching("c", {}) == set()


def test_a_policy_selects_engines_of_its_models_alone() -> None:
    selection = Selection(ENGINES)
    [gold, _, _] = POLICIES
    assert [one.id for one in selection.of(gold.id, gold.spec)] == ["default/g1", "default/g2"]
    other = msgspec.structs.replace(gold.spec, models=())
    assert selection.of(gold.id, other) == ()
    assert selection.of("elsewhere/gold", gold.spec) == ()

"""Which policies are solved together."""

from __future__ import annotations

import msgspec

from headrace_api.policy import EngineSelector, Strategy
from headrace_operator.optimizer import components
from headrace_operator.optimizer.layout import build_layout
from headrace_operator.snapshot.model import EngineState, PolicyState, Snapshot
from support.fleet import demand, engine, policy


def labelled(name: str, **labels: str) -> EngineState:
    return msgspec.structs.replace(engine(name), labels=tuple(sorted(labels.items())))


def choosing(name: str, tier: str, **spec: object) -> PolicyState:
    return policy(name, frontends="a", engine_selector=EngineSelector(match_labels={"tier": tier}), **spec)  # type: ignore[arg-type]


def snapshot(*policies: PolicyState, engines: tuple[EngineState, ...]) -> Snapshot:
    return Snapshot(
        at=0.0,
        engines=engines,
        policies=policies,
        demand=tuple(demand("a", 10, policy=entry.id.rpartition("/")[2]) for entry in policies),
    )


ENGINES = (labelled("x", tier="gold"), labelled("y", tier="silver"), labelled("z", tier="bronze"))


def test_policies_without_a_common_engine_are_apart() -> None:
    found = components(snapshot(choosing("p", "gold"), choosing("q", "silver"), engines=ENGINES))
    assert found == (("default/p",), ("default/q",))


def test_policies_meet_over_a_third() -> None:
    """p and r share nothing, but q shares an engine with each: one component, whatever the order."""
    both = (labelled("x", tier="gold"), labelled("y", tier="silver"))
    everyone = policy("q", frontends="a")
    for order in ((0, 1, 2), (2, 1, 0), (0, 2, 1)):
        policies = [choosing("p", "gold"), choosing("r", "silver"), everyone]
        found = components(snapshot(*(policies[index] for index in order), engines=both))
        assert found == (("default/p", "default/q", "default/r"),)


def test_an_engine_out_of_service_still_connects() -> None:
    """Components are of specs: an outage doesn't split a solve."""
    dead = (msgspec.structs.replace(ENGINES[0], alive=False),)
    found = components(snapshot(choosing("p", "gold"), choosing("q", "gold"), engines=dead))
    assert found == (("default/p", "default/q"),)


def test_rules_come_first_then_components_then_shadows() -> None:
    policies = (
        policy("a-shadow", frontends="a", mode="Shadow"),
        policy("b", frontends="a"),
        policy("c-nearest", frontends="a", strategy=Strategy(type="Nearest")),
        msgspec.structs.replace(policy("d-frozen", frontends="a"), frozen=True),
        policy("e", frontends="a"),
        policy("f-shadow", frontends="a", mode="Shadow"),
    )
    assert components(snapshot(*policies, engines=ENGINES)) == (
        ("default/c-nearest",),
        ("default/d-frozen",),
        ("default/b", "default/e"),
        ("default/a-shadow",),
        ("default/f-shadow",),
    )


def test_a_policy_that_reaches_nothing_is_alone() -> None:
    assert components(snapshot(choosing("p", "none"), choosing("q", "gold"), engines=ENGINES)) == (
        ("default/p",),
        ("default/q",),
    )
    assert components(Snapshot(at=0.0)) == ()


def test_a_remembered_layout_is_used_only_while_every_part_of_it_holds() -> None:
    found = snapshot(choosing("p", "gold"), engines=ENGINES)
    first = build_layout(found, ("default/p",))
    again = msgspec.structs.replace(found, at=5.0, engines=tuple(reversed(found.engines)))
    assert build_layout(again, ("default/p",)) is first
    dead = msgspec.structs.replace(found, engines=(msgspec.structs.replace(ENGINES[0], alive=False), *ENGINES[1:]))
    assert build_layout(dead, ("default/p",)) is first
    moved = msgspec.structs.replace(found, engines=(msgspec.structs.replace(ENGINES[0], labels=()), *ENGINES[1:]))
    assert build_layout(moved, ("default/p",)).engines == ()
    fewer = msgspec.structs.replace(found, demand=())
    assert build_layout(fewer, ("default/p",)).sources == ()
    assert build_layout(found, ("default/p",)) is first

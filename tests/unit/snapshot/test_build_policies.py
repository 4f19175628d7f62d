"""Policies: what they select and serve, break-glass, and who rules when two claim the same.

Case STS-05 (https://github.com/kubernetes-sigs/gateway-api/pull/4043): oldest creationTimestamp, then namespace/name;
stable over restarts, and the next one is promoted when the winner goes.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from headrace_api.policy import RoutingPolicy
from support.world import engine, frontend, policy, snapshot

FREEZE = "headrace.dev/freeze-until"


def born(name: str, created: str, namespace: str = "ns", **spec: Any) -> RoutingPolicy:
    return policy(name, metadata={"namespace": namespace, "creationTimestamp": created}, **spec)


ENGINES = [engine("a", metadata={"namespace": "ns1"}), engine("a", metadata={"namespace": "ns2"})]
ZETA = born("zeta", "2026-11-01T10:00:00Z", "ns1")
ALPHA = born("alpha", "2026-11-01T10:00:01Z", "ns2")
BETA = born("beta", "2026-11-01T10:00:00Z", "ns1")


@pytest.mark.parametrize("order", list(permutations((ZETA, ALPHA, BETA))))
def test_the_oldest_rules_then_the_name(order: tuple[RoutingPolicy, ...]) -> None:
    """Case STS-05."""
    found = snapshot(ENGINES, order)
    assert {state.id: state.conflicts for state in found.policies} == {
        "ns1/beta": (),
        "ns1/zeta": (("fe", "m", "ns1/beta"),),
        "ns2/alpha": (("fe", "m", "ns1/beta"),),
    }
    assert {entry.policy for entry in found.demand} == {"ns1/beta"}
    assert "ns2/alpha: ns1/beta is older and rules model m at front-end fe" in found.notes


def test_the_next_is_promoted_without_an_edit() -> None:
    """Case STS-05: the winner is deleted."""
    found = snapshot(ENGINES, [ALPHA, ZETA])
    assert {entry.policy for entry in found.demand} == {"ns1/zeta"}


def test_one_without_a_time_is_the_youngest() -> None:
    found = snapshot([engine()], [born("a", ""), born("b", "2026-11-01T10:00:00Z")])
    assert {entry.policy for entry in found.demand} == {"ns/b"}


def test_shadow_takes_part_in_no_conflict() -> None:
    found = snapshot([engine()], [born("a", "2026-01-01T00:00:00Z", mode="Shadow"), born("b", "")])
    assert [state.conflicts for state in found.policies] == [(), ()]
    assert {entry.policy for entry in found.demand} == {"ns/a", "ns/b"}


def test_only_contested_pairs_are_lost() -> None:
    one = policy("a", [frontend("fe-1")])
    other = policy("b", [frontend("fe-1"), frontend("fe-2")])
    found = snapshot([engine()], [one, other])
    assert [(entry.policy, entry.frontend) for entry in found.demand] == [("ns/a", "fe-1"), ("ns/b", "fe-2")]


def test_several_lost_pairs_are_counted() -> None:
    both = [frontend("fe-1"), frontend("fe-2")]
    found = snapshot([engine()], [policy("a", both), policy("b", both)])
    assert any(note.endswith("and 1 more pairs") for note in found.notes)


def test_selection_by_namespace_label_and_model() -> None:
    engines = [
        engine("a", metadata={"labels": {"tier": "prod", "x": "y"}}),
        engine("b", metadata={"labels": {"tier": "lab"}}),
        engine("c", metadata={"labels": {"tier": "prod"}, "namespace": "other"}),
        engine("d", models=[{"name": "other"}], metadata={"labels": {"tier": "prod"}}),
    ]
    found = snapshot(engines, [policy(engineSelector={"matchLabels": {"tier": "prod"}})])
    assert [pair.engine for pair in found.network] == ["ns/a"]


def test_a_policy_on_a_base_covers_its_adapters() -> None:
    engines = [
        engine("a", models=[{"name": "m", "adapters": ["m-legal", "m-code"]}]),
        engine("b", models=[{"name": "other", "adapters": ["not-ours"]}]),
    ]
    found = snapshot(engines, [policy()])
    assert found.policies[0].served == (("m", "m"), ("m", "m-code"), ("m", "m-legal"))
    assert [(entry.model, entry.requests_per_second) for entry in found.demand] == [
        ("m", 10.0),
        ("m-code", 0.01),
        ("m-legal", 0.01),
    ]


def test_a_policy_on_an_adapter_alone() -> None:
    found = snapshot([engine("a", models=[{"name": "base", "adapters": ["m", "x"]}])], [policy(models=[{"name": "m"}])])
    assert found.policies[0].served == (("m", "m"),)
    assert [pair.engine for pair in found.network] == ["ns/a"]


@pytest.mark.parametrize(
    ("until", "frozen", "noted"),
    [("2026-11-29T13:00:00Z", True, False), ("2026-11-29T11:00:00Z", False, False), ("never", False, True)],
)
def test_freeze(until: str, frozen: bool, noted: bool) -> None:
    found = snapshot([engine()], [policy(metadata={"annotations": {FREEZE: until}})])
    assert found.policies[0].frozen is frozen
    said = [note for note in found.notes if FREEZE in note]
    assert found.policies[0].message == (said[0] if noted else f"frozen until {until}" if frozen else "")
    assert bool(said) is noted

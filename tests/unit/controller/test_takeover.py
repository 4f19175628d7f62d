"""What a new leader takes over from tables and statuses alone."""

from __future__ import annotations

import msgspec
import pytest

from headrace_api.status import Condition, EngineStatus
from headrace_api.table import ClassRoutes, Identity, ModelRoutes, Route, RoutingTable, ShedShare, TableEngine
from headrace_operator.controller.takeover import Restored, remembered, taken_over
from headrace_operator.decision.memory import Memory
from headrace_operator.publisher.engine_status import engine_status
from headrace_operator.snapshot.build import build_snapshot
from headrace_operator.snapshot.signals import EngineSignal, Factor, Signals
from support.engine_manifests import AT, engine, policy


def table(
    frontend: str, issued: str, *, share: float = 0.0, ratio: float = 4.0, edges: tuple[int, ...] = ()
) -> RoutingTable:
    shed = (ShedShare(priority="default", share=share),) if share else ()
    routes = tuple(
        ClassRoutes(routes=(Route(engine="inf/a", weight=10_000),), shed=shed) for _ in range(len(edges) + 1)
    )
    return RoutingTable(
        schema_version=1,
        identity=Identity(uid="u", term=3, revision=9),
        policy="chat",
        policy_namespace="inf",
        frontend=frontend,
        issued=issued,
        hash="",
        models=(ModelRoutes(model="m", classes=routes, bytes_per_token=ratio),),
        engines=(TableEngine(id="inf/a"),),
        class_edges=edges,
    )


def test_nothing_stands_nothing_is_known() -> None:
    assert taken_over((), {}) == Restored(Memory())


def test_the_newest_tables_word_counts() -> None:
    found = taken_over(
        [
            table("fe-b", "2026-01-02T00:00:00Z", ratio=3.0, edges=(100, 900)),
            table("fe-a", "2026-01-01T00:00:00Z", ratio=5.0, edges=(50,)),
        ],
        {},
        [("inf/chat", "fe-old")],
    )
    assert found.ratios == (("m", 3.0),)
    assert found.edges == (100, 900)
    assert found.memory == Memory(retained=(("inf/chat", "fe-old"),))


def test_what_sheds_goes_on_shedding() -> None:
    assert taken_over([table("fe-a", AT, share=0.2)], {}).memory.shedding == ("inf/chat",)


def test_penalties_and_deaths_as_the_last_leader_wrote_them() -> None:
    """What engine statuses say is read back as it was, so that a takeover forgives nobody."""
    signals = Signals(
        engines=(
            EngineSignal(engine="inf/a", penalty=Factor(value=0.4, reason="TTFT 3.2 times its profile for 90 s")),
            EngineSignal(engine="inf/b", alive=False),
            EngineSignal(engine="inf/c"),
        )
    )
    engines = [engine(name) for name in "abc"]
    states = {one.id: one for one in build_snapshot(engines, [policy()], signals, at=0.0).engines}
    statuses = {
        f"inf/{one.metadata.name}": engine_status(one, 1, states[f"inf/{one.metadata.name}"], None, None, at=AT)
        for one in engines
    }
    found = taken_over((), statuses)
    assert found.punished == {"inf/a": Factor(value=0.4, reason="TTFT 3.2 times its profile for 90 s")}
    assert found.dead == ("inf/b",)


@pytest.mark.parametrize("text", ["", "x", "x1", "x1.5", "x-0.4", "x0.4.2", "0.4", "xnan", "x0.1234567", "x0.4 "])
def test_a_penalty_that_is_none(text: str) -> None:
    assert taken_over((), {"inf/a": EngineStatus(penalty=text)}).punished == {}


def test_a_penalty_without_a_reason() -> None:
    old = Condition(type="Penalized", status="False", reason="Normal", message="x", last_transition_time=AT)
    status = EngineStatus(penalty="x0", conditions=(old,))
    assert taken_over((), {"inf/a": status}).punished == {"inf/a": Factor(value=0.0, reason="")}


def test_a_memory_that_was_kept() -> None:
    assert remembered(Memory()) == Restored(Memory())
    signals = Signals(
        engines=(
            EngineSignal(engine="inf/a", penalty=Factor(value=0.4), trim=Factor(value=0.9)),
            EngineSignal(engine="inf/b", alive=False),
        ),
        bytes_per_token=(("m", 3.5),),
    )
    last = build_snapshot([engine("a"), engine("b")], [policy()], signals, at=0.0)
    last = msgspec.structs.replace(last, class_edges=(100,))
    found = remembered(Memory(last=last))
    assert set(found.punished) == set(found.trimmed) == {"inf/a"}
    assert (found.dead, found.ratios, found.edges) == (("inf/b",), (("m", 3.5),), (100,))

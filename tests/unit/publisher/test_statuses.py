"""What the operator tells of policies and engines: statuses, written quietly, and Events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace_api.status import Condition
from headrace_operator.publisher import files
from headrace_operator.publisher.engine_status import SignalView, engine_status
from headrace_operator.publisher.events import MAX_EVENTS, event_name, with_event
from headrace_operator.publisher.overlay import laid_over
from headrace_operator.publisher.ports import StatusKey
from headrace_operator.publisher.statuses import StatusDirectory
from headrace_operator.snapshot.model import EngineState
from headrace_operator.snapshot.signals import Factor
from support.engine_manifests import AT, STATUS, engine, policy, state_of

LATER = "2026-01-01T00:01:00Z"


# Statuses


def test_statuses_are_quiet_and_coalesced(tmp_path: Path) -> None:
    """The API page, Status, Quiet: at most once per five seconds an object, and only what differs."""
    statuses = StatusDirectory(tmp_path)
    for generation, steady, written in ((1, 0.0, 1), (1, 1.0, 0), (2, 2.0, 0), (3, 4.9, 0), (3, 5.0, 1), (3, 50.0, 0)):
        statuses.set(policy(), generation, STATUS)
        assert statuses.flush(steady) == written
    statuses.set(policy(), 4, STATUS)
    assert statuses.flush(5.1, all_of_them=True) == 1


def test_statuses_that_stand_are_not_written_again_after_a_restart(tmp_path: Path) -> None:
    for expected in (1, 0):
        statuses = StatusDirectory(tmp_path)
        statuses.set(policy(), 1, STATUS)
        assert statuses.flush(0.0) == expected


def test_statuses_of_what_is_gone_are_removed(tmp_path: Path) -> None:
    statuses = StatusDirectory(tmp_path)
    statuses.set(policy(), 1, STATUS)
    statuses.set(policy("other"), 1, STATUS)
    statuses.flush(0.0)
    statuses.keep_only({StatusKey("RoutingPolicy", "inf/chat")})
    assert [path.name for path in (tmp_path / "status").iterdir()] == ["routingpolicy-inf-chat.yaml"]
    statuses.flush(10.0)
    assert len(list((tmp_path / "status").iterdir())) == 1


def test_a_status_that_cant_be_written_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statuses = StatusDirectory(tmp_path)
    statuses.set(policy(), 1, STATUS)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    assert statuses.flush(0.0) == 0
    monkeypatch.undo()
    assert statuses.flush(0.1) == 1


def condition(status: Any, kind: str) -> Condition:
    return next(one for one in status.conditions if one.type == kind)


def test_overlay() -> None:
    """Case STS-02: Ready is not True while the tables of this generation do not stand.

    https://github.com/argoproj/argo-cd/issues/23578
    """
    assert laid_over(STATUS, None, at=LATER) is STATUS
    bad = laid_over(STATUS, STATUS, unpublished=[("ConfigMapNotOurs", "f is not ours")], at=LATER)
    assert (condition(bad, "Ready").status, condition(bad, "Published").reason) == ("False", "ConfigMapNotOurs")
    assert condition(bad, "Ready").last_transition_time == LATER
    again = laid_over(STATUS, bad, unpublished=[("ConfigMapNotOurs", "f is not ours")], at="2027-01-01T00:00:00Z")
    assert again == bad
    refused = laid_over(STATUS, None, unpublished=[("WriteFailed", "x")], fault="f.yaml:3: bad", at=LATER)
    assert condition(refused, "Ready").reason == "InvalidSpec"
    assert condition(refused, "Stalled").status == "True"
    assert condition(refused, "Solved").status == "True"


FRESH = SignalView("Fresh", AT)


def shown(
    state: EngineState, view: SignalView | None = FRESH, fault: str = "", previous: Any = None, at: str = AT
) -> Any:
    return engine_status(engine("a"), 1, state, view, previous, at=at, fault=fault)


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        pytest.param(shown(state_of()), "Available", ("True", "ReplicasReady"), id="well"),
        pytest.param(shown(state_of(alive=False)), "Available", ("False", "NotAlive"), id="dead"),
        pytest.param(shown(state_of(state="Draining")), "Available", ("False", "Draining"), id="draining"),
        pytest.param(
            shown(msgspec.structs.replace(state_of(), ready=0.0)), "Available", ("False", "NoReplicas"), id="no replica"
        ),
        pytest.param(shown(state_of()), "SignalsFresh", ("True", "Fresh"), id="fresh"),
        pytest.param(shown(state_of(), None), "SignalsFresh", ("False", "NotRead"), id="not read"),
        pytest.param(
            shown(state_of(), SignalView("Unknown", AT, ("u: no page",)), at=LATER),
            "SignalsFresh",
            ("False", "Unknown"),
            id="lost",
        ),
        pytest.param(
            shown(state_of(), SignalView("Unknown", AT, ("u: no page",))),
            "SignalsFresh",
            ("Unknown", "Starting"),
            id="not read yet",
        ),
        pytest.param(
            shown(state_of(), SignalView("Unknown", LATER, ())), "SignalsFresh", ("False", "Unknown"), id="clock set"
        ),
        pytest.param(
            shown(state_of(), SignalView("Unknown", AT, ("away",), read=True)),
            "SignalsFresh",
            ("False", "Unknown"),
            id="what was read before is no start",
        ),
        pytest.param(
            shown(state_of(), SignalView("Unknown", AT, misnamed="no such source")),
            "SignalsFresh",
            ("False", "SourceUnknown"),
            id="a source that nobody configured is told at once",
        ),
        pytest.param(shown(state_of()), "Penalized", ("False", "Normal"), id="no penalty"),
        pytest.param(
            shown(state_of(penalty=Factor(value=0.4, reason="slow"))), "Penalized", ("True", "Outlier"), id="penalised"
        ),
        pytest.param(shown(state_of(), fault="f:1: bad"), "Ready", ("False", "InvalidSpec"), id="refused edit"),
        pytest.param(shown(state_of()), "Ready", ("True", "Accepted"), id="accepted"),
    ],
)
def test_engine_conditions(status: Any, kind: str, expected: tuple[str, str]) -> None:
    found = condition(status, kind)
    assert (found.status, found.reason) == expected


def test_engine_status_says_what_it_holds_against_the_engine() -> None:
    status = shown(state_of(penalty=Factor(value=0.4, reason="TBOT 3.0 times its profile for 61 s")))
    assert status.penalty == "x0.4"
    assert status.why == ("penalty x0.4: TBOT 3.0 times its profile for 61 s",)
    lost = shown(state_of(), SignalView("Unknown", AT, ("u: no page",)), at=LATER)
    assert (lost.why, lost.signals) == (("u: no page",), (f"metrics: Unknown since {AT}",))
    assert shown(state_of(), SignalView("Unknown", "", ("u: no page",)), at=LATER).signals == ("metrics: Unknown",)
    starting = shown(state_of(), SignalView("Unknown", AT, ("u: no page",)))
    assert (starting.why, starting.signals) == ((), ())


def test_a_drain_says_until_when_and_why() -> None:
    status = shown(state_of(state="Draining", message="a is drained until noon: new driver"))
    assert condition(status, "Available").message == "a is drained until noon: new driver; it gets no new requests"
    assert status.why == ("a is drained until noon: new driver",)


def test_engine_status_does_not_move_by_itself() -> None:
    """Case STS-01: the same facts a minute later give the same status, times included.

    https://github.com/strimzi/strimzi-kafka-operator/issues/13079
    """
    first = shown(state_of())
    assert shown(state_of(), previous=first, at=LATER) is first
    worse = shown(state_of(alive=False), previous=first, at=LATER)
    assert condition(worse, "Available").last_transition_time == LATER
    assert condition(worse, "Ready").last_transition_time == AT
    assert worse.as_of == LATER


def test_models_and_replicas_in_words() -> None:
    many = engine("a", models=[{"name": "m", "adapters": ["x", "y"]}])
    status = engine_status(many, 1, state_of(), FRESH, None, at=AT)
    assert (status.models, status.replicas_from) == ("m +2", "one per url")
    counted = engine("a", endpoints={"urls": ["http://a:1"], "replicas": 4})
    assert engine_status(counted, 1, state_of(), FRESH, None, at=AT).replicas_from == "declared"
    measured = state_of(ready_origin="Measured")
    assert engine_status(counted, 1, measured, FRESH, None, at=AT).replicas_from == "declared, less urls that refuse"
    assert engine_status(engine("a"), 1, measured, FRESH, None, at=AT).replicas_from == "urls that answer"
    pods = FRESH._replace(counted="ready endpoints of its Service")
    assert engine_status(engine("a"), 1, measured, pods, None, at=AT).replicas_from == pods.counted


# Events


def test_the_same_event_counts_up_under_one_name() -> None:
    events = with_event([], "RoutingPolicy", "inf/chat", "Normal", "WeightsChanged", "first", AT)
    events = with_event(events, "RoutingPolicy", "inf/chat", "Warning", "SignalsStale", "x", AT)
    events = with_event(events, "RoutingPolicy", "inf/chat", "Normal", "WeightsChanged", "second", LATER)
    assert [(one["reason"], one["count"], one["message"]) for one in events] == [
        ("SignalsStale", 1, "x"),
        ("WeightsChanged", 2, "second"),
    ]
    assert (events[1]["firstTimestamp"], events[1]["lastTimestamp"]) == (AT, LATER)
    assert events[1]["metadata"]["name"] == event_name("RoutingPolicy", "inf/chat", "WeightsChanged")


def test_events_are_bounded() -> None:
    events: list[dict[str, Any]] = [{"metadata": None, "count": "many"}]
    for number in range(MAX_EVENTS + 10):
        events = with_event(events, "RoutingPolicy", f"inf/p{number}", "Normal", "WeightsChanged", "x" * 5000, AT)
    assert len(events) == MAX_EVENTS
    assert max(len(one["message"]) for one in events) == 1024

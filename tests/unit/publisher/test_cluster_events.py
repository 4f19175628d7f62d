"""Events in a cluster: counted in one object over restarts, and never in the way."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_operator.publisher.cluster.events import EXPIRY_SECONDS, ClusterEvents
from headrace_operator.publisher.complaints import Complaints
from headrace_operator.publisher.notes import EventNote
from headrace_operator.publisher.ports import StatusKey
from headrace_operator.snapshot.clock import epoch_seconds, rfc3339
from support.engine_manifests import AT
from support.fake_kube import Call, FakeKube, Refuse

SOON = 20.0


def note(reason: str = "WeightsChanged", message: str = "m", name: str = "chat") -> EventNote:
    return EventNote("RoutingPolicy", f"inf/{name}", "Normal", reason, message)


UIDS = {StatusKey("RoutingPolicy", "inf/chat"): "uid-chat"}


def told(kube: FakeKube, *rounds: Any, uids: dict[StatusKey, str] = UIDS) -> None:
    """Tell in one process; each round: notes, states, at."""
    events = ClusterEvents(kube.client(), Complaints())
    for notes, states, at in rounds:
        before = list(kube.calls)
        events.tell(notes, states, uids, at)
        assert kube.calls == before  # nothing before it is sent
        events.send()
        running = events._running
        if running is not None:
            running.result(SOON)
    events.close(SOON)


def only(kube: FakeKube) -> dict[str, Any]:
    (name,) = kube.names("events")
    return kube.get("events", name)


def later(seconds: float) -> str:
    begin = epoch_seconds(AT)
    assert begin is not None
    return rfc3339(begin + seconds)


def test_events_count_up_in_one_object(kube: FakeKube) -> None:
    told(kube, ([note()], [], AT), ([note(message="n"), note(message="o")], [], later(60)))
    event = only(kube)
    assert (event["count"], event["message"]) == (3, "o")
    assert (event["firstTimestamp"], event["lastTimestamp"]) == (AT, later(60))
    assert event["involvedObject"]["uid"] == "uid-chat"
    assert event["metadata"]["namespace"] == "inf"


def test_counts_go_on_after_a_restart_and_states_are_not_told_again(kube: FakeKube) -> None:
    bad = note("PolicyInvalid", "spec.x: bad")
    told(kube, ([note()], [bad], AT), ([], [bad], later(5)))
    told(kube, ([note()], [bad], later(60)))
    found = {event["reason"]: event["count"] for (kind, _, _), event in kube.objects.items() if kind == "events"}
    assert found == {"WeightsChanged": 2, "PolicyInvalid": 1}
    told(kube, ([], [bad._replace(message="spec.x: worse")], later(70)))
    assert {event["count"] for (kind, _, _), event in kube.objects.items() if kind == "events"} == {2}


def test_what_expired_begins_anew(kube: FakeKube) -> None:
    told(kube, ([note()], [], AT), ([note()], [], later(EXPIRY_SECONDS + 1)))
    assert (only(kube)["count"], only(kube)["firstTimestamp"]) == (1, later(EXPIRY_SECONDS + 1))


def test_a_resource_made_anew_has_events_of_its_own(kube: FakeKube) -> None:
    told(kube, ([note()], [], AT))
    told(kube, ([note()], [], later(5)), uids={StatusKey("RoutingPolicy", "inf/chat"): "uid-new"})
    assert (only(kube)["count"], only(kube)["involvedObject"]["uid"]) == (1, "uid-new")


def test_an_event_that_cannot_be_written_delays_nothing(kube: FakeKube, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    client = kube.client(timeout=0.2)
    events = ClusterEvents(client, Complaints())
    with kube.hanging():
        for _ in range(3):
            events.tell([note()], [], UIDS, AT)
        events.send()  # gives back at once
        running = events._running
        assert running is not None
        running.result(SOON)
    events.tell([note("Other")], [], UIDS, AT)
    events.close(SOON)
    found = {event["reason"]: event["count"] for (kind, _, _), event in kube.objects.items() if kind == "events"}
    assert found == {"WeightsChanged": 3, "Other": 1}
    assert caplog.text.count("telling Events") == 2  # told once, and that it goes again


def test_an_event_that_is_refused_loses_only_itself(kube: FakeKube) -> None:
    def refuse(call: Call) -> None:
        if call.name.startswith("inf/bad"):
            raise Refuse(403, "Forbidden", "no")

    kube.refuse = refuse
    told(kube, ([note(name="bad"), note()], [], AT))
    assert len(kube.names("events")) == 1


def test_nobody_tells_who_does_not_lead(kube: FakeKube) -> None:
    events = ClusterEvents(kube.client(may_write=lambda: False), Complaints())
    events.tell([note()], [], UIDS, AT)
    events.close(SOON)
    assert kube.writes() == []

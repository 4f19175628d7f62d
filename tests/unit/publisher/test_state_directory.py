"""The state directory: whole files, identity, tables, statuses, Events, records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace_api.commands import EnvironmentFailed
from headrace_api.status import Condition, PolicyStatus, PolicySummary
from headrace_api.table import ClassRoutes, Identity, ModelRoutes, Route, RoutingTable, TableEngine
from headrace_operator.decision.memory import Memory
from headrace_operator.decision.tables.encode import stamped
from headrace_operator.publisher import files
from headrace_operator.publisher.configmap import configmap_manifest, is_ours, load, read_configmap
from headrace_operator.publisher.engine_status import SignalView, engine_status
from headrace_operator.publisher.events import MAX_EVENTS, event_name, with_event
from headrace_operator.publisher.heartbeat import Heartbeat
from headrace_operator.publisher.overlay import laid_over
from headrace_operator.publisher.records import (
    Record,
    read_memory,
    read_record,
    recorded_revisions,
    write_memory,
    write_record,
)
from headrace_operator.publisher.standalone import EventNote, StandalonePublisher, table_names
from headrace_operator.publisher.state import StateIdentity, locked, read_events, read_tables, start_term
from headrace_operator.publisher.statuses import StatusDirectory, StatusKey
from headrace_operator.publisher.tables import TableDirectory, TableKey
from headrace_operator.snapshot.model import EngineState, Snapshot
from headrace_operator.snapshot.signals import Factor
from support.engine_manifests import engine, policy

AT = "2026-01-01T00:00:00Z"
LATER = "2026-01-01T00:01:00Z"
KEY = TableKey("inf/chat", "fe-a")
NAMES = {KEY: "headrace-chat-fe-a"}


def table(revision: int = 1, weight: int = 10_000, frontend: str = "fe-a", name: str = "chat") -> RoutingTable:
    routes = (Route(engine="inf/a", weight=weight), Route(engine="inf/b", weight=10_000 - weight))
    return stamped(
        RoutingTable(
            schema_version=1,
            identity=Identity(uid="-", term=0, revision=0),
            policy=name,
            policy_namespace="inf",
            frontend=frontend,
            issued="",
            hash="",
            models=(ModelRoutes(model="m", classes=(ClassRoutes(routes=routes),)),),
            engines=(TableEngine(id="inf/a"), TableEngine(id="inf/b")),
        ),
        Identity(uid="u", term=1, revision=revision),
        AT,
    )


def contents(directory: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(directory)): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in directory.rglob("*")
        if path.is_file()
    }


# Files


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    files.write_atomically(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["f"]


def test_what_a_killed_writer_left_is_swept(tmp_path: Path) -> None:
    (tmp_path / ".f.yaml.x1").write_text("half")
    (tmp_path / ".lock").write_text("")
    files.sweep_temporaries(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == [".lock"]


def test_signature(tmp_path: Path) -> None:
    path = tmp_path / "f"
    assert not files.Signature(path).holds(path)
    path.write_text("a")
    seen = files.Signature(path)
    assert seen.holds(path)
    path.write_text("ab")
    assert not seen.holds(path)
    files.remove(path)
    files.remove(path)


# Identity


def test_each_start_is_a_term_of_one_uid(tmp_path: Path) -> None:
    first, second = start_term(tmp_path), start_term(tmp_path)
    assert (first.term, second.term, first.uid) == (1, 2, second.uid)


def test_a_broken_identity_is_never_made_anew(tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_text("{")
    with pytest.raises(EnvironmentFailed, match="mend it, or start with an empty --state"):
        start_term(tmp_path)


def test_one_operator_at_a_time(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(EnvironmentFailed, match="another operator runs on it"), locked(tmp_path):
        raise AssertionError("the lock was given twice")
    with locked(tmp_path):
        pass


def test_a_state_that_cant_be_a_directory(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(EnvironmentFailed, match="right would be a directory"), locked(tmp_path / "f" / "state"):
        raise AssertionError("locked")


# ConfigMaps


def test_configmap_round_trip() -> None:
    data = configmap_manifest(table(), "headrace-chat-fe-a")
    assert read_configmap(data, "f") == table()
    assert is_ours(data)
    manifest: Any = load(data)
    assert manifest["metadata"]["namespace"] == "inf"


def test_no_owner_reference() -> None:
    """Case REL-05: no ownerReference (one across namespaces had the table collected); labels instead.

    https://github.com/kubernetes/website/issues/29480
    """
    manifest: Any = load(configmap_manifest(table(), "x"))
    assert "ownerReferences" not in manifest["metadata"]
    assert manifest["metadata"]["labels"]["headrace.dev/policy"] == "chat"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"[", "not YAML"),
        (b"a: b", "not a ConfigMap with data"),
        (b"data: {x: y}", "data has no key table.json"),
        (b"data: {table.json: '{}'}", "table.json: Object missing required field"),
        (b"x" * (4 * 2**20 + 1), "right would be at most"),
    ],
)
def test_files_that_are_no_table(data: bytes, problem: str) -> None:
    found = read_configmap(data, "f.yaml")
    assert isinstance(found, str)
    assert problem in found
    assert not is_ours(data)


# Tables


def test_tables_are_written_read_back_and_left_alone(tmp_path: Path) -> None:
    tables = TableDirectory(tmp_path)
    assert tables.publish([table()], NAMES) == (table(),)
    before = contents(tmp_path)
    assert tables.repair(NAMES) == ()
    again = TableDirectory(tmp_path)
    assert again.read_back() == ()
    assert (again.tables(), again.path(KEY)) == ((table(),), tmp_path / "inf" / "headrace-chat-fe-a.yaml")
    assert again.repair(NAMES) == ()
    assert contents(tmp_path) == before


@pytest.mark.parametrize("harm", ["removed", "changed", "emptied"])
def test_what_someone_did_to_a_table_is_mended_in_the_next_round(tmp_path: Path, harm: str) -> None:
    """Case REL-05: a ConfigMap deleted (or edited) by hand stands again after one cycle.

    https://github.com/jaegertracing/jaeger-operator/pull/1467
    """
    tables = TableDirectory(tmp_path)
    tables.publish([table()], NAMES)
    path = tmp_path / "inf" / "headrace-chat-fe-a.yaml"
    if harm == "removed":
        path.unlink()
    else:
        path.write_text("kind: ConfigMap\n" if harm == "changed" else "")
    assert tables.repair(NAMES) == (KEY,)
    assert read_configmap(path.read_bytes(), "f") == table()


def test_another_name_moves_the_table(tmp_path: Path) -> None:
    tables = TableDirectory(tmp_path)
    tables.publish([table()], NAMES)
    assert tables.repair({KEY: "other"}) == (KEY,)
    assert [path.name for path in (tmp_path / "inf").iterdir()] == ["other.yaml"]


def test_files_of_others_are_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "inf" / "headrace-chat-fe-a.yaml"
    path.parent.mkdir()
    path.write_text("kind: ConfigMap\ndata: {mine: x}\n")
    tables = TableDirectory(tmp_path)
    assert len(tables.read_back()) == 1
    assert tables.publish([table()], NAMES) == ()
    assert tables.refusals[KEY].reason == "ConfigMapNotOurs"
    assert "mine" in path.read_text()
    path.unlink()
    assert tables.publish([table()], NAMES) == (table(),)
    assert tables.refusals == {}


@pytest.mark.parametrize(
    ("other", "names", "reason"),
    [
        (table(name="second"), {TableKey("inf/second", "fe-a"): "headrace-chat-fe-a"}, "ConfigMapTaken"),
        (
            msgspec.structs.replace(table(), policy_namespace="status"),
            {TableKey("status/chat", "fe-a"): "x"},
            "NamespaceReserved",
        ),
    ],
)
def test_places_that_are_taken(tmp_path: Path, other: RoutingTable, names: dict[TableKey, str], reason: str) -> None:
    tables = TableDirectory(tmp_path)
    tables.publish([table()], NAMES)
    assert tables.publish([other], names) == ()
    assert [refusal.reason for refusal in tables.refusals.values()] == [reason]
    assert tables.tables() == (table(),)


def test_a_write_that_fails_keeps_the_old_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = TableDirectory(tmp_path)
    tables.publish([table()], NAMES)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    assert tables.publish([table(2, 5_000)], NAMES) == ()
    assert tables.refusals[KEY].reason == "WriteFailed"
    assert tables.tables() == (table(),)
    monkeypatch.undo()
    assert tables.repair(NAMES) == ()
    assert tables.refusals[KEY].reason == "WriteFailed"
    assert tables.barred(NAMES) == frozenset()
    assert tables.refusals == {}


def test_places_are_judged_before_anything_is_decided(tmp_path: Path) -> None:
    path = tmp_path / "inf" / "headrace-chat-fe-a.yaml"
    path.parent.mkdir()
    path.write_text("kind: ConfigMap\n")
    tables = TableDirectory(tmp_path)
    assert tables.barred(NAMES) == {KEY}
    assert tables.refusals[KEY].reason == "ConfigMapNotOurs"
    assert tables.barred({}) == frozenset()
    assert tables.refusals == {}


def test_unreadable_and_foreign_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "inf").mkdir()
    (tmp_path / "inf" / "broken.yaml").write_text("[")
    (tmp_path / "status").mkdir()
    (tmp_path / "status" / "x.yaml").write_text("[")
    assert len(read_tables(tmp_path)[1]) == 1
    assert len(TableDirectory(tmp_path).read_back()) == 1


# Statuses

STATUS = PolicyStatus(
    observed_generation=1,
    conditions=(
        Condition(type="Ready", status="True", reason="Published", message="ok", last_transition_time=AT),
        Condition(type="Solved", status="True", reason="Optimal", message="ok", last_transition_time=AT),
    ),
)


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


def state_of(**fields: Any) -> EngineState:
    return EngineState(id="inf/a", spec=engine("a").spec, ready=1.0, **fields)


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


# Records, memory, heartbeat


def record(revision: int) -> Record:
    return Record(revision=revision, term=1, uid="u", at=AT, snapshot=Snapshot(at=1.0), memory=Memory())


def test_records_are_a_ring(tmp_path: Path) -> None:
    for revision in range(1, 6):
        write_record(tmp_path, record(revision), 3)
    assert recorded_revisions(tmp_path) == (3, 4, 5)
    assert read_record(tmp_path, 5) == record(5)
    assert read_record(tmp_path, 1) is None
    (tmp_path / "records" / "4.json").write_text("{")
    assert read_record(tmp_path, 4) is None


def test_memory_over_a_restart(tmp_path: Path) -> None:
    assert read_memory(tmp_path) == Memory()
    write_memory(tmp_path, Memory(shedding=("inf/chat",), retained=(("inf/old", "fe"),)))
    assert read_memory(tmp_path).retained == (("inf/old", "fe"),)
    (tmp_path / "memory.json").write_text("[")
    assert read_memory(tmp_path) == Memory()


def test_heartbeat_is_renewed_at_most_every_ten_seconds(tmp_path: Path) -> None:
    heart = Heartbeat(tmp_path)
    assert [heart.renew(steady, AT) for steady in (0.0, 5.0, 9.9, 10.0, 12.0)] == [True, False, False, True, False]
    assert (tmp_path / "heartbeat").read_text() == f"{AT}\n"


# All together


def publisher(state: Path, term: int = 1) -> StandalonePublisher:
    return StandalonePublisher(state, StateIdentity(uid="u", term=term))


def test_a_restart_takes_up_tables_statuses_and_revisions(tmp_path: Path) -> None:
    first = publisher(tmp_path)
    first.publish([table(7)], NAMES)
    shown = msgspec.structs.replace(STATUS, summary=PolicySummary(revision=7))
    first.policy_statuses["inf/chat"] = shown
    first.show_policies([policy()], {}, AT)
    first.tell([EventNote("RoutingPolicy", "inf/chat", "Normal", "WeightsChanged", "x")], {}, AT)
    first.flush(0.0)
    second = publisher(tmp_path, term=2)
    assert (second.revision, second.policy_statuses) == (7, {"inf/chat": shown})
    assert second.stamp_term({}) == 1
    standing = second.tables.tables()[0]
    assert (standing.identity, standing.hash) == (Identity(uid="u", term=2, revision=7), table(7).hash)
    assert second.stamp_term({}) == 0
    assert len(read_events(tmp_path)) == 1


def test_a_refused_edit_is_told_once(tmp_path: Path) -> None:
    """Case CRD-01: an Event once, not at every look. https://github.com/rook/rook/issues/3480"""
    made = publisher(tmp_path)
    for reason, count in (("f:1: bad", 1), ("f:1: bad", 1), ("f:1: worse", 2)):
        made.tell([], {("RoutingPolicy", "inf/chat"): reason}, AT)
        assert [(one["reason"], one["count"]) for one in read_events(tmp_path)] == [("PolicyInvalid", count)]
    made.tell([], {("InferenceEngine", "inf/a"): "f:1: bad"}, AT)
    assert read_events(tmp_path)[-1]["reason"] == "EngineInvalid"


def test_orphans_go_at_the_second_look_and_only_when_certain(tmp_path: Path) -> None:
    """Case REL-05: a deleted policy's tables are cleaned up, and an unreadable manifest deletes nothing.

    https://github.com/SparebankenVest/azure-key-vault-to-kubernetes/issues/153
    """
    made = publisher(tmp_path)
    made.publish([table()], NAMES)
    looks = [False, True, False, True, True, True]
    assert [made.remove_orphans([KEY], certain=certain) for certain in looks] == [(), (), (), (), (KEY,), ()]
    assert list((tmp_path / "inf").iterdir()) == []


def test_unpublished_tables_show_in_status(tmp_path: Path) -> None:
    made = publisher(tmp_path)
    (tmp_path / "inf").mkdir()
    (tmp_path / "inf" / "headrace-chat-fe-a.yaml").write_text("kind: ConfigMap\n")
    made.publish([table()], table_names([policy()]))
    made.policy_statuses["inf/chat"] = STATUS
    made.show_policies([policy(), policy("unknown")], {}, AT)
    made.flush(0.0)
    text = (tmp_path / "status" / "routingpolicy-inf-chat.yaml").read_text()
    assert "ConfigMapNotOurs" in text
    made.forget_others([engine("a")])
    assert list((tmp_path / "status").iterdir()) == []
    assert made.policy_statuses == {}


def test_engines_of_no_snapshot_have_no_status(tmp_path: Path) -> None:
    made = publisher(tmp_path)
    made.show_engines([engine("a"), engine("b")], {"inf/a": state_of()}, {}, {}, AT)
    assert made.flush(0.0) == 1

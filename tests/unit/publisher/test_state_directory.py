"""The state directory: whole files, identity, tables, records, and what a publisher makes of all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace_api.commands import EnvironmentFailed
from headrace_api.status import PolicySummary
from headrace_api.table import ClassRoutes, Identity, ModelRoutes, Route, RoutingTable, TableEngine
from headrace_operator.decision.memory import Memory
from headrace_operator.decision.tables.encode import stamped
from headrace_operator.publisher import files
from headrace_operator.publisher.configmap import configmap_manifest, is_ours, load, read_configmap
from headrace_operator.publisher.heartbeat import Heartbeat
from headrace_operator.publisher.notes import EventNote
from headrace_operator.publisher.places import Place, TableKey, table_places
from headrace_operator.publisher.records import (
    Record,
    read_memory,
    read_record,
    recorded_revisions,
    write_memory,
    write_record,
)
from headrace_operator.publisher.standalone import StandalonePublisher
from headrace_operator.publisher.state import StateIdentity, locked, read_events, read_tables, start_term
from headrace_operator.publisher.tables import TableDirectory
from headrace_operator.snapshot.model import Snapshot
from support.engine_manifests import AT, STATUS, engine, policy, state_of

KEY = TableKey("inf/chat", "fe-a")
NAMES = {KEY: Place("headrace-chat-fe-a")}


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
    assert tables.repair({KEY: Place("other")}) == (KEY,)
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
        (table(name="second"), {TableKey("inf/second", "fe-a"): Place("headrace-chat-fe-a")}, "ConfigMapTaken"),
        (
            msgspec.structs.replace(table(), policy_namespace="status"),
            {TableKey("status/chat", "fe-a"): Place("x")},
            "NamespaceReserved",
        ),
    ],
)
def test_places_that_are_taken(tmp_path: Path, other: RoutingTable, names: dict[TableKey, Place], reason: str) -> None:
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
    made.publish([table()], table_places([policy()]))
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

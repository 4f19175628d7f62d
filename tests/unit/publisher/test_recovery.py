"""Statuses after a kill: from records where they tell, from tables where nothing else does, never backwards."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headrace_api.status import PolicyStatus, PolicySummary
from headrace_api.table import ClassRoutes, Identity, ModelRoutes, Route, RoutingTable, TableEngine
from headrace_operator.publisher.recovery import recovered

CHAT = "inf/chat"


def table(revision: int, policy: str = "chat", frontend: str = "fe") -> RoutingTable:
    return RoutingTable(
        schema_version=1,
        identity=Identity(uid="u", term=1, revision=revision),
        policy=policy,
        policy_namespace="inf",
        frontend=frontend,
        issued=f"2026-11-29T12:00:0{revision}Z",
        hash=f"hash-{revision}",
        models=(ModelRoutes(model="m", classes=(ClassRoutes(routes=(Route(engine="inf/a", weight=10_000),)),)),),
        engines=(TableEngine(id="inf/a"),),
    )


def status(revision: int) -> PolicyStatus:
    return PolicyStatus(summary=PolicySummary(revision=revision), history=(f"t rev {revision}: x",))


def recorded(state: Path, revision: int, **statuses: PolicyStatus) -> None:
    (state / "records").mkdir(exist_ok=True)
    content = {"statuses": [(f"inf/{name}", one) for name, one in statuses.items()], "snapshot": {"at": 1}}
    (state / "records" / f"{revision}.json").write_bytes(msgspec.json.encode(content))


def test_a_status_that_knows_its_tables_stays(tmp_path: Path) -> None:
    recorded(tmp_path, 4, chat=status(4))
    known = {CHAT: status(3), "inf/gone": status(9)}
    assert recovered(tmp_path, known, [table(2), table(3, frontend="fe-2")]) == known


@pytest.mark.parametrize("behind", [{}, {CHAT: status(1)}])
def test_the_record_of_the_standing_revision_tells(behind: dict[str, PolicyStatus], tmp_path: Path) -> None:
    for revision in (1, 2, 3, 4):
        recorded(tmp_path, revision, chat=status(revision), other=status(revision))
    assert recovered(tmp_path, behind, [table(3)]) == {CHAT: status(3)}


def test_without_a_record_the_tables_tell(tmp_path: Path) -> None:
    """Also beside records that can't be read, and on top of the last that can."""
    recorded(tmp_path, 2, chat=status(2))
    (tmp_path / "records" / "3.json").write_text("{")
    found = recovered(tmp_path, {CHAT: status(1)}, [table(3)])[CHAT]
    assert found.weights == ("fe: a 100 %",)
    assert (found.summary.revision, found.summary.hash, found.as_of) == (3, "hash-3", "2026-11-29T12:00:03Z")
    assert found.history == (
        "2026-11-29T12:00:03Z rev 3: the operator ended while publishing, causes are not known; fe: a 100 %",
        "t rev 2: x",
    )


def test_each_policy_by_itself(tmp_path: Path) -> None:
    recorded(tmp_path, 5, chat=status(5))
    found = recovered(tmp_path, {"inf/two": status(2)}, [table(5), table(2, "two")])
    assert found == {CHAT: status(5), "inf/two": status(2)}

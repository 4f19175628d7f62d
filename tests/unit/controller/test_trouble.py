"""Publications that don't come off: a file that is somebody else's, a full disk, a kill between two writes."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from headrace_api.engine import InferenceEngine
from headrace_api.policy import RoutingPolicy
from headrace_operator.controller.clock import Clock
from headrace_operator.controller.loop import Controller
from headrace_operator.controller.metrics import OperatorMetrics
from headrace_operator.controller.takeover import remembered
from headrace_operator.loader.config_file import ConfigFile
from headrace_operator.loader.scrape import Scraper
from headrace_operator.loader.source import ScrapeSettings, Target
from headrace_operator.publisher import files, standalone, tables
from headrace_operator.publisher.records import read_memory, recorded_revisions
from headrace_operator.publisher.standalone import StandalonePublisher
from headrace_operator.publisher.state import read_events, read_statuses, start_term
from headrace_operator.store.resources import Resources
from support.engine_manifests import engine, policy
from support.operator_process import condition, stamps, status, weights

PLACE = "inf/headrace-chat-fe-a.yaml"


class NoSource(Scraper):
    """Reads nothing: engines are neither measured nor found dead."""

    def retarget(self, targets: Iterable[Target]) -> None:
        super().retarget(())


class Operator:
    """One start on a state directory; ``round`` goes round once and writes everything that is due."""

    def __init__(self, state: Path, clock: Clock | None = None, **spec: Any) -> None:
        self.state = state
        self.engines: tuple[InferenceEngine, ...] = (engine("a"), engine("b"))
        self.policies: tuple[RoutingPolicy, ...] = (policy(**spec),)
        self.source = NoSource(ScrapeSettings(), follow=False)
        self.publisher = StandalonePublisher(state, start_term(state))
        self.controller = Controller(
            self,
            self.source,
            self.publisher,
            ConfigFile(None),
            OperatorMetrics(),
            clock or Clock(),
            remembered(read_memory(state)),
        )

    def look(self, *, thorough: bool) -> Resources:
        return Resources(engines=self.engines, policies=self.policies, complete=True)

    async def round(self) -> bool:
        return await self.controller.once()

    def found(self, kind: str) -> tuple[str, str]:
        one = condition(status(self.state, "routingpolicy", "chat"), kind)
        return one.get("status", ""), one.get("reason", "")

    def history(self) -> tuple[str, ...]:
        return read_statuses(self.state)["inf/chat"].history

    def told(self) -> list[str]:
        return [event["reason"] for event in read_events(self.state) for _ in range(event["count"])]


def foreign(state: Path) -> Path:
    place = state / PLACE
    place.parent.mkdir(parents=True)
    place.write_text("kind: ConfigMap\ndata: {mine: x}\n")
    return place


async def test_somebody_elses_file_is_told_once_and_stops_no_other_table(tmp_path: Path) -> None:
    """Cases STS-01, STS-02: a table that can't stand shows in status from the first round, and nothing is repeated.

    https://github.com/strimzi/strimzi-kafka-operator/issues/13079
    """
    place = foreign(tmp_path)
    operator = Operator(tmp_path)
    assert await operator.round()
    assert operator.found("Published") == operator.found("Ready") == ("False", "ConfigMapNotOurs")
    assert weights(tmp_path, "fe-b")
    assert len(operator.history()) == 1
    before = stamps(tmp_path)
    for _ in range(3):
        assert await operator.round()
    assert stamps(tmp_path) == before
    place.unlink()
    assert await operator.round()
    assert operator.found("Published") == ("True", "Written")
    assert operator.found("Ready")[0] == "True"
    assert weights(tmp_path, "fe-a")


async def test_the_only_table_is_refused(tmp_path: Path) -> None:
    foreign(tmp_path)
    operator = Operator(tmp_path, frontends=[{"name": "fe-a", "demand": {"requestsPerSecond": 5}}])
    assert await operator.round()
    assert operator.found("Published") == ("False", "ConfigMapNotOurs")
    assert "WeightsChanged" not in operator.told()
    assert recorded_revisions(tmp_path) == ()


class Disk:
    """A disk that is full when ``full``: nothing new can be written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        real = files.write_atomically

        def write(path: Path, data: bytes, *, sync: bool = True) -> None:
            if self.full:
                raise OSError(28, "No space left on device")
            real(path, data, sync=sync)

        for module in ("tables", "standalone", "statuses", "heartbeat", "records"):
            monkeypatch.setattr(f"headrace_operator.publisher.{module}.write_atomically", write)


async def test_a_full_disk_is_told_once_and_the_cause_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The table is written once there is room, and history says why weights changed, not that something settled."""
    disk = Disk(monkeypatch)
    operator = Operator(tmp_path, strategy={"type": "Static"})
    assert await operator.round()
    told = operator.told()
    disk.full = True
    operator.engines = (engine("a"), engine("b", capacity={"perReplica": {"requestsPerSecond": 300}}))
    caplog.set_level(logging.INFO)
    for _ in range(3):
        assert await operator.round()
    assert weights(tmp_path, "fe-a") == {"inf/a": 5000, "inf/b": 5000}
    assert operator.told() == told
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warned) == len(set(warned)) > 0
    assert any("No space left on device" in line for line in warned)
    disk.full = False
    assert await operator.round()
    assert weights(tmp_path, "fe-a") == {"inf/a": 2500, "inf/b": 7500}
    assert "rev 2: capacity 100 %" in operator.history()[0]
    assert operator.told() == [*told, "WeightsChanged"]


@pytest.mark.parametrize("survives", ["one table", "tables", "record"])
async def test_killed_between_the_writes_of_a_publication(
    survives: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 3: restarted, it continues revisions and history: status says what stands, with a line for each change."""
    first = Operator(tmp_path, strategy={"type": "Static"})
    assert await first.round()
    old = first.history()

    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    real = tables.write_atomically
    written: list[Path] = []

    def write(path: Path, data: bytes, *, sync: bool = True) -> None:
        if written:
            raise Killed
        written.append(path)
        real(path, data, sync=sync)

    if survives == "one table":
        monkeypatch.setattr(tables, "write_atomically", write)
    elif survives == "tables":
        monkeypatch.setattr(standalone, "write_record", killed)
    monkeypatch.setattr(standalone.StandalonePublisher, "show_policies", killed)
    first.engines = (engine("a"), engine("b", capacity={"perReplica": {"requestsPerSecond": 300}}))
    with pytest.raises(Killed):
        await first.round()
    monkeypatch.undo()

    second = Operator(tmp_path, strategy={"type": "Static"})
    second.engines = first.engines
    assert await second.round()
    assert weights(tmp_path, "fe-a") == weights(tmp_path, "fe-b") == {"inf/a": 2500, "inf/b": 7500}
    history = second.history()
    assert history[-1:] == old
    assert " rev 2: " in history[-2]
    assert ("capacity 100 %" in history[-2]) == (survives == "record")
    found = read_statuses(tmp_path)["inf/chat"]
    assert found.weights == ("fe-a: b 75 %, a 25 %", "fe-b: b 75 %, a 25 %")
    assert found.summary.revision == max(table.identity.revision for table in second.publisher.tables.tables())


class Later(Clock):
    """A clock that a test puts forward."""

    offset: ClassVar[list[float]] = []  # clocks are frozen

    def steady(self) -> float:
        return time.monotonic() + sum(self.offset)


async def test_rounds_that_fail_for_long_are_said_in_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that decides nothing any more must not look well in ``kubectl get rpol``; what stands stays."""
    clock = Later()
    operator = Operator(tmp_path, clock)
    assert await operator.round()
    stood, before = weights(tmp_path, "fe-a"), operator.history()

    def broken(*_: object, **__: object) -> None:
        raise KeyError("a fault of ours")

    monkeypatch.setattr("headrace_operator.controller.loop.build_snapshot", broken)
    assert not await operator.round()
    assert (operator.found("Ready")[0], operator.found("Solved")[0]) == ("True", "True")
    clock.offset.append(operator.controller.patience())
    assert not await operator.round()
    assert operator.found("Ready") == operator.found("Solved") == ("False", "RoundsFail")
    told = condition(status(tmp_path, "routingpolicy", "chat"), "Ready")["message"]
    assert "decisions fail, the last tables stay" in told
    assert "a fault of ours" in told
    stands = stamps(tmp_path)
    clock.offset.append(100)
    assert not await operator.round()
    assert stamps(tmp_path) == stands
    monkeypatch.undo()
    assert await operator.round()
    assert (operator.found("Ready")[0], operator.found("Solved")[0]) == ("True", "True")
    assert (weights(tmp_path, "fe-a"), operator.history()) == (stood, before)


async def test_a_shadow_policy_goes_on_over_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it would publish stands in no table: without it every restart would be its first weights again."""
    first = Operator(tmp_path, mode="Shadow")
    assert await first.round()
    assert "first weights" in first.history()[0]
    before = stamps(tmp_path)
    assert await first.round()
    assert stamps(tmp_path) == before
    second = Operator(tmp_path, mode="Shadow")
    assert await second.round()
    assert second.history() == first.history()
    assert second.told() == []

    Disk(monkeypatch).full = True
    second.engines = (engine("b"),)
    assert await second.round()
    assert second.told() == []

"""Rounds of the loop that fail: told once a kind, the last tables stay, and it goes on."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession

from headrace_api.commands import EnvironmentFailed
from headrace_api.table import ClassRoutes, Identity, ModelRoutes, Route, RoutingTable, ShedShare, TableEngine
from headrace_operator.controller import loop
from headrace_operator.controller.clock import Clock
from headrace_operator.controller.loop import Controller
from headrace_operator.controller.metrics import OperatorMetrics
from headrace_operator.controller.serve import loop_health, served
from headrace_operator.controller.takeover import all_fresh, remembered, shedding_policies
from headrace_operator.decision.memory import Memory
from headrace_operator.kube.client import NotLeading
from headrace_operator.loader.config_file import ConfigFile
from headrace_operator.loader.scrape import Scraper
from headrace_operator.loader.source import ScrapeSettings
from headrace_operator.publisher.standalone import StandalonePublisher
from headrace_operator.publisher.state import StateIdentity
from headrace_operator.snapshot.signals import SignalStatus
from headrace_operator.store.resources import ResourceName, Resources
from support.engine_manifests import engine, policy

GOOD = Resources(engines=(engine("a"), engine("b")), policies=(policy(),), complete=True)


class Store:
    """Gives resources, or fails when told to."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.given = GOOD

    def look(self, *, thorough: bool) -> Resources:
        if self.failure is not None:
            raise self.failure
        return self.given


def impatient(folder: Path) -> Path:
    """A configuration under which a start waits half a second for readings at most."""
    path = folder / "impatient.yaml"
    path.write_text("scrape: {interval: 100ms, timeout: 100ms}\n")
    return path


class Operator:
    def __init__(self, state: Path, config: Path | None = None) -> None:
        self.store, self.metrics = Store(), OperatorMetrics()
        self.source = Scraper(ScrapeSettings(), follow=False)
        self.publisher = StandalonePublisher(state, StateIdentity(uid="u", term=1))
        self.controller = Controller(
            self.store, self.source, self.publisher, ConfigFile(config), self.metrics, Clock(), remembered(Memory())
        )

    def count(self, outcome: str) -> float:
        return self.metrics.registry.get_sample_value("headrace_operator_ticks_total", {"outcome": outcome}) or 0.0


async def run_until(operator: Operator, condition: object) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(operator.controller.run(stop))
    async with asyncio.timeout(60):
        while not condition():  # type: ignore[operator]
            operator.controller.wake()
            await asyncio.sleep(0.01)
    stop.set()
    await running


async def test_a_round_that_fails_is_told_once_and_leaves_the_tables(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Case CRD-01: one log line a kind of failure, not a stack trace a cycle.

    https://github.com/kubernetes-sigs/controller-runtime/issues/1032
    """
    operator = Operator(tmp_path / "state", impatient(tmp_path))
    await run_until(operator, lambda: operator.count("done") >= 1)
    tables = operator.publisher.tables.tables()
    assert len(tables) == 2
    caplog.set_level(logging.INFO)

    stop = asyncio.Event()
    running = asyncio.create_task(operator.controller.run(stop))
    async with asyncio.timeout(60):
        while operator.count("done") < 2:  # noqa: ASYNC110  another task's progress
            await asyncio.sleep(0.01)
        operator.store.failure = RuntimeError("the disk sings")
        while operator.count("failed") < 3:
            operator.controller.wake()
            await asyncio.sleep(0.01)
        operator.store.failure = None
        done = operator.count("done")
        while operator.count("done") <= done:
            operator.controller.wake()
            await asyncio.sleep(0.01)
    stop.set()
    await running
    said = [record.getMessage() for record in caplog.records]
    assert sum("the disk sings" in line for line in said) == 1
    assert "rounds succeed again" in said
    assert [table.hash for table in operator.publisher.tables.tables()] == [table.hash for table in tables]


async def test_what_is_not_watched_any_more_keeps_its_tables(tmp_path: Path) -> None:
    """A namespace that the configuration names no more: its policies were not deleted, and its routers still route."""
    operator = Operator(tmp_path)
    await run_until(operator, lambda: operator.count("done") >= 1)
    operator.store.given = Resources(complete=True, namespaces=frozenset({"elsewhere"}))
    await run_until(operator, lambda: operator.count("done") >= 5)
    assert len(operator.publisher.tables.tables()) == 2
    operator.store.given = Resources(complete=True, namespaces=frozenset({"inf"}))
    await run_until(operator, lambda: operator.count("done") >= 9)
    assert operator.publisher.tables.tables() == ()


async def test_nothing_that_a_heartbeat_meets_ends_it_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else every router says that the operator is gone, while it goes on publishing."""
    monkeypatch.setattr(loop, "RETRY_SECONDS", 0.01)
    operator = Operator(tmp_path)
    tried = 0

    def renew(*_: object) -> bool:
        nonlocal tried
        tried += 1
        raise RuntimeError("cannot schedule new futures after shutdown")

    monkeypatch.setattr(operator.publisher._heartbeat, "renew", renew)
    await run_until(operator, lambda: tried >= 3)
    assert caplog.text.count("renewing the heartbeat") == 1


async def test_what_fails_at_the_start_is_a_round_that_fails(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    operator.store.failure = RuntimeError("the disk sings")
    await run_until(operator, lambda: operator.count("failed") >= 1)


async def test_a_wrong_edit_of_the_configuration_is_told_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("tick: 1s")
    operator = Operator(tmp_path / "state", config)
    config.write_text("tick: 2s\nliveness: {refused: 9}")
    caplog.set_level(logging.INFO)
    assert await operator.controller.once()
    config.write_text("tick: never")
    assert await operator.controller.once()
    said = [record.getMessage() for record in caplog.records]
    await operator.source.close()
    assert any("tick: 'never'" in line for line in said)
    assert "the configuration changed" in said


async def test_rounds_of_one_that_does_not_lead_end_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A Lease that can't be renewed holds writes back; nothing of the decision counts as done."""
    operator = Operator(tmp_path)
    caplog.set_level(logging.INFO)
    leading = False
    publish = operator.publisher.publish

    def guarded(*arguments: Any) -> Any:
        if not leading:
            raise NotLeading("PATCH /x: not the leader any more; nothing is written")
        return publish(*arguments)

    operator.publisher.publish = guarded  # type: ignore[method-assign]
    assert not await operator.controller.once()
    assert not await operator.controller.once()
    said = [record for record in caplog.records if "not the leader" in record.getMessage()]
    assert [(record.levelno, record.exc_info) for record in said] == [(logging.INFO, None)]
    leading = True
    assert await operator.controller.once()
    assert len(operator.publisher.tables.tables()) == 2
    await operator.source.close()


async def test_tables_of_a_policy_that_is_refused_stay(tmp_path: Path) -> None:
    """After a restart a refused policy has no last valid spec: it is missing, and not deleted (case CRD-01).

    https://github.com/apache/flink-kubernetes-operator/pull/196
    """
    operator = Operator(tmp_path)
    assert await operator.controller.once()
    refused = {ResourceName("RoutingPolicy", "inf/chat"): "spec.models: is missing"}
    operator.store.given = Resources(engines=GOOD.engines, refused=refused, complete=True)
    for _ in range(3):
        assert await operator.controller.once()
    assert len(operator.publisher.tables.tables()) == 2
    operator.store.given = Resources(engines=GOOD.engines, complete=True)
    for _ in range(3):
        assert await operator.controller.once()
    assert operator.publisher.tables.tables() == ()
    await operator.source.close()


async def test_once_that_fails_says_so(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    assert await operator.controller.once()
    operator.publisher.publish = lambda *_: 1 / 0  # type: ignore[method-assign,assignment]
    assert not await operator.controller.once()
    await operator.source.close()


def table(share: float) -> RoutingTable:
    shed = (ShedShare(priority="default", share=share),) if share else ()
    return RoutingTable(
        schema_version=1,
        identity=Identity(uid="u", term=1, revision=1),
        policy="chat",
        policy_namespace="inf",
        frontend="fe",
        issued="",
        hash="",
        models=(
            ModelRoutes(model="m", classes=(ClassRoutes(routes=(Route(engine="inf/a", weight=10_000),), shed=shed),)),
        ),
        engines=(TableEngine(id="inf/a"),),
    )


@pytest.mark.parametrize(("share", "expected"), [(0.0, frozenset()), (0.2, frozenset({"inf/chat"}))])
def test_policies_that_shed(share: float, expected: frozenset[str]) -> None:
    assert shedding_policies([table(share)]) == expected


def status(name: str, state: str = "Fresh") -> SignalStatus:
    return SignalStatus(name=name, state=state)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("states", "frontends", "expected"),
    [
        pytest.param([], [], False, id="nothing read"),
        pytest.param([status("engine inf/a")], [], True, id="engines alone"),
        pytest.param([status("engine inf/a"), status("engine inf/b", "Unknown")], [], False, id="one is missing"),
        pytest.param([status("engine inf/a")], ["fe"], False, id="no demand yet"),
        pytest.param([status("engine inf/a"), status("demand inf/chat fe m")], ["fe"], True, id="all"),
        pytest.param([status("mass loss: over half of m seems dead; held", "Held")], [], False, id="held"),
    ],
)
def test_a_restart_goes_on_once_all_is_read(states: list[SignalStatus], frontends: list[str], expected: bool) -> None:
    assert all_fresh(states, frontends) is expected


def test_weights_shown_are_those_that_stand() -> None:
    metrics = OperatorMetrics()

    def shown() -> dict[str, float]:
        (family,) = [family for family in metrics.registry.collect() if family.name == "headrace_route_weight"]
        return {sample.labels["engine"]: sample.value for sample in family.samples}

    standing = table(0.0)
    for _ in range(2):
        metrics.show_weights([standing])
        assert shown() == {"inf/a": 1.0}
    other = msgspec.structs.replace(
        standing,
        models=(ModelRoutes(model="m", classes=(ClassRoutes(routes=(Route(engine="inf/b", weight=10_000),)),)),),
    )
    metrics.show_weights([other])
    assert shown() == {"inf/b": 1.0}
    metrics.show_weights([])
    assert shown() == {}


async def test_own_pages() -> None:
    metrics = OperatorMetrics()
    metrics.show_weights([table(0.0)])
    metrics.show_ages({"inf/a": 2.0})
    ages = [1.0]
    ready = [True]

    def before_page() -> None:
        metrics.loop_age.set(ages[0])

    health = loop_health(lambda: ages[0], lambda: 10.0)
    serving = served(("127.0.0.1", 0), metrics, health, lambda: (ready[0], "known"), before_page)
    async with serving as url, ClientSession() as session:
        async with session.get(f"{url}/metrics") as answer:
            page = await answer.text()
        assert 'headrace_route_weight{engine="inf/a"' in page
        assert "headrace_operator_loop_age_seconds 1.0" in page
        for age, expected in ((1.0, 200), (11.0, 503)):
            ages[0] = age
            async with session.get(f"{url}/healthz") as answer:
                assert answer.status == expected
        for known, expected in ((True, 200), (False, 503)):
            ready[0] = known
            async with session.get(f"{url}/readyz") as answer:
                assert (answer.status, await answer.text()) == (expected, "known\n")
        port = int(url.rpartition(":")[2])
        with pytest.raises(EnvironmentFailed, match="right would be a free address"):
            async with served(("127.0.0.1", port), metrics, health):
                raise AssertionError("the address was bound twice")

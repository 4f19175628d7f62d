"""The operator as a real process: manifests in, tables and statuses out, edits, faults, kill -9, and quiet."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import yaml

from headrace_operator.publisher.records import read_record, recorded_revisions
from support.engine_manifests import engine_dict, policy_dict
from support.fake_fleet import FakeEngine, FakeFleet, FakeRouter
from support.operator_process import condition, operator, stamps, status, tables, until, weights, write_manifests

CONFIG: dict[str, Any] = {
    "tick": "200ms",
    "scrape": {"interval": "200ms", "timeout": "2s"},
    "liveness": {"refused": 2},
    "penalty": {
        "after": "1s",
        "window": "2s",
        "minRequests": 5,
        "recoverAfter": "1s",
        "recoverStep": "500ms",
        "expiry": "1m",
    },
}


NEAR = {"region": "r1"}
FRONTENDS = [{"name": name, "location": NEAR, "demand": {"requestsPerSecond": 1}} for name in ("fe-a", "fe-b")]


def chat(**spec: Any) -> dict[str, Any]:
    return policy_dict(frontends=FRONTENDS, **spec)


class Place(NamedTuple):
    fleet: FakeFleet
    manifests: Path
    state: Path
    config: Path
    log: Path

    def options(self) -> tuple[str, ...]:
        return ("--config", str(self.config))

    def engines(self, names: str) -> list[dict[str, Any]]:
        """Engines of these names; a stands beside the front-ends."""
        return [
            engine_dict(name, self.fleet.urls[name], rampUp="1s", location=NEAR if name == "a" else {})
            for name in names
        ]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    fleet = FakeFleet()
    made = Place(fleet, tmp_path / "manifests", tmp_path / "state", tmp_path / "config.yaml", tmp_path / "log")
    for name in "abc":
        await fleet.add(name, FakeEngine())
    for frontend in ("fe-a", "fe-b"):
        await fleet.add(frontend, FakeRouter(frontend, 60.0))
    routers = [{"frontend": name, "urls": [fleet.urls[name]]} for name in ("fe-a", "fe-b")]
    made.config.write_text(yaml.safe_dump(CONFIG | {"routers": routers}))
    write_manifests(made.manifests, "engines.yaml", *made.engines("abc"))
    write_manifests(made.manifests, "policy.yaml", chat())
    try:
        yield made
    finally:
        await fleet.stop()


def fresh(place: Place) -> bool:
    return condition(status(place.state, "routingpolicy", "chat"), "SignalsFresh").get("status") == "True"


async def settled(place: Place) -> dict[str, tuple[int, int]]:
    """Wait until signals are measured and nothing has been written for a while; gives the stamps."""
    await until(lambda: fresh(place), "fresh signals")
    last = stamps(place.state)
    calm = 0
    for _ in range(600):
        await asyncio.sleep(0.1)
        now = stamps(place.state)
        calm = calm + 1 if now == last else 0
        last = now
        if calm == 60:
            return now
    raise AssertionError("the state never became quiet")


async def test_quiet(place: Place) -> None:
    """Case STS-01: after settling, ten calm rounds write nothing but the heartbeat; the order of files doesn't matter.

    https://github.com/strimzi/strimzi-kafka-operator/issues/13079
    """
    async with operator(
        place.manifests, place.state, place.log, *place.options(), "--metrics", "127.0.0.1:0"
    ) as running:
        address = (await until(lambda: re.search(r"metrics on (\S+)", running.log()), "the metrics address"))[1]
        before = await settled(place)
        async with aiohttp.ClientSession() as session:
            rounds = await ticks(session, address)
            write_manifests(place.manifests, "engines.yaml", *place.engines("cba"))
            async with asyncio.timeout(60):
                while await ticks(session, address) < rounds + 10:  # noqa: ASYNC110  another process' counter
                    await asyncio.sleep(0.1)
            async with session.get(f"{address}/healthz") as answer:
                assert answer.status == 200
        assert stamps(place.state) == before
        assert await running.terminate() == 0
    assert "Traceback" not in place.log.read_text()


async def ticks(session: aiohttp.ClientSession, address: str) -> float:
    async with session.get(f"{address}/metrics") as answer:
        found = re.search(r'^headrace_operator_ticks_total\{outcome="done"\} (\S+)$', await answer.text(), re.MULTILINE)
    return float(found[1]) if found else 0.0


async def test_measured_demand_replaces_what_is_declared(place: Place) -> None:
    """Declared, both front-ends fit on the near engine; what routers measure does not, and spills."""
    async with operator(place.manifests, place.state, place.log, *place.options()):
        await until(
            lambda: [weights(place.state, name).get("inf/a") for name in ("fe-a", "fe-b")] == [10_000, 10_000],
            "all to the near engine",
        )
        share = await until(
            lambda: (
                (both := sum(weights(place.state, name).get("inf/a", 0) for name in ("fe-a", "fe-b"))) < 20_000 and both
            ),
            "a spill",
        )
        assert share > 10_000
        await until(lambda: abs(demand(place) - 120) < 20, "the measured demand in status")


def demand(place: Place) -> float:
    summary = status(place.state, "routingpolicy", "chat").get("status", {}).get("summary", {})
    return float(summary["demand"].split()[0]) if "demand" in summary else 0.0


async def test_edits_are_picked_up_and_bad_ones_stop_nobody(place: Place) -> None:
    """Cases CRD-01, CRD-04 h, STS-02: bad files beside good ones; generations follow edits; what is empty is told.

    https://github.com/rook/rook/issues/3480, https://github.com/openshift/api/pull/412,
    https://github.com/argoproj/argo-cd/issues/23578
    """
    async with operator(place.manifests, place.state, place.log, *place.options()) as running:
        await until(lambda: set(tables(place.state)) == {"fe-a", "fe-b"}, "both tables")
        (place.manifests / "bad.yaml").write_text("apiVersion: [")
        (place.manifests / "worse.yaml").write_text(yaml.safe_dump(engine_dict("w", "ftp://w")))
        await until(lambda: "worse.yaml" in running.log() and "bad.yaml" in running.log(), "both faults in the log")

        write_manifests(place.manifests, "policy.yaml", chat(strategy={"type": "RoundRobin"}))
        await until(lambda: set(weights(place.state, "fe-a").values()) == {3333, 3334}, "round robin")
        document = await until(
            lambda: (
                (found := status(place.state, "routingpolicy", "chat")).get("status", {}).get("observedGeneration") == 2
                and found
            ),
            "the second generation",
        )
        assert document["metadata"]["generation"] == 2
        assert condition(document, "Ready")["status"] == "True"

        revision = tables(place.state)["fe-a"].identity.revision
        write_manifests(place.manifests, "policy.yaml", chat(strategy={"type": "Roulette"}))
        document = await until(
            lambda: condition(found := status(place.state, "routingpolicy", "chat"), "Stalled") and found, "Stalled"
        )
        assert condition(document, "Ready")["reason"] == "InvalidSpec"
        assert "Roulette" in condition(document, "Stalled")["message"]
        assert tables(place.state)["fe-a"].identity.revision == revision

        nobody = chat(engineSelector={"matchLabels": {"tier": "none"}})
        write_manifests(place.manifests, "policy.yaml", nobody)
        document = await until(
            lambda: (
                (found := status(place.state, "routingpolicy", "chat")).get("status", {}).get("observedGeneration") == 3
                and found
            ),
            "the generation without engines",
        )
        assert condition(document, "Ready")["status"] == "False"
        assert set(tables(place.state)) == {"fe-a", "fe-b"}


async def test_a_table_deleted_by_hand_and_a_policy_deleted_for_good(place: Place) -> None:
    """Case REL-05: recreated within a cycle; a deleted policy's tables go, but not while a manifest can't be read.

    https://github.com/jaegertracing/jaeger-operator/pull/1467
    """
    async with operator(place.manifests, place.state, place.log, *place.options()):
        await until(lambda: set(tables(place.state)) == {"fe-a", "fe-b"}, "both tables")
        (place.state / "inf" / "headrace-chat-fe-a.yaml").unlink()
        await until(lambda: set(tables(place.state)) == {"fe-a", "fe-b"}, "the table again")
        (place.manifests / "policy.yaml").unlink()
        await until(lambda: tables(place.state) == {}, "no tables")
        await until(lambda: not status(place.state, "routingpolicy", "chat"), "no status")


async def test_a_dead_engine_leaves_the_tables_and_returns(place: Place) -> None:
    async with operator(place.manifests, place.state, place.log, *place.options()):
        await until(lambda: fresh(place), "fresh signals")
        await place.fleet.kill("a")
        await until(
            lambda: (
                tables(place.state) and all(not weights(place.state, name).get("inf/a") for name in ("fe-a", "fe-b"))
            ),
            "no weight for the dead engine",
        )
        await until(
            lambda: condition(status(place.state, "inferenceengine", "a"), "Available").get("reason") == "NotAlive",
            "its status",
        )
        await place.fleet.restore("a")
        await until(
            lambda: condition(status(place.state, "inferenceengine", "a"), "Available").get("status") == "True",
            "the engine back",
        )


async def test_a_slow_engine_is_penalised_and_recovers(place: Place) -> None:
    async with operator(place.manifests, place.state, place.log, *place.options()):
        await until(lambda: fresh(place), "fresh signals")
        slow = place.fleet.things["b"]
        assert isinstance(slow, FakeEngine)
        slow.tbot = 0.03
        document = await until(
            lambda: (
                condition(found := status(place.state, "inferenceengine", "b"), "Penalized").get("status") == "True"
                and found
            ),
            "the penalty",
        )
        assert "times its profile" in condition(document, "Penalized")["message"]
        slow.tbot = 0.01
        await until(
            lambda: condition(status(place.state, "inferenceengine", "b"), "Penalized").get("status") == "False",
            "the recovery",
        )


async def test_kill_and_restart(place: Place) -> None:
    """Issue 3: kill -9 of the operator; restarted, it continues revisions and history under a new term."""
    async with operator(place.manifests, place.state, place.log, *place.options()) as first:
        await until(lambda: fresh(place), "fresh signals")
        await first.kill()
    before, history = tables(place.state), status(place.state, "routingpolicy", "chat")["status"]["history"]
    async with operator(place.manifests, place.state, place.log, *place.options()) as second:
        await until(lambda: tables(place.state)["fe-a"].identity.term == 2, "the new term")
        assert tables(place.state)["fe-a"].identity.uid == before["fe-a"].identity.uid
        last = max(table.identity.revision for table in before.values())
        await until(lambda: fresh(place), "fresh signals again")
        write_manifests(place.manifests, "policy.yaml", chat(strategy={"type": "RoundRobin"}))
        await until(lambda: set(weights(place.state, "fe-a").values()) == {3333, 3334}, "round robin")
        revision = tables(place.state)["fe-a"].identity.revision
        assert revision > last
        now = await until(
            lambda: (found := status(place.state, "routingpolicy", "chat")["status"]["history"]) != history and found,
            "a new line of history",
        )
        assert history[0] in now
        assert revision in recorded_revisions(place.state)
        record = read_record(place.state, revision)
        assert record is not None
        assert record.written
        assert await second.terminate() == 0


async def test_once(place: Place) -> None:
    async with operator(place.manifests, place.state, place.log, *place.options(), "--once") as running:
        async with asyncio.timeout(60):
            assert await running.process.wait() == 0
    assert set(tables(place.state)) == {"fe-a", "fe-b"}
    assert status(place.state, "routingpolicy", "chat")
    assert (place.state / "heartbeat").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        pytest.param(["--kubeconfig", "{none}"], 3, "no cluster: ", id="no cluster"),
        pytest.param(["--standalone", "{none}"], 2, "--state: missing", id="no state"),
        pytest.param(["--standalone", "{none}", "--state", "{state}"], 2, "is not a directory", id="no manifests"),
        pytest.param(["--standalone", "{here}", "--state", "{here}"], 2, "the same directory", id="one for both"),
        pytest.param(
            ["--standalone", "{here}", "--state", "{state}", "--metrics", "x"], 2, "HOST:PORT", id="no address"
        ),
        pytest.param(
            ["--standalone", "{here}", "--state", "{state}", "--config", "{bad}"], 2, "tick: 'soon'", id="bad config"
        ),
    ],
)
async def test_wrong_arguments(tmp_path: Path, arguments: list[str], code: int, words: str) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "bad.yaml").write_text("tick: soon")
    names = {
        "none": tmp_path / "none",
        "state": tmp_path / "state",
        "here": tmp_path / "here",
        "bad": tmp_path / "bad.yaml",
    }
    filled = [argument.format(**names) for argument in arguments]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headrace_cli.main", "run", *filled, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == code
    assert words in said.decode()
    assert "Traceback" not in said.decode()

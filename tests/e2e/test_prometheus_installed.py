"""The installed operator reads a real Prometheus: demand, the whole ladder of ages, and ten calm minutes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from support.cluster import await_true
from support.live_prometheus import BY_ADDRESS, BY_LABELS, SOURCE, LivePrometheus
from support.stage import DEMAND, SAMPLE, Stage, Watch

pytestmark = pytest.mark.timeout(2700)  # with nothing cached all of Kubernetes is compiled

US, EU, NEAR = "fe-us-east", "fe-eu-west", "h200-eastus"
ENGINES = (*BY_ADDRESS, *BY_LABELS)
CALM = 600.0  # seconds
BASE = [f"{US}=15", f"{EU}=15"]
DECLARED = 110  # at a front-end, far above what is asked of it: what one engine can't do alone


@pytest.fixture(scope="module")
def prometheus(stage: Stage) -> Iterator[LivePrometheus]:
    with LivePrometheus(stage).installed() as made:
        await_true(lambda: made.rounds() > 0, "the operator asks it", 300)
        await_true(lambda: fresh(stage), "all engines are read out of it", 300)
        yield made


def conditions(resource: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {one["type"]: one for one in resource.get("status", {}).get("conditions", ())}


def signals(stage: Stage) -> dict[str, str]:
    """The policy's condition SignalsFresh."""
    return conditions(stage.resource("rpol", "chat")).get("SignalsFresh", {})


def fresh(stage: Stage) -> bool:
    """Whether policy and engines say that all signals are."""
    told = [signals(stage), *(conditions(stage.resource("ieng", name))["SignalsFresh"] for name in ENGINES)]
    return all(one.get("status") == "True" for one in told)


def demand(stage: Stage) -> float:
    """Requests/s that the last decision was made for."""
    return float(stage.status()["summary"]["demand"].split()[0])


def test_a_regions_demand_rises_in_prometheus(stage: Stage, prometheus: LivePrometheus) -> None:
    """Series that are found by address and series found by pod both count, engines' and routers'."""
    with stage.load("base", rate=BASE, duration=900) as base:
        base.await_first()
        await_true(lambda: fresh(stage), "all is fresh", 120)
        before, revision = stage.weights(US)[NEAR], stage.status()["summary"]["revision"]
        # Long prompts are much work for the engines, and little for this machine.
        with stage.load("rise", rate=[f"{US}=22", f"{EU}=0.1"], input_tokens=5000, duration=600) as rise:
            rise.await_first()
            await_true(lambda: stage.weights(US)[NEAR] < before - 0.1, f"{US} gives away a part of {before}", 300)
            await_true(lambda: by_demand(stage, revision), f"history says why: {stage.status()['history']}", 60)
            results = [rise.stop(), base.stop()]
    assert [result["counts"]["failed"] for result in results] == [0, 0]
    await_true(lambda: fresh(stage), f"all is fresh: {signals(stage)}", 60)


def by_demand(stage: Stage, revision: int) -> list[str]:
    """Lines of history since a revision that lay a change at that front-end to demand."""
    found = [(line, re.search(r" rev (\d+): ", line)) for line in stage.status()["history"]]
    return [line for line, rev in found if rev and int(rev[1]) > revision and "demand" in line and f"{US}: " in line]


def test_an_engine_of_a_source_that_nobody_configured_says_so(stage: Stage, prometheus: LivePrometheus) -> None:
    """At once, with the names that there are; and no page of its own is read in place of it."""
    typo = yaml.safe_load((SAMPLE / "engines.yaml").read_text().partition("\n---")[0])
    typo["metadata"] |= {"name": "typo", "labels": {}}
    typo["spec"]["metrics"] = {"source": "clusster"}
    try:
        stage.cluster.kubectl("apply", "--filename=-", stdin=yaml.safe_dump(typo))
        await_true(lambda: stage.condition("ieng", "typo", "SignalsFresh").get("reason") == "SourceUnknown", "told", 60)
        message = stage.condition("ieng", "typo", "SignalsFresh")["message"]
        assert message.endswith(f"right would be one of {SOURCE}, scrape"), message
        assert stage.condition("ieng", "typo", "Available")["status"] == "True"
    finally:
        stage.cluster.kubectl("delete", "ieng", "typo", "--namespace=inference", "--ignore-not-found")


@pytest.mark.long
def test_prometheus_away_for_the_ladders_whole_length(stage: Stage, prometheus: LivePrometheus) -> None:
    """Hold, shrink, declared values, each said; and back. At scrapes of 5 s: 30 s, 60 s, 120 s after the last one."""
    spec = stage.resource("rpol", "chat")["spec"]
    declared = [
        one | {"demand": one["demand"] | {"requestsPerSecond": DECLARED}} if one["name"] == US else one
        for one in spec["frontends"]
    ]
    patience = {"hold": "30s", "degrade": "60s"}
    stage.patch("rpol", "chat", {"spec": {"staleness": patience, "frontends": declared}})
    try:
        with stage.load("ladder", rate=BASE, duration=1500) as load:
            load.await_first()
            await_true(lambda: fresh(stage) and stage.weights(US)[NEAR] > 0.9, "measured demand fits near by", 300)
            before = stage.weights(US)
            with Watch(stage.cluster, "rpol", "chat") as policy, Watch(stage.cluster, "ieng") as engines:
                prometheus.scale(0)
                await_true(lambda: signals(stage)["reason"] == "Held", f"held: {signals(stage)}", 300)
                assert stage.weights(US) == pytest.approx(before, abs=0.05)
                await_true(lambda: signals(stage)["reason"] == "Unknown", f"unknown: {signals(stage)}", 600)
                await_true(lambda: stage.weights(US)[NEAR] < 0.8, "declared demand rules", 300)
                assert demand(stage) == DECLARED + DEMAND[EU]
                assert f"metric source {SOURCE}" in signals(stage)["message"]
                prometheus.scale(1)
                await_true(lambda: fresh(stage), f"back: {signals(stage)}", 300)
                await_true(lambda: stage.weights(US)[NEAR] > 0.9, "measured demand rules again", 300)
                told, seen = policy.objects(), engines.objects()
            result = load.stop()
    finally:
        stage.patch("rpol", "chat", {"spec": {"staleness": None, "frontends": spec["frontends"]}})
    assert result["counts"]["failed"] == 0, result["failures"]
    assert {conditions(one)["Ready"]["status"] for one in told} == {"True"}
    reasons = [conditions(one)["SignalsFresh"]["reason"] for one in told]
    changes = [reason for last, reason in zip(["", *reasons], reasons, strict=False) if reason != last]
    assert changes[:4] == ["Fresh", "Held", "Widened", "Unknown"]
    assert changes[-1] == "Fresh"
    for name in ENGINES:
        mine = [one for one in seen if one["metadata"]["name"] == name]
        away = [conditions(one)["SignalsFresh"] for one in mine if conditions(one)["SignalsFresh"]["status"] == "False"]
        assert {"Held", "Widened", "Unknown"} <= {one["reason"] for one in away}
        unexplained = [one["message"] for one in away if f"metric source {SOURCE}" not in one["message"]]
        assert unexplained == []
        shrunk = [line for one in mine for line in one["status"].get("why", ()) if line.startswith("staleness x0.")]
        assert shrunk, f"{name} never shrank"


@pytest.mark.long
def test_ten_calm_minutes_at_a_scrape_interval_of_30_seconds(stage: Stage, prometheus: LivePrometheus) -> None:
    """Every signal is 30 s old again and again, which is its own interval and no staleness."""

    def every(seconds: int) -> None:
        prometheus.scale(0)
        prometheus.scrape_every(seconds)
        prometheus.scale(1)

    every(30)
    try:
        with stage.load("calm", rate=BASE, duration=1700) as load:
            load.await_first()
            # What it scraped before it stopped was 5 s apart; two scrapes say otherwise.
            time.sleep(90)
            await_true(lambda: fresh(stage), "all is fresh", 300)
            with Watch(stage.cluster, "rpol", "chat") as policy, Watch(stage.cluster, "ieng") as engines:
                time.sleep(CALM)
                told = [*policy.objects(), *engines.objects()]
            result = load.stop()
    finally:
        every(5)
    assert result["counts"]["failed"] == 0, result["failures"]
    assert {one["metadata"]["name"] for one in told} == {"chat", *ENGINES}
    flips = [
        (one["metadata"]["name"], found)
        for one in told
        if (found := conditions(one)["SignalsFresh"])["status"] != "True"
    ]
    assert flips == []

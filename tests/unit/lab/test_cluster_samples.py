"""The cluster's sample says the truth: its engines declare what their pods simulate, and its ways are Azure's."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from headrace_lab.engine.fleet import FleetSpec, parse_spec
from headrace_lab.engine.hardware import declared
from headrace_lab.workload.traces import packaged, read_round_trips
from support.checkout import ROOT

SAMPLE = ROOT / "manifests" / "samples" / "cluster"


def resources(name: str) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all((SAMPLE / name).read_text()) if found]


ENGINES = {engine["metadata"]["name"]: engine["spec"] for engine in resources("engines.yaml")}
[POLICY] = resources("policy.yaml")
SIMULATED = resources("simulated-engines.yaml")
[SPECS] = [found["data"] for found in SIMULATED if found["kind"] == "ConfigMap"]


def spec_of(engine: str) -> FleetSpec:
    return parse_spec(SPECS[f"{engine}.json"].encode(), engine)


def milliseconds(duration: str) -> float:
    assert duration.endswith("ms")
    return float(duration.removesuffix("ms"))


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_declares_what_its_pods_simulate(engine: str) -> None:
    [simulated] = spec_of(engine).engines
    truth = declared(simulated.hardware, speed=spec_of(engine).speed)
    said = ENGINES[engine]
    assert simulated.model == said["models"][0]["name"]
    assert (said["hardware"], said["capacity"]) == (truth["hardware"], truth["capacity"])
    assert said["profile"]["reference"] == truth["profile"]["reference"]
    for curve in ("ttft", "tbot"):
        points = {point["utilizationPercent"]: milliseconds(point["latency"]) for point in truth["profile"][curve]}
        for point in said["profile"][curve]:
            assert milliseconds(point["latency"]) == pytest.approx(points[point["utilizationPercent"]], abs=0.051)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_is_as_far_away_as_the_policy_says(engine: str) -> None:
    ways = {
        frozenset((way["from"], way["to"])): milliseconds(way["latency"])
        for way in POLICY["spec"]["network"]["roundTrip"]
    }
    here = ENGINES[engine]["location"]["region"]
    for frontend in POLICY["spec"]["frontends"]:
        there = frontend["location"]["region"]
        expected = 1.0 if here == there else ways[frozenset((here, there))]
        assert spec_of(engine).round_trips[frontend["name"]][engine] * 1000 == pytest.approx(expected)


def test_round_trips_are_azures() -> None:
    measured = read_round_trips(packaged("azure_round_trips_ms.csv"))
    for way in POLICY["spec"]["network"]["roundTrip"]:
        both = (measured[way["from"], way["to"]] + measured[way["to"], way["from"]]) / 2
        assert milliseconds(way["latency"]) == pytest.approx(both * 1000)


def test_every_engine_has_a_deployment_and_a_service_of_its_name() -> None:
    for kind in ("Deployment", "Service"):
        assert {found["metadata"]["name"] for found in SIMULATED if found["kind"] == kind} == set(ENGINES)
    assert {spec["endpoints"]["service"]["name"] for spec in ENGINES.values()} == set(ENGINES)


def test_the_chart_serves_the_policys_frontends() -> None:
    values = yaml.safe_load((SAMPLE / "values.yaml").read_text())
    frontends = [frontend["name"] for frontend in POLICY["spec"]["frontends"]]
    assert [router["frontend"] for router in values["routers"]] == frontends
    name = POLICY["metadata"]
    assert values["routerDefaults"]["policies"] == [f"{name['namespace']}/{name['name']}"]


def test_the_specs_read_as_json_of_a_line_each() -> None:
    """A person edits them with kubectl: nothing in them may need a tool."""
    for text in SPECS.values():
        assert json.loads(text)
        assert max(map(len, text.splitlines())) < 110

"""``headrace plan``: JSON by its schema, exit codes, checks, signals, what-if, Git revisions, tables, text.

Case LP-02 (https://github.com/llm-d/llm-d-autoscaling/pull/102): too much demand is shed openly, never garbage.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from headrace_api.table import RoutingTable
from headrace_cli.main import main
from headrace_operator.cli.json_schemas import FOLDER, PRINTED, schema_of, schema_text
from headrace_operator.publisher.configmap import read_configmap

ROOT = Path(__file__).parents[3]
CLASSIC = str(ROOT / "manifests" / "samples" / "classic")
HALF = ["--set", "b:spec.capacity.perReplica.requestsPerSecond=50"]


def planned(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert main(["plan", "-f", CLASSIC, "-o", "json", *arguments]) == code
    return json.loads(capsys.readouterr().out)


def frontends(report: Any) -> dict[str, dict[str, float]]:
    (policy,) = report["policies"]
    return {
        frontend["name"]: {route["engine"]: route["weight"] for route in frontend["routes"] if route["weight"]}
        for frontend in policy["frontends"]
    }


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_schemas_stand_where_they_are_documented(name: str) -> None:
    stale = "stale; write it: python -m headrace_operator.cli.json_schemas"
    assert (ROOT / FOLDER / name).read_text() == schema_text(name), stale


@pytest.mark.parametrize("arguments", [[], HALF, ["--set", "spec.strategy.type=RoundRobin"]])
def test_json_fits_its_schema(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    jsonschema.validate(planned(capsys, *arguments), schema_of("plan.schema.json"), jsonschema.Draft202012Validator)


def test_classic_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    report = planned(capsys)
    (policy,) = report["policies"]
    assert report["solver"]["status"] == "Optimal"
    assert (policy["name"], policy["namespace"], policy["demand"], policy["shed"]) == ("classic", "inference", 250, 0)
    assert frontends(report) == {
        "fe-a": {"a": 1.0},
        "fe-b": {"b": pytest.approx(100 / 120), "c": pytest.approx(20 / 120)},
        "fe-c": {"c": 1.0},
    }
    # By hand: 210 requests/s at home (1 ms), 20 to c (40 ms), all 200 ms at the engine.
    assert policy["meanLatencySeconds"] == pytest.approx(0.2 + (230 * 0.001 + 20 * 0.040) / 250)
    engines = {engine["name"]: engine for engine in policy["engines"]}
    assert {name: (engine["load"], engine["capacity"]) for name, engine in engines.items()} == {
        "a": (90, 100),
        "b": (100, 100),
        "c": (60, 80),
    }
    assert engines["b"]["shadowPriceSeconds"] == pytest.approx(0.039)
    rejected = next(route for route in policy["frontends"][1]["routes"] if route["engine"] == "a")
    assert (rejected["weight"], rejected["engineNamespace"]) == (0, "inference")
    assert rejected["reducedCostSeconds"] == pytest.approx(0.020)
    assert policy["frontends"][1]["marginalLatencySeconds"] == pytest.approx(0.240)


def test_too_much_demand_is_shed_openly(capsys: pytest.CaptureFixture[str]) -> None:
    """Case LP-02 a."""
    report = planned(capsys, *HALF)
    (policy,) = report["policies"]
    assert {frontend["name"]: pytest.approx(frontend["shed"]) for frontend in policy["frontends"]} == {
        "fe-a": 4,
        "fe-b": 12,
        "fe-c": 4,
    }
    assert {name: pytest.approx(weight * 120) for name, weight in frontends(report)["fe-b"].items()} == {
        "b": 50,
        "c": 44,
        "a": 14,
    }
    for frontend in policy["frontends"]:
        whole = sum(route["weight"] for route in frontend["routes"]) + frontend["shed"] / frontend["demand"]
        assert whole == pytest.approx(1)
        assert frontend["marginalLatencySeconds"] is None


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        pytest.param([], 0, "", id="shed is no failure by itself"),
        pytest.param(["--fail-on-shed"], 1, "20 requests/s are refused (--fail-on-shed)", id="fail on shed"),
        pytest.param(["--max-shed", "8"], 0, "", id="within"),
        pytest.param(["--max-shed", "7.5"], 1, "8 % is refused, more than --max-shed 7.5 %", id="above"),
        pytest.param(["--min-headroom", "1"], 1, "headroom is 0 %, less than --min-headroom 1 %", id="headroom"),
    ],
)
def test_checks(arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-f", CLASSIC, *HALF, *arguments]) == code
    error = capsys.readouterr().err
    assert said in error
    assert bool(error) == bool(said)


def test_what_would_move_against_tables_that_stand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-f", CLASSIC, "--tables", str(tmp_path)]) == 0
    surge = ["--previous", str(tmp_path), "--set", "spec.frontends[fe-b].demand.requestsPerSecond=150"]
    capsys.readouterr()
    assert main(["plan", "-f", CLASSIC, *surge, "--max-shift", "20"]) == 0
    text = capsys.readouterr().out
    assert "BEFORE" in text
    assert "6.7 %       -  59 ms slower than b" in text
    assert main(["plan", "-f", CLASSIC, *surge, "--max-shift", "15"]) == 1
    assert "fe-b moves 17 %, more than --max-shift 15 %" in capsys.readouterr().err
    one = tmp_path / "inference" / "headrace-classic-fe-b.yaml"
    assert main(["plan", "-f", CLASSIC, "--previous", str(one), "-o", "json"]) == 0
    routes = json.loads(capsys.readouterr().out)["policies"][0]["frontends"][1]["routes"]
    assert [route["previousWeight"] for route in routes] == [0.8333, 0.1667, 0]


def test_the_rounding_of_tables_is_no_shift(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-f", CLASSIC, "--tables", str(tmp_path)]) == 0
    assert main(["plan", "-f", CLASSIC, "--previous", str(tmp_path), "--max-shift", "0"]) == 0
    assert capsys.readouterr().err == ""


def test_tables_are_what_a_router_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-f", CLASSIC, "--tables", str(tmp_path)]) == 0
    files = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    assert [str(path) for path in files] == [f"inference/headrace-classic-fe-{name}.yaml" for name in "abc"]
    for path in files:
        table = read_configmap((tmp_path / path).read_bytes(), str(path))
        assert isinstance(table, RoutingTable)
        assert (table.identity.uid, table.identity.term, table.identity.revision) == ("plan", 0, 0)
        bare = tmp_path / "table.json"
        bare.write_bytes(msgspec.json.encode(table))
        assert main(["plan", "-f", CLASSIC, "--previous", str(bare)]) == 0


def test_the_table_keeps_capacity_within_rounding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = planned(capsys, *HALF, "--tables", str(tmp_path))
    load: dict[str, float] = {}
    for frontend in report["policies"][0]["frontends"]:
        path = tmp_path / "inference" / f"headrace-classic-{frontend['name']}.yaml"
        table = read_configmap(path.read_bytes(), str(path))
        assert isinstance(table, RoutingTable)
        (entry,) = table.models[0].classes
        routed = frontend["demand"] * (1 - sum(shed.share for shed in entry.shed))
        for route in entry.routes:
            name = route.engine.partition("/")[2]
            load[name] = load.get(name, 0) + routed * route.weight / 10_000
    assert all(load[name] <= capacity + 250 * 1e-4 for name, capacity in (("a", 100), ("b", 50), ("c", 80)))


def test_yaml_is_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    report = planned(capsys)
    assert main(["plan", "-f", CLASSIC, "-o", "yaml"]) == 0
    other = yaml.safe_load(capsys.readouterr().out)
    del report["solver"]["seconds"], other["solver"]["seconds"]
    assert other == report


SIGNALS = """
at: "2026-11-29T12:00:00Z"
demand:
- {policy: inference/classic, frontend: fe-b, model: llama-3.1-70b, requestsPerSecond: {value: 130.5, age: 3}}
engines:
- {engine: inference/c, ttft: {value: .nan}}
"""


def test_signals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "signals.yaml").write_text(SIGNALS)
    report = planned(capsys, "--signals", str(tmp_path / "signals.yaml"))
    assert {frontend["name"]: frontend["demand"] for frontend in report["policies"][0]["frontends"]} == {
        "fe-a": 90,
        "fe-b": 130.5,
        "fe-c": 40,
    }
    assert "engine inference/c ttft (nan): Unknown" in report["notes"]


def test_what_is_ignored_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "signals.yaml"
    path.write_text(
        "demand: [{policy: p, frontend: fe-z, model: m, requestsPerSecond: {value: 7}}]\n"
        "engines: [{engine: inference/zz, alive: false}]\n"
    )
    assert main(["plan", "-f", CLASSIC, "--signals", str(path)]) == 0
    said = capsys.readouterr().out.partition("\nnotes\n")[2]
    assert said == (
        "  signals of engine inference/zz: no such engine; ignored\n"
        "  signals of demand for m at fe-z: no policy rules it; ignored\n"
    )


def test_an_empty_signals_file_measures_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "signals.yaml").write_text("# nothing yet\n")
    assert planned(capsys, "--signals", str(tmp_path / "signals.yaml"))["policies"][0]["demand"] == 250


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ("spec.frontends[0].demand.requestsPerSecond=91", "demand", 251),
        ("inference/classic:spec.frontends[fe-a].demand.requestsPerSecond=92", "demand", 252),
        (
            "classic:spec.frontends[fe-c]={name: fe-c, demand: {requestsPerSecond: 1}}",
            "demand",
            211,
        ),
        ("c:spec.state=Draining", "shed", 50),
    ],
)
def test_changes(change: str, field: str, value: float, capsys: pytest.CaptureFixture[str]) -> None:
    report = planned(capsys, "--set", change)
    assert report["policies"][0][field] == pytest.approx(value)


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example", "-C", str(folder), *arguments],
        check=True,
        capture_output=True,
    )


def test_against_a_git_revision(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in Path(CLASSIC).iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "base")
    policy = tmp_path / "policy.yaml"
    policy.write_text(policy.read_text().replace("requestsPerSecond: 120", "requestsPerSecond: 150"))
    for place in (tmp_path, policy):
        files = ["-f", str(tmp_path)] if place == tmp_path else ["-f", str(tmp_path / "fleet.yaml"), "-f", str(policy)]
        assert main(["plan", *files, "--base", "HEAD", "-o", "json"]) == 0
        routes = json.loads(capsys.readouterr().out)["policies"][0]["frontends"][1]["routes"]
        weights = [(route["engine"], round(route["weight"], 4), round(route["previousWeight"], 4)) for route in routes]
        assert weights == [("b", 0.6667, 0.8333), ("c", 0.2667, 0.1667), ("a", 0.0667, 0)]
    assert main(["plan", "-f", str(tmp_path), "--base", "HEAD", "--max-shift", "10"]) == 1
    assert main(["plan", "-f", str(tmp_path), "--base", "nowhere"]) == 2
    assert "--base:" in capsys.readouterr().err


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    data = b"\n---\n".join(path.read_bytes() for path in sorted(Path(CLASSIC).iterdir()))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert main(["plan", "-f", "-"]) == 0
    assert "fe-b              120  b         83 %" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert main(["plan", "-f", "-", "--base", "HEAD"]) == 2
    assert "standard input has no Git revision" in capsys.readouterr().err


def test_text_has_colours_only_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-f", CLASSIC, *HALF]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_solver_greets_nobody() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headrace_cli.main", "plan", "-f", CLASSIC, "-o", "json"],
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout)["solver"]["status"] == "Optimal"
    assert done.stderr == b""


def test_a_front_end_without_an_engine_says_why_in_a_cell_that_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", "-f", CLASSIC, "--set", "spec.frontends[1].residency=[eu]"])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if " none " in line]
    assert line.endswith(
        "no eligible engine: fe-b demands residency eu, a lacks it; fe-b demands residency eu, b lacks it; "
        "1 engine more, headrace explain names them"
    )


def test_the_price_of_load_is_told_as_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a curve, one more request/s of load costs its slope; one more of capacity saves less, here a quarter of it."""
    manifests = tmp_path / "curve.yaml"
    manifests.write_text(CURVE)
    costs = []
    for capacity in ("100", "101"):
        setting = f"near:spec.capacity.perReplica.requestsPerSecond={capacity}"
        assert main(["plan", "-f", str(manifests), "--set", setting, "-o", "json"]) == 0
        costs.append(json.loads(capsys.readouterr().out)["solver"]["objective"])
    assert costs[0] - costs[1] == pytest.approx(0.05, rel=0.05)
    assert main(["plan", "-f", str(manifests)]) == 0
    assert "of load adds 200 ms" in capsys.readouterr().out


CURVE = """
apiVersion: headrace.dev/v1alpha1
kind: InferenceEngine
metadata: {name: near, namespace: t}
spec:
  models: [{name: m}]
  endpoints: {urls: ["http://near.example:80"]}
  location: {region: x}
  capacity: {perReplica: {requestsPerSecond: 100}}
  profile: {ttft: [{utilizationPercent: 0, latency: 100ms}, {utilizationPercent: 100, latency: 300ms}]}
---
apiVersion: headrace.dev/v1alpha1
kind: InferenceEngine
metadata: {name: far, namespace: t}
spec:
  models: [{name: m}]
  endpoints: {urls: ["http://far.example:80"]}
  location: {region: y}
  capacity: {perReplica: {requestsPerSecond: 100}}
  profile: {ttft: [{utilizationPercent: 0, latency: 100ms}]}
---
apiVersion: headrace.dev/v1alpha1
kind: RoutingPolicy
metadata: {name: p, namespace: t}
spec:
  models: [{name: m}]
  frontends: [{name: fx, location: {region: x}, demand: {requestsPerSecond: 80}}]
  network: {roundTrip: [{from: x, to: y, latency: 201ms}]}
"""

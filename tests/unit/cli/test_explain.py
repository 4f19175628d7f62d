"""``headrace explain``: candidates with their costs, questions solved again, what an operator published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from headrace_cli.main import main
from headrace_operator.cli.json_schemas import schema_of
from headrace_operator.publisher.records import Record, read_record, write_record
from headrace_operator.publisher.state import status_document, status_path
from headrace_operator.snapshot.build import build_snapshot
from headrace_operator.snapshot.signals import Signals
from support.operator_ticks import Ticks
from support.world import classic

ROOT = Path(__file__).parents[3]
CLASSIC = str(ROOT / "manifests" / "samples" / "classic")
HALF = ["--set", "b:spec.capacity.perReplica.requestsPerSecond=50"]


def told(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["explain", *arguments]) == code
    found = capsys.readouterr()
    return found.err if code else found.out


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(told(capsys, "classic", "-f", CLASSIC, "-o", "json", *arguments))


def test_why_c_and_not_a(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "classic", "-f", CLASSIC, "--frontend", "fe-b")
    lines = [line.rstrip() for line in text.splitlines()]
    assert "fe-b  120 requests/s (declared) · one more request/s costs 240 ms" in lines
    assert (
        "  c         17 %  40 ms  200 ms   0 ms  240 ms  takes what b can't; 39 ms slower; next: a, 20 ms more" in lines
    )
    assert "  a            -  60 ms  200 ms   0 ms  260 ms  20 ms slower than the marginal choice c" in lines
    assert "  one more request/s at fe-b: costs 240 ms; fe-b to c: 1 requests/s more" in lines


@pytest.mark.parametrize("arguments", [[], [*HALF, "--engine", "c"]])
def test_json_fits_its_schema(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    schema = schema_of("explain.schema.json")
    jsonschema.validate(asked(capsys, *arguments), schema, jsonschema.Draft202012Validator)


def test_costs_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    for source in asked(capsys)["sources"]:
        for one in source["candidates"]:
            assert one["cost"] == pytest.approx(one["unloaded"] + one["queue"])
            assert one["unloaded"] == pytest.approx(one["roundTrip"] + 0.2)


def test_one_more_replica_and_none(capsys: pytest.CaptureFixture[str]) -> None:
    questions = {one["question"]: one["answer"] for one in asked(capsys, "--engine", "b")["whatIf"]}
    assert questions["one more replica at b"].startswith("mean latency 201 ms instead of 204 ms; fe-b to ")
    assert questions["b gone"].startswith("70 requests/s refused instead of 0; mean latency ")


def test_a_request_more_where_some_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "classic", "-f", CLASSIC, *HALF, "--frontend", "fe-b", "--engine", "c")
    assert "one more request/s would be refused" in text
    assert "21 requests/s refused instead of 20" in text
    assert "one more replica at c: nothing refused, not 20" in text
    assert "scarce" in text


def test_an_engine_that_is_gone_already(capsys: pytest.CaptureFixture[str]) -> None:
    drained = ["--set", "c:spec.endpoints.replicas=0"]
    found = asked(capsys, *drained, "--engine", "c")
    assert [one["question"] for one in found["whatIf"]] == ["one more replica at c"]
    assert {one["message"] for source in found["sources"] for one in source["excluded"]} == {"c has no ready replica"}


def test_the_whole_policy(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "inference/classic", "-f", CLASSIC)
    assert "\nwhy\n  b full: 100 of 100 requests/s" in text
    assert "not eligible" not in text
    drained = told(capsys, "classic", "-f", CLASSIC, "--set", "a:spec.state=Draining")
    assert "not eligible  a is draining" in drained


def test_previous_weights_have_a_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-f", CLASSIC, "--tables", str(tmp_path)]) == 0
    capsys.readouterr()
    text = told(capsys, "classic", "-f", CLASSIC, "--previous", str(tmp_path), "--frontend", "fe-b")
    assert "BEFORE" in text


def test_rules_have_no_price(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "classic", "-f", CLASSIC, "--set", "spec.strategy.type=Nearest", "--frontend", "fe-b")
    assert "lowest round trip, 1 ms; over its capacity: 120 of 100 requests/s" in text
    assert "one more request/s at fe-b: mean latency stays" in text


def test_yaml_is_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    other = yaml.safe_load(told(capsys, "classic", "-f", CLASSIC, "-o", "yaml"))
    assert {**other, "at": ""} == {**asked(capsys), "at": ""}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["classic"], "either -f MANIFESTS or --state DIR"),
        (["classic", "-f", CLASSIC, "--state", "x"], "either -f MANIFESTS or --state DIR"),
        (["classic", "-f", CLASSIC, "--at", "3"], "--state DIR with it"),
        (["classic", "--state", "x", "--set", "spec.mode=Shadow", "--signals", "y"], "--signals, --set: of no effect"),
        (["classic", "--state", "x", "--previous", "y"], "--previous: of no effect"),
        (["nobody", "-f", CLASSIC], "policy 'nobody' is not there; there are: inference/classic"),
        (
            ["classic", "-f", CLASSIC, "--frontend", "fe-z"],
            "--frontend 'fe-z' is not there; there are: fe-a, fe-b, fe-c",
        ),
        (["classic", "-f", CLASSIC, "--engine", "z"], "--engine 'z' is not there; there are: a, b, c"),
        (["classic", "--state", "/nonexistent"], "no record of any publication; there are none"),
    ],
)
def test_wrong_questions(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in told(capsys, *arguments, code=2)


def test_faults_are_told_beside_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.yaml").write_text("a: [")
    assert main(["explain", "classic", "-f", CLASSIC, "-f", str(tmp_path)]) == 2
    found = capsys.readouterr()
    assert "bad.yaml" in found.err
    assert "fe-b" in found.out


def state(folder: Path) -> None:
    """A state directory with two publications of the classic example: b at 100, then at 50."""
    (folder / "records").mkdir()
    (folder / "status").mkdir()
    ticks = Ticks()
    for revision, b in ((1, 100), (2, 50)):
        engines, policies = classic(b)
        before, memory = tuple(ticks.tables.values()), ticks.memory
        snapshot = build_snapshot(engines, policies, Signals(), at=ticks.at + 5, previous=before)
        decision = ticks.tick(engines, policies)
        record = Record(
            revision=revision,
            term=1,
            uid="state",
            at="2026-11-29T12:00:05Z",
            snapshot=snapshot,
            memory=memory,
            before=before,
            written=decision.tables,
        )
        write_record(folder, record, keep=8)
        path = status_path(folder, "RoutingPolicy", "ns/classic")
        path.write_bytes(status_document(policies[0], 1, ticks.statuses["ns/classic"]))


def test_what_was_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state(tmp_path)
    last = told(capsys, "classic", "--state", str(tmp_path))
    assert "revision 2" in last
    assert "12 refused (10 %)" in last
    assert "history" in last
    first = told(capsys, "classic", "--state", str(tmp_path), "--at", "1")
    assert "revision 1" in first
    assert "refused" not in first.partition("history")[0]
    assert "no record of revision 7; there are 1 to 2" in told(
        capsys, "classic", "--state", str(tmp_path), "--at", "7", code=2
    )


def test_each_policys_own_last_publication(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A later publication that concerned others only says nothing of this policy's weights."""
    state(tmp_path)
    record = read_record(tmp_path, 1)
    assert record is not None
    others = tuple(msgspec.structs.replace(table, policy="other") for table in record.written)
    write_record(tmp_path, msgspec.structs.replace(record, revision=3, written=others), keep=8)
    for arguments in ([], ["--at", "3"]):
        assert "revision 2" in told(capsys, "classic", "--state", str(tmp_path), *arguments)
    assert "there are: ns/classic" in told(capsys, "other", "--state", str(tmp_path), code=2)
    (tmp_path / "records" / "4.json").write_text("{")
    assert "revision 2" in told(capsys, "ns/classic", "--state", str(tmp_path))


def test_a_name_in_two_namespaces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in Path(CLASSIC).iterdir():
        for namespace in ("inference", "other"):
            text = path.read_text().replace("namespace: inference", f"namespace: {namespace}")
            if namespace == "other":
                text = text.replace("name: fe-", "name: other-fe-")
            (tmp_path / f"{namespace}-{path.name}").write_text(text)
    assert "is not unique" in told(capsys, "classic", "-f", str(tmp_path), code=2)
    assert "other-fe-b" in told(capsys, "classic", "-f", str(tmp_path), "-n", "other")
    assert "other-fe-b" not in told(capsys, "inference/classic", "-f", str(tmp_path))

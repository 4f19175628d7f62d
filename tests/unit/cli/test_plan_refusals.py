"""Input that ``headrace plan`` can't use: refused in words that say what would be right, beside what it can plan."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace_cli.main import main

ROOT = Path(__file__).parents[3]
CLASSIC = str(ROOT / "manifests" / "samples" / "classic")


def test_a_shift_needs_something_to_compare_with(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-f", CLASSIC, "--max-shift", "5"]) == 2
    found = capsys.readouterr()
    assert "--previous DIR or --base GITREV" in found.err
    assert found.out == ""


def test_faults_go_to_stderr_and_the_good_ones_are_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in Path(CLASSIC).iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    bad = "kind: RoutingPolicy\napiVersion: headrace.dev/v1alpha1\nmetadata: {name: x}\nspec: {}\n"
    (tmp_path / "bad.yaml").write_text(bad)
    (tmp_path / "worse.yaml").write_text("a: [")
    assert main(["plan", "-f", str(tmp_path)]) == 2
    found = capsys.readouterr()
    assert "fe-b              120  b         83 %" in found.out
    assert "bad.yaml" in found.err
    assert "worse.yaml" in found.err
    assert "Traceback" not in found.err


def test_nothing_to_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.yaml").write_text("")
    main(["plan", "-f", str(tmp_path)])
    assert capsys.readouterr().out == "no policy to plan\n"
    assert main(["plan", "-f", str(tmp_path / "missing")]) == 2


def test_feedback_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-f", CLASSIC, "--set", "spec.strategy.type=Feedback"]) == 2
    said = capsys.readouterr()
    assert said.out.startswith("inference/classic  Feedback, not planned\n")
    assert "inference/classic: strategy.type Feedback is not available" in said.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("demand: [{policy: p}]", "signals.demand[0]", id="a field missing"),
        pytest.param("at: yesterday", "at: 'yesterday' is not RFC 3339; right would be 2026", id="no time"),
        pytest.param(
            "demand: [{policy: p, frontend: f, model: m, requestsPerSecond: 7}]",
            "signals.demand[0].requestsPerSecond: 7: Expected object, got int; right would be a reading",
            id="no reading",
        ),
        pytest.param(
            "engines: [{engine: ns/a, penalty: {value: 7}}]", "signals.engines[0].penalty.value: 7: ", id="no factor"
        ),
        pytest.param("routers: [[fe, many]]", "signals.routers[0][1]: 'many': Expected int", id="no number"),
        pytest.param(f"routers: {'x' * 500}", "xxx…: Expected array", id="a long value"),
        pytest.param("a: 1\n---\nb: 2\n", "holds 2 documents", id="two documents"),
        pytest.param("a: [", "signals.yaml:1", id="broken"),
        pytest.param("a: 1\na: 2\n", "signals.yaml:2", id="a key twice"),
        pytest.param("engines: [{engine: ns/a, ttft: {value: 1:30.5}}]", "signals.engines[0]", id="another notation"),
        pytest.param(None, "no such file", id="missing"),
    ],
)
def test_signals_that_are_wrong(
    text: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "signals.yaml"
    if text is not None:
        path.write_text(text)
    assert main(["plan", "-f", CLASSIC, "--signals", str(path)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"kind: ConfigMap\n", "not a ConfigMap with data", id="no table"),
        pytest.param(b'{"schemaVersion": 7}', "right would be a table.json", id="not a table"),
        pytest.param(b"a: [", "not YAML", id="broken"),
        pytest.param(None, "no such file", id="missing"),
    ],
)
def test_previous_tables_that_are_wrong(
    content: bytes | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "table.json"
    if content is not None:
        path.write_bytes(content)
    assert main(["plan", "-f", CLASSIC, "--previous", str(path)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("spec.objective.moveCost", "right would be [NAME:]spec.objective.moveCost=0s"),
        ("metadata.name=x", "only fields of spec can be changed"),
        ("zz:spec.state=Active", "no policy or engine is named 'zz'"),
        ("spec.frontends[zz].location={}", "no entry 'zz'; there are fe-a, fe-b, fe-c"),
        ("spec.models[0].name.deeper=1", "'name' holds a value, not fields"),
        ("spec.objective.moveCost=fast", "moveCost"),
        ("spec.objective.moveCosts=1s", "moveCosts"),
        ("spec.[0]=1", "is no field"),
    ],
)
def test_changes_that_are_wrong(change: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-f", CLASSIC, "--set", change]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        *(
            (["--max-shed", text], f"{text!r}; right would be a number from 0 to 100")
            for text in ("101", "nan", "many")
        ),
        (["-n", "Team_A"], "'Team_A'; right would be a namespace"),
        (["-n", "x" * 64], "right would be a namespace: at most 63"),
    ],
)
def test_arguments_say_what_would_be_right(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["plan", "-f", CLASSIC, *arguments])
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            "spec.objective.moveCost=1x",
            '--set: RoutingPolicy inference/classic: spec.objective.moveCost: "1x" is not a',
        ),
        (
            "spec.frontends[fe-a].publish.configMap=headrace-classic-fe-b",
            "of RoutingPolicy inference/classic at --set;",
        ),
        ("a:spec.state=Gone", '--set: InferenceEngine inference/a: spec.state: "Gone" is not'),
    ],
)
def test_a_fault_of_set_names_no_line_of_a_file_that_is_not_there(
    change: str, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "-f", CLASSIC, "--set", change]) == 2
    told = capsys.readouterr().err
    assert fault in told
    assert not re.search(r"--set:\d", told)

"""The demo as a person runs it: a real process, and its report taken at its word.

One run stands for most tests here, because it takes its time: the whole script, and the operator killed (-9) in the
middle of the surge.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest
import yaml

from headrace_lab.demo.report import schema
from headrace_lab.demo.script import KILLED, SLOWED

PROGRAM = (sys.executable, "-m", "headrace_cli.main")


MOVE = r"{} (\d+) -> (\d+) %"


class Run(NamedTuple):
    """A finished run."""

    code: int
    text: str
    report: dict[str, Any]
    folder: Path


def demo(folder: Path, *options: str) -> Run:
    kept, report = folder / "kept", folder / "report.json"
    argv = (*PROGRAM, "demo", "--report", str(report), "--keep", str(kept), *options)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=200, check=False)
    assert report.exists(), done.stdout + done.stderr
    return Run(done.returncode, done.stdout + done.stderr, json.loads(report.read_text()), kept)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return demo(tmp_path_factory.mktemp("demo"), "--duration", "60", "--chaos", "operator")


def fault(run: Run, kind: str) -> dict[str, Any]:
    (found,) = [fault for fault in run.report["faults"] if fault["kind"] == kind]
    return dict(found)


def test_nothing_is_lost_needlessly_and_the_exit_code_says_so(run: Run) -> None:
    assert run.report["counts"]["lostNeedlessly"] == 0, run.text
    assert run.code == run.report["exitCode"] == 0, run.text
    assert run.report["counts"]["requests"] > 300
    assert run.report["endedByThemselves"] == []


def test_the_report_meets_its_documented_schema(run: Run) -> None:
    jsonschema.validate(run.report, schema())


def leads(causes: dict[str, float], *which: str) -> bool:
    """Whether these causes together weigh more than any other one.

    Not more than all others: demand and measured capacity wander meanwhile, and each gets its true part of the move.
    """
    others = [part for cause, part in causes.items() if cause not in which]
    return sum(causes.get(cause, 0) for cause in which) > max(others, default=0)


def test_a_killed_engine_gets_no_weight_and_the_history_says_why(run: Run) -> None:
    killed = fault(run, "killed")
    assert killed["shareBefore"] > 0.02
    assert killed["shareAfter"] == 0
    assert killed["correctedAfter"] is not None
    causes = [
        change["causes"]
        for change in run.report["changes"]
        if killed["at"] < change["at"] <= killed["until"] and any(KILLED in move for move in change["moves"])
    ]
    assert any(leads(cause, "health", "capacity") for cause in causes), run.text


def test_a_restored_engine_gets_weight_again(run: Run) -> None:
    restored = fault(run, "restored")
    assert restored["shareBefore"] == 0
    assert restored["shareAfter"] > 0.02


def test_a_slow_engine_gets_less_because_of_its_health(run: Run) -> None:
    slow, killed = fault(run, "slow"), fault(run, "killed")
    assert slow["target"] == SLOWED
    less = [
        change
        for change in run.report["changes"]
        if slow["at"] < change["at"] <= killed["at"]
        and any(int(old) > int(new) for move in change["moves"] for old, new in re.findall(MOVE.format(SLOWED), move))
    ]
    assert any(leads(change["causes"], "health") for change in less), run.text
    told = [event for event in run.report["events"] if event["reason"] == "EnginePenalized"]
    assert any(SLOWED in event["message"] for event in told), run.text


def test_every_request_that_was_answered_names_an_engine_of_the_tables(run: Run) -> None:
    engines = {path.stem.partition("-")[2] for path in (run.folder / "manifests").glob("inferenceengine-*")}
    assert len(engines) == 7
    for frontend in run.report["frontends"]:
        assert set(frontend["answeredBy"]) <= engines
        assert abs(sum(frontend["weights"].values()) - 1) < 1e-3


def test_progress_and_faults_are_told_in_plain_lines(run: Run) -> None:
    for words in ("requests/s", "-> revision", f"{KILLED}: killed", "good: none of", "TTFT s p50/p95/p99"):
        assert words in run.text
    assert "Traceback" not in run.text


def test_the_manifests_are_those_that_plan_takes(run: Run) -> None:
    argv = (*PROGRAM, "plan", "-f", str(run.folder / "manifests"), "-o", "json")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    (policy,) = json.loads(done.stdout)["policies"]
    assert policy["shed"] == 0


def test_no_process_is_left(run: Run) -> None:
    assert belonging_to(run.folder) == []


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_routers_go_on_while_the_operator_is_dead_and_it_continues_where_it_was(run: Run) -> None:
    chaos = run.report["chaos"]
    assert chaos["requestsMeanwhile"] > 5
    assert chaos["failedMeanwhile"] == 0
    assert chaos["termAfter"] == chaos["termBefore"] + 1
    assert chaos["firstRevisionAfter"] == chaos["revisionBefore"] + 1, run.text
    assert chaos["historyKept"], run.text
    assert run.code == 0, run.text


def test_its_status_still_holds_changes_from_before_and_after(run: Run) -> None:
    path = run.folder / "state" / "status" / "routingpolicy-inference-chat.yaml"
    history = yaml.safe_load(path.read_text())["status"]["history"]
    assert len(history) >= 2


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_router_that_dies_loses_requests_and_the_demo_says_so(tmp_path: Path) -> None:
    kept, out, report = tmp_path / "kept", tmp_path / "out", tmp_path / "report.json"
    argv = (*PROGRAM, "demo", "--keep", str(kept), "--report", str(report), "--duration", "10", "--rate", "20")
    with out.open("wb") as stream:
        process = subprocess.Popen(argv, stdout=stream, stderr=subprocess.STDOUT)
        eventually(lambda: b"requests/s" in out.read_bytes())
        (router,) = pids_of(kept, "headrace_cli.main router --frontend fe-eu-west")
        os.kill(router, signal.SIGKILL)
        assert process.wait(120) == 1
    seen = json.loads(report.read_text())
    assert seen["endedByThemselves"] == ["router-fe-eu-west"]
    assert seen["counts"]["lostNeedlessly"] > 0
    assert "router-fe-eu-west" in seen["verdict"]


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGINT, 130, id="ctrl-c"),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, id="kill-9"),
    ],
)
def test_a_demo_that_is_stopped_leaves_no_process(tmp_path: Path, number: signal.Signals, code: int) -> None:
    kept, out = tmp_path / "kept", tmp_path / "out"
    with out.open("wb") as stream:
        argv = (*PROGRAM, "demo", "--keep", str(kept), "--duration", "60")
        process = subprocess.Popen(argv, stdout=stream, stderr=subprocess.STDOUT, preexec_fn=interruptible)
        eventually(lambda: b"requests/s" in out.read_bytes())
        assert len(belonging_to(kept)) >= 6
        process.send_signal(number)
        assert process.wait(60) == code
    eventually(lambda: belonging_to(kept) == [])
    assert b"Traceback" not in out.read_bytes()


def interruptible() -> None:
    """Ctrl-C is heard also where these tests run in the background of a shell, which has it ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def eventually(condition: Callable[[], bool]) -> None:
    for _ in range(900):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("not within 90 s")


def belonging_to(folder: Path) -> list[str]:
    """Command lines of living processes that name the folder (a zombie has none)."""
    return [line for _, line in processes() if str(folder) in line]


def pids_of(folder: Path, words: str) -> list[int]:
    return [pid for pid, line in processes() if str(folder) in line and words in line]


def processes() -> list[tuple[int, str]]:
    paths = Path("/proc").glob("[0-9]*/cmdline")
    return [(int(path.parent.name), read(path).replace(b"\0", b" ").decode(errors="replace")) for path in paths]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(("--duration", "5"), "--duration: 5.0; right would be 10 to 3600 seconds", id="short"),
        pytest.param(("--duration", "nan"), "right would be 10 to 3600", id="nan"),
        pytest.param(("--rate", "-1"), "--rate: -1.0; right would be", id="rate"),
        pytest.param(("--length-divisor", "3"), "--length-divisor: 3; right would be 1, 2, 4", id="divisor"),
        pytest.param(("--rate", "1e9", "--length-divisor", "3"), "--length-divisor: 3; right would", id="two faults"),
        pytest.param(("--report", "/no/such/folder/r.json"), "--report: there is no folder", id="report"),
        pytest.param(("--keep", os.devnull), "is not an empty folder", id="keep"),
    ],
)
def test_wrong_options_are_named_before_anything_starts(options: tuple[str, ...], words: str) -> None:
    done = subprocess.run((*PROGRAM, "demo", *options), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr

"""The report: figures from what clients saw, a verdict that tells why, a documented shape; and how it is shown."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import jsonschema
import msgspec
import pytest
from rich.console import Console

from headrace_api.table import ClassRoutes, Identity, ModelRoutes, Route, RoutingTable, TableEngine
from headrace_lab.demo.changes import Change
from headrace_lab.demo.frame import Frame, milliseconds, percent
from headrace_lab.demo.live import render
from headrace_lab.demo.observe import Observer, OperatorEvent, Publication, publication_of, table_of
from headrace_lab.demo.plain import PlainScreen
from headrace_lab.demo.plant import refused_retries
from headrace_lab.demo.report import ChaosReport, Evidence, Report, build_report, schema
from headrace_lab.demo.script import script
from headrace_lab.demo.stage import Interruption, chaos_report
from headrace_lab.demo.stats import WINDOW, LiveStats
from headrace_lab.demo.summary import print_summary
from headrace_lab.replay.outcome import Outcome, Result
from headrace_lab.workload.frontends import FRONTENDS

ROOT = Path(__file__).parents[3]
STORY = script(60)
ENGINE = "h100-eastus"


def outcome(at: float, result: Result = Result.DONE, **fields: object) -> Outcome:
    base = {"at": at, "frontend": "fe-us-east", "priority": "batch", "session": "1", "late": 0.001, "result": result}
    return Outcome(**{**base, "engine": ENGINE, "ttft": 0.2, "duration": 1.0, "reason": "affinity", **fields})  # type: ignore[arg-type]


def evidence(outcomes: list[Outcome], **fields: object) -> Evidence:
    publications = [
        Publication(at, frontend.name, 1, revision, {ENGINE: weight, "b200-westus2": 1 - weight}, {ENGINE: 0.1})
        for at, revision, weight in ((-2, 1, 0.6), (25, 2, 0.2))
        for frontend in FRONTENDS
    ]
    return Evidence(
        **{
            "headrace": "0.1.0",
            "started": "2026-11-29T12:00:00+00:00",
            "script": STORY,
            "requests_per_second": 24.0,
            "length_divisor": 4,
            "outcomes": outcomes,
            "publications": publications,
            "changes": [Change(25, 2, (("health", 100.0),), ("fe-us-east: x 60 -> 20 %",), "r2: health 100 %")],
            "events": [OperatorEvent(24.5, "EnginePenalized", "x is slow")],
            "frontends": FRONTENDS,
            "refused_retries": 0.0,
            "max_attempts": 3,
            "cpu_seconds": {"engines": 1.234},
            **fields,
        }  # type: ignore[arg-type]
    )


CHAOS = ChaosReport(
    killed_at=25,
    restarted_at=30,
    requests_meanwhile=120,
    failed_meanwhile=0,
    term_before=1,
    term_after=2,
    revision_before=5,
    first_revision_after=6,
    history_kept=True,
)


def test_a_good_run() -> None:
    report = build_report(evidence([outcome(1), outcome(2, ttft=0.4), outcome(3, Result.CUT)]))
    assert report.exit_code == 0
    assert report.verdict == "good: none of 3 requests was lost that need not be"
    assert (report.counts.requests, report.counts.failed, report.counts.cut) == (3, 1, 1)
    assert report.ttft.p99 == 0.4
    slow = next(fault for fault in report.faults if fault.kind == "slow")
    assert (slow.share_before, slow.share_after) == (0.6, 0.2)
    assert slow.corrected_after == pytest.approx(25 - slow.at, abs=0.01)
    assert report.frontends[0].answered_by == {ENGINE: 3}
    assert report.failures == {"cut": 1}


def test_one_request_lost_needlessly_is_not_good() -> None:
    report = build_report(evidence([outcome(1), outcome(2, Result.FAILED, code="engine_busy")]))
    assert report.exit_code == 1
    assert "1 of 2 requests were lost" in report.verdict
    assert report.failures == {"failed: engine_busy": 1}


def test_a_budget_that_was_not_spent_makes_a_loss_needless() -> None:
    claim = outcome(1, Result.EXHAUSTED, code="engine_failed", attempts=1)
    assert build_report(evidence([claim], refused_retries=1)).exit_code == 0
    assert build_report(evidence([claim], refused_retries=0)).counts.lost_needlessly == 1


def test_a_tired_machine_is_said_and_does_not_pass_for_the_routers() -> None:
    report = build_report(evidence([outcome(1, late=2.0), outcome(2, Result.NOT_SENT)]))
    assert not report.schedule.kept
    assert report.exit_code == 0
    assert "did not keep its schedule" in report.verdict


def test_a_process_that_ended_by_itself_is_not_good() -> None:
    report = build_report(evidence([outcome(1)], ended_by_themselves=["operator"]))
    assert report.exit_code == 1
    assert "operator ended by itself" in report.verdict


def test_the_schema_is_documented_and_current() -> None:
    documented = json.loads((ROOT / "docs" / "reference" / "demo-report.schema.json").read_text())
    assert documented == schema(), "write it again: python -m headrace_lab.demo.schema"


@pytest.mark.parametrize("chaos", [None, CHAOS])
def test_reports_meet_the_schema(chaos: ChaosReport | None) -> None:
    report = build_report(evidence([outcome(1), outcome(2, Result.SHED, ttft=None)], chaos=chaos))
    data = json.loads(msgspec.json.encode(report))
    jsonschema.validate(data, schema())
    del data["counts"]["lostNeedlessly"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema())


def test_an_empty_run_has_a_report_too() -> None:
    report = build_report(evidence([]))
    assert report.ttft.p50 is None
    jsonschema.validate(json.loads(msgspec.json.encode(report)), schema())


def text_of(report: Report) -> str:
    console = Console(file=io.StringIO(), width=80)
    print_summary(report, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_summary_tells_counts_faults_and_verdict() -> None:
    text = text_of(build_report(evidence([outcome(1), outcome(2, Result.CUT)], chaos=CHAOS)))
    assert "h100-eastus slow" in text
    assert "60 -> 20 %" in text
    assert "no change needed" in text
    assert "1 x cut" in text
    assert "operator killed at 25.0 s" in text
    assert "revision 5 -> 6" in text
    assert "good: none of 2" in text


def frame(now: float, **fields: object) -> Frame:
    stats = LiveStats()
    stats.add(now - 1, outcome(now - 2))
    for _ in range(10):
        stats.begin(now - 1, "fe-us-east", ENGINE)
    latest = [Publication(0, "fe-us-east", 1, 2, {ENGINE: 0.6}, {ENGINE: 0.1})]
    return Frame(
        **{
            "now": now,
            "script": STORY,
            "revision": 2,
            "total": stats.live(now),
            "in_flight": 3,
            "frontends": {frontend.name: stats.live(now, frontend.name) for frontend in FRONTENDS},
            "weights": {"fe-us-east": {ENGINE: 0.6}},
            "utilization": stats.utilization(now, latest),
            "queues": {ENGINE: (12, 34)},
            "engine_states": {ENGINE: "3 x slow"},
            "changes": [Change(3.5, 2, (("demand", 80.0),), ("fe-us-east: x 50 -> 60 %",), "r2 …")],
            "events": [OperatorEvent(24.5, "EnginePenalized", "x is slow")],
            "why": ("b full: at target",),
            "notes": [(3.0, "something broke")],
            **fields,
        }  # type: ignore[arg-type]
    )


def test_plain_lines_show_progress_and_each_change_once() -> None:
    out = io.StringIO()
    with PlainScreen(out) as screen:
        for now in (5.0, 5.5, 6.0, 9.0):
            screen.show(frame(now))
    lines = out.getvalue().splitlines()
    assert sum("** something broke" in line for line in lines) == 1
    assert sum("the operator says EnginePenalized: x is slow" in line for line in lines) == 1
    assert sum("-> revision 2: fe-us-east: x 50 -> 60 % (demand 80 %)" in line for line in lines) == 1
    assert sum("requests/s" in line for line in lines) == 2
    assert "lost needlessly 0" in lines[-1]


@pytest.mark.parametrize("height", [24, 50])
def test_the_live_view_shows_weights_load_states_and_causes_on_any_terminal(height: int) -> None:
    many = [Change(k, k, (("demand", 80.0),), ("fe-us-east: x 50 -> 60 %",), f"r{k}") for k in range(99)]
    console = Console(file=io.StringIO(), width=80, height=height)
    console.print(render(frame(24.0, changes=many), 80, height))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for word in ("24 / 60 s", "3 x slow", "60 %", "demand 80 %", "b full: at target", "12+34", "20 %", "r98"):
        assert word in text
    assert len(text.splitlines()) <= max(height, 25)
    assert all(frontend.name in text for frontend in FRONTENDS), "a name is cut"


def test_sentences_are_wrapped_between_words_and_never_between_a_figure_and_its_unit() -> None:
    sentence = (
        "fe-us-east sends 4.5 requests/s to b200-westus2 (68 ms away): relieves h100-eastus, whose load adds 12 ms"
    )
    changes = [
        Change(k, k, (("demand", 80.0),), (f"fe-eu-west: h200-westeurope {k} -> 60 %",) * 3, "") for k in range(9)
    ]
    for width in range(60, 130):
        console = Console(file=io.StringIO(), width=width, height=60)
        console.print(render(frame(24.0, changes=changes, events=(), why=(sentence,)), width, 60))
        assert isinstance(console.file, io.StringIO)
        text = console.file.getvalue()
        tail = text[text.index("Last changes") :]
        assert sentence in " ".join(tail.split())
        assert "…" not in tail
        assert all(len(line) <= width and not line.strip().startswith(("%", "ms", "->")) for line in tail.splitlines())


def test_what_has_no_room_is_left_out_whole_but_for_a_first_sentence() -> None:
    console = Console(file=io.StringIO(), width=60, height=24)
    console.print(render(frame(24.0, events=(), why=("word " * 40, "second")), 60, 24))
    assert isinstance(console.file, io.StringIO)
    tail = console.file.getvalue().partition("In the operator's words")[2]
    assert tail.rstrip().endswith("…")
    assert "second" not in tail


def test_a_dead_engine_shows_no_load_and_a_trace_of_weight_is_not_nothing() -> None:
    console = Console(file=io.StringIO(), width=100, height=50)
    seen = frame(24.0, engine_states={ENGINE: "dead"}, weights={"fe-us-east": {ENGINE: 0.003}})
    console.print(render(seen, 100, 50))
    assert isinstance(console.file, io.StringIO)
    (line,) = [line for line in console.file.getvalue().splitlines() if "(dead)" in line]
    assert line.split() == [ENGINE, "(dead)", "-", "-", "<1", "%", ".", "."]


def test_live_figures_forget_what_is_old() -> None:
    stats = LiveStats()
    stats.add(1.0, outcome(0.5))
    stats.add(2.0, outcome(0.5, Result.FAILED, frontend="fe-eu-west", ttft=None))
    assert stats.live(2.0).per_second == pytest.approx(1.0)
    assert stats.live(2.0, "fe-eu-west").lost == 1
    later = stats.live(2.0 + 2 * WINDOW)
    assert (later.per_second, later.ttft_p50, later.done, later.failed) == (0, None, 1, 1)


def test_figures_for_people() -> None:
    assert [milliseconds(value) for value in (None, 0.0314, 1.234)] == ["-", "31 ms", "1.23 s"]
    assert [percent(value) for value in (0.0, 0.31, 1.0)] == [".", "31 %", "100 %"]


TABLE = RoutingTable(
    schema_version=1,
    identity=Identity(uid="u", term=2, revision=7),
    policy="chat",
    policy_namespace="inference",
    frontend="fe-us-east",
    issued="2026-11-29T12:00:00Z",
    hash="h",
    models=(
        ModelRoutes(
            model="m",
            classes=(
                ClassRoutes(routes=(Route(engine="inference/a", weight=10_000, work_share=0.1),)),
                ClassRoutes(
                    routes=(
                        Route(engine="inference/a", weight=4_000, work_share=0.3),
                        Route(engine="inference/b", weight=6_000),
                    )
                ),
            ),
        ),
    ),
    engines=(TableEngine(id="inference/a"), TableEngine(id="inference/b")),
)


def manifest(table: RoutingTable) -> str:
    return json.dumps({"kind": "ConfigMap", "data": {"table.json": msgspec.json.encode(table).decode()}})


def test_tables_are_read_as_the_mean_over_prompt_classes() -> None:
    table = table_of(manifest(TABLE))
    assert table is not None
    publication = publication_of(table, "fe-us-east", 3.0)
    assert publication.weights == {"a": 0.7, "b": 0.3}
    assert publication.work["a"] == pytest.approx((10_000 * 0.1 + 4000 * 0.3) / 14_000)
    assert publication.work["b"] == 0
    assert (publication.term, publication.revision) == (2, 7)


@pytest.mark.parametrize("text", ["", "a: [", "data: {}", "data: {table.json: 'x'}", "- 1"])
def test_what_is_no_table_is_none(text: str) -> None:
    assert table_of(text) is None


def test_the_observer_sees_each_publication_once_and_survives_rubbish(tmp_path: Path) -> None:
    table = tmp_path / "inference" / "headrace-chat-fe-us-east.yaml"
    status = tmp_path / "status" / "routingpolicy-inference-chat.yaml"
    for path in (table, status):
        path.parent.mkdir()
    observer = Observer(tmp_path, ["fe-us-east", "fe-eu-west"], began=0.0)
    assert observer.poll() == []
    table.write_text(manifest(TABLE))
    status.write_text("status: [half")
    assert [publication.revision for publication in observer.poll()] == [7]
    assert observer.poll() == []
    lines = ["2026-11-29T20:05:20Z rev 7: demand 100 %", "2026-11-29T20:05:10Z rev 6: policy 100 %"]
    status.write_text(json.dumps({"status": {"history": lines, "why": ["a"]}}))
    observer.poll()
    assert list(observer.history) == ["rev 6: policy 100 %", "rev 7: demand 100 %"]
    assert observer.status["why"] == ["a"]


def event(name: str, count: int, reason: str, message: str, kind: str = "RoutingPolicy") -> dict[str, object]:
    about = {"kind": kind, "name": "chat"}
    return {"metadata": {"name": name}, "involvedObject": about, "reason": reason, "message": message, "count": count}


def test_events_are_told_once_and_history_is_in_them_at_once(tmp_path: Path) -> None:
    observer = Observer(tmp_path, [], began=0.0)
    path = tmp_path / "events.yaml"
    first = [
        event("a", 1, "WeightsChanged", "rev 1: demand 100 %"),
        event("b", 1, "EnginePenalized", "slow"),
        event("c", 1, "EnginePenalized", "the same of the engine itself", kind="InferenceEngine"),
        {"metadata": "rubbish"},
    ]
    path.write_text(json.dumps({"items": first}))
    observer.poll()
    path.write_text(json.dumps({"items": [event("a", 2, "WeightsChanged", "rev 2: health 100 %"), *first[1:]]}))
    os.utime(path, (5, 5))
    observer.poll()
    assert list(observer.history) == ["rev 1: demand 100 %", "rev 2: health 100 %"]
    assert observer.history["rev 2: health 100 %"] == 5
    assert [(told.reason, told.message) for told in observer.events] == [("EnginePenalized", "slow")]
    path.write_text("items: [half")
    assert observer.poll() == []


def test_what_the_operators_absence_meant(tmp_path: Path) -> None:
    observer = Observer(tmp_path, [], began=0.0)
    before = Interruption(10.0, 14.0, term_before=1, revision_before=5, history_before=("r5", "r4"))
    for at, term, revision in ((9, 1, 5), (15, 2, 5), (17, 2, 6)):
        observer.publications.append(Publication(at, "fe-us-east", term, revision, {}, {}))
    observer.status = {"history": ["r6", "r5", "r4"]}
    outcomes = [outcome(9), outcome(11), outcome(13, Result.FAILED), outcome(14.5, Result.FAILED)]
    chaos = chaos_report(before, outcomes, observer)
    assert (chaos.requests_meanwhile, chaos.failed_meanwhile) == (2, 1)
    assert (chaos.term_after, chaos.first_revision_after, chaos.history_kept) == (2, 6, True)


OLD = [f"r{number}" for number in range(9, 0, -1)]


@pytest.mark.parametrize(
    ("after", "kept"),
    [
        pytest.param(OLD, True, id="nothing-new"),
        pytest.param(["r10", *OLD], True, id="all-there"),
        pytest.param(["r11", "r10", *OLD[:-1]], True, id="the-oldest-fell-out-at-ten"),
        pytest.param(["r10"], False, id="begun-anew"),
        pytest.param(["r10", *OLD[1:]], False, id="one-missing"),
        pytest.param([], False, id="gone"),
    ],
)
def test_history_is_kept_when_it_goes_on_below_what_is_new(tmp_path: Path, after: list[str], kept: bool) -> None:
    observer = Observer(tmp_path, [], began=0.0)
    observer.status = {"history": after}
    before = Interruption(10.0, 14.0, 1, 9, history_before=tuple(OLD))
    assert chaos_report(before, [], observer).history_kept is kept


def test_refused_retries_are_read_from_the_routers_page() -> None:
    page = """# TYPE headrace_retries_total counter
headrace_retries_total{policy="chat",kind="retry"} 5.0
headrace_retries_total{policy="chat",kind="refused"} 2.0
headrace_retries_total{policy="code",kind="refused"} 1.0
"""
    assert refused_retries(page) == 3
    assert refused_retries("") == 0

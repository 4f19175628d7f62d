"""The report of a run: its shape (documented by docs/reference/demo-report.schema.json) and how it is put together.

Pure. Every figure comes from what clients saw or what the operator published; nothing is taken from the demo's plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headrace_lab.demo.changes import Change
from headrace_lab.demo.corrections import correction_time, engine_share, weights_at
from headrace_lab.demo.observe import OperatorEvent, Publication
from headrace_lab.demo.script import Script
from headrace_lab.replay.outcome import FAILURES, Outcome, unborne
from headrace_lab.replay.summary import Counts, Figures, count, end_to_end_of, figures, ttft_of
from headrace_lab.workload.frontends import FrontendShare

LATE = 0.25  # seconds behind its plan at the 99th percentile, from which on the replay did not keep its schedule

Seconds = Annotated[float, Meta(description="Seconds.")]


class ReportStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of the report's parts."""


class Schedule(ReportStruct, frozen=True, kw_only=True):
    """Whether the replay sent its requests when it meant to; if not, the machine was too slow for the rate."""

    kept: bool
    late: Annotated[Figures, Meta(description="Seconds between the planned and the real sending.")]
    not_sent: int


class FrontendReport(ReportStruct, frozen=True, kw_only=True):
    """One front-end."""

    name: str
    region: str
    counts: Counts
    ttft: Annotated[Figures, Meta(description="Seconds to the first event with content, as the client sees it.")]
    end_to_end: Annotated[Figures, Meta(description="Seconds to the end of the answer.")]
    weights: Annotated[dict[str, float], Meta(description="Engine -> fraction at the end, of the last table.")]
    answered_by: Annotated[dict[str, int], Meta(description="Engine -> answers, over the whole run.")]


class FaultReport(ReportStruct, frozen=True, kw_only=True):
    """One fault of the script and how the weights followed it."""

    kind: Literal["surge", "slow", "killed", "restored"]
    target: Annotated[str, Meta(description="The front-end (surge) or the engine.")]
    at: Annotated[float, Meta(description="Seconds into the run.")]
    until: Annotated[float, Meta(description="When the fault ended, seconds into the run.")]
    corrected_after: Annotated[
        float | None,
        Meta(
            description=(
                "Seconds from the fault to the publication by which the target's weights had gone three quarters of"
                " the way to where they stood when the fault ended; null: they moved by less than 1 point."
            )
        ),
    ]
    share_before: Annotated[
        float | None, Meta(description="Engine faults: its part of all traffic by the tables, at the fault.")
    ]
    share_after: Annotated[float | None, Meta(description="The same when the fault ended.")]


class ChangeReport(ReportStruct, frozen=True, kw_only=True):
    """One change of the weights, with what caused it."""

    at: Annotated[float, Meta(description="Seconds into the run; negative: before the first request.")]
    revision: int
    causes: Annotated[dict[str, float], Meta(description="Cause -> percent.")]
    moves: Annotated[list[str], Meta(description="The largest moves, one sentence each.")]
    text: Annotated[str, Meta(description="The operator's own line of history, without its time.")]


class EventReport(ReportStruct, frozen=True, kw_only=True):
    """What the operator told in an Event of the policy, beside changes of the weights."""

    at: Annotated[float, Meta(description="Seconds into the run.")]
    reason: str
    message: str


class ChaosReport(ReportStruct, frozen=True, kw_only=True):
    """The operator was killed (-9) and started again: what the routers did meanwhile, and where it went on."""

    killed_at: float
    restarted_at: float
    requests_meanwhile: int
    failed_meanwhile: int
    term_before: int
    term_after: int
    revision_before: int
    first_revision_after: Annotated[
        int | None,
        Meta(description="The first new revision after the restart; null: nothing changed again."),
    ]
    history_kept: Annotated[
        bool,
        Meta(description="Every line of history told before stood in status at the end (its newest ten)."),
    ]


class Report(ReportStruct, frozen=True, kw_only=True):
    """What a run of the demo showed."""

    version: Literal[1] = 1
    headrace: str
    started: str
    duration: Seconds
    warm_up: Annotated[
        float, Meta(description="Seconds of it before the story begins; its requests count like all others.")
    ]
    requests_per_second: Annotated[float, Meta(description="Planned, outside the surge.")]
    length_divisor: Annotated[int, Meta(description="Prompt and answer lengths are the traces' divided by this.")]
    verdict: Annotated[str, Meta(description="One sentence: what decided the exit code.")]
    exit_code: Literal[0, 1]
    counts: Counts
    ttft: Figures
    end_to_end: Figures
    schedule: Schedule
    frontends: list[FrontendReport]
    faults: list[FaultReport]
    changes: list[ChangeReport]
    events: list[EventReport]
    reasons: Annotated[dict[str, int], Meta(description="The router's reason for its choice -> answers.")]
    failures: Annotated[dict[str, int], Meta(description="Kind of failure, with its detail -> requests.")]
    cpu_seconds: Annotated[dict[str, float], Meta(description="Process -> CPU seconds.")]
    ended_by_themselves: Annotated[list[str], Meta(description="Processes that ended though nobody asked them to.")]
    chaos: ChaosReport | None = None


class Evidence(msgspec.Struct, kw_only=True):
    """All that a run left behind."""

    headrace: str
    started: str
    script: Script
    requests_per_second: float
    length_divisor: int
    outcomes: Sequence[Outcome]
    publications: Sequence[Publication]
    changes: Sequence[Change]
    events: Sequence[OperatorEvent]
    frontends: Sequence[FrontendShare]
    refused_retries: float
    max_attempts: int
    cpu_seconds: Mapping[str, float]
    ended_by_themselves: Sequence[str] = ()
    chaos: ChaosReport | None = None


def build_report(evidence: Evidence) -> Report:
    """Everything in figures, and the verdict."""
    outcomes = evidence.outcomes
    extra = unborne(outcomes, evidence.max_attempts, evidence.refused_retries)
    counts = count(outcomes)
    counts = msgspec.structs.replace(counts, lost_needlessly=counts.lost_needlessly + extra)
    schedule = _schedule(outcomes, counts)
    exit_code, verdict = judge(counts, schedule, evidence.ended_by_themselves)
    return Report(
        headrace=evidence.headrace,
        started=evidence.started,
        duration=evidence.script.duration,
        warm_up=evidence.script.phases[0].end,
        requests_per_second=evidence.requests_per_second,
        length_divisor=evidence.length_divisor,
        verdict=verdict,
        exit_code=exit_code,
        counts=counts,
        ttft=ttft_of(outcomes),
        end_to_end=end_to_end_of(outcomes),
        schedule=schedule,
        frontends=[_frontend(frontend, evidence) for frontend in evidence.frontends],
        faults=_faults(evidence),
        changes=[
            ChangeReport(
                at=round(change.at, 2),
                revision=change.revision,
                causes=dict(change.causes),
                moves=list(change.moves),
                text=change.text,
            )
            for change in evidence.changes
        ],
        events=[EventReport(at=round(at, 2), reason=reason, message=text) for at, reason, text in evidence.events],
        reasons=dict(Counter(outcome.reason for outcome in outcomes if outcome.reason).most_common()),
        failures=dict(Counter(_failure(outcome) for outcome in outcomes if outcome.result in FAILURES).most_common()),
        cpu_seconds={name: round(value, 2) for name, value in evidence.cpu_seconds.items()},
        ended_by_themselves=list(evidence.ended_by_themselves),
        chaos=evidence.chaos,
    )


def judge(counts: Counts, schedule: Schedule, ended: Sequence[str]) -> tuple[Literal[0, 1], str]:
    """Exit code and the sentence that explains it."""
    if ended:
        return 1, f"not good: {', '.join(ended)} ended by itself"
    if counts.lost_needlessly:
        return 1, f"not good: {counts.lost_needlessly} of {counts.requests} requests were lost that need not be"
    sentence = f"good: none of {counts.requests} requests was lost that need not be"
    if not schedule.kept:
        sentence += (
            f"; but the replay did not keep its schedule (99 % were at most {schedule.late.p99} s late,"
            f" {schedule.not_sent} not sent): latencies are this machine's, use a lower --rate"
        )
    return 0, sentence


def schema() -> dict[str, Any]:
    """JSON schema of the report."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Report)}


def _schedule(outcomes: Sequence[Outcome], counts: Counts) -> Schedule:
    late = figures(outcome.late for outcome in outcomes)
    kept = (late.p99 or 0.0) <= LATE and counts.not_sent == 0
    return Schedule(kept=kept, late=late, not_sent=counts.not_sent)


def _frontend(frontend: FrontendShare, evidence: Evidence) -> FrontendReport:
    mine = [outcome for outcome in evidence.outcomes if outcome.frontend == frontend.name]
    standing = weights_at(evidence.publications, float("inf")).get(frontend.name, {})
    return FrontendReport(
        name=frontend.name,
        region=frontend.region,
        counts=count(mine),
        ttft=ttft_of(mine),
        end_to_end=end_to_end_of(mine),
        weights={engine: round(weight, 4) for engine, weight in sorted(standing.items()) if weight > 0},
        answered_by=dict(Counter(outcome.engine for outcome in mine if outcome.engine).most_common()),
    )


def _faults(evidence: Evidence) -> list[FaultReport]:
    total = sum(frontend.share for frontend in evidence.frontends)
    shares = {frontend.name: frontend.share / total for frontend in evidence.frontends}
    reports = []
    for fault in evidence.script.faults:
        corrected = correction_time(evidence.publications, fault, shares)
        ends = None
        if fault.kind != "surge":
            standing = (weights_at(evidence.publications, at) for at in (fault.at, fault.until))
            ends = [round(engine_share(weights, fault.target, shares), 4) for weights in standing]
        reports.append(
            FaultReport(
                kind=fault.kind,
                target=fault.target,
                at=round(fault.at, 2),
                until=round(fault.until, 2),
                corrected_after=None if corrected is None else round(corrected, 2),
                share_before=ends[0] if ends else None,
                share_after=ends[1] if ends else None,
            )
        )
    return reports


def _failure(outcome: Outcome) -> str:
    """Kind and detail; addresses and ids left out by keeping the detail short."""
    detail = outcome.code or outcome.detail.partition(":")[0]
    return f"{outcome.result}: {detail[:80]}" if detail else str(outcome.result)

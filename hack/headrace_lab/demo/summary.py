"""The tables at the end of a run, as text for people; every figure is the report's.

Off every path. It must fit 80 columns, and say what decided the exit code in its last line.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from headrace_lab.demo.report import FaultReport, Report
from headrace_lab.replay.summary import Figures

_FAULT_WORDS = {"surge": "surge of {}", "slow": "{} slow", "killed": "{} killed", "restored": "{} restored"}


def print_summary(report: Report, console: Console) -> None:
    """Counts and latencies by front-end, faults and corrections, and the verdict."""
    console.print()
    console.print(_requests(report))
    console.print()
    console.print(_faults(report))
    for kind, number in report.failures.items():
        console.print(f"  {number} x {kind}", highlight=False, markup=False)
    if report.chaos is not None:
        chaos = report.chaos
        console.print(
            f"operator killed at {chaos.killed_at:.1f} s, back at {chaos.restarted_at:.1f} s:"
            f" {chaos.requests_meanwhile}"
            f" requests meanwhile, {chaos.failed_meanwhile} failed; term {chaos.term_before} -> {chaos.term_after},"
            f" revision {chaos.revision_before} -> {chaos.first_revision_after},"
            f" history {'kept' if chaos.history_kept else 'NOT kept'}",
            highlight=False,
        )
    used = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in report.cpu_seconds.items())
    early = sum(change.at < report.warm_up for change in report.changes)
    console.print(
        f"{len(report.changes)} changes of the weights, {early} of them before or in the warm-up; CPU: {used}",
        highlight=False,
        markup=False,
    )
    console.print(report.verdict, style="bold green" if report.exit_code == 0 else "bold red", highlight=False)


def _requests(report: Report) -> Table:
    table = Table(box=None, pad_edge=False)
    for head in ("front-end", "requests", "shed", "failed", "lost", "TTFT s p50/p95/p99", "end to end s p50/p95/p99"):
        table.add_column(head, justify="left" if head == "front-end" else "right")
    rows = [(frontend.name, frontend.counts, frontend.ttft, frontend.end_to_end) for frontend in report.frontends]
    for name, counts, ttft, end in [*rows, ("all", report.counts, report.ttft, report.end_to_end)]:
        numbers = (counts.requests, counts.shed, counts.failed, counts.lost_needlessly)
        table.add_row(name, *map(str, numbers), _three(ttft), _three(end))
    return table


def _three(figures: Figures) -> str:
    values = (figures.p50, figures.p95, figures.p99)
    return "/".join("-" if value is None else f"{value:.2f}" for value in values)


def _faults(report: Report) -> Table:
    table = Table(box=None, pad_edge=False)
    for head in ("fault", "at", "weights corrected", "part of all traffic"):
        table.add_column(head, justify="left" if head == "fault" else "right")
    for fault in report.faults:
        table.add_row(
            _FAULT_WORDS[fault.kind].format(fault.target), f"{fault.at:.1f} s", _corrected(fault), _shares(fault)
        )
    return table


def _corrected(fault: FaultReport) -> str:
    return "no change needed" if fault.corrected_after is None else f"after {fault.corrected_after:.1f} s"


def _shares(fault: FaultReport) -> str:
    if fault.share_before is None or fault.share_after is None:
        return ""
    return f"{fault.share_before * 100:.0f} -> {fault.share_after * 100:.0f} %"

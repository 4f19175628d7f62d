"""What ``freeze``, ``drain`` and ``resume`` tell people: what was done, and what stands in the namespace."""

from __future__ import annotations

from typing import Final

from headrace_operator.cli.break_glass import POLICY, BreakGlassReport, Glass
from headrace_operator.cli.output import Style, columns, plain_text
from headrace_operator.snapshot.clock import epoch_seconds

_HELD: Final = {"RoutingPolicy": "frozen", "InferenceEngine": "drained"}


def report_lines(report: BreakGlassReport, now: float, style: Style) -> list[str]:
    """The report as lines."""
    lines = [*_done(report, now, style)]
    lines += [style(f"note: {plain_text(note)}", "yellow") for note in report.notes]
    if report.standing:
        lines += ["", "what stands in this namespace:", *_table(report, now)]
    elif report.action == "resume" and not report.notes:
        lines.append("no break-glass stands in this namespace")
    return lines


def _done(report: BreakGlassReport, now: float, style: Style) -> list[str]:
    if report.action == "resume":
        if not report.changed:
            return ["nothing to resume: neither frozen nor drained"]
        return [
            style(f"{_name(glass)} is {_HELD[glass.kind]} no longer", "bold") + f"; it was {_told(glass, now)}"
            for glass in report.previous
        ]
    lines = [
        style(f"{_name(glass)} is {_HELD[glass.kind]}", "bold") + f" {_told(glass, now)}" for glass in report.targets
    ]
    lines += [f"before: {_told(glass, now)}" for glass in report.previous]
    short = "rpol" if report.action == "freeze" else "ieng"
    lines += [f"kubectl describe {short} {glass.name} -n {glass.namespace} shows it" for glass in report.targets]
    return lines


def _name(glass: Glass) -> str:
    return f"{glass.kind} {glass.namespace}/{glass.name}"


def _told(glass: Glass, now: float) -> str:
    why = f": {glass.why}" if glass.why else ", without a reason"
    return plain_text(f"until {glass.until} ({_when(glass, now)}){why}")


def _when(glass: Glass, now: float) -> str:
    at = epoch_seconds(glass.until)
    if glass.state == "Ignored" or at is None:
        return "without effect: " + ("no time in RFC 3339" if at is None else "more than 24 h ahead")
    return f"{length(at - now)} from now" if at > now else f"over since {length(now - at)}"


def length(seconds: float) -> str:
    """A length of time as people say it: 45 s, 12 min, 2 h, 1 h 30 min."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return " ".join([*([f"{hours} h"] if hours else []), *([f"{minutes} min"] if minutes or not hours else [])])


def _table(report: BreakGlassReport, now: float) -> list[str]:
    rows = [
        (
            "rpol" if glass.kind == POLICY.kind else "ieng",
            plain_text(glass.name),
            _HELD[glass.kind],
            plain_text(glass.until),
            _when(glass, now),
            plain_text(glass.why),
        )
        for glass in report.standing
    ]
    return columns(rows, indent="  ")

"""A plan as people read it: who sends what where and why, how full the engines are, what limits them.

Takes the report, gives lines. Weights of zero stand in the JSON and in ``headrace explain``; here only what is used,
and what was refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headrace_operator.cli.output import Style, bar, columns, plain_text
from headrace_operator.decision.why.report import PlanEngine, PlanFrontend, PlanPolicy, PlanReport
from headrace_operator.decision.why.text import latency, percent, plain, plural, rate
from headrace_operator.snapshot.eligibility import MODEL_NOT_SERVED

LEAST_WEIGHT: Final = 5e-5  # prints as 0 %, and rounds to no weight
MOST_EXCLUDED: Final = 2  # engines named in a row
FULL: Final = 1 - 1e-6  # of the hard capacity
Previous = Mapping[tuple[str, str, str, str], float]


def plan_lines(report: PlanReport, style: Style, *, compared: bool) -> list[str]:
    """The whole plan; ``compared``: show what stood before."""
    lines: list[str] = []
    for policy in report.policies:
        lines.append(_head(policy, style))
        if policy.frontends:
            lines += ["", *_routes(policy, style, compared=compared)]
        if policy.engines:
            lines += ["", *_engines(policy, style)]
        if policy.why:
            lines += ["", style("why", "bold")]
            lines += [f"  {plain_text(sentence)}" for sentence in policy.why]
        lines.append("")
    if not report.policies:
        lines.append("no policy to plan")
    lines += _notes(report, style)
    return lines[:-1] if lines and not lines[-1] else lines


def _notes(report: PlanReport, style: Style) -> list[str]:
    """What was assumed or ignored, as far as no policy's reasons say it."""
    told = " ".join(sentence for policy in report.policies for sentence in policy.why)
    notes = [note for note in report.notes if not any(part in told for part in (note, note.partition(": ")[2] or note))]
    return [style("notes", "bold"), *(f"  {plain_text(note)}" for note in notes)] if notes else []


def _head(policy: PlanPolicy, style: Style) -> str:
    if not policy.frontends:
        return style(f"{policy.namespace}/{policy.name}", "bold") + f"  {policy.strategy}, not planned"
    refused = f"{plain(policy.shed)} refused ({percent(policy.shed / policy.demand)})" if policy.shed > 0 else ""
    mean = policy.mean_latency_seconds
    parts = [
        f"{policy.strategy}" + (", shadow" if policy.mode == "Shadow" else ""),
        rate(policy.demand),
        style(refused, "red") if refused else "nothing refused",
        f"mean latency {latency(mean)}" if mean is not None else "nothing routed",
    ]
    dot = style(" · ", "dim")
    return style(f"{policy.namespace}/{policy.name}", "bold") + "  " + dot.join(parts)


def _routes(policy: PlanPolicy, style: Style, *, compared: bool) -> list[str]:
    several = len({frontend.model for frontend in policy.frontends}) > 1
    head = ["FRONT-END", *(["MODEL"] if several else []), "REQUESTS/S", "ENGINE", "WEIGHT"]
    head += [*(["BEFORE"] if compared else []), "WHY"]
    rows: list[list[str]] = [[style(cell, "dim") for cell in head]]
    for frontend in policy.frontends:
        rows += _frontend_rows(frontend, style, several=several, compared=compared)
    figures = {head.index("REQUESTS/S"), head.index("WEIGHT")} | ({head.index("BEFORE")} if compared else set())
    return columns(rows, right=figures)


def _frontend_rows(frontend: PlanFrontend, style: Style, *, several: bool, compared: bool) -> list[list[str]]:
    body: list[list[str]] = []
    for route in frontend.routes:
        before = route.previous_weight
        if route.weight >= LEAST_WEIGHT or (compared and before >= LEAST_WEIGHT):
            shown = [percent(before) if before >= LEAST_WEIGHT else "-"] if compared else []
            body.append([plain_text(route.engine), percent(route.weight), *shown, plain_text(route.reason)])
    if frontend.shed > 0:
        by_priority = [f"{entry.priority} {plain(entry.shed)}" for entry in frontend.shed_by_priority if entry.shed > 0]
        detail = (
            f"{rate(frontend.shed)}: {', '.join(by_priority)}"
            if len(frontend.shed_by_priority) > 1
            else rate(frontend.shed)
        )
        share = percent(frontend.shed / frontend.demand)
        body.append([style("refused", "red"), style(share, "red"), *([""] if compared else []), detail])
    if not frontend.routes:
        reasons = _excluded(frontend)
        body = [[style("none", "red"), "", *([""] if compared else []), f"no eligible engine: {plain_text(reasons)}"]]
    first = [frontend.name, *([frontend.model] if several else []), plain(frontend.demand)]
    blank = [""] * len(first)
    return [[*(first if index == 0 else blank), *row] for index, row in enumerate(body)]


def _excluded(frontend: PlanFrontend) -> str:
    """Why no engine is eligible, what is news first: engines of other models count only where there are no others."""
    near = [entry for entry in frontend.ineligible if entry.reason != MODEL_NOT_SERVED]
    messages = list(dict.fromkeys(entry.message for entry in near or frontend.ineligible))
    if not messages:
        return "no engine is selected"
    rest = len(messages) - MOST_EXCLUDED
    more = f"; {plural(rest, 'engine')} more, headrace explain names them" if rest > 0 else ""
    return "; ".join(messages[:MOST_EXCLUDED]) + more


def _engines(policy: PlanPolicy, style: Style) -> list[str]:
    head = [style(cell, "dim") for cell in ("ENGINE", "LOAD", "CAPACITY", "USED", "", "ONE MORE REQUEST/S")]
    rows = [head, *(_engine_row(policy, engine, style) for engine in policy.engines)]
    return columns(rows, right=(1, 2, 3))


def _engine_row(policy: PlanPolicy, engine: PlanEngine, style: Style) -> list[str]:
    full = engine.utilization >= FULL
    colour = "red" if engine.utilization > 1 + 1e-6 else "yellow" if full else "green"
    capacity = plain(engine.capacity)
    if engine.effective_capacity < engine.capacity * (1 - 1e-6):
        capacity = f"{capacity} (aim {plain(engine.effective_capacity)})"
    return [
        plain_text(engine.name),
        plain(engine.load),
        capacity,
        percent(engine.utilization),
        style(bar(engine.utilization), colour),
        _worth(policy, engine),
    ]


def _worth(policy: PlanPolicy, engine: PlanEngine) -> str:
    """The price of load, as what is true of it: more capacity saves as much only where capacity is what binds."""
    if engine.shadow_price_seconds <= 0:
        return ""
    if any(
        frontend.marginal_latency_seconds is None and any(route.engine == engine.name for route in frontend.routes)
        for frontend in policy.frontends
    ):
        return "of capacity is one fewer refused" if policy.shed > 0 else "of capacity helps where demand is short"
    if engine.utilization < FULL:
        return f"of load adds {latency(engine.shadow_price_seconds)}"
    return f"of capacity saves {latency(engine.shadow_price_seconds)}"

"""An explanation as people read it: candidates with what they cost, then the questions, the reasons and the past."""

from __future__ import annotations

from headrace_operator.cli.explaining import Candidate, Explanation, Source
from headrace_operator.cli.output import Style, columns, plain_text
from headrace_operator.decision.why.text import latency, percent, plain, rate

LEAST_WEIGHT = 5e-5
_HEAD = ("ENGINE", "WEIGHT", "BEFORE", "AWAY", "IDLE", "QUEUE", "COST", "WHY")


def explain_lines(told: Explanation, style: Style) -> list[str]:
    """The whole explanation."""
    dot = style(" · ", "dim")
    published = f"revision {told.revision}" if told.revision is not None else "planned"
    lines = [style(told.policy, "bold") + "  " + dot.join((told.strategy, published, told.at))]
    for source in told.sources:
        lines += ["", *_source(source, told, style)]
    lines += _section(
        "what if (solved again, once settled)", [f"{one.question}: {one.answer}" for one in told.what_if], style
    )
    lines += _section("why", told.why, style)
    lines += _section("history", told.history, style)
    return lines


def _section(title: str, sentences: tuple[str, ...] | list[str], style: Style) -> list[str]:
    if not sentences:
        return []
    return ["", style(title, "bold"), *(f"  {plain_text(sentence)}" for sentence in sentences)]


def _source(source: Source, told: Explanation, style: Style) -> list[str]:
    several = len({one.model for one in told.sources}) > 1
    classes = len({one.prompt_class for one in told.sources}) > 1
    name = (
        source.frontend + (f" {source.model}" if several else "") + (f" class {source.prompt_class}" if classes else "")
    )
    parts = [f"{rate(source.demand)} ({source.origin.lower()})"]
    if source.shed > 0:
        parts.append(style(f"{plain(source.shed)} refused ({percent(source.shed / source.demand)})", "red"))
    if source.marginal is None:
        parts.append("one more request/s would be refused")
    elif source.marginal > 0:
        parts.append(f"one more request/s costs {latency(source.marginal)}")
    lines = [style(plain_text(name), "bold") + "  " + style(" · ", "dim").join(parts)]
    if source.candidates:
        compared = any(one.previous_weight >= LEAST_WEIGHT for one in source.candidates)
        rows = [list(_HEAD), *(_row(one, refusing=source.marginal is None) for one in source.candidates)]
        shown = [row if compared else row[:2] + row[3:] for row in rows]
        shown[0] = [style(cell, "dim") for cell in shown[0]]
        lines += columns(shown, right=range(1, len(shown[0]) - 1), indent="  ")
    lines += [f"  {style('not eligible', 'dim')}  {plain_text(one.message)}" for one in source.excluded]
    return lines


def _row(one: Candidate, *, refusing: bool) -> list[str]:
    """One candidate; where demand is refused, the price of an engine is that of refusing and no latency."""
    return [
        plain_text(one.engine),
        percent(one.weight) if one.weight >= LEAST_WEIGHT else "-",
        percent(one.previous_weight) if one.previous_weight >= LEAST_WEIGHT else "-",
        latency(one.round_trip),
        latency(one.unloaded - one.round_trip),
        "scarce" if refusing and one.queue > 0 else latency(one.queue),
        "-" if refusing and one.queue > 0 else latency(one.cost),
        plain_text(one.reason),
    ]

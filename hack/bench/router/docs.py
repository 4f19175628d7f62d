"""docs/benchmarks.md's part on the router, and its plots, written from a result. The rest of the page stays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.router.figures import ratios, spread
from bench.router.install import HERE
from bench.router.plots import Bar, chart
from bench.router.processes import BenchFailed
from bench.router.result import LINES, Measured, Result
from bench.router.text import contract_rows, facts, main_figure, measured_rows

PAGE = HERE.parents[2] / "docs" / "benchmarks.md"
PLOTS = PAGE.parent / "benchmarks"
BEGIN, END = "<!-- bench-router: generated -->", "<!-- end of bench-router -->"
PLOTTED = {
    "unary2k": "",
    "unary16k": "",
    "sse-saturated": "",
    "sse-paced": " (less is better)",
    "memory": " (MiB, less is better)",
}


def write(result: Result, page: Path = PAGE, plots: Path = PLOTS) -> None:
    """Put the result into the page and its plots beside it.

    Raises:
        BenchFailed: the page has no place for it.
    """
    page.write_text(replaced(page.read_text(), markdown(result)))
    plots.mkdir(exist_ok=True)
    for name, svg in drawn(result).items():
        (plots / f"{name}.svg").write_text(svg)


def replaced(page: str, part: str) -> str:
    """The page with what stands between the two marks replaced."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BenchFailed(f"docs/benchmarks.md: no place for the result; right would be {BEGIN} … {END}")
    return f"{before}{BEGIN}\n{part}\n{END}{after}"


def markdown(result: Result) -> str:
    """The generated part."""
    lines = [*[f"- {fact}" for fact in facts(result)], "", *_table(contract_rows(result.rows)), ""]
    for measured in result.measured:
        lines += [f"### {measured.title}", ""]
        if measured.id in PLOTTED and _bars(measured):
            lines += [f"![{measured.title}](benchmarks/{measured.id}.svg)", ""]
        lines += [*_table(measured_rows(measured)), ""]
        faults = [f"- {_one_line(peer.fault)}" for peer in measured.peers.values() if peer.fault]
        lines += [*faults, ""] if faults else []
    return "\n".join(lines).rstrip()


def _one_line(fault: str) -> str:
    return " ".join(fault.split())[:160]


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    marks = ["---", *["--:"] * (len(rows[0]) - 1)]
    return [f"| {' | '.join(row)} |" for row in (escaped[0], marks, *escaped[1:])]


def _bars(measured: Measured) -> list[Bar]:
    """Peers as ratios to Envoy where the contract asks for that, else as they are."""
    figure = main_figure(measured)
    base = measured.by_round("envoy", figure)
    plain = measured.id == "memory"
    made = []
    for name in measured.peers:
        own = measured.by_round(name, figure)
        value = spread(list(own.values()) if plain else ratios(own, base))
        if value:
            made.append(Bar(name=name, value=value, ours=name.startswith("ours")))
    return made


def drawn(result: Result) -> dict[str, str]:
    """Name -> SVG of each measurement that has a plot."""
    found = {}
    for measured in result.measured:
        bars = _bars(measured) if measured.id in PLOTTED else []
        if bars:
            line = next(one for one in LINES if one.of[0] == measured.id)
            unit = "" if measured.id == "memory" else ", x Envoy"
            title = f"{line.title}{unit}{PLOTTED[measured.id]}"
            found[measured.id] = chart(title, bars, [("must", line.must), ("aim", line.aim)])
    return found

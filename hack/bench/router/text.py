"""A result as text for a terminal: every measurement with its peers, then the contract's rows."""

from __future__ import annotations

from collections.abc import Sequence

from bench.router.figures import Spread, ratios, spread
from bench.router.result import LINES, Measured, Result, Row

BUSY = 3.5  # load average; the benchmark itself makes about 2
HEADINGS = {
    "per_core": "per core/s",
    "rate": "rate/s",
    "cpu_us": "CPU us",
    "core": "core",
    "cpu_s_100k": "CPU s/100k",
    "over_idle_mib": "over idle MiB",
    "idle_mib": "idle MiB",
    "kib_a_stream": "KiB/stream",
    "inside_ms": "pause ms",
    "inside_quiet_ms": "without swap",
    "inside_worst_ms": "worst swap",
    "inside_worst_quiet_ms": "worst without",
    "outside_ms": "latest ms",
    "outside_quiet_ms": "without swap",
    "outside_p50_ms": "p50 ms",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "swaps": "swaps",
}


def number(value: float) -> str:
    """Three figures that count; of a small value one or two, so that none is shown as nothing."""
    size = abs(value)
    if 0 < size < 0.02:
        return f"{value:.4f}"
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def shown(value: Spread | None) -> str:
    """Median and extremes."""
    return f"{number(value.median)} ({number(value.low)}..{number(value.high)})" if value else "-"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns padded; the first to the left, others to the right."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    pads = [str.ljust, *[str.rjust] * (len(widths) - 1)]
    return [
        "  ".join(pad(cell, width) for pad, cell, width in zip(pads, row, widths, strict=True)).rstrip() for row in rows
    ]


def main_figure(measured: Measured) -> str:
    """The figure that the contract judges; a rate where it judges none."""
    return next((line.of[1] for line in LINES if line.of[0] == measured.id), "per_core")


def measured_rows(measured: Measured) -> list[list[str]]:
    """Heading and a row a peer: the judged figure with its spread, the others' medians, the ratio to Envoy."""
    first = main_figure(measured)
    figures = list(dict.fromkeys(name for peer in measured.peers.values() for name in peer.figures))
    others = [name for name in figures if name != first]
    rows = [["", HEADINGS.get(first, first), *(HEADINGS.get(name, name) for name in others), "x Envoy"]]
    for name in measured.peers:
        own = measured.by_round(name, first)
        medians = [spread(list(measured.by_round(name, other).values())) for other in others]
        beside = spread(ratios(own, measured.by_round("envoy", first)))
        cells = [number(median.median) if median else "-" for median in medians]
        rows.append([name, shown(spread(list(own.values()))), *cells, shown(beside)])
    return rows


def contract_rows(rows: Sequence[Row]) -> list[list[str]]:
    """Heading and the contract's rows."""
    made = [["", "must", "aim", "measured", "unit", "Envoy", "verdict"]]
    for row in rows:
        judged = f"{row.verdict}{f': {row.note[:60]}' if row.note else ''}".splitlines()[0]
        beside = number(row.beside.median) if row.beside else ""
        made.append([row.title, f"{row.must:g}", f"{row.aim:g}", shown(row.measured), row.unit, beside, judged])
    return made


def facts(result: Result) -> list[str]:
    """Machine, versions, ceiling."""
    machine = result.machine
    busy = [at for one in result.measured for at in one.load]
    virtual = ", virtual" if machine.virtual else ""
    cores = ", ".join(map(str, machine.load_cores))
    lines = [
        f"{machine.cpu}{virtual}, {machine.cores} cores, {machine.memory_gib:g} GiB, Linux {machine.kernel}, "
        f"governor: {machine.governor}",
        f"load average {machine.load_1:g} at the start, {min(busy, default=0):g} to {max(busy, default=0):g} at the "
        f"rounds' starts; proxy on core {machine.proxy_core}, load and engines on {cores}",
        f"{result.started}, commit {result.commit}, {result.rounds} rounds of {result.seconds:g} s",
        "versions: " + ", ".join(f"{name} {version}" for name, version in result.versions.items() if "-" not in name),
    ]
    if max(busy, default=0.0) > BUSY:
        lines.append(
            "other things ran meanwhile: plain rates, times and pauses say little, rates per core less than usual"
        )
    return lines + [ceiling_line(result, name, rate) for name, rate in result.ceiling.items()]


def ceiling_line(result: Result, name: str, rate: float) -> str:
    """What load and engines can do alone, beside the fastest proxy."""
    text = f"load and engines alone, {name}: {number(rate)}/s"
    measured = next((one for one in result.measured if one.id == name), None)
    medians = (
        [(spread(list(measured.by_round(peer, "rate").values())), peer) for peer in measured.peers] if measured else []
    )
    known = [(value.median, peer) for value, peer in medians if value and peer != "floor"]
    if not known:
        return text
    fastest, peer = max(known)
    low = "" if rate >= 2 * fastest else "; less than 2 x: its plain rate may be the load's, read its rate per core"
    return f"{text}, {rate / fastest:.1f} x the fastest proxy ({peer}){low}"


def text_of(result: Result) -> str:
    """The whole."""
    lines = facts(result)
    for measured in result.measured:
        lines += ["", measured.title, *table(measured_rows(measured))]
        lines += [f"  {peer.fault.splitlines()[0][:200]}" for peer in measured.peers.values() if peer.fault]
    return "\n".join([*lines, *(["", *table(contract_rows(result.rows))] if result.rows else [])])

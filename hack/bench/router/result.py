"""The result of a run: its schema (result.schema.json is made from it), its rows, and how it is read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bench.router.figures import Better, Spread, Verdict, best_of, ratios, spread, verdict
from bench.router.machine import Machine


class Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base: frozen, camelCase."""


class PeerRounds(Struct, frozen=True, kw_only=True):
    """One peer in one measurement."""

    figures: Annotated[
        dict[str, list[float | None]], Meta(description="Figure -> its value in each round; null: that round failed.")
    ]
    fault: Annotated[str, Meta(description="Why rounds failed or none was run; empty: none did.")] = ""


class Measured(Struct, frozen=True, kw_only=True):
    """One measurement with all its peers."""

    id: str
    title: str
    load: Annotated[list[float], Meta(description="Load average (1 minute) at the start of each round.")]
    peers: dict[str, PeerRounds]

    def by_round(self, peer: str, figure: str) -> dict[int, float]:
        """Round -> figure, where there is one."""
        rounds = self.peers[peer].figures.get(figure, []) if peer in self.peers else []
        return {at: value for at, value in enumerate(rounds) if value is not None}


class Row(Struct, frozen=True, kw_only=True):
    """One line of the contract."""

    id: str
    title: str
    unit: str
    better: Better
    must: float
    aim: float
    measured: Spread | None
    beside: Annotated[Spread | None, Meta(description="Envoy's figure where the row is no ratio to it.")] = None
    verdict: Verdict
    note: str = ""


class Result(Struct, frozen=True, kw_only=True):
    """All of a run."""

    schema_version: Literal[1] = 1
    started: Annotated[str, Meta(description="UTC, RFC 3339.")]
    commit: Annotated[str, Meta(description="Of this repository; with + if files differ from it.")]
    rounds: int
    seconds: Annotated[float, Meta(description="Of one peer in one round, warming up left out.")]
    machine: Machine
    versions: Annotated[dict[str, str], Meta(description="Peer -> version.")]
    ceiling: Annotated[
        dict[str, float], Meta(description="Measurement -> answers or events a second of load and engines alone.")
    ]
    measured: list[Measured]
    rows: list[Row]


class Line(Struct, frozen=True, kw_only=True):
    """What a row of the contract is made of. of: measurement and figure; against: peers of whom the best counts.

    kind: ratio to ``against``; ``over`` what one peer shows, in ms more than ``against``; ``plain``: the figure itself.
    below_envoy: the aim asks for a figure not above Envoy's, too.
    """

    id: str
    title: str
    of: tuple[str, str]
    unit: str
    better: Better
    must: float
    aim: float
    kind: Literal["ratio", "over", "plain"] = "ratio"
    ours: str = "ours"
    against: tuple[str, ...] = ("envoy",)
    below_envoy: bool = False


_RATIO = "x Envoy"


def _added(measurement: str, when: str) -> list[Line]:
    """What a burst's requests wait more than without a proxy."""
    return [
        Line(
            id=f"{measurement}-{figure}",
            title=f"added TTFT, {figure}, 40 at once, {when}",
            of=(measurement, f"{figure}_ms"),
            unit="ms",
            better="lower",
            must=must,
            aim=aim,
            kind="over",
            against=("direct",),
            below_envoy=True,
        )
        for figure, must, aim in (("p50", 0.5, 0.3), ("p99", 3.0, 2.0))
    ]


LINES = (
    Line(
        id="unary2k",
        title="unary 2 KiB, requests/s per core",
        of=("unary2k", "per_core"),
        unit=_RATIO,
        better="higher",
        must=2.0,
        aim=3.0,
    ),
    Line(
        id="unary2k-llm",
        title="the same, x the best of sglang-router, vllm-router",
        of=("unary2k", "per_core"),
        unit="x best",
        better="higher",
        must=2.5,
        aim=4.0,
        against=("sglang", "sglang-rr", "vllm", "vllm-rr"),
    ),
    Line(
        id="unary16k",
        title="unary 16 KiB, requests/s per core",
        of=("unary16k", "per_core"),
        unit=_RATIO,
        better="higher",
        must=1.7,
        aim=2.5,
    ),
    Line(
        id="sse-saturated",
        title="SSE chunks/s saturated, per core",
        of=("sse-saturated", "per_core"),
        unit=_RATIO,
        better="higher",
        must=1.2,
        aim=1.5,
    ),
    Line(
        id="sse-paced",
        title="CPU per 100k paced SSE chunks",
        of=("sse-paced", "cpu_s_100k"),
        unit=_RATIO,
        better="lower",
        must=1.1,
        aim=1.0,
    ),
    *_added("ttft", "idle before"),
    *_added("ttft-at-work", "at work"),
    Line(
        id="memory",
        title="memory over idle, 2,000 open streams",
        of=("memory", "over_idle_mib"),
        unit="MiB",
        better="lower",
        must=40.0,
        aim=20.0,
        kind="plain",
    ),
    Line(
        id="affinity",
        title="affinity by body field, x by header",
        of=("affinity", "per_core"),
        unit="x header",
        better="higher",
        must=0.75,
        aim=0.9,
        ours="ours-field",
        against=("ours",),
    ),
    Line(
        id="swap",
        title="table swap, 1,000 engines: longest pause of the loop",
        of=("swap", "inside_ms"),
        unit="ms",
        better="lower",
        must=5.0,
        aim=2.0,
        kind="plain",
        ours="ours-1000",
    ),
    Line(
        id="processes",
        title="CPU per request, 2 processes",
        of=("processes", "cpu_us"),
        unit="x 1 process",
        better="lower",
        must=1.15,
        aim=1.05,
        ours="ours-2",
        against=("ours",),
    ),
)


def _value(line: Line, measured: Measured, peer: str) -> Spread | None:
    figure = line.of[1]
    own = measured.by_round(peer, figure)
    if line.kind == "plain":
        return spread(list(own.values()))
    others = best_of([measured.by_round(name, figure) for name in line.against], line.better)
    if line.kind == "ratio":
        return spread(ratios(own, others))
    return spread([own[at] - others[at] for at in sorted(own.keys() & others.keys())])


def _row(line: Line, measured: Measured) -> Row:
    value = _value(line, measured, line.ours)
    beside = _value(line, measured, "envoy") if line.kind != "ratio" else None
    judged = verdict(value.median if value else None, line.must, line.aim, line.better)
    note = ""
    if value is None:
        faults = [measured.peers[name].fault for name in (line.ours, *line.against) if name in measured.peers]
        note = next((fault for fault in faults if fault), "")
    if value and beside and line.below_envoy and judged == "aim" and value.median > beside.median:
        judged, note = "must", "above Envoy's"
    return Row(
        id=line.id, title=line.title, unit=line.unit, better=line.better, must=line.must, aim=line.aim,
        measured=value, beside=beside, verdict=judged, note=note,
    )  # fmt: skip


def rows(measured: Sequence[Measured]) -> list[Row]:
    """The contract's rows of which there is a measurement."""
    by_id: Mapping[str, Measured] = {one.id: one for one in measured}
    return [_row(line, by_id[line.of[0]]) for line in LINES if line.of[0] in by_id]


def schema() -> bytes:
    """JSON Schema of a result."""
    made = msgspec.json.schema(Result)
    made = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Result of make bench-router", **made}
    return msgspec.json.format(msgspec.json.encode(made, order="sorted"), indent=2) + b"\n"


def read_result(data: bytes) -> Result:
    """A result that was written before.

    Raises:
        msgspec.ValidationError: it is none, with the field that is wrong.
    """
    return msgspec.json.decode(data, type=Result)

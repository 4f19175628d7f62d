"""What the demo shows at one instant, whichever way it is shown, and how its figures are written.

Off every path; pure. Terminal and plain lines are made from the same frame, so that they can't disagree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace_lab.demo.changes import Change
from headrace_lab.demo.observe import OperatorEvent
from headrace_lab.demo.script import Script
from headrace_lab.demo.stats import Live

DEAD = "dead"  # the state of an engine that the script killed


class Frame(NamedTuple):
    """One look at the running demo.

    queues: engine -> requests running and waiting there. weights: front-end -> engine -> fraction. utilization:
    engine -> load over declared capacity. engine_states: engine -> what the script did to it ("" when nothing).
    events: what the operator told beside changes of weights. why: its own sentences, most important first.
    """

    now: float
    script: Script
    revision: int
    total: Live
    in_flight: int
    frontends: Mapping[str, Live]
    weights: Mapping[str, Mapping[str, float]]
    utilization: Mapping[str, float]
    queues: Mapping[str, tuple[int, int]]
    engine_states: Mapping[str, str]
    changes: Sequence[Change]
    events: Sequence[OperatorEvent]
    why: Sequence[str]
    notes: Sequence[tuple[float, str]]


def milliseconds(seconds: float | None) -> str:
    """``312 ms``, ``1.42 s``, or a dash."""
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def percent(fraction: float) -> str:
    """``31 %``; a dot where it is nothing, and never nothing where it is something."""
    if fraction < 0.0005:
        return "."
    return "<1 %" if fraction < 0.005 else f"{fraction * 100:.0f} %"


def causes_text(change: Change) -> str:
    """``demand 92 %, health 8 %``; empty when the operator named none."""
    return ", ".join(f"{name} {share:g} %" for name, share in change.causes)


def moves_text(change: Change, most: int = 3) -> str:
    """The largest moves in one line."""
    return "; ".join(change.moves[:most]) or "less than a point"

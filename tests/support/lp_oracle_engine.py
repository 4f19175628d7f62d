"""The oracle's engines: work, curves and slopes from an instance's dict, by formulas of its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from headrace_api.engine import Profile
from headrace_operator.snapshot.curves import reference_curve

# Abscissae and weights of the 9-point Gauss-Hermite rule, from the tables (Abramowitz & Stegun, 25.10).
HERMITE = (
    (0.0, 0.720235215606050957),
    (0.723551018752837573, 0.432651559002555750),
    (1.46855328921666793, 0.0884745273943765733),
    (2.26658058453184311, 0.00494362427553694722),
    (3.19099320178152761, 0.0000396069772632643819),
)


def milliseconds(text: str) -> float:
    """Seconds of ``12.5ms`` or ``1s``."""
    return float(text[:-2]) / 1e3 if text.endswith("ms") else float(text[:-1])


Values = np.ndarray[Any, np.dtype[np.float64]]


def curve(points: list[dict[str, Any]], at: Any) -> Any:
    """A declared curve, straight between points, flat outside."""
    where = [point["utilizationPercent"] / 100 for point in points]
    return np.interp(at, where, [milliseconds(point["latency"]) for point in points])


def lower_hull(at: Values, height: Values) -> Values:
    """The lower convex hull at the points themselves: at each the lowest chord that spans it."""
    hull = height.copy()
    for left in range(len(at)):
        for right in range(left + 1, len(at)):
            inside = slice(left, right + 1)
            chord = height[left] + (height[right] - height[left]) * (at[inside] - at[left]) / (at[right] - at[left])
            hull[inside] = np.minimum(hull[inside], chord)
    return hull


@dataclass
class Engine:
    """One engine's numbers."""

    raw: dict[str, Any]
    target: float | None
    fixed: float
    hard: float = 0.0
    effective: float = 0.0
    soft: float = 0.0
    reference_work: float = 0.0
    segments: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hard = float(self.raw["ready"])
        self.effective = min(self.hard, self.hard * self.raw["penalty"] * self.raw["trim"])
        self.soft = self.effective if self.target is None else min(self.effective, self.target * self.hard)
        self.reference_work = self.work(900.0, 220.0)
        end = 1.0 if self.target is None else self.soft / self.effective
        marks = sorted({min(mark, end) for mark in self._marks()})
        heights = lower_hull(np.array(marks), self.averaged_excess(np.array(marks)))
        self.segments = [
            (self.effective * (right - left), (high - low) / (right - left) / self.effective)
            for (left, low), (right, high) in pairwise(zip(marks, heights.tolist(), strict=True))
        ]

    @property
    def profile(self) -> dict[str, Any]:
        return dict(self.raw["spec"]["profile"])

    def stay(self, tokens_in: float, tokens_out: float, at: float) -> float:
        """Seconds a request stays at a utilisation, before the trim."""
        fresh = tokens_in * (1 - self.raw["hit_share"])
        per_token = 1 / self.raw["spec"]["capacity"]["perReplica"]["prefillTokensPerSecond"]
        first = max(0.0, curve(self.profile["ttft"], at) + (fresh - 900.0) * per_token)
        return first + tokens_out * curve(self.profile["tbot"], at)

    def work(self, tokens_in: float, tokens_out: float) -> float:
        """Replica-seconds a request."""
        stated = self.raw["spec"]["capacity"]["perReplica"]
        fresh = tokens_in * (1 - self.raw["hit_share"])
        stay = self.stay(tokens_in, tokens_out, 0.85)
        found = [fresh / stated["prefillTokensPerSecond"] + tokens_out / stated["decodeTokensPerSecond"]]
        if "maxConcurrency" in stated:
            found.append(stay / stated["maxConcurrency"])
        if "kvCacheTokens" in stated:
            found.append((tokens_in + tokens_out / 2) * stay / stated["kvCacheTokens"])
        return max(found)

    def reference_stay(self, at: Any) -> Any:
        return curve(self.profile["ttft"], at) + 220.0 * curve(self.profile["tbot"], at)

    def own_slope(self, at: Values) -> Values:
        """dG/d(load) of the profile at utilisations, with the backlog's where there is no target; seconds a unit."""
        step = 1e-7
        rise = (self.reference_stay(at + step) - self.reference_stay(at)) / step
        own = (self.reference_stay(at) - self.reference_stay(0.0) + at * rise) * self.scale
        if self.target is None:
            own = np.where(at >= 0.98, np.maximum(own, 30.0 / self.reference_work), own)
        return np.where(at < 0, 0.0, own)

    @property
    def scale(self) -> float:
        return 1 / (self.reference_work * float(self.raw["trim"]))

    def _marks(self) -> list[float]:
        """Where the product breaks the curve: a free choice, so it is read from it. The heights there are our own."""
        found = reference_curve(msgspec.convert(self.profile, Profile), 220.0)
        return list(found.at if self.target is None else found.target_at)

    def own_excess(self, at: Values) -> Values:
        """G at utilisations: straight from the definition, beyond 0.98 without a target by integrating the slope."""
        inside = np.clip(at, 0.0, np.inf if self.target is not None else 0.98)
        total = inside * (self.reference_stay(inside) - self.reference_stay(0.0)) * self.scale
        if self.target is not None:
            return np.asarray(total)
        for left, right in ((0.98, 0.99), (0.99, 1.0), (1.0, 1.5)):
            rise = (self.reference_stay(right) - self.reference_stay(left)) / (right - left)
            length = np.clip(at, left, right) - left
            middle = left + length[..., None] * (np.arange(64) + 0.5) / 64
            own = (self.reference_stay(middle) - self.reference_stay(0.0) + middle * rise) * self.scale
            total = total + length * np.maximum(own, 30.0 / self.reference_work).mean(axis=-1)
        return np.asarray(total)

    def _averaged(self, function: Callable[[Values], Values], at: Values) -> Values:
        if self.target is not None:
            return function(at)
        nodes = [(sign * node, weight) for node, weight in HERMITE for sign in ((1,) if node == 0 else (1, -1))]
        total = sum(weight for _, weight in nodes)
        shifts = np.array([math.sqrt(2) * 0.02 * node for node, _ in nodes])
        weights = np.array([weight / total for _, weight in nodes])
        return np.asarray(function(at[:, None] + shifts) @ weights)

    def averaged_excess(self, at: Values) -> Values:
        """G averaged over the spread where there is no target, times c_j."""
        return self.effective * self._averaged(self.own_excess, at)

    def excess_at(self, at: float) -> float:
        """G at one utilisation, above that of an idle engine."""
        idle, there = self.averaged_excess(np.array([0.0, at]))
        return float(there - idle)

    def pieces(self, end: float) -> list[tuple[float, float, float]]:
        """(width in utilisation, slope at its left, slope at its right): the averaged curve is piecewise quadratic."""
        knots = {0.0, 0.98}
        for name in ("ttft", "tbot"):
            knots |= {point["utilizationPercent"] / 100 for point in self.profile[name]}
        shifts = [0.0] if self.target is not None else [
            sign * math.sqrt(2) * 0.02 * node for node, _ in HERMITE for sign in (1, -1)
        ]  # fmt: skip
        marks = {0.0, end} | {round(knot - shift, 12) for knot in knots for shift in shifts}
        ends = np.array(sorted(mark for mark in marks if 0.0 <= mark <= end))
        left, right = ends[:-1][np.diff(ends) > 1e-6], ends[1:][np.diff(ends) > 1e-6]
        slopes = self._averaged(self.own_slope, left + 1e-9), self._averaged(self.own_slope, right - 3e-7)
        return list(zip((right - left).tolist(), slopes[0].tolist(), slopes[1].tolist(), strict=True))

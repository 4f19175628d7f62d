"""Latency against utilisation, and what it costs an engine's queue: the curves that the optimizer prices load with.

Pure array arithmetic on the routing-weight path. A declared profile (points of TTFT and TBOT) becomes G_j(u), the
number in the system beyond what the unloaded latency explains, and G_j becomes slopes m_jk of its lower convex hull.
A profile that is not convex is repaired by the hull, never by a running maximum, and flagged so that status can name
it. Nothing here knows demand, prices or policies.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace_api.engine import Profile, ProfilePoint
from headrace_api.units import seconds

Floats = NDArray[np.float64]

LAST_CURVED = 0.97  # the first breakpoints crowd towards it: latency bends most near saturation
FIRST_BREAKPOINTS: Floats = np.append(LAST_CURVED * (1.0 - (1.0 - np.arange(17) / 16.0) ** 2), 1.0)
SEGMENTS = 32  # the first 17, and 15 more where this curve bends most: true cost within 0.2 % (17 alone: 1.2 %)
SPREAD = 0.02  # standard deviation of utilisation within one tick
BACKLOG_FROM = 0.98  # utilisation from which an overload is priced as a growing backlog
BACKLOG_SECONDS = 30.0  # mean wait a request in a 60 s overload
RESIDENCE_UTILISATION = 0.85  # where the residence time of the concurrency and KV limits is read
MOST_LATENCY = 86_400.0  # s; a day, where arithmetic is still sound
HULL_TOLERANCE = 1e-9  # relative to the curve's height: rounding, not a fault of the profile

_HERMITE = np.polynomial.hermite.hermgauss(9)
_OFFSETS: Floats = np.sqrt(2.0) * SPREAD * _HERMITE[0]
_WEIGHTS: Floats = _HERMITE[1] / _HERMITE[1].sum()
_KNOTS: Floats = np.array([BACKLOG_FROM, 0.99, 1.0])  # profile points beyond 0.98 stand on whole percents
_GRID: Floats = np.arange(401) / 400.0


class LatencyCurve(NamedTuple):
    """One declared curve: utilisation (fractions, ascending), seconds; flat beyond its ends, 0 where not declared."""

    at: Floats
    latency: Floats

    def __call__(self, utilisation: Floats | float) -> Floats:
        """Seconds at a utilisation (any shape)."""
        if self.at.size == 0:
            return np.zeros(np.shape(utilisation))
        return np.asarray(np.interp(utilisation, self.at, self.latency), dtype=np.float64)


class ReferenceCurve(NamedTuple):
    """T_j of one engine's reference mix, sampled where the slopes need it (33 breakpoints each).

    unloaded: T(0). knots: T at 0.98, 0.99, 1. at, excess: breakpoints without a target and u (T(u) - T(0)) averaged
    there over the spread, T held at its value of 0.98 beyond. target_at, target_latency: breakpoints with a target,
    and T there. bent: the profile's own G isn't convex and rising, so the hull repairs it.
    """

    unloaded: float
    knots: Floats
    at: Floats
    excess: Floats
    target_at: Floats
    target_latency: Floats
    bent: bool


class CurveBank(NamedTuple):
    """Reference curves of engines, stacked (engines first). beyond: the nodes above 0.98 of all averaged breakpoints:
    engine, breakpoint, utilisation, weight."""

    unloaded: Floats
    knots: Floats
    at: Floats
    excess: Floats
    target_at: Floats
    target_latency: Floats
    bent: NDArray[np.bool_]
    beyond: tuple[NDArray[np.int64], NDArray[np.int64], Floats, Floats]


def latency_curve(points: tuple[ProfilePoint, ...]) -> LatencyCurve:
    """The curve through declared points, in order of utilisation."""
    pairs = sorted((point.utilization_percent / 100.0, min(seconds(point.latency), MOST_LATENCY)) for point in points)
    return LatencyCurve(np.array([at for at, _ in pairs]), np.array([value for _, value in pairs]))


@lru_cache(maxsize=8192)
def declared_curves(profile: Profile) -> tuple[LatencyCurve, LatencyCurve]:
    """TTFT and TBOT curves of a profile."""
    return latency_curve(profile.ttft), latency_curve(profile.tbot)


@lru_cache(maxsize=8192)
def reference_curve(profile: Profile, output_tokens: float) -> ReferenceCurve:
    """T_j(u) = TTFT_j(u) + output tokens x TBOT_j(u), sampled once for a profile."""
    ttft, tbot = declared_curves(profile)

    def latency(utilisation: Floats) -> Floats:
        return ttft(utilisation) + output_tokens * tbot(utilisation)

    unloaded = float(latency(np.zeros(1))[0])
    knots = latency(_KNOTS)

    def averaged(utilisation: Floats) -> Floats:
        nodes = np.clip(utilisation[:, None] + _OFFSETS, 0.0, BACKLOG_FROM)
        return np.asarray((nodes * (latency(nodes) - unloaded)) @ _WEIGHTS, dtype=np.float64)

    grid = np.union1d(_GRID, np.concatenate([ttft.at, tbot.at]))
    at = _breakpoints(grid, averaged(grid) + _beyond_knee(grid))
    own = grid * (latency(grid) - unloaded)
    target_at = _breakpoints(grid, own)
    bent = _hull_of(grid, own)[1]
    return ReferenceCurve(unloaded, knots, at, averaged(at), target_at, latency(target_at), bent)


def _beyond_knee(grid: Floats) -> Floats:
    """The averaged backlog on the grid, per unit of work: what bends a curve near saturation besides its profile."""
    return np.asarray(np.maximum(grid[:, None] + _OFFSETS - BACKLOG_FROM, 0.0) @ _WEIGHTS * BACKLOG_SECONDS)


def _breakpoints(grid: Floats, height: Floats) -> Floats:
    """33 breakpoints: the first 18, then, one by one, the grid points where straight lines miss the curve most."""
    chosen = np.unique(np.append(FIRST_BREAKPOINTS, 0.0))
    while chosen.size < SEGMENTS + 1:
        miss = np.abs(np.interp(grid, chosen, np.interp(chosen, grid, height)) - height)
        best = int(np.argmax(miss))
        if miss[best] <= 0.0 or grid[best] in chosen:
            chosen = np.append(chosen, np.ones(SEGMENTS + 1 - chosen.size))
        else:
            chosen = np.sort(np.append(chosen, grid[best]))
    return chosen


def curve_bank(curves: Sequence[ReferenceCurve]) -> CurveBank:
    """Stacks the curves of engines."""
    at = np.stack([curve.at for curve in curves]) if curves else np.zeros((0, SEGMENTS + 1))
    nodes = at[:, :, None] + _OFFSETS
    engine, point, node = np.nonzero(nodes > BACKLOG_FROM)
    return CurveBank(
        unloaded=np.array([curve.unloaded for curve in curves]),
        knots=np.array([curve.knots for curve in curves]).reshape(len(curves), len(_KNOTS)),
        at=at,
        excess=np.array([curve.excess for curve in curves]).reshape(at.shape),
        target_at=np.array([curve.target_at for curve in curves]).reshape(at.shape),
        target_latency=np.array([curve.target_latency for curve in curves]).reshape(at.shape),
        bent=np.array([curve.bent for curve in curves], dtype=np.bool_),
        beyond=(engine, point, nodes[engine, point, node], _WEIGHTS[node]),
    )


def averaged_slopes(bank: CurveBank, work: Floats, trim: Floats) -> Floats:
    """Slopes m_jk (engines x 32, seconds a replica-second) without a target.

    work: w_j of the reference. G per unit of c_j is u (T(u) - T(0)) / (w trim), its slope beyond 0.98 at least
    30 s / w; then it is averaged over the spread.
    """
    scale = 1.0 / (work * trim)
    excess = bank.excess * scale[:, None]
    engine, point, nodes, weights = bank.beyond
    backlog = _backlog(bank, engine, nodes, scale, BACKLOG_SECONDS / work)
    flat = np.bincount(engine * (SEGMENTS + 1) + point, weights * backlog, excess.size)
    return hull_slopes(bank.at, excess + flat.reshape(excess.shape))


def target_slopes(at: Floats, latency: Floats, unloaded: Floats, work: Floats, trim: Floats) -> Floats:
    """Slopes m_jk with a target: the profile's own hull below it, neither averaged nor with the backlog's slope.

    at: engines x 33, cut off at the target; latency: T there.
    """
    return hull_slopes(at, at * (latency - unloaded[:, None]) / (work * trim)[:, None])


def _backlog(bank: CurveBank, engine: NDArray[np.int64], nodes: Floats, scale: Floats, least: Floats) -> Floats:
    """By node beyond 0.98: the integral of max(G', least) from there, T linear between knots, flat beyond 1."""
    total = least[engine] * (nodes - BACKLOG_FROM)
    for index, start in enumerate(_KNOTS):
        last_knot = index + 1 == len(_KNOTS)
        end = np.inf if last_knot else _KNOTS[index + 1]
        length = np.clip(nodes, start, end) - start
        knots = bank.knots
        rise = np.zeros(len(scale)) if last_knot else (knots[:, index + 1] - knots[:, index]) / (end - start)
        first = ((knots[:, index] - bank.unloaded + rise * start) * scale - least)[engine]
        total = total + _positive_area(first, first + (2.0 * rise * scale)[engine] * length, length)
    return total


def _positive_area(first: Floats, last: Floats, length: Floats) -> Floats:
    """Area above zero under a straight line from ``first`` to ``last`` over ``length``."""
    high, low = np.maximum(first, last), np.minimum(first, last)
    span = np.where(high > low, high - low, 1.0)
    crossing = np.where(low >= 0.0, 0.5 * (first + last), 0.5 * high * high / span)
    return np.where(high <= 0.0, 0.0, crossing) * length


def hull_slopes(at: Floats, height: Floats) -> Floats:
    """Slopes of the lower convex hulls of rows of points (rows x points, ``at`` ascending), at least 0."""
    width = np.diff(at, axis=1)
    slopes = np.diff(height, axis=1) / np.where(width > 0.0, width, 1.0)
    real = np.where(width > 0.0, slopes, -np.inf)
    bent = (slopes < np.maximum.accumulate(real, axis=1)).any(axis=1) | (slopes[:, 0] < 0.0)
    for row in np.flatnonzero(bent):
        slopes[row] = _hull_of(at[row], height[row])[0]
    return slopes


def _hull_of(at: Floats, height: Floats) -> tuple[Floats, bool]:
    """One row's hull (monotone chain), evaluated on every segment; True where it lies visibly below a point."""
    kept: list[int] = []
    for point in range(len(at)):
        while len(kept) >= 2 and _turns_down(at, height, kept[-2], kept[-1], point):
            kept.pop()
        kept.append(point)
    hull = np.interp(at, at[kept], height[kept])
    width = np.diff(at)
    slopes = np.maximum(np.diff(hull) / np.where(width > 0.0, width, 1.0), 0.0)
    floor = height[0] + np.concatenate([[0.0], np.cumsum(slopes * width)])
    gap = float(np.abs(height - floor).max())
    return slopes, gap > HULL_TOLERANCE * max(float(np.abs(height).max()), 1e-300)


def _turns_down(at: Floats, height: Floats, first: int, middle: int, last: int) -> bool:
    """Whether ``middle`` lies on or above the line from ``first`` to ``last``."""
    left = (height[middle] - height[first]) * (at[last] - at[first])
    right = (height[last] - height[first]) * (at[middle] - at[first])
    return bool(left >= right)

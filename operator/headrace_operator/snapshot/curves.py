"""Latency against utilisation, and what it costs an engine's queue: the curves that the optimizer prices load with.

Pure array arithmetic on the routing-weight path. A declared profile (points of TTFT and TBOT) becomes G_j(u), the
number in the system beyond what the unloaded latency explains, and G_j becomes slopes m_jk of its lower convex hull.
A profile that is not convex is repaired by the hull, never by a running maximum, and flagged so that status can name
it. Nothing here knows demand, prices or policies.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace_api.engine import Profile, ProfilePoint
from headrace_api.units import seconds

Floats = NDArray[np.float64]

SEGMENTS = 17
LAST_CURVED = 0.97  # breakpoints crowd towards it: latency bends most near saturation
BREAKPOINTS: Floats = np.append(LAST_CURVED * (1.0 - (1.0 - np.arange(SEGMENTS) / 16.0) ** 2), 1.0)
SPREAD = 0.02  # standard deviation of utilisation within one tick
BACKLOG_FROM = 0.98  # utilisation from which an overload is priced as a growing backlog
BACKLOG_SECONDS = 30.0  # mean wait a request in a 60 s overload
RESIDENCE_UTILISATION = 0.85  # where the residence time of the concurrency and KV limits is read
HULL_TOLERANCE = 1e-9  # relative to the curve's height: rounding, not a fault of the profile

_HERMITE = np.polynomial.hermite.hermgauss(9)
_NODES: Floats = BREAKPOINTS[:, None] + np.sqrt(2.0) * SPREAD * _HERMITE[0][None, :]
_NODE_WEIGHTS: Floats = _HERMITE[1] / _HERMITE[1].sum()
_BELOW: Floats = np.clip(_NODES, 0.0, BACKLOG_FROM)
_BEYOND = _NODES > BACKLOG_FROM
_KNOTS: Floats = np.array([BACKLOG_FROM, 0.99, 1.0])  # profile points beyond 0.98 stand on whole percents


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
    """T_j of one engine's reference mix, sampled where the slopes need it.

    spread: T at the Gauss-Hermite nodes around each breakpoint (18 x 9). unloaded: T(0). knots: T at 0.98, 0.99, 1.
    """

    spread: Floats
    unloaded: float
    knots: Floats


def latency_curve(points: tuple[ProfilePoint, ...]) -> LatencyCurve:
    """The curve through declared points, in order of utilisation."""
    pairs = sorted((point.utilization_percent / 100.0, seconds(point.latency)) for point in points)
    return LatencyCurve(np.array([at for at, _ in pairs]), np.array([value for _, value in pairs]))


def declared_curves(profile: Profile) -> tuple[LatencyCurve, LatencyCurve]:
    """TTFT and TBOT curves of a profile."""
    return latency_curve(profile.ttft), latency_curve(profile.tbot)


def reference_curve(ttft: LatencyCurve, tbot: LatencyCurve, output_tokens: float) -> ReferenceCurve:
    """T_j(u) = TTFT_j(u) + output tokens x TBOT_j(u), sampled once for a profile."""
    nodes = np.maximum(_NODES, 0.0)
    return ReferenceCurve(
        spread=ttft(nodes) + output_tokens * tbot(nodes),
        unloaded=float(ttft(0.0) + output_tokens * tbot(0.0)),
        knots=ttft(_KNOTS) + output_tokens * tbot(_KNOTS),
    )


def averaged_slopes(
    spread: Floats, unloaded: Floats, knots: Floats, work: Floats, trim: Floats
) -> tuple[Floats, NDArray[np.bool_]]:
    """Slopes m_jk (engines x 17, seconds a replica-second) without a target, and where the hull repaired the profile.

    spread: engines x 18 x 9; unloaded, work (w_j of the reference), trim: engines; knots: engines x 3. G per unit of
    c_j is u (T(u) - T(0)) / (w trim), its slope beyond 0.98 at least 30 s / w; then it is averaged over the spread.
    """
    scale = 1.0 / (work * trim)
    latency = spread.copy()
    latency[:, _BEYOND] = knots[:, :1]
    excess = _BELOW * (latency - unloaded[:, None, None]) * scale[:, None, None]
    excess[:, _BEYOND] += _backlog(unloaded, knots, scale, BACKLOG_SECONDS / work)
    return hull_slopes(np.broadcast_to(BREAKPOINTS, (len(work), SEGMENTS + 1)), excess @ _NODE_WEIGHTS)


def target_slopes(breakpoints: Floats, latency: Floats, work: Floats, trim: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Slopes m_jk with a target: the profile's own hull below it, neither averaged nor with the backlog's slope.

    breakpoints: engines x 18, scaled to end at the target; latency: T there.
    """
    excess = breakpoints * (latency - latency[:, :1]) / (work * trim)[:, None]
    return hull_slopes(breakpoints, excess)


def _backlog(unloaded: Floats, knots: Floats, scale: Floats, least: Floats) -> Floats:
    """Engines x nodes beyond 0.98: the integral of max(G', least) from there, T linear between knots, flat beyond 1."""
    nodes = _NODES[_BEYOND][None, :]
    total = least[:, None] * (nodes - BACKLOG_FROM)
    for index, start in enumerate(_KNOTS):
        last_knot = index + 1 == len(_KNOTS)
        end = np.inf if last_knot else _KNOTS[index + 1]
        length = np.clip(nodes, start, end) - start
        rise = np.zeros(len(scale)) if last_knot else (knots[:, index + 1] - knots[:, index]) / (end - start)
        first = ((knots[:, index] - unloaded + rise * start) * scale - least)[:, None]
        total = total + _positive_area(first, first + (2.0 * rise * scale)[:, None] * length, length)
    return total


def _positive_area(first: Floats, last: Floats, length: Floats) -> Floats:
    """Area above zero under a straight line from ``first`` to ``last`` over ``length``."""
    high, low = np.maximum(first, last), np.minimum(first, last)
    span = np.where(high > low, high - low, 1.0)
    crossing = np.where(low >= 0.0, 0.5 * (first + last), 0.5 * high * high / span)
    return np.where(high <= 0.0, 0.0, crossing) * length


def hull_slopes(at: Floats, height: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Slopes of the lower convex hulls of rows of points, at least 0, and which rows were not convex and rising.

    at, height: rows x points, ``at`` ascending (equal neighbours give slope 0 of width 0).
    """
    width = np.diff(at, axis=1)
    slopes = np.diff(height, axis=1) / np.where(width > 0.0, width, 1.0)
    bent = (np.diff(slopes, axis=1) < 0.0).any(axis=1) | (slopes[:, 0] < 0.0)
    repaired = np.zeros(len(at), dtype=np.bool_)
    for row in np.flatnonzero(bent):
        slopes[row], repaired[row] = _hull_of(at[row], height[row])
    return slopes, repaired


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

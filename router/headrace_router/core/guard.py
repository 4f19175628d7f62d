"""The priced guard: each pick corrected by what only this router knows at once, its own requests in flight.

On the request path; pure arithmetic. The table's prices make the published split the fixed point of this correction:
at the expected in-flight nothing is moved, above it the next request goes where it costs least. All costs are seconds.
Formulas: docs, The optimizer and the prices it hands to the routers (The guard in the router); the bound for tables
without prices: docs, The router (Guard).
"""

from __future__ import annotations

from math import sqrt
from typing import Final

from headrace_api.table import Guard

# Requests expected in flight, over a model's engines, from which on keyless requests may follow in-flight alone.
# Below it they would follow chance instead of weights: .9/.1 came out as .72/.28 at two in flight.
FOLLOW_IN_FLIGHT: Final = 40.0
# Load bound without prices: this times the fair share, plus twice its deviation.
BOUND_FACTOR: Final = 1.25
_SOFTENING: Final = 4.0


class Variant:
    """Parameters in force for one kind of traffic: slack x (s), tolerance z (deviations), credit nu (0 or 1)."""

    __slots__ = ("nu", "x", "z")

    def __init__(self, x: float, z: float, nu: float) -> None:
        self.x = x
        self.z = z
        self.nu = nu


def keyed_variant(guard: Guard) -> Variant:
    """Keyed traffic follows the table's own parameters."""
    return Variant(guard.x, guard.z, guard.nu)


def keyless_variant(expected: float, routers: int) -> Variant:
    """Keyless traffic has no prefix to lose; ``expected``: requests expected in flight here over the model's engines.

    With several routers each sees only its part, so a single one must not chase the others' gaps.
    """
    if routers > 1:
        return Variant(1.0, 1.0, 0.0)
    return Variant(0.0, 0.0, 1.0) if expected >= FOLLOW_IN_FLIGHT else Variant(0.0, 1.0, 0.0)


class Price:
    """What one more request on an engine costs, for one model, prompt class and front-end.

    rho: reduced cost (s). expected: this router's part m of the in-flight that the solution wants here. work_share:
    part of the whole engine that one request per second takes. all_in_flight: N*_j over all front-ends.
    """

    __slots__ = ("_deviation", "_slope", "_softening", "all_in_flight", "expected", "rho")

    def __init__(self, rho: float, in_flight_here: float, all_in_flight: float, work_share: float, routers: int):
        softening = max(_SOFTENING, 0.2 * all_in_flight)
        self.rho = rho
        self.all_in_flight = all_in_flight
        self.expected = in_flight_here / routers
        self._deviation = sqrt(self.expected)
        self._softening = softening
        self._slope = 2.0 * work_share / (self.expected + softening / routers)

    def cost(self, in_flight: int, variant: Variant) -> float:
        """v_ij in seconds; negative where the engine has fewer requests than expected and the variant credits that.

        N*_j below its softening k counts as min(in flight, k): an engine that the solution leaves idle would else
        stay free of charge however many requests were spilled to it.
        """
        gap = in_flight - self.expected
        if gap < 0.0:
            if variant.nu == 0.0:
                return self.rho
            gap *= variant.nu
        else:
            gap -= variant.z * self._deviation
            if gap <= 0.0:
                return self.rho
        weight = self.all_in_flight
        if weight < self._softening:
            weight = max(weight, min(float(in_flight), self._softening))
        return self.rho + self._slope * weight * gap


def load_bound(share: float, in_flight: int, floor: float) -> float:
    """Without prices: the most requests an engine with this share may have, of ``in_flight`` over all of them.

    A new request fits if the engine's own count plus it stays within; ``floor`` is at least 1, or with many engines
    no engine would ever fit.
    """
    fair = share * (in_flight + 1)
    return max(floor, BOUND_FACTOR * fair + 2.0 * sqrt(fair))

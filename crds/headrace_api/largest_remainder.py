"""Fractions to integers that keep their sum: the largest-remainder (Hamilton) method.

For operator and routers alike; pure. Rounding each share by itself loses or invents traffic (120 engines at 100 // 120
get nothing; three 33s make 99); here the integers always sum to the total and each is within 1 of its exact share.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, isfinite


def largest_remainder(shares: Sequence[float], total: int) -> list[int]:
    """Integers proportional to ``shares`` that sum to ``total``; ties go to the earlier one.

    Negative and non-finite shares count as nothing. All nothing: all zeros (the caller decides what stands instead).
    """
    parts = [share if isfinite(share) and share > 0 else 0.0 for share in shares]
    largest = max(parts, default=0.0)
    if largest <= 0.0:
        return [0] * len(parts)
    scaled = [part / largest for part in parts]
    whole = sum(scaled)
    exact = [part / whole * total for part in scaled]
    counts = [floor(part) for part in exact]
    by_remainder = sorted(range(len(parts)), key=lambda index: (counts[index] - exact[index], index))
    left = total - sum(counts)
    for index in [index for index in by_remainder if parts[index] > 0][:left]:
        counts[index] += 1
    return counts

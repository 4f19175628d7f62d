"""The demo's three front-ends: where they stand and what part of the load is theirs.

Shares are conversations by world region (headrace_lab/data/README.md), the three largest, normalised: Asia and
Pacific 31.14 %, North America 28.11 %, Europe 21.80 % of the sample.
"""

from __future__ import annotations

from typing import NamedTuple


class FrontendShare(NamedTuple):
    """A front-end, its Azure region, and its part of all requests (any positive unit)."""

    name: str
    region: str
    share: float


FRONTENDS = (
    FrontendShare("fe-us-east", "eastus", 28.11),
    FrontendShare("fe-eu-west", "westeurope", 21.80),
    FrontendShare("fe-ap-southeast", "southeastasia", 31.14),
)

"""The demo's world: which engines stand where, and how far everything is from everything. Pure.

Hardware and its speed come from measured series (``headrace_lab.engine.hardware``), round trips from Azure's own
table (``headrace_lab/data``). The network is emulated by the engines: each holds a request and its answer for half
the round trip to the front-end that the request names; on loopback nothing else is far away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace_lab.workload.frontends import FRONTENDS

MODEL = "llama-3.1-70b"
NAMESPACE = "inference"
POLICY = "chat"
SAME_REGION = 0.001  # seconds; what the API takes for two places in one region
STREAM_INTERVAL = 4  # tokens an event after the first, as vLLM's --stream-interval; timings stay those of the tokens


class EngineSite(NamedTuple):
    """One simulated engine: one replica of a kind of hardware in an Azure region."""

    name: str
    hardware: str
    region: str


# Asia has a third of its front-end's demand elsewhere even when nothing happens; no region can carry a surge alone.
ENGINES = (
    EngineSite("h100-eastus", "H100x4", "eastus"),
    EngineSite("h200-eastus", "H200x2", "eastus"),
    EngineSite("b200-westus2", "B200x2", "westus2"),
    EngineSite("h100-westeurope", "H100x4", "westeurope"),
    EngineSite("h200-westeurope", "H200x2", "westeurope"),
    EngineSite("h200-southeastasia", "H200x4", "southeastasia"),
    EngineSite("b200-japaneast", "B200x4", "japaneast"),
)


def round_trip(trips: Mapping[tuple[str, str], float], here: str, there: str) -> float:
    """Seconds there and back between two regions: the mean of both directions, SAME_REGION within one."""
    if here == there:
        return SAME_REGION
    return (trips[here, there] + trips[there, here]) / 2


def fleet_spec(trips: Mapping[tuple[str, str], float], block_tokens: int) -> dict[str, Any]:
    """What the process of simulated engines is started with."""
    return {
        "prefixBlockTokens": block_tokens,
        "streamInterval": STREAM_INTERVAL,
        "engines": [{"name": site.name, "hardware": site.hardware, "model": MODEL} for site in ENGINES],
        "roundTrips": {
            frontend.name: {site.name: round_trip(trips, frontend.region, site.region) for site in ENGINES}
            for frontend in FRONTENDS
        },
    }

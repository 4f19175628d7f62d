"""What a person can choose about a demo, and what holds without a choice.

Off every path. The defaults were chosen by measuring: at 60 requests/s all processes together take less than half a
core, so that two cores carry them beside other work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

DEFAULT_DURATION = 65.0  # of which the first nine are the warm-up
DEFAULT_RATE = 60.0  # requests/s over all front-ends: about 60 % of what the seven engines carry of this mix
DEFAULT_DIVISOR = 8  # so that several hundred requests a fault tell a change of weights from chance


class Options(NamedTuple):
    """Seconds, requests/s, what lengths are divided by, where to write, how to show, what else to break."""

    duration: float = DEFAULT_DURATION
    rate: float = DEFAULT_RATE
    length_divisor: int = DEFAULT_DIVISOR
    report: Path | None = None
    keep: Path | None = None
    plain: bool = False
    chaos: Literal["operator"] | None = None

"""The demo's script: which fault happens when, to whom, and what each is called. Pure.

All instants are shares of the run's length, so that a short run tells the same story faster. It begins with a warm-up,
because nothing that an estimate still owes to its youth should pass for the answer to a fault.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from headrace_lab.workload.requests import Surge

FaultKind = Literal["surge", "slow", "killed", "restored"]

SURGED, SURGE_FACTOR = "fe-ap-southeast", 1.5
SLOWED, SLOW_FACTOR = "h100-eastus", 3.0
KILLED = "h100-westeurope"
WARM_UP = "warm-up"


class Phase(NamedTuple):
    """A part of the run: seconds from its beginning, and what happens in it."""

    name: str
    start: float
    end: float
    text: str


class Fault(NamedTuple):
    """Something that happens at an instant to a front-end (surge) or an engine; ``until``: when it ends by itself."""

    kind: FaultKind
    target: str
    at: float
    until: float
    text: str


class Script(NamedTuple):
    """The whole run."""

    duration: float
    phases: tuple[Phase, ...]
    faults: tuple[Fault, ...]

    @property
    def surges(self) -> tuple[Surge, ...]:
        """What the workload must know of it."""
        return tuple(
            Surge(fault.target, fault.at, fault.until, SURGE_FACTOR) for fault in self.faults if fault.kind == "surge"
        )

    def phase(self, at: float) -> Phase:
        """The phase at an instant; the last one after the end."""
        return next((phase for phase in self.phases if at < phase.end), self.phases[-1])


def script(duration: float) -> Script:
    """The standard script over ``duration`` seconds.

    Raises:
        ValueError: too short for its faults to be told apart, or no length at all.
    """
    if not 10 <= duration <= 3600:
        raise ValueError(f"duration: {duration}; right would be 10 to 3600 seconds")
    shares = (0.14, 0.20, 0.33, 0.37, 0.59, 0.65, 0.80)
    warm, surge, calm, slow, well, killed, restored = (share * duration for share in shares)
    faults = (
        Fault("surge", SURGED, surge, calm, f"{SURGED}: {SURGE_FACTOR:g} times its requests"),
        Fault("slow", SLOWED, slow, well, f"{SLOWED}: every step takes {SLOW_FACTOR:g} times as long"),
        Fault("killed", KILLED, killed, restored, f"{KILLED}: killed, all its connections cut"),
        Fault("restored", KILLED, restored, duration, f"{KILLED}: back, with an empty cache"),
    )
    phases = (
        Phase(WARM_UP, 0.0, warm, "warming up: what is measured replaces what the manifests declare"),
        Phase("steady", warm, surge, "steady load"),
        Phase("surge", surge, calm, faults[0].text),
        Phase("calm", calm, slow, "the surge is over"),
        Phase("slow", slow, well, faults[1].text),
        Phase("well", well, killed, f"{SLOWED} is as fast as before"),
        Phase("killed", killed, restored, faults[2].text),
        Phase("restored", restored, duration, faults[3].text),
    )
    return Script(duration, phases, faults)

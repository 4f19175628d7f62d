"""Signals: what was measured of the world, each value with its age. Everything absent is unknown, never zero.

On the engine-signal path. The loader fills this from metrics; ``headrace plan --signals FILE`` reads it from a file;
a record holds it. Ages count from ``Signals.at``.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Finite = Annotated[float, Meta(ge=0, le=1e12)]


class SignalStruct(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """Base of the signals' parts."""


class Reading(SignalStruct, frozen=True, kw_only=True):
    """One measured value: its age in seconds, and its standard deviation where an estimator gives one.

    interval: seconds between samples of its series as seen from their timestamps (0: unknown); slow series are held
    for longer before they count as stale.
    """

    value: Finite
    age: Finite = 0.0
    deviation: Finite = 0.0
    interval: Finite = 0.0


class Share(SignalStruct, frozen=True, kw_only=True):
    """A named share of a whole, 0 to 1."""

    name: str
    share: Annotated[float, Meta(ge=0, le=1)]


class DemandSignal(SignalStruct, frozen=True, kw_only=True):
    """Offered load of one policy's front-end and model (served name), requests/s and mean tokens a request.

    prompt_class: index into ``Signals.class_edges``' classes; None where classes are not told apart.
    """

    policy: str
    frontend: str
    model: str
    requests_per_second: Reading
    input_tokens: Reading | None = None
    output_tokens: Reading | None = None
    priorities: tuple[Share, ...] = ()
    prompt_class: int | None = None


class RoundTripSignal(SignalStruct, frozen=True, kw_only=True):
    """Measured round trip between a front-end and an engine, seconds."""

    frontend: str
    engine: str
    seconds: Reading


class Factor(SignalStruct, frozen=True, kw_only=True):
    """A multiplier on effective capacity, with the reason people read."""

    value: Annotated[float, Meta(ge=0, le=2)]
    reason: str = ""
    since: str = ""


class ProfileDrift(SignalStruct, frozen=True, kw_only=True):
    """A base model whose engines' profiles are off the same way: no engine of it is trimmed.

    factor: the median engine's predicted over measured token time (0.8: slower than the profile by a quarter).
    """

    model: str
    factor: Finite


class EngineSignal(SignalStruct, frozen=True, kw_only=True):
    """What was measured of one engine (id ``namespace/name``).

    alive: False when liveness is known to be lost, None when unknown. request_rate: requests/s seen by the engine
    itself, ours and others'. background: the part of it that our routers did not send, requests/s. hit_share: measured
    prefix-hit share of prompt tokens. loss_agreed: somebody else saw it too that replicas went.
    """

    engine: str
    ready_replicas: Reading | None = None
    loss_agreed: bool = False
    alive: bool | None = None
    ttft: Reading | None = None
    tbot: Reading | None = None
    running: Reading | None = None
    waiting: Reading | None = None
    kv_usage: Reading | None = None
    request_rate: Reading | None = None
    hit_share: Reading | None = None
    background: Reading | None = None
    penalty: Factor | None = None
    trim: Factor | None = None
    ramp: Factor | None = None
    staleness: Factor | None = None


SignalState = Literal["Fresh", "Held", "Widened", "Unknown"]


class SignalStatus(SignalStruct, frozen=True, kw_only=True):
    """The state of one named signal, for status: only changes of state are news. read: it was there before."""

    name: str
    state: SignalState
    since: str = ""
    read: bool = False


class Signals(SignalStruct, frozen=True, kw_only=True):
    """All that was measured at one instant; lists in any order."""

    at: str = ""
    class_edges: tuple[int, ...] = ()
    demand: tuple[DemandSignal, ...] = ()
    round_trips: tuple[RoundTripSignal, ...] = ()
    engines: tuple[EngineSignal, ...] = ()
    states: tuple[SignalStatus, ...] = ()
    routers: tuple[tuple[str, int], ...] = ()
    bytes_per_token: tuple[tuple[str, float], ...] = ()
    drifts: tuple[ProfileDrift, ...] = ()

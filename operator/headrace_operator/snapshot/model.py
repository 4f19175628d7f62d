"""Snapshot: a frozen, validated view of the world at one instant, the only input of the pure core.

Everything in it is resolved: defaults applied, unknown values replaced by declared ones with their origin named,
lists sorted. The same world in any order of its parts gives the same Snapshot, and so the same tables.
Units: seconds, requests/s, tokens; capacity in replica-seconds per second (C_j = ready replicas).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from headrace_api.engine import InferenceEngineSpec
from headrace_api.policy import RoutingPolicySpec
from headrace_operator.snapshot.signals import Factor, ProfileDrift, SignalStatus

Origin = Literal["Measured", "Held", "Declared", "Default", "Unknown"]


class SourceKey(NamedTuple):
    """One stream of requests: policy id, front-end, model (served name), prompt class."""

    policy: str
    frontend: str
    model: str
    prompt_class: int


class SnapshotStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of the snapshot's parts."""


class EngineState(SnapshotStruct, frozen=True, kw_only=True):
    """One engine now.

    ready: replicas, the hard capacity C_j. penalty, ramp, trim, staleness: factors of the soft capacity c_j.
    hit_share: measured prefix-hit share, 0 where unknown. background: work on it that is not ours, replica-s/s.
    alive: False once liveness is known to be lost. loss_agreed: a second source saw replicas go, if any went. state:
    the spec's, or Draining by annotation (message says which and why). editor: of the spec or the labels that stand, ""
    where unknown.
    """

    id: str
    spec: InferenceEngineSpec
    labels: tuple[tuple[str, str], ...] = ()
    ready: float
    ready_origin: Origin = "Declared"
    alive: bool = True
    loss_agreed: bool = False
    state: Literal["Active", "Draining", "Disabled"] = "Active"
    message: str = ""
    editor: str = ""
    penalty: Factor = Factor(value=1.0)
    ramp: Factor = Factor(value=1.0)
    trim: Factor = Factor(value=1.0)
    staleness: Factor = Factor(value=1.0)
    hit_share: float = 0.0
    background: float = 0.0


class PolicyState(SnapshotStruct, frozen=True, kw_only=True):
    """One policy: identity and spec. frozen: its last table stays (break-glass).

    served: (base model, served name) of everything it rules, adapters of the selected engines included. conflicts:
    (front-end, model, policy id) where an older Enforce policy rules instead. message: what break-glass says. editor:
    of the spec that stands, "" where unknown.
    """

    id: str
    uid: str
    generation: int
    created: str = ""
    spec: RoutingPolicySpec
    frozen: bool = False
    served: tuple[tuple[str, str], ...] = ()
    conflicts: tuple[tuple[str, str, str], ...] = ()
    message: str = ""
    editor: str = ""


class SourceDemand(SnapshotStruct, frozen=True, kw_only=True):
    """Demand of one source. priorities: (name, value, share), ascending by value, shares sum to 1.

    deviation: standard deviation of the estimate in requests/s (0 for declared demand).
    """

    policy: str
    frontend: str
    model: str
    prompt_class: int
    requests_per_second: float
    deviation: float
    input_tokens: float
    output_tokens: float
    origin: Origin
    priorities: tuple[tuple[str, int, float], ...]

    @property
    def key(self) -> SourceKey:
        """The source this is the demand of."""
        return SourceKey(self.policy, self.frontend, self.model, self.prompt_class)


class PairNetwork(SnapshotStruct, frozen=True, kw_only=True):
    """Round trip of one policy's front-end to one engine, seconds."""

    policy: str
    frontend: str
    engine: str
    round_trip: float
    origin: Origin = "Declared"


class PreviousRoute(SnapshotStruct, frozen=True, kw_only=True):
    """Fraction of a source's demand that the last table sends to an engine; what it sheds is missing from the sum."""

    policy: str
    frontend: str
    model: str
    prompt_class: int
    engine: str
    weight: float


class SavingSince(SnapshotStruct, frozen=True, kw_only=True):
    """Since when (seconds, snapshot time) moving this source's traffic to this engine would have saved."""

    policy: str
    frontend: str
    model: str
    prompt_class: int
    engine: str
    since: float


class Snapshot(SnapshotStruct, frozen=True, kw_only=True):
    """The world at ``at`` (seconds since the epoch). All tuples are sorted by their keys.

    class_edges: input tokens that separate prompt classes (empty: one class). shedding: source policies whose
    demand has exceeded the reachable capacity in two readings (so shedding may open for measured demand).
    routers: (front-end, router processes seen). bytes_per_token: (model, learned ratio). drifts: base models whose
    profiles are wrong for most engines.
    """

    at: float
    engines: tuple[EngineState, ...] = ()
    policies: tuple[PolicyState, ...] = ()
    demand: tuple[SourceDemand, ...] = ()
    network: tuple[PairNetwork, ...] = ()
    previous: tuple[PreviousRoute, ...] = ()
    savings: tuple[SavingSince, ...] = ()
    shedding: tuple[str, ...] = ()
    class_edges: tuple[int, ...] = ()
    routers: tuple[tuple[str, int], ...] = ()
    bytes_per_token: tuple[tuple[str, float], ...] = ()
    drifts: tuple[ProfileDrift, ...] = ()
    states: tuple[SignalStatus, ...] = ()
    notes: tuple[str, ...] = ()

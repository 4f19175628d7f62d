"""RoutingPolicy: which engines serve which models' requests from which front-ends, and by what rule.

Written by users, read by the operator, solved into one RoutingTable a front-end. Defaults are the values that
``docs/`` shows; defaults inside list items are applied by the operator, never written into the resource.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace_api.base import (
    API_VERSION,
    ATOMIC,
    BY_NAME,
    SCALAR_SET,
    Capability,
    HeaderName,
    LabelName,
    LabelText,
    Location,
    Metadata,
    ModelName,
    ObjectName,
    Percent,
    Permille,
    Place,
    Spec,
)
from headrace_api.units import Duration, Quantity


class PolicyModel(Spec, frozen=True, kw_only=True):
    """One model the policy rules; a base model's policy covers its adapters."""

    name: ModelName
    requires: Annotated[tuple[Capability, ...], Meta(max_length=32, extra_json_schema=SCALAR_SET)] = ()


class EngineSelector(Spec, frozen=True, kw_only=True):
    """Engines of the policy's namespace by their labels; empty selects all of them."""

    match_labels: Annotated[dict[LabelText, LabelText], Meta(max_length=16)] = {}


class Strategy(Spec, frozen=True, kw_only=True):
    """Who sets the weights."""

    type: Literal["Optimized", "Feedback", "Nearest", "RoundRobin", "Static"] = "Optimized"


class ModelShare(Spec, frozen=True, kw_only=True):
    """A model's share of a front-end's declared demand."""

    name: ModelName
    percent: Percent


class PriorityShare(Spec, frozen=True, kw_only=True):
    """A priority's share of a front-end's declared demand."""

    name: LabelName
    percent: Percent


class Demand(Spec, frozen=True, kw_only=True):
    """Declared demand: what holds while nothing is measured."""

    requests_per_second: Quantity
    input_tokens: Annotated[int, Meta(ge=0, le=100_000_000)] = 0
    output_tokens: Annotated[int, Meta(ge=0, le=100_000_000)] = 0
    models: Annotated[tuple[ModelShare, ...], Meta(max_length=64, extra_json_schema=BY_NAME)] = ()
    priorities: Annotated[tuple[PriorityShare, ...], Meta(max_length=4, extra_json_schema=BY_NAME)] = ()


class Publish(Spec, frozen=True, kw_only=True):
    """Where the front-end's table is written."""

    config_map: ObjectName | None = None
    cluster: LabelName = "local"
    on_delete: Literal["Delete", "Retain"] = "Delete"


class Frontend(Spec, frozen=True, kw_only=True):
    """A cluster of routers where requests arrive."""

    name: LabelName
    location: Location = msgspec.field(default_factory=Location)
    residency: Annotated[tuple[Place, ...], Meta(max_length=32, extra_json_schema=SCALAR_SET)] = ()
    demand: Demand | None = None
    publish: Publish = msgspec.field(default_factory=Publish)


class RoundTrip(Spec, frozen=True, kw_only=True):
    """A round-trip time between two regions, zones or clusters; symmetric unless both directions stand."""

    from_: Place = msgspec.field(name="from")
    to: Place
    latency: Duration


class Network(Spec, frozen=True, kw_only=True):
    """The network term of the latency."""

    round_trip: Annotated[
        tuple[RoundTrip, ...],
        Meta(
            max_length=4096,
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["from", "to"]},
        ),
    ] = ()
    default: Duration = "150ms"
    measured: bool = False


class Objective(Spec, frozen=True, kw_only=True):
    """What the optimisation aims at beside latency."""

    target_utilization_percent: Annotated[int, Meta(ge=1, le=100)] | None = None
    move_cost: Duration = "200ms"
    deadband_permille: Permille = 1


class PrefixKey(Spec, frozen=True, kw_only=True):
    """A key hashed from the conversation's opening: system prompt and first user turn."""


class AffinityKey(Spec, frozen=True, kw_only=True):
    """Where a request's affinity key is found; exactly one of the three."""

    header: HeaderName | None = None
    field: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    prefix: PrefixKey | None = None


class Affinity(Spec, frozen=True, kw_only=True):
    """Which requests belong together, and what their cached prefix is worth in seconds."""

    keys: Annotated[tuple[AffinityKey, ...], Meta(max_length=8, extra_json_schema=ATOMIC)] = ()
    slack: Duration = "1s"


class RetryBudget(Spec, frozen=True, kw_only=True):
    """How many retries a front-end may make."""

    idle_percent: Percent = 20
    saturated_percent: Percent = 1
    min_per_second: Annotated[int, Meta(ge=0, le=10_000)] = 3


class Retry(Spec, frozen=True, kw_only=True):
    """Retries before the first body byte."""

    max_attempts: Annotated[int, Meta(ge=1, le=10)] = 3
    budget: RetryBudget = msgspec.field(default_factory=RetryBudget)


class Priority(Spec, frozen=True, kw_only=True):
    """A class of requests; the lowest value is shed first."""

    name: LabelName
    value: Annotated[int, Meta(ge=0, le=1_000_000)]


class Shedding(Spec, frozen=True, kw_only=True):
    """Which header names a request's priority; a missing or unknown one means the lowest."""

    header: HeaderName = "x-headrace-priority"
    priorities: Annotated[tuple[Priority, ...], Meta(max_length=4, extra_json_schema=BY_NAME)] = ()


class Protection(Spec, frozen=True, kw_only=True):
    """Retries and load shedding."""

    retry: Retry = msgspec.field(default_factory=Retry)
    shedding: Shedding = msgspec.field(default_factory=Shedding)


class Timeouts(Spec, frozen=True, kw_only=True):
    """Limits in time. ``firstByte`` counts for ``stream: true`` only; ``0s`` means none."""

    connect: Duration = "2s"
    first_byte: Duration = "120s"
    idle: Duration = "60s"
    send: Duration = "60s"
    unary: Duration = "0s"


class Limits(Spec, frozen=True, kw_only=True):
    """Limits in size; bodies above ``retryBody`` are not kept for a retry."""

    body: Quantity = "32Mi"
    retry_body: Quantity = "4Mi"


class Queue(Spec, frozen=True, kw_only=True):
    """The brief wait while every eligible engine is at its limit."""

    max: Annotated[int, Meta(ge=0, le=100_000)] = 100
    deadline: Duration = "2s"


class Ejection(Spec, frozen=True, kw_only=True):
    """When the router stops sending to an endpoint by itself."""

    consecutive: Annotated[int, Meta(ge=1, le=1000)] = 5
    base: Duration = "5s"
    max: Duration = "5m"
    max_percent: Percent = 50
    min_healthy: Annotated[int, Meta(ge=0, le=1000)] = 1


class Staleness(Spec, frozen=True, kw_only=True):
    """The ladder of a signal's age."""

    hold: Duration = "30s"
    degrade: Duration = "2m"
    widen_after: Duration | None = None


class Publication(Spec, frozen=True, kw_only=True):
    """What one publication may change."""

    max_shift_percent: Percent = 30


class RoutingPolicySpec(Spec, frozen=True, kw_only=True):
    """What a RoutingPolicy declares."""

    models: Annotated[tuple[PolicyModel, ...], Meta(min_length=1, max_length=64, extra_json_schema=BY_NAME)]
    frontends: Annotated[tuple[Frontend, ...], Meta(min_length=1, max_length=256, extra_json_schema=BY_NAME)]
    engine_selector: EngineSelector = msgspec.field(default_factory=EngineSelector)
    mode: Literal["Enforce", "Shadow"] = "Enforce"
    strategy: Strategy = msgspec.field(default_factory=Strategy)
    network: Network = msgspec.field(default_factory=Network)
    objective: Objective = msgspec.field(default_factory=Objective)
    affinity: Affinity = msgspec.field(default_factory=Affinity)
    protection: Protection = msgspec.field(default_factory=Protection)
    timeouts: Timeouts = msgspec.field(default_factory=Timeouts)
    limits: Limits = msgspec.field(default_factory=Limits)
    queue: Queue = msgspec.field(default_factory=Queue)
    ejection: Ejection = msgspec.field(default_factory=Ejection)
    paths: Annotated[
        tuple[Annotated[str, Meta(min_length=2, max_length=128, pattern=r"^(/[A-Za-z0-9_-]+)+$")], ...],
        Meta(max_length=32, extra_json_schema=SCALAR_SET),
    ] = ()
    staleness: Staleness = msgspec.field(default_factory=Staleness)
    publication: Publication = msgspec.field(default_factory=Publication)


class RoutingPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An explicit routing policy (short name ``rpol``)."""

    metadata: Metadata
    spec: RoutingPolicySpec
    api_version: Literal["headrace.dev/v1alpha1"] = API_VERSION
    kind: Literal["RoutingPolicy"] = "RoutingPolicy"

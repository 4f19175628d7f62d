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
    IDENTIFIER_PATTERN,
    PATH_PATTERN,
    SCALAR_SET,
    Capability,
    HeaderName,
    LabelKey,
    LabelName,
    LabelValue,
    Location,
    Metadata,
    ModelName,
    ObjectName,
    Percent,
    Permille,
    Place,
    Spec,
    Tokens,
)
from headrace_api.units import Duration, Quantity, between


class PolicyModel(Spec, frozen=True, kw_only=True):
    """One model the policy rules; a base model's policy covers its adapters."""

    name: Annotated[ModelName, Meta(description="The model's name as clients ask for it.")]
    requires: Annotated[
        tuple[Capability, ...],
        Meta(max_length=32, extra_json_schema=SCALAR_SET, description="Capabilities that every engine must have."),
    ] = ()


class EngineSelector(Spec, frozen=True, kw_only=True):
    """Engines of the policy's namespace by their labels; empty selects all of them."""

    match_labels: Annotated[
        dict[LabelKey, LabelValue], Meta(max_length=16, description="Labels that an engine must carry, all of them.")
    ] = {}


class Strategy(Spec, frozen=True, kw_only=True):
    """Who sets the weights."""

    type: Annotated[
        Literal["Optimized", "Feedback", "Nearest", "RoundRobin", "Static"],
        Meta(
            description=(
                "Optimized solves for the least latency within capacity. Feedback follows measured load. Nearest takes"
                " the lowest round trip, RoundRobin equal parts, Static declared capacity; these look at no load."
            )
        ),
    ] = "Optimized"


class ModelShare(Spec, frozen=True, kw_only=True):
    """A model's share of a front-end's declared demand."""

    name: Annotated[ModelName, Meta(description="A model of this policy, or an adapter of one.")]
    percent: Annotated[Percent, Meta(description="Its share; all of a front-end's sum to at most 100.")]


class PriorityShare(Spec, frozen=True, kw_only=True):
    """A priority's share of a front-end's declared demand."""

    name: Annotated[LabelName, Meta(description="A priority of protection.shedding.")]
    percent: Annotated[Percent, Meta(description="Its share; all of a front-end's sum to at most 100.")]


class Demand(Spec, frozen=True, kw_only=True):
    """Declared demand: what holds while nothing is measured."""

    requests_per_second: Annotated[
        Quantity, Meta(description="Offered requests per second, all models together."), between("0", "10M")
    ]
    input_tokens: Annotated[Tokens, Meta(description="Mean input tokens of a request.")] = 0
    output_tokens: Annotated[Tokens, Meta(description="Mean output tokens of a request.")] = 0
    models: Annotated[
        tuple[ModelShare, ...],
        Meta(max_length=64, extra_json_schema=BY_NAME, description="Shares by model; none: equal shares."),
    ] = ()
    priorities: Annotated[
        tuple[PriorityShare, ...],
        Meta(max_length=4, extra_json_schema=BY_NAME, description="Shares by priority; none: all is of the lowest."),
    ] = ()


class Publish(Spec, frozen=True, kw_only=True):
    """Where the front-end's table is written."""

    config_map: (
        Annotated[ObjectName, Meta(description="The ConfigMap; default: headrace-<policy>-<front-end>.")] | None
    ) = None
    cluster: Annotated[LabelName, Meta(description="A cluster of the operator's configuration, or local.")] = "local"
    on_delete: Annotated[
        Literal["Delete", "Retain"], Meta(description="What becomes of the table when the policy is deleted.")
    ] = "Delete"


class Frontend(Spec, frozen=True, kw_only=True):
    """A cluster of routers where requests arrive."""

    name: Annotated[LabelName, Meta(description="The name that its routers are started with.")]
    location: Location = msgspec.field(default_factory=Location)
    residency: Annotated[
        tuple[Place, ...],
        Meta(
            max_length=32,
            extra_json_schema=SCALAR_SET,
            description="Where its data must stay: engines with none of these are not eligible.",
        ),
    ] = ()
    demand: Demand | None = None
    publish: Publish = msgspec.field(default_factory=Publish)


class RoundTrip(Spec, frozen=True, kw_only=True):
    """A round-trip time between two regions, zones or clusters; symmetric unless both directions stand."""

    from_: Annotated[Place, Meta(description="A region, zone or cluster.")] = msgspec.field(name="from")
    to: Annotated[Place, Meta(description="A region, zone or cluster.")]
    latency: Annotated[Duration, Meta(description="The round-trip time."), between("0s", "1m")]


class Network(Spec, frozen=True, kw_only=True):
    """The network term of the latency. Unlisted: 0.5 ms in a zone, 1 ms in a region, else the default."""

    round_trip: Annotated[
        tuple[RoundTrip, ...],
        Meta(
            max_length=4096,
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["from", "to"]},
            description="Known round trips.",
        ),
    ] = ()
    default: Annotated[
        Duration, Meta(description="Round trip between places that nothing is known of."), between("0s", "1m")
    ] = "150ms"
    measured: Annotated[bool, Meta(description="Let routers probe the round trip of each eligible pair.")] = False


class Objective(Spec, frozen=True, kw_only=True):
    """What the optimisation aims at beside latency."""

    target_utilization_percent: (
        Annotated[
            int,
            Meta(ge=1, le=100, description="Soft bound on utilisation; without one the latency curve alone decides."),
        ]
        | None
    ) = None
    move_cost: Annotated[
        Duration,
        Meta(description="What moving a request from its engine costs, in latency; larger moves less."),
        between("0s", "1h"),
    ] = "200ms"
    deadband_permille: Annotated[
        Permille, Meta(description="Savings below this share of the latency are not worth a new table.")
    ] = 1


class PrefixKey(Spec, frozen=True, kw_only=True):
    """A key hashed from the conversation's opening: system prompt and first user turn."""


class AffinityKey(Spec, frozen=True, kw_only=True):
    """Where a request's affinity key is found; exactly one of the three."""

    header: Annotated[HeaderName, Meta(description="A request header.")] | None = None
    field: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=64,
                pattern=IDENTIFIER_PATTERN,
                description="A field at the top of the JSON body.",
            ),
        ]
        | None
    ) = None
    prefix: PrefixKey | None = None


class Affinity(Spec, frozen=True, kw_only=True):
    """Which requests belong together, and what their cached prefix is worth."""

    keys: Annotated[
        tuple[AffinityKey, ...],
        Meta(
            max_length=8, extra_json_schema=ATOMIC, description="Where the key is found; the first one present counts."
        ),
    ] = ()
    slack: Annotated[
        Duration,
        Meta(description="Seconds that a cached prefix is worth: a request moves only to save more."),
        between("0s", "1h"),
    ] = "1s"


class RetryBudget(Spec, frozen=True, kw_only=True):
    """How many retries a front-end may make, as a share of its requests."""

    idle_percent: Annotated[Percent, Meta(description="The share while engines are idle.")] = 20
    saturated_percent: Annotated[Percent, Meta(description="The share when they are full; at most idlePercent.")] = 1
    min_per_second: Annotated[
        int, Meta(ge=0, le=10_000, description="Retries per second that are always allowed, for the whole front-end.")
    ] = 3


class Retry(Spec, frozen=True, kw_only=True):
    """Retries before the first body byte."""

    max_attempts: Annotated[int, Meta(ge=1, le=10, description="Attempts of one request, the first included.")] = 3
    budget: RetryBudget = msgspec.field(default_factory=RetryBudget)


class Priority(Spec, frozen=True, kw_only=True):
    """A class of requests; the lowest value is shed first."""

    name: Annotated[LabelName, Meta(description="The priority as the header names it.")]
    value: Annotated[int, Meta(ge=0, le=1_000_000, description="Its rank; each priority has its own.")]


class Shedding(Spec, frozen=True, kw_only=True):
    """Which header names a request's priority; a missing or unknown one means the lowest."""

    header: Annotated[HeaderName, Meta(description="The request header that names the priority.")] = (
        "x-headrace-priority"
    )
    priorities: Annotated[
        tuple[Priority, ...],
        Meta(max_length=4, extra_json_schema=BY_NAME, description="The priorities; none: one, named default."),
    ] = ()


class Protection(Spec, frozen=True, kw_only=True):
    """Retries and load shedding."""

    retry: Retry = msgspec.field(default_factory=Retry)
    shedding: Shedding = msgspec.field(default_factory=Shedding)


class Timeouts(Spec, frozen=True, kw_only=True):
    """Limits in time; 0s means none."""

    connect: Annotated[Duration, Meta(description="Until the connection to an engine stands.")] = "2s"
    first_byte: Annotated[Duration, Meta(description="Until the first body byte of a streamed answer.")] = "120s"
    idle: Annotated[Duration, Meta(description="Between two reads of a streamed answer.")] = "60s"
    send: Annotated[Duration, Meta(description="Without progress towards the client.")] = "60s"
    unary: Annotated[Duration, Meta(description="Until an answer that isn't streamed.")] = "0s"


class Limits(Spec, frozen=True, kw_only=True):
    """Limits in size."""

    body: Annotated[Quantity, Meta(description="Largest request body."), between("1", "4Gi")] = "32Mi"
    retry_body: Annotated[Quantity, Meta(description="Largest body that is kept for a retry."), between("0", "1Gi")] = (
        "4Mi"
    )


class Queue(Spec, frozen=True, kw_only=True):
    """The brief wait while every eligible engine is at its limit."""

    max: Annotated[int, Meta(ge=0, le=100_000, description="Requests that may wait in one router process.")] = 100
    deadline: Annotated[Duration, Meta(description="How long a request may wait."), between("0s", "10m")] = "2s"


class Ejection(Spec, frozen=True, kw_only=True):
    """When the router stops sending to an endpoint by itself."""

    consecutive: Annotated[int, Meta(ge=1, le=1000, description="Failures in a row that eject an endpoint.")] = 5
    base: Annotated[Duration, Meta(description="How long the first ejection lasts; each further one doubles it.")] = (
        "5s"
    )
    max: Annotated[Duration, Meta(description="How long an ejection lasts at most.")] = "5m"
    max_percent: Annotated[Percent, Meta(description="Share of endpoints that may be ejected; 0: none ever is.")] = 50
    min_healthy: Annotated[
        int, Meta(ge=0, le=1000, description="With fewer healthy endpoints than this, all are used.")
    ] = 1


class Staleness(Spec, frozen=True, kw_only=True):
    """The ladder of a signal's age."""

    hold: Annotated[Duration, Meta(description="Until this age a signal's last value holds.")] = "30s"
    degrade: Annotated[Duration, Meta(description="From this age on a signal is unknown.")] = "2m"
    widen_after: (
        Annotated[
            Duration,
            Meta(
                description=(
                    "Without a heartbeat of the operator for this long, routers drift to weights by capacity; without"
                    " this field they keep the last weights for ever."
                )
            ),
        ]
        | None
    ) = None


class Publication(Spec, frozen=True, kw_only=True):
    """What one publication may change."""

    max_shift_percent: Annotated[
        Percent, Meta(description="Of a front-end's traffic; lost engines and overload are exempt.")
    ] = 30


class RoutingPolicySpec(Spec, frozen=True, kw_only=True):
    """What a RoutingPolicy declares."""

    models: Annotated[
        tuple[PolicyModel, ...],
        Meta(min_length=1, max_length=64, extra_json_schema=BY_NAME, description="The models it rules."),
    ]
    frontends: Annotated[
        tuple[Frontend, ...],
        Meta(min_length=1, max_length=256, extra_json_schema=BY_NAME, description="Where their requests arrive."),
    ]
    engine_selector: EngineSelector = msgspec.field(default_factory=EngineSelector)
    mode: Annotated[
        Literal["Enforce", "Shadow"], Meta(description="Shadow solves and reports, and publishes nothing.")
    ] = "Enforce"
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
        tuple[
            Annotated[
                str,
                Meta(
                    min_length=2,
                    max_length=128,
                    pattern=PATH_PATTERN,
                    description="An absolute path without a trailing slash.",
                ),
            ],
            ...,
        ],
        Meta(
            max_length=32,
            extra_json_schema=SCALAR_SET,
            description="Paths passed through beside the built-in ones, such as /v1/rerank. The model is read from "
            "JSON bodies; others (multipart forms, audio) pass where one model alone has the path, of all policies of "
            "the front-end, else 400.",
        ),
    ] = ()
    staleness: Staleness = msgspec.field(default_factory=Staleness)
    publication: Publication = msgspec.field(default_factory=Publication)


class RoutingPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An explicit routing policy: which engines serve which front-ends' requests (short name ``rpol``)."""

    metadata: Metadata
    spec: RoutingPolicySpec
    api_version: Literal["headrace.dev/v1alpha1"] = API_VERSION
    kind: Literal["RoutingPolicy"] = "RoutingPolicy"

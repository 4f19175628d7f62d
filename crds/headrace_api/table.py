"""RoutingTable: the contract between control plane and data plane, one a policy and front-end.

Written by the publisher as the key ``table.json`` of a ConfigMap (or a file), read by routers. Same content, same
bytes: every list has a stable order and no field is a map whose order could vary. Readers ignore unknown fields,
refuse unknown schema versions, and apply all of a table or nothing.

Units: seconds, requests, bytes, tokens. Weights are integers that sum to WEIGHT_TOTAL per model and prompt class.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

SCHEMA_VERSION = 1
TABLE_KEY = "table.json"
WEIGHT_TOTAL = 10_000
MAX_TABLE_BYTES = 1_000_000

NonNegative = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0)]
Text = Annotated[str, Meta(min_length=1, max_length=512)]


class TableStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base of the table's parts: frozen, camelCase, unknown fields ignored.

    They hold no cycles: thousands of them are none of the garbage collector's business, whose pauses a router's
    streams would feel.
    """


class Identity(TableStruct, frozen=True, kw_only=True):
    """Which publication this is. Routers order by (term, revision) within one policy uid."""

    uid: Text
    term: Count
    revision: Count


class Guard(TableStruct, frozen=True, kw_only=True):
    """Parameters of the router's priced guard (the optimizer's page, The guard)."""

    x: NonNegative
    z: NonNegative
    nu: NonNegative


class TablePriority(TableStruct, frozen=True, kw_only=True):
    """A priority; the lowest value is shed first."""

    name: Text
    value: Count


class ShedShare(TableStruct, frozen=True, kw_only=True):
    """The share of one priority's requests to refuse."""

    priority: Text
    share: Share


class Route(TableStruct, frozen=True, kw_only=True):
    """One engine for one model and prompt class.

    weight: of WEIGHT_TOTAL. reduced_cost: rho, seconds above the marginal choice. work_share: w_ij/C_j, the share of
    the whole engine that one request per second takes.
    """

    engine: Text
    weight: Annotated[int, Meta(ge=0, le=WEIGHT_TOTAL)]
    reduced_cost: NonNegative = 0.0
    work_share: NonNegative = 0.0


class ClassRoutes(TableStruct, frozen=True, kw_only=True):
    """Routes and shed shares of one prompt class, in the order of the table's class edges."""

    routes: Annotated[tuple[Route, ...], Meta(min_length=1, max_length=5000)]
    shed: Annotated[tuple[ShedShare, ...], Meta(max_length=4)] = ()


class ModelRoutes(TableStruct, frozen=True, kw_only=True):
    """Routes of one model, one entry a prompt class (one class: one entry)."""

    model: Text
    classes: Annotated[tuple[ClassRoutes, ...], Meta(min_length=1, max_length=8)]
    requires: tuple[str, ...] = ()
    bytes_per_token: Annotated[float, Meta(gt=0)] = 4.0


class TableService(TableStruct, frozen=True, kw_only=True):
    """A Service to follow; the router resolves its endpoints itself."""

    name: Text
    namespace: Text
    port: Annotated[int, Meta(ge=1, le=65535)]


class TableServedModel(TableStruct, frozen=True, kw_only=True):
    """What the engine calls a model, when that differs from the model's name."""

    model: Text
    served_name: Text


class TableTls(TableStruct, frozen=True, kw_only=True):
    """How an https engine is verified; a reference, never a certificate."""

    server_name: str | None = None
    ca_config_map: str | None = None
    ca_key: str | None = None


class TableAuth(TableStruct, frozen=True, kw_only=True):
    """Reference to the Secret whose key the router presents; never the key."""

    secret: Text
    key: Text


class TableEngine(TableStruct, frozen=True, kw_only=True):
    """What a router must know of one engine.

    in_flight_here: N*_fj, requests of this front-end in flight on the engine by Little's law. in_flight_all: N*_j,
    their sum over front-ends. concurrency_limit: requests in flight that one router process may have there (0: no
    limit). capacity_share: the engine's part of the eligible capacity. round_trip: seconds.
    """

    id: Text
    models: tuple[TableServedModel, ...] = ()
    urls: Annotated[tuple[Annotated[str, Meta(max_length=512)], ...], Meta(max_length=256)] = ()
    service: TableService | None = None
    tls: TableTls | None = None
    auth: TableAuth | None = None
    max_model_len: Count = 0
    capabilities: tuple[str, ...] = ()
    in_flight_here: NonNegative = 0.0
    in_flight_all: NonNegative = 0.0
    concurrency_limit: Count = 0
    capacity_share: Share = 0.0
    round_trip: NonNegative = 0.0


class TableRetry(TableStruct, frozen=True, kw_only=True):
    """Retry budget in force: share of requests in percent, and the front-end's floor per second.

    saturated_percent: what a router comes down to as it sees its engines fill up (None: it keeps percent). slack: the
    room that percent was set by, 1 (idle) to 0 (full).
    """

    max_attempts: Annotated[int, Meta(ge=1, le=10)] = 3
    percent: Annotated[float, Meta(ge=0, le=100)] = 20.0
    saturated_percent: Annotated[float, Meta(ge=0, le=100)] | None = None
    slack: Share = 1.0
    min_per_second: NonNegative = 3.0


class TableTimeouts(TableStruct, frozen=True, kw_only=True):
    """Seconds; 0 is none."""

    connect: NonNegative = 2.0
    first_byte: NonNegative = 120.0
    idle: NonNegative = 60.0
    send: NonNegative = 60.0
    unary: NonNegative = 0.0


class TableLimits(TableStruct, frozen=True, kw_only=True):
    """Bytes."""

    body: Count = 32 * 2**20
    retry_body: Count = 4 * 2**20


class TableQueue(TableStruct, frozen=True, kw_only=True):
    """The brief wait while every eligible engine is at its limit."""

    max: Count = 100
    deadline: NonNegative = 2.0


class TableEjection(TableStruct, frozen=True, kw_only=True):
    """Local ejection of endpoints; seconds and percent."""

    consecutive: Annotated[int, Meta(ge=1)] = 5
    base: NonNegative = 5.0
    max: NonNegative = 300.0
    max_percent: Annotated[int, Meta(ge=0, le=100)] = 50
    min_healthy: Count = 1


class TableAffinityKey(TableStruct, frozen=True, kw_only=True):
    """Exactly one of the three says where the key is found."""

    header: str | None = None
    field: str | None = None
    prefix: bool = False


class TableAffinity(TableStruct, frozen=True, kw_only=True):
    """Affinity rules, first that is present; slack in seconds."""

    keys: Annotated[tuple[TableAffinityKey, ...], Meta(max_length=8)] = ()
    slack: NonNegative = 1.0


class RoutingTable(TableStruct, frozen=True, kw_only=True):
    """All a front-end's routers need to serve one policy's models."""

    schema_version: Literal[1] = msgspec.field(name="schemaVersion")
    identity: Identity
    policy: Text
    policy_namespace: Text
    frontend: Text
    issued: str
    hash: str
    models: Annotated[tuple[ModelRoutes, ...], Meta(min_length=1, max_length=4096)]
    engines: Annotated[tuple[TableEngine, ...], Meta(max_length=5000)]
    class_edges: Annotated[tuple[int, ...], Meta(max_length=7)] = ()
    routers: Annotated[int, Meta(ge=1)] = 1
    guard: Guard | None = None
    affinity: TableAffinity = TableAffinity()
    retry: TableRetry = TableRetry()
    timeouts: TableTimeouts = TableTimeouts()
    limits: TableLimits = TableLimits()
    queue: TableQueue = TableQueue()
    ejection: TableEjection = TableEjection()
    priorities: Annotated[tuple[TablePriority, ...], Meta(min_length=1, max_length=4)] = (
        TablePriority(name="default", value=0),
    )
    priority_header: str = "x-headrace-priority"
    paths: tuple[str, ...] = ()
    widen_after: float | None = None
    measure_round_trips: bool = False

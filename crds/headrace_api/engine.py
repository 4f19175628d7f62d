"""InferenceEngine: a pool of identical replicas of one model deployment in one place.

Written by users, read by the operator. The spec declares what the engine is; what it does now (ready replicas,
penalties, a fitted profile) stands in status and in signals, never here.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace_api.base import (
    API_VERSION,
    ATOMIC,
    BY_NAME,
    HARDWARE_PATTERN,
    HOST_PATTERN,
    IDENTIFIER_PATTERN,
    SCALAR_SET,
    Capability,
    ConfigMapKey,
    LabelName,
    Location,
    Metadata,
    ModelName,
    Place,
    SecretKey,
    Spec,
    Tokens,
)
from headrace_api.units import Duration, Quantity, between
from headrace_api.urls import MAX_URL, URL_PATTERN

Url = Annotated[
    str,
    Meta(
        min_length=8,
        max_length=MAX_URL,
        pattern=URL_PATTERN,
        description="http(s)://host[:port]; IPv6 in brackets; no credentials, no path.",
    ),
]
MetricLabel = Annotated[
    str, Meta(min_length=1, max_length=128, pattern=IDENTIFIER_PATTERN, description="A metric label's name.")
]
MetricLabelValue = Annotated[str, Meta(max_length=256, description="The value the label must have.")]


class ServedModel(Spec, frozen=True, kw_only=True):
    """The base model that the engine serves, and its LoRA adapters."""

    name: Annotated[ModelName, Meta(description="The model's name as clients ask for it.")]
    served_name: (
        Annotated[
            ModelName,
            Meta(description="What the engine itself calls the model, if not name; the router rewrites it."),
        ]
        | None
    ) = None
    adapters: Annotated[
        tuple[ModelName, ...],
        Meta(
            max_length=64,
            extra_json_schema=SCALAR_SET,
            description="LoRA adapters loaded on this engine; each is a name that clients may ask for.",
        ),
    ] = ()


class ServiceRef(Spec, frozen=True, kw_only=True):
    """A Service in the engine's namespace, in the operator's cluster."""

    name: Annotated[LabelName, Meta(description="The Service's name.")]
    port: Annotated[int, Meta(ge=1, le=65535, description="The Service's port.")]


class CaSource(Spec, frozen=True, kw_only=True):
    """Where the certificate authorities come from."""

    config_map: ConfigMapKey


class UpstreamTls(Spec, frozen=True, kw_only=True):
    """How the router verifies an https engine; without it, by the system's certificate authorities."""

    server_name: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=253,
                pattern=HOST_PATTERN,
                description="The name its certificate must carry, if not the url's host.",
            ),
        ]
        | None
    ) = None
    ca_from: CaSource | None = None


class UpstreamAuth(Spec, frozen=True, kw_only=True):
    """The key the router presents to the engine. The table carries the reference; the router mounts the Secret."""

    secret_ref: SecretKey


class Endpoints(Spec, frozen=True, kw_only=True):
    """How the engine is reached: a Service from its own cluster, urls from elsewhere; either or both."""

    service: ServiceRef | None = None
    urls: Annotated[
        tuple[Url, ...],
        Meta(
            max_length=256,
            extra_json_schema=SCALAR_SET,
            description="Addresses for front-ends in other clusters, one or more replicas behind each.",
        ),
    ] = ()
    replicas: (
        Annotated[
            int,
            Meta(ge=0, le=100_000, description="Replicas behind the urls; without it and replicasFrom, one per url."),
        ]
        | None
    ) = None
    replicas_from: (
        Annotated[
            Literal["Metrics"], Meta(description="Count the replicas behind the urls from metrics (up == 1) instead.")
        ]
        | None
    ) = None
    tls: UpstreamTls | None = None
    auth: UpstreamAuth | None = None


class Hardware(Spec, frozen=True, kw_only=True):
    """What one replica runs on; engines of the same hardware are compared with each other."""

    accelerator: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=64,
            pattern=HARDWARE_PATTERN,
            description="The accelerator's name, such as H100-80GB.",
        ),
    ]
    count: Annotated[int, Meta(ge=1, le=4096, description="Accelerators per replica.")] = 1


class PerReplica(Spec, frozen=True, kw_only=True):
    """What one ready replica can do; at least one figure. The tightest one rules, for each mix of requests."""

    requests_per_second: (
        Annotated[Quantity, Meta(description="Requests per second of the usual mix."), between("1m", "1M")] | None
    ) = None
    prefill_tokens_per_second: (
        Annotated[Quantity, Meta(description="Input tokens per second, measured without decoding."), between("1", "1G")]
        | None
    ) = None
    decode_tokens_per_second: (
        Annotated[Quantity, Meta(description="Output tokens per second, measured without prefill."), between("1", "1G")]
        | None
    ) = None
    max_concurrency: (
        Annotated[int, Meta(ge=1, le=1_000_000, description="Requests that may run at the same time.")] | None
    ) = None
    kv_cache_tokens: (
        Annotated[Quantity, Meta(description="Tokens that the KV cache holds."), between("1", "1T")] | None
    ) = None


class Capacity(Spec, frozen=True, kw_only=True):
    """Declared capacity; the engine's is that of one replica times its ready replicas."""

    per_replica: PerReplica


class ProfilePoint(Spec, frozen=True, kw_only=True):
    """One point of a latency curve against utilisation."""

    utilization_percent: Annotated[int, Meta(ge=0, le=100, description="Load over capacity, in percent.")]
    latency: Annotated[Duration, Meta(description="The mean latency there."), between("0s", "1h")]


class ReferenceMix(Spec, frozen=True, kw_only=True):
    """The request the profile was measured with."""

    input_tokens: Annotated[Tokens, Meta(description="Mean input tokens of a request.")]
    output_tokens: Annotated[Tokens, Meta(description="Mean output tokens of a request.")]


class Profile(Spec, frozen=True, kw_only=True):
    """Declared latency against utilisation. Beyond the last point a curve is flat."""

    reference: ReferenceMix | None = None
    ttft: Annotated[
        tuple[ProfilePoint, ...],
        Meta(max_length=32, extra_json_schema=ATOMIC, description="Time to first token, by rising utilisation."),
    ] = ()
    tbot: Annotated[
        tuple[ProfilePoint, ...],
        Meta(max_length=32, extra_json_schema=ATOMIC, description="Time between output tokens, by rising utilisation."),
    ] = ()


class EngineMetrics(Spec, frozen=True, kw_only=True):
    """Which series are this engine's; the source's address stands in the operator's configuration."""

    source: Annotated[LabelName, Meta(description="A metric source of the operator's configuration.")] | None = None
    selector: Annotated[
        dict[MetricLabel, MetricLabelValue],
        Meta(max_length=16, description="Labels that pick this engine's series."),
    ] = {}


class InferenceEngineSpec(Spec, frozen=True, kw_only=True):
    """What an InferenceEngine declares."""

    models: Annotated[
        tuple[ServedModel, ...],
        Meta(
            min_length=1,
            max_length=64,
            extra_json_schema=BY_NAME,
            description="What it serves: one base model with its adapters.",
        ),
    ]
    endpoints: Endpoints
    capacity: Capacity
    location: Location = msgspec.field(default_factory=Location)
    residency: Annotated[
        tuple[Place, ...],
        Meta(
            max_length=32,
            extra_json_schema=SCALAR_SET,
            description="Where data sent here stays; a front-end that demands residency uses only engines with it.",
        ),
    ] = ()
    runtime: Annotated[
        Literal["vLLM", "SGLang", "TGI", "TensorRTLLM", "Custom"],
        Meta(description="The serving software: it decides which metric names are read."),
    ] = "vLLM"
    hardware: Hardware | None = None
    capabilities: Annotated[
        tuple[Capability, ...],
        Meta(
            max_length=32,
            extra_json_schema=SCALAR_SET,
            description="What requests may need and this engine has: tools, vision, …",
        ),
    ] = ()
    max_model_len: (
        Annotated[
            int, Meta(ge=1, le=100_000_000, description="Longest request in tokens; longer ones skip this engine.")
        ]
        | None
    ) = None
    profile: Profile = msgspec.field(default_factory=Profile)
    state: Annotated[
        Literal["Active", "Draining", "Disabled"],
        Meta(description="Draining takes no new requests; Disabled is treated as if it weren't there."),
    ] = "Active"
    ramp_up: Annotated[
        Duration, Meta(description="Slow start: new capacity reaches its full share after this time.")
    ] = "120s"
    metrics: EngineMetrics = msgspec.field(default_factory=EngineMetrics)


class InferenceEngine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pool of identical replicas of one deployment in one place (short name ``ieng``)."""

    metadata: Metadata
    spec: InferenceEngineSpec
    api_version: Literal["headrace.dev/v1alpha1"] = API_VERSION
    kind: Literal["InferenceEngine"] = "InferenceEngine"

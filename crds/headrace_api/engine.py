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
    SCALAR_SET,
    Capability,
    ConfigMapKey,
    LabelName,
    LabelText,
    Location,
    Metadata,
    ModelName,
    Place,
    SecretKey,
    Spec,
)
from headrace_api.units import Duration, Quantity

Url = Annotated[
    str,
    Meta(
        min_length=8,
        max_length=512,
        pattern=r"^https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?/?$",
        description="http(s)://host[:port]; IPv6 in brackets; no credentials, no path.",
    ),
]


class ServedModel(Spec, frozen=True, kw_only=True):
    """One base model that the engine serves, and its LoRA adapters."""

    name: ModelName
    served_name: (
        Annotated[ModelName, Meta(description="What the engine itself calls the model; default: name.")] | None
    ) = None
    adapters: Annotated[tuple[ModelName, ...], Meta(max_length=64, extra_json_schema=SCALAR_SET)] = ()


class ServiceRef(Spec, frozen=True, kw_only=True):
    """A Service in the engine's namespace, in the operator's cluster."""

    name: LabelName
    port: Annotated[int, Meta(ge=1, le=65535)]


class UpstreamTls(Spec, frozen=True, kw_only=True):
    """How the router verifies an https engine; without it, the system's certificate authorities."""

    server_name: Annotated[str, Meta(min_length=1, max_length=253)] | None = None
    ca_from: CaSource | None = None


class CaSource(Spec, frozen=True, kw_only=True):
    """Where the certificate authorities come from."""

    config_map: ConfigMapKey


class UpstreamAuth(Spec, frozen=True, kw_only=True):
    """The key the router presents to the engine; the table carries the reference, the router mounts the Secret."""

    secret_ref: SecretKey


class Endpoints(Spec, frozen=True, kw_only=True):
    """How the engine is reached: a Service from its own cluster, urls from elsewhere; either or both."""

    service: ServiceRef | None = None
    urls: Annotated[tuple[Url, ...], Meta(max_length=256, extra_json_schema=SCALAR_SET)] = ()
    replicas: Annotated[int, Meta(ge=0, le=100_000, description="Replicas behind urls.")] | None = None
    replicas_from: Literal["Metrics"] | None = None
    tls: UpstreamTls | None = None
    auth: UpstreamAuth | None = None


class Hardware(Spec, frozen=True, kw_only=True):
    """What one replica runs on."""

    accelerator: Annotated[str, Meta(min_length=1, max_length=64)]
    count: Annotated[int, Meta(ge=1, le=4096)] = 1


class PerReplica(Spec, frozen=True, kw_only=True):
    """What one ready replica can do; at least one figure. Prefill and decode rates are each measured alone."""

    requests_per_second: Quantity | None = None
    prefill_tokens_per_second: Quantity | None = None
    decode_tokens_per_second: Quantity | None = None
    max_concurrency: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    kv_cache_tokens: Quantity | None = None


class Capacity(Spec, frozen=True, kw_only=True):
    """Declared capacity; the engine's is that of one replica times its ready replicas."""

    per_replica: PerReplica


class ProfilePoint(Spec, frozen=True, kw_only=True):
    """One point of a latency curve against utilisation."""

    utilization_percent: Annotated[int, Meta(ge=0, le=100)]
    latency: Duration


class ReferenceMix(Spec, frozen=True, kw_only=True):
    """The request the profile was measured with."""

    input_tokens: Annotated[int, Meta(ge=0, le=100_000_000)]
    output_tokens: Annotated[int, Meta(ge=0, le=100_000_000)]


class Profile(Spec, frozen=True, kw_only=True):
    """Declared latency against utilisation. Beyond the last point a curve is flat."""

    reference: ReferenceMix | None = None
    ttft: Annotated[tuple[ProfilePoint, ...], Meta(max_length=32, extra_json_schema=ATOMIC)] = ()
    tbot: Annotated[tuple[ProfilePoint, ...], Meta(max_length=32, extra_json_schema=ATOMIC)] = ()


class EngineMetrics(Spec, frozen=True, kw_only=True):
    """Which series are this engine's; the source's address stands in the operator's configuration."""

    source: LabelName | None = None
    selector: Annotated[dict[LabelText, LabelText], Meta(max_length=16)] = {}


class InferenceEngineSpec(Spec, frozen=True, kw_only=True):
    """What an InferenceEngine declares."""

    models: Annotated[tuple[ServedModel, ...], Meta(min_length=1, max_length=64, extra_json_schema=BY_NAME)]
    endpoints: Endpoints
    capacity: Capacity
    location: Location = msgspec.field(default_factory=Location)
    residency: Annotated[tuple[Place, ...], Meta(max_length=32, extra_json_schema=SCALAR_SET)] = ()
    runtime: Literal["vLLM", "SGLang", "TGI", "TensorRTLLM", "Custom"] = "vLLM"
    hardware: Hardware | None = None
    capabilities: Annotated[tuple[Capability, ...], Meta(max_length=32, extra_json_schema=SCALAR_SET)] = ()
    max_model_len: Annotated[int, Meta(ge=1, le=100_000_000)] | None = None
    profile: Profile = msgspec.field(default_factory=Profile)
    state: Literal["Active", "Draining", "Disabled"] = "Active"
    ramp_up: Duration = "120s"
    metrics: EngineMetrics = msgspec.field(default_factory=EngineMetrics)


class InferenceEngine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pool of identical replicas of one deployment in one place (short name ``ieng``)."""

    metadata: Metadata
    spec: InferenceEngineSpec
    api_version: Literal["headrace.dev/v1alpha1"] = API_VERSION
    kind: Literal["InferenceEngine"] = "InferenceEngine"

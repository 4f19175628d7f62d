"""What is to be read: every replica of every engine and every router, and from where.

On the engine-signal path; pure. An engine behind a Service is read pod by pod, never through the Service's address,
which is another replica each time. Its urls are then other clusters' way to the same replicas, and are not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace_api.base import resource_id
from headrace_api.endpoint_slices import Endpoint
from headrace_api.engine import InferenceEngine
from headrace_operator.loader.config import OperatorConfig, RoutersConfig
from headrace_operator.loader.metric_names import Names, names_of
from headrace_operator.loader.source import EngineTarget, PageTarget, RouterTarget

Services = Mapping[str, tuple[Endpoint, ...]]
"""Endpoints by ``namespace/service:port``; a Service that was never listed has no entry."""


def service_key(engine: InferenceEngine) -> str:
    """The engine's Service as endpoints are keyed; empty when it has none."""
    service = engine.spec.endpoints.service
    return "" if service is None else f"{engine.metadata.namespace}/{service.name}:{service.port}"


def targets(
    engines: Iterable[InferenceEngine],
    config: OperatorConfig,
    endpoints: Mapping[str, Sequence[Endpoint]],
    services: Services,
) -> tuple[PageTarget, ...]:
    """Everything to read. endpoints: of engines (by id) whose Service is known, those that count as replicas."""
    configured = [(entry.runtime, entry.signal, entry.names) for entry in config.metric_names]
    by_runtime: dict[str, Names] = {}
    found: list[PageTarget] = []
    for engine in engines:
        if engine.spec.state == "Disabled" or config.source_fault(engine.spec.metrics.source):
            continue
        runtime = engine.spec.runtime
        if runtime not in by_runtime:
            by_runtime[runtime] = names_of(runtime, configured)
        found.extend(
            _replicas(engine, by_runtime[runtime], config, endpoints.get(resource_id(engine.metadata), ()))
            if resource_id(engine.metadata) in endpoints
            else _behind_urls(engine, by_runtime[runtime], config)
        )
    for entry in config.routers:
        found.extend(_routers(entry, config, services))
    return tuple(found)


def _called(engine: InferenceEngine) -> frozenset[str]:
    return frozenset(
        name for model in engine.spec.models for name in (model.served_name or model.name, *model.adapters)
    )


def _replicas(
    engine: InferenceEngine, names: Names, config: OperatorConfig, endpoints: Sequence[Endpoint]
) -> Iterable[PageTarget]:
    source, called, selector = config.source_of(engine.spec.metrics.source), _called(engine), _selector(engine)
    for endpoint in endpoints:
        pod = f"{engine.metadata.namespace}/{endpoint.pod}" if endpoint.pod else ""
        yield EngineTarget(
            resource_id(engine.metadata), endpoint.url, names, called, source, pod, selector if source else ()
        )


def _behind_urls(engine: InferenceEngine, names: Names, config: OperatorConfig) -> Iterable[PageTarget]:
    name, called = resource_id(engine.metadata), _called(engine)
    source, selector = config.source_of(engine.spec.metrics.source), _selector(engine)
    if source and selector:
        yield EngineTarget(name, "", names, called, source, "", selector)
        return
    for url in engine.spec.endpoints.urls:
        yield EngineTarget(name, url, names, called, source)


def _selector(engine: InferenceEngine) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(engine.spec.metrics.selector.items()))


def _routers(entry: RoutersConfig, config: OperatorConfig, services: Services) -> Iterable[PageTarget]:
    source = config.source_of(entry.source)
    if entry.service is not None:
        # All its endpoints are all routers of the front-end: one that is not ready yet may serve, one that ends does.
        for endpoint in services.get(entry.service.key, ()):
            pod = f"{entry.service.namespace}/{endpoint.pod}" if endpoint.pod else ""
            yield RouterTarget(entry.frontend, endpoint.url, source, pod)
    elif entry.urls:
        for url in entry.urls:
            yield RouterTarget(entry.frontend, url, source)
    else:
        yield RouterTarget(entry.frontend, "", source)

"""Whether requests are traced, and where spans go: flags first, else OpenTelemetry's own environment variables.

Beside every path. The exporter itself reads the rest of its variables (headers, certificates, timeout, compression).
Must not import OpenTelemetry, which need not be installed, before tracing starts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from headrace_api.commands import EnvironmentFailed
from headrace_router.telemetry.accumulators import Counter
from headrace_router.telemetry.metrics import Family

if TYPE_CHECKING:
    from headrace_router.telemetry.span_export import OpenTraces

_PATH: Final = "/v1/traces"
_PROTOCOL: Final = "http/protobuf"
DEFAULT_RATIO: Final = 0.01
DEFAULT_QUEUE: Final = 2048
_RATIO_SAMPLERS: Final = frozenset({"traceidratio", "parentbased_traceidratio"})
_FIXED_SAMPLERS: Final = {"parentbased_always_on": 1.0, "parentbased_always_off": 0.0}


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """endpoint: the whole URL that spans are posted to. ratio: sampled part of the requests that come without a trace
    of their caller's; a caller's word stands. queue: spans that may wait."""

    endpoint: str
    ratio: float = DEFAULT_RATIO
    queue: int = DEFAULT_QUEUE


def start_tracing(settings: TraceSettings, spans: Family[Counter]) -> OpenTraces:
    """Begin tracing; ``spans`` counts them by result.

    Raises:
        EnvironmentFailed: OpenTelemetry is not installed.
    """
    try:
        from headrace_router.telemetry.span_export import open_traces
    except ModuleNotFoundError as error:
        raise EnvironmentFailed(
            f"tracing needs the extra headrace[tracing]: there is no {error.name}; install it, or leave --traces and "
            "OTEL_EXPORTER_OTLP_ENDPOINT out"
        ) from error
    return open_traces(settings, spans)


def trace_settings(
    endpoint: str | None, ratio: str | None, environ: Mapping[str, str], faults: list[str]
) -> TraceSettings | None:
    """What flags (``endpoint`` without its path) and environment say; None: no tracing. Faults are appended."""
    if endpoint is not None:
        name, url = "--traces", endpoint.rstrip("/") + _PATH
    else:
        if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            return None
        if environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none":
            return None
        name = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
        url = environ.get(name, "").strip()
        if not url:
            name = "OTEL_EXPORTER_OTLP_ENDPOINT"
            url = environ.get(name, "").strip()
            url = url and url.rstrip("/") + _PATH
        if not url:
            if ratio is not None:
                faults.append("--traces-ratio without --traces: say where spans go, too")
            return None
        _protocol(environ, faults)
    if not _is_url(url):
        faults.append(f"{name} {url.removesuffix(_PATH)[:128]}: not an address; right would be http://collector:4318")
    return TraceSettings(url, _ratio(ratio, environ, faults), _queue(environ, faults))


def _protocol(environ: Mapping[str, str], faults: list[str]) -> None:
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        said = environ.get(name, "").strip()
        if said:
            if said != _PROTOCOL:
                faults.append(f"{name} {said[:32]}: spans are sent by {_PROTOCOL} only, usually to port 4318")
            return


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and (port is None or port > 0)


def _ratio(given: str | None, environ: Mapping[str, str], faults: list[str]) -> float:
    name, text = "--traces-ratio", given
    if text is None:
        sampler = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
        if sampler in _FIXED_SAMPLERS:
            return _FIXED_SAMPLERS[sampler]
        if sampler and sampler not in _RATIO_SAMPLERS:
            known = ", ".join(sorted({*_RATIO_SAMPLERS, *_FIXED_SAMPLERS}))
            faults.append(f"OTEL_TRACES_SAMPLER {sampler[:32]}: not known here; right would be one of {known}")
            return DEFAULT_RATIO
        name = "OTEL_TRACES_SAMPLER_ARG"
        text = environ.get(name, "").strip()
        if not text:
            return 1.0 if sampler else DEFAULT_RATIO
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        faults.append(f"{name} {text[:32]}: not a part from 0 to 1, such as 0.01")
        return DEFAULT_RATIO
    return value


def _queue(environ: Mapping[str, str], faults: list[str]) -> int:
    text = environ.get("OTEL_BSP_MAX_QUEUE_SIZE", "").strip()
    if not text:
        return DEFAULT_QUEUE
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= 1_000_000):
        faults.append(f"OTEL_BSP_MAX_QUEUE_SIZE {text[:32]}: not a number from 1 to 1000000")
        return DEFAULT_QUEUE
    return int(text)

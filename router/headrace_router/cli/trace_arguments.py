"""Arguments of ``headrace router`` that say whether requests are traced.

Beside the request path. Must not import OpenTelemetry: whether it is there is asked when the router starts.
"""

from __future__ import annotations

import argparse
import os

from headrace_router.telemetry.trace_settings import DEFAULT_RATIO, TraceSettings, trace_settings


def add_trace_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments."""
    parser.add_argument(
        "--traces",
        metavar="URL",
        help="OpenTelemetry collector that spans are sent to by OTLP over HTTP, such as http://collector:4318"
        " (default: OTEL_EXPORTER_OTLP_ENDPOINT; without it none)",
    )
    parser.add_argument(
        "--traces-ratio",
        metavar="PART",
        help="sampled part of the requests without a caller's trace, 0 to 1"
        f" (default: OTEL_TRACES_SAMPLER_ARG, else {DEFAULT_RATIO})",
    )


def read_trace_arguments(arguments: argparse.Namespace, faults: list[str]) -> TraceSettings | None:
    """What they and the environment say; None: no tracing. Faults are appended."""
    return trace_settings(arguments.traces, arguments.traces_ratio, os.environ, faults)

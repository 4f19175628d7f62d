"""Trace context by W3C's rules, and where spans go by flags and OpenTelemetry's variables."""

from __future__ import annotations

import sys

import pytest

from headrace_api.commands import EnvironmentFailed
from headrace_router.telemetry.metrics import Metrics
from headrace_router.telemetry.trace_settings import TraceSettings, start_tracing, trace_settings
from headrace_router.telemetry.traces import parent_of

TRACE, SPAN = b"4bf92f3577b34da6a3ce929d0e0e4736", b"00f067aa0ba902b7"


@pytest.mark.parametrize("tail", [b"00", b"01", b"ff"])
def test_a_valid_parent(tail: bytes) -> None:
    parent = parent_of([b"00-" + TRACE + b"-" + SPAN + b"-" + tail])
    assert parent is not None
    assert (parent.trace, parent.span, parent.flags) == (int(TRACE, 16), int(SPAN, 16), int(tail, 16))


def test_a_later_version_may_say_more() -> None:
    assert parent_of([b"01-" + TRACE + b"-" + SPAN + b"-01-more"]) is not None


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [b""],
        [b"00-" + TRACE + b"-" + SPAN + b"-01"] * 2,
        [b"00-" + TRACE + b"-" + SPAN + b"-01-more"],
        [b"ff-" + TRACE + b"-" + SPAN + b"-01"],
        [b"00-" + b"0" * 32 + b"-" + SPAN + b"-01"],
        [b"00-" + TRACE + b"-" + b"0" * 16 + b"-01"],
        [b"00-" + TRACE.upper() + b"-" + SPAN + b"-01"],
        [b"00-" + TRACE[:-1] + b"-" + SPAN + b"-01"],
        [b"00-" + TRACE + b"-" + SPAN + b"-1"],
        [b"00-" + TRACE + b"-" + SPAN + b"-01\n"],
        [b"\xff" * 55],
    ],
)
def test_what_is_no_valid_parent(lines: list[bytes]) -> None:
    """W3C Trace Context, 3.2.2: one header, lower-case hex, ids that aren't zero, no version ff."""
    assert parent_of(lines) is None


ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"}


@pytest.mark.parametrize(
    ("flag", "ratio", "environ", "right"),
    [
        (None, None, {}, None),
        ("http://c:4318", None, {}, TraceSettings("http://c:4318/v1/traces", 0.01)),
        ("https://c/otlp/", "0.5", {}, TraceSettings("https://c/otlp/v1/traces", 0.5)),
        (None, None, ENDPOINT, TraceSettings("http://c:4318/v1/traces", 0.01)),
        (
            None,
            None,
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t:1/x", **ENDPOINT},
            TraceSettings("http://t:1/x"),
        ),
        (None, None, {"OTEL_SDK_DISABLED": "TRUE", **ENDPOINT}, None),
        (None, None, {"OTEL_TRACES_EXPORTER": "none", **ENDPOINT}, None),
        (
            None,
            "1",
            {"OTEL_TRACES_SAMPLER_ARG": "0.2", **ENDPOINT},
            TraceSettings("http://c:4318/v1/traces", 1.0),
        ),
        (
            None,
            None,
            {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.2", **ENDPOINT},
            TraceSettings("http://c:4318/v1/traces", 0.2),
        ),
        (
            None,
            None,
            {"OTEL_TRACES_SAMPLER": "parentbased_always_on", **ENDPOINT},
            TraceSettings("http://c:4318/v1/traces", 1.0),
        ),
        (
            None,
            None,
            {"OTEL_BSP_MAX_QUEUE_SIZE": "64", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", **ENDPOINT},
            TraceSettings("http://c:4318/v1/traces", 0.01, 64),
        ),
    ],
)
def test_flags_come_before_the_environment(
    flag: str | None, ratio: str | None, environ: dict[str, str], right: TraceSettings | None
) -> None:
    faults: list[str] = []
    assert trace_settings(flag, ratio, environ, faults) == right
    assert faults == []


@pytest.mark.parametrize(
    ("flag", "ratio", "environ", "word"),
    [
        ("collector:4318", None, {}, "--traces collector:4318"),
        ("http://c:99999", None, {}, "not an address"),
        ("ftp://c", None, {}, "not an address"),
        (None, "0.5", {}, "--traces-ratio without --traces"),
        ("http://c", "2", {}, "--traces-ratio 2: not a part from 0 to 1"),
        ("http://c", "nan", {}, "--traces-ratio nan"),
        (None, None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "c"}, "OTEL_EXPORTER_OTLP_ENDPOINT c"),
        (None, None, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", **ENDPOINT}, "http/protobuf only"),
        (None, None, {"OTEL_TRACES_SAMPLER": "jaeger_remote", **ENDPOINT}, "OTEL_TRACES_SAMPLER jaeger_remote"),
        (None, None, {"OTEL_BSP_MAX_QUEUE_SIZE": "0", **ENDPOINT}, "OTEL_BSP_MAX_QUEUE_SIZE 0"),
    ],
)
def test_what_is_wrong_is_said(flag: str | None, ratio: str | None, environ: dict[str, str], word: str) -> None:
    faults: list[str] = []
    trace_settings(flag, ratio, environ, faults)
    assert len(faults) == 1
    assert word in faults[0]


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "headrace_router.telemetry.span_export", None)
    with pytest.raises(EnvironmentFailed, match=r"headrace\[tracing\]"):
        start_tracing(TraceSettings("http://c:4318/v1/traces"), Metrics().spans)

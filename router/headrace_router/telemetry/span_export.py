"""Where spans go: OTLP over HTTP by the SDK's exporter, in its own thread, from a queue that is bounded and counted.

Beside the request path. Needs the extra ``headrace[tracing]``. Must not raise, block or wait on the loop for whatever
the collector does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Thread
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from headrace_api.version import __version__
from headrace_router.telemetry.accumulators import Counter
from headrace_router.telemetry.metrics import Family
from headrace_router.telemetry.trace_settings import TraceSettings
from headrace_router.telemetry.traces import Traces

SERVICE: Final = "headrace-router"
# Seconds that the last spans get at the end.
LAST_SPANS_S: Final = 2.0


class Counted(SpanExporter):
    """Counts what became of the spans. done: how many were given up or delivered, written by the exporting thread."""

    def __init__(self, exporter: SpanExporter, exported: Counter, failed: Counter) -> None:
        self._exporter = exporter
        self._exported = exported
        self._failed = failed
        self.done = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            counter = self._exported if result is SpanExportResult.SUCCESS else self._failed
            counter.value += len(spans)
            self.done += len(spans)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class Bounded(SpanProcessor):
    """Hands spans to the SDK's batches as long as fewer than ``most`` wait or are on their way; counts the others."""

    def __init__(self, inner: SpanProcessor, exporter: Counted, most: int, dropped: Counter) -> None:
        self._inner = inner
        self._exporter = exporter
        self._most = most
        self._dropped = dropped
        self._given = 0
        self._closed = False

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing: spans count when they end."""

    def on_end(self, span: ReadableSpan) -> None:
        if self._closed or self._given - self._exporter.done >= self._most:
            self._dropped.value += 1
            return
        self._given += 1
        self._inner.on_end(span)

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int | None = None) -> bool:
        return self._inner.force_flush(30_000 if timeout_millis is None else timeout_millis)

    async def close(self) -> None:
        """Deliver what waits, as far as the collector takes it in LAST_SPANS_S."""
        self._closed = True
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def end() -> None:
            self._inner.shutdown()
            with contextlib.suppress(RuntimeError):  # the loop is closed by now
                loop.call_soon_threadsafe(ended.set)

        # Not the loop's executor: its end would be waited for, however long the collector hangs.
        Thread(target=end, name="last spans", daemon=True).start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_SPANS_S):
                await ended.wait()
        self._dropped.value += max(0, self._given - self._exporter.done)


@dataclass(frozen=True, slots=True)
class OpenTraces:
    """Tracing that is on."""

    traces: Traces
    processor: Bounded
    provider: TracerProvider

    async def close(self) -> None:
        """End it; spans that end later are dropped."""
        await self.processor.close()


def open_traces(settings: TraceSettings, spans: Family[Counter]) -> OpenTraces:
    """Begin tracing; ``spans`` counts them by result."""
    exporter = Counted(OTLPSpanExporter(endpoint=settings.endpoint), spans[("exported",)], spans[("failed",)])
    inner = BatchSpanProcessor(exporter, max_queue_size=settings.queue, max_export_batch_size=min(256, settings.queue))
    processor = Bounded(inner, exporter, settings.queue, spans[("dropped",)])
    provider = TracerProvider(sampler=ALWAYS_ON, resource=_resource(), shutdown_on_exit=False)
    provider.add_span_processor(processor)
    # Which requests are sampled is no secret.
    chance = random.Random().random  # noqa: S311
    return OpenTraces(Traces(provider.get_tracer(SERVICE, __version__), settings.ratio, chance), processor, provider)


def _resource() -> Resource:
    own: dict[str, str] = {"service.version": __version__}
    if not os.environ.get("OTEL_SERVICE_NAME") and "service.name=" not in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    ):
        own["service.name"] = SERVICE
    if pod := os.environ.get("POD_NAME"):
        own["service.instance.id"] = pod
    return Resource.create(own)

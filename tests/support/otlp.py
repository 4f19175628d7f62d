"""An OpenTelemetry collector on loopback: takes spans by OTLP over HTTP and shows them decoded."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Raw

KINDS = {Raw.SPAN_KIND_SERVER: "server", Raw.SPAN_KIND_CLIENT: "client"}


@dataclass
class Span:
    """One span as it arrived; ids in hex."""

    name: str
    kind: str
    trace: str
    span: str
    parent: str
    state: str
    attributes: dict[str, str | int]
    failed: bool
    start: int
    end: int


@dataclass
class Collector:
    """What arrived. ``hanging``: requests are taken and never answered; ``status``: what is answered."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    resource: dict[str, str | int] = field(default_factory=dict)
    posts: int = 0
    status: int = 200
    hanging: asyncio.Event | None = None

    def of(self, kind: str) -> list[Span]:
        """Spans of a kind in the order of their start."""
        return sorted((span for span in self.spans if span.kind == kind), key=lambda span: span.start)

    async def _take(self, request: web.Request) -> web.Response:
        self.posts += 1
        assert request.content_type == "application/x-protobuf"
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if self.hanging is not None:
            await self.hanging.wait()
        if self.status == 200:
            self._read(ExportTraceServiceRequest.FromString(body))
        return web.Response(status=self.status)

    def _read(self, message: ExportTraceServiceRequest) -> None:
        for resource in message.resource_spans:
            self.resource = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
            for scope in resource.scope_spans:
                for raw in scope.spans:
                    attributes: dict[str, str | int] = {
                        pair.key: pair.value.string_value or pair.value.int_value for pair in raw.attributes
                    }
                    self.spans.append(
                        Span(
                            raw.name,
                            KINDS[raw.kind],
                            raw.trace_id.hex(),
                            raw.span_id.hex(),
                            raw.parent_span_id.hex(),
                            raw.trace_state,
                            attributes,
                            raw.status.code == 2,
                            raw.start_time_unix_nano,
                            raw.end_time_unix_nano,
                        )
                    )


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    """A collector that takes what is posted to /v1/traces."""
    made = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", made._take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        if made.hanging is not None:
            made.hanging.set()
        await runner.cleanup()

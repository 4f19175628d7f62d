"""A small API server on loopback that lists and watches, and misbehaves when told to.

Objects are kept by (resource, namespace, name) with growing resourceVersions; every change reaches the open watches.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

CONFIGMAPS = "configmaps"
SLICES = "endpointslices"
SERVICES = "services"
LEASES = "leases"
TOKEN = "fake-api-token"
Object = dict[str, Any]


@dataclass(eq=False)
class _Open:
    """One open watch."""

    resource: str
    namespace: str
    name: str | None
    lines: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)


class FakeApi:
    """Use ``async with``. Knobs, each a set of resources unless said otherwise:

    forbidden: 403. hung: never answers (hung_namespaces: nor for these). failing: 500. gone: a watch answers 410 in a
    200 at once. tokens: those that are accepted (none: all). before: bytes that a watch says before anything else.
    paged: objects a page.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.version = 100
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.forbidden: set[str] = set()
        self.hung: set[str] = set()
        self.hung_namespaces: set[str] = set()
        self.failing: set[str] = set()
        self.gone: set[str] = set()
        self.tokens: set[str] = {TOKEN}
        self.before: dict[str, list[bytes]] = {}
        self.paged = 0
        self.url = ""
        self._open: set[_Open] = set()
        self._runner: web.AppRunner | None = None
        self._oldest = 0
        self._log: list[tuple[int, str, str, str, Object]] = []

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen: the first time on any port, later on the same one."""
        app = web.Application()
        app.router.add_get("/api/v1/namespaces/{namespace}/{resource}", self._collection)
        app.router.add_get("/apis/{group}/v1/namespaces/{namespace}/{resource}", self._collection)
        app.router.add_get("/apis/{group}/v1/namespaces/{namespace}/{resource}/{name}", self._one)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        port = int(self.url.rpartition(":")[2]) if self.url else 0
        await web.TCPSite(self._runner, "127.0.0.1", port, reuse_address=True).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """End, all watches too."""
        self.cut()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def put(self, resource: str, found: Object) -> None:
        """Create or replace an object (metadata.namespace and name say which)."""
        metadata = found["metadata"]
        key = (resource, metadata["namespace"], metadata["name"])
        kind = "MODIFIED" if key in self.objects else "ADDED"
        self.version += 1
        stored = found | {"metadata": metadata | {"resourceVersion": str(self.version)}}
        self.objects[key] = stored
        self._tell(kind, resource, stored)

    def remove(self, resource: str, namespace: str, name: str) -> None:
        stored = self.objects.pop((resource, namespace, name))
        self.version += 1
        self._tell(
            "DELETED", resource, stored | {"metadata": stored["metadata"] | {"resourceVersion": f"{self.version}"}}
        )

    def bookmark(self) -> None:
        """Every open watch is told how far it is."""
        for watch in self._open:
            metadata = {"resourceVersion": str(self.version)}
            watch.lines.put_nowait(_line({"type": "BOOKMARK", "object": {"metadata": metadata}}))

    def say(self, resource: str, raw: bytes) -> None:
        """Raw bytes into the open watches of a resource."""
        for watch in self._open:
            if watch.resource == resource:
                watch.lines.put_nowait(raw)

    def cut(self, resource: str | None = None) -> None:
        """End the open watches (of one resource)."""
        for watch in self._open:
            if resource in (None, watch.resource):
                watch.lines.put_nowait(None)

    def watching(self, resource: str) -> int:
        return sum(watch.resource == resource for watch in self._open)

    def queries(self, resource: str, watch: bool) -> list[dict[str, str]]:
        """Queries of the lists or watches asked for so far."""
        return [query for kind, name, query in self.asked if name == resource and (kind == "watch") is watch]

    def forget(self) -> None:
        """Versions up to now are too old for a watch (as after etcd's compaction)."""
        self.version += 1
        self._oldest = self.version
        self._log.clear()

    def _tell(self, kind: str, resource: str, stored: Object) -> None:
        namespace = stored["metadata"]["namespace"]
        self._log.append((self.version, kind, resource, namespace, stored))
        for watch in self._open:
            if watch.resource == resource and watch.namespace == namespace and _selected(watch.name, stored):
                watch.lines.put_nowait(_line({"type": kind, "object": stored}))

    async def _refusal(self, request: web.Request) -> web.Response | None:
        resource = request.match_info["resource"]
        if resource in self.hung or request.match_info["namespace"] in self.hung_namespaces:
            await asyncio.sleep(3600)
        if self.tokens and request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            return _status(401, "Unauthorized")
        if resource in self.forbidden:
            # A server may repeat what it was given.
            return _status(403, f"{resource} is forbidden: {request.headers.get('Authorization')}\x1b[31m\nno rights")
        if resource in self.failing:
            return web.Response(status=500, text="etcd is away")
        return None

    async def _one(self, request: web.Request) -> web.Response:
        info = request.match_info
        self.asked.append(("get", info["resource"], dict(request.query)))
        if (refused := await self._refusal(request)) is not None:
            return refused
        found = self.objects.get((info["resource"], info["namespace"], info["name"]))
        return _status(404, "not found") if found is None else web.json_response(found)

    async def _collection(self, request: web.Request) -> web.StreamResponse:
        resource, namespace = request.match_info["resource"], request.match_info["namespace"]
        query = dict(request.query)
        self.asked.append(("watch" if "watch" in query else "list", resource, query))
        if (refused := await self._refusal(request)) is not None:
            return refused
        name = query.get("fieldSelector", "").removeprefix("metadata.name=") or None
        if "watch" in query:
            return await self._watch(request, _Open(resource, namespace, name), query)
        items = [
            stored
            for (kind, where, _), stored in sorted(self.objects.items())
            if (kind, where) == (resource, namespace) and _selected(name, stored)
        ]
        metadata = {"resourceVersion": str(self.version)}
        if self.paged:
            start = int(query.get("continue", "0"))
            more = start + self.paged < len(items)
            items = items[start : start + self.paged]
            metadata |= {"continue": str(start + self.paged)} if more else {}
        return web.json_response({"metadata": metadata, "items": items})

    async def _watch(self, request: web.Request, watch: _Open, query: dict[str, str]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        since = int(query["resourceVersion"])
        if watch.resource in self.gone or since < self._oldest:
            status = {"kind": "Status", "code": 410, "message": "too old resource version"}
            await response.write(_line({"type": "ERROR", "object": status}))
            return response
        for raw in self.before.get(watch.resource, ()):
            watch.lines.put_nowait(raw)
        for version, kind, resource, namespace, stored in self._log:
            ours = (resource, namespace) == (watch.resource, watch.namespace) and _selected(watch.name, stored)
            if version > since and ours:
                watch.lines.put_nowait(_line({"type": kind, "object": stored}))
        self._open.add(watch)
        try:
            with suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(float(query["timeoutSeconds"])):
                    while (line := await watch.lines.get()) is not None:
                        await response.write(line)
        finally:
            self._open.discard(watch)
        return response

    @contextmanager
    def away(self, knob: set[str], *resources: str) -> Iterator[None]:
        """Misbehave for a while; open watches are cut at the beginning."""
        knob.update(resources)
        for resource in resources:
            self.cut(resource)
        try:
            yield
        finally:
            knob.difference_update(resources)


def _selected(name: str | None, stored: Object) -> bool:
    return name is None or stored["metadata"]["name"] == name


def _line(event: Object) -> bytes:
    return json.dumps(event).encode() + b"\n"


def _status(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)


def config_map(text: str, name: str = "headrace-chat-fe-a", namespace: str = "inference") -> Object:
    """A ConfigMap with a table in it."""
    return {"metadata": {"name": name, "namespace": namespace}, "data": {"table.json": text}}


def slice_of(
    service: str, *addresses: str, port: int = 8000, name: str = "", namespace: str = "inference", **conditions: bool
) -> Object:
    """An EndpointSlice of a Service."""
    return {
        "metadata": {
            "name": name or f"{service}-x",
            "namespace": namespace,
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True} | conditions} for address in addresses],
    }


def service_object(name: str, port: int, target: int, namespace: str = "inference") -> Object:
    """A Service."""
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"ports": [{"name": "http", "port": port, "targetPort": target}]},
    }


def lease(renewed: str, namespace: str = "inference") -> Object:
    """The operator's heartbeat."""
    return {"metadata": {"name": "headrace-heartbeat", "namespace": namespace}, "spec": {"renewTime": renewed}}

"""An API server on loopback that takes writes, in memory: apply, create, replace, delete, with versions and conflicts.

A fake of the wire only; how a real API server answers is held by tests/e2e/test_publisher_live.py. It answers in
threads, so that synchronous clients can be tested without a loop.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from kubernetes import client

from headrace_operator.kube.client import KubeClient, client_of

Json = dict[str, Any]
PLURALS = ("configmaps", "leases", "events", "routingpolicies", "inferenceengines")


class Call(NamedTuple):
    """One request: method, plural, "namespace/name" (or less), subresource."""

    method: str
    plural: str
    name: str
    sub: str


class Refuse(Exception):
    """Answer with this status."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


class FakeKube:
    """Objects by (plural, namespace, name). Knobs:

    calls: all requests. refuse: called before each, may raise Refuse. hang: while set, nothing is answered. missing:
    namespaces that don't exist. page: objects a page at most.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Json] = {}
        self.managers: dict[tuple[str, str, str], str] = {}
        self.calls: list[Call] = []
        self.queries: list[tuple[Call, dict[str, str]]] = []
        self.refuse: Callable[[Call], None] = lambda _: None
        self.hang = threading.Event()
        self.missing: set[str] = set()
        self.page = 500
        self._lock = threading.RLock()
        self._version = 1000
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 65536  # an answer in one piece
            disable_nagle_algorithm = True

            def log_message(self, *_: object) -> None:
                return

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                while fake.hang.is_set():
                    time.sleep(0.02)
                try:
                    status, found = 200, fake.handle(self.command, self.path, body, str(self.headers.get("Accept")))
                except Refuse as refused:
                    status = refused.status
                    found = {"kind": "Status", "status": "Failure", "reason": refused.reason, "message": str(refused)}
                data = json.dumps(found).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                    self.wfile.flush()
                except OSError:
                    self.close_connection = True

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = answer  # noqa: N815 (the library's names)

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_: object) -> None:
                return

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def client(
        self, name: str = "local", may_write: Callable[[], bool] = lambda: True, timeout: float = 5.0
    ) -> KubeClient:
        settings = client.Configuration(host=self.url)
        made = client_of(settings, name, may_write)
        made._timeout = (timeout, timeout)
        return made

    def close(self) -> None:
        self.hang.clear()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # What tests look at and do

    def writes(self) -> list[Call]:
        return [call for call in self.calls if call.method != "GET"]

    def names(self, plural: str) -> list[str]:
        return sorted(f"{namespace}/{name}" for kind, namespace, name in self.objects if kind == plural)

    def put(self, plural: str, found: Json) -> Json:
        """Put an object there as somebody else would."""
        with self._lock:
            metadata = found["metadata"]
            key = (plural, metadata["namespace"], metadata["name"])
            old = self.objects.get(key)
            fresh = copy.deepcopy(found)
            if "uid" not in metadata:
                fresh["metadata"]["uid"] = old["metadata"]["uid"] if old else self._uid()
            return self._store(key, fresh)

    def edit(self, plural: str, name: str, change: Callable[[Json], object]) -> None:
        """Change an object as somebody else would."""
        with self._lock:
            namespace, _, bare = name.partition("/")
            found = copy.deepcopy(self.objects[plural, namespace, bare])
            change(found)
            self._store((plural, namespace, bare), found)

    def remove(self, plural: str, name: str) -> None:
        namespace, _, bare = name.partition("/")
        with self._lock:
            del self.objects[plural, namespace, bare]

    def get(self, plural: str, name: str) -> Json:
        namespace, _, bare = name.partition("/")
        return self.objects[plural, namespace, bare]

    @contextmanager
    def hanging(self) -> Iterator[None]:
        self.hang.set()
        try:
            yield
        finally:
            self.hang.clear()

    # The wire

    def handle(self, method: str, raw: str, body: Json, accept: str) -> Json:
        parts = urlsplit(raw)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        steps = [unquote(step) for step in parts.path.strip("/").split("/")]
        namespace = steps[steps.index("namespaces") + 1] if "namespaces" in steps else ""
        at = next((place for place, step in enumerate(steps) if step in PLURALS), None)
        if at is None:
            raise Refuse(404, "NotFound", "no such kind")
        plural, rest = steps[at], steps[at + 1 :]
        name, sub = (rest[0] if rest else ""), (rest[1] if len(rest) > 1 else "")
        call = Call(method, plural, f"{namespace}/{name}".strip("/"), sub)
        with self._lock:
            self.calls.append(call)
            self.queries.append((call, query))
        self.refuse(call)
        with self._lock:
            if namespace in self.missing and method != "GET":
                raise Refuse(404, "NotFound", f'namespaces "{namespace}" not found')
            if method == "GET" and not name:
                return self._list(plural, namespace, query, accept)
            if method == "POST":
                return self._create((plural, namespace, body["metadata"]["name"]), body)
            found = self._one(method, (plural, namespace, name), sub, self._agreed(call, query, body))
            if method == "PATCH" and not sub:
                self.managers[plural, namespace, name] = query.get("fieldManager", "")
            return found

    def _agreed(self, call: Call, query: dict[str, str], body: Json) -> Json:
        """An apply without force ends where another manager applied last, as if all fields were in both."""
        namespace, _, name = call.name.rpartition("/")
        key = (call.plural, namespace, name)
        last = self.managers.get(key, "") if key in self.objects else ""
        if query.get("force") == "false" and last not in ("", query.get("fieldManager")):
            raise Refuse(409, "Conflict", f"Apply failed: conflict with {last}")
        return body

    def _list(self, plural: str, namespace: str, query: dict[str, str], accept: str) -> Json:
        wanted = query.get("labelSelector", "")
        only = query.get("fieldSelector", "").removeprefix("metadata.name=")
        found = [
            one
            for (kind, space, name), one in sorted(self.objects.items())
            if kind == plural and namespace in ("", space) and _labelled(one, wanted) and only in ("", name)
        ]
        begin = int(query.get("continue") or 0)
        end = begin + min(self.page, int(query.get("limit") or len(found) + 1))
        items = [{"metadata": one["metadata"]} if "PartialObject" in accept else one for one in found[begin:end]]
        return {"metadata": {"continue": str(end) if end < len(found) else ""}, "items": copy.deepcopy(items)}

    def _create(self, key: tuple[str, str, str], body: Json) -> Json:
        if key in self.objects:
            raise Refuse(409, "AlreadyExists", f'{key[0]} "{key[2]}" already exists')
        fresh = copy.deepcopy(body)
        fresh["metadata"]["uid"] = self._uid()
        return self._store(key, fresh)

    def _one(self, method: str, key: tuple[str, str, str], sub: str, body: Json) -> Json:
        old = self.objects.get(key)
        metadata = body.get("metadata", {})
        if old is None and method == "PATCH" and not sub:
            if metadata.get("uid"):
                raise Refuse(409, "Conflict", "the object has been modified")
            return self._create(key, body)
        if old is None:
            raise Refuse(404, "NotFound", f'{key[0]} "{key[2]}" not found')
        if method == "GET":
            return copy.deepcopy(old)
        if method == "DELETE":
            wanted = body.get("preconditions", {})
            if any(old["metadata"][field] != value for field, value in wanted.items()):
                raise Refuse(409, "Conflict", "the precondition does not match")
            del self.objects[key]
            return {"kind": "Status", "status": "Success"}
        if metadata.get("resourceVersion", old["metadata"]["resourceVersion"]) != old["metadata"]["resourceVersion"]:
            raise Refuse(409, "Conflict", "the object has been modified")
        if metadata.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"] and not sub:
            raise Refuse(422, "Invalid", "metadata.uid: field is immutable")
        if method == "PUT":
            return self._store(key, copy.deepcopy(body))
        return self._apply(key, old, sub, body)

    def _apply(self, key: tuple[str, str, str], old: Json, sub: str, body: Json) -> Json:
        fresh = copy.deepcopy(old)
        if sub:
            fresh[sub] = copy.deepcopy(body[sub])
        else:
            for field, value in body.items():
                if field == "metadata":
                    for part in ("labels", "annotations"):
                        fresh["metadata"][part] = {**fresh["metadata"].get(part, {}), **value.get(part, {})}
                    known = {one["uid"]: one for one in fresh["metadata"].get("ownerReferences", [])}
                    known |= {one["uid"]: one for one in value.get("ownerReferences", [])}
                    fresh["metadata"]["ownerReferences"] = list(known.values())
                elif field == "data":
                    fresh["data"] = {**(fresh.get("data") or {}), **value}
                else:
                    fresh[field] = copy.deepcopy(value)
        return copy.deepcopy(old) if _same(fresh, old) else self._store(key, fresh)

    def _store(self, key: tuple[str, str, str], fresh: Json) -> Json:
        self._version += 1
        fresh["metadata"]["resourceVersion"] = str(self._version)
        self.objects[key] = fresh
        return copy.deepcopy(fresh)

    def _uid(self) -> str:
        self._version += 1
        return f"uid-{self._version}"


def _labelled(found: Json, selector: str) -> bool:
    name, equals, value = selector.partition("=")
    labels = found["metadata"].get("labels") or {}
    return not name or (labels.get(name) == value if equals else name in labels)


def _same(one: Json, other: Json) -> bool:
    def bare(found: Json) -> Json:
        metadata = {key: value for key, value in found["metadata"].items() if value and key != "resourceVersion"}
        return {**found, "metadata": metadata}

    return bare(one) == bare(other)

"""A client of one API server: plain JSON in and out, a time limit on every call, and a guard before every write.

Used on the routing-weight path, in threads (the library underneath is synchronous). It knows no kind of resource and
holds nothing but connections. The library gives credentials, their renewal, and TLS; its typed models are not used,
because they would take a call and a class a kind and cost more than the calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ProtocolError,
    ReadTimeoutError,
    SSLError,
)

from headrace_api.commands import EnvironmentFailed

MANAGER: Final = "headrace-operator"
"""Field manager of everything the operator writes."""
TIMEOUT: Final = (3.0, 10.0)
"""Seconds to connect and between bytes."""
APPLY: Final = "application/apply-patch+yaml"
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
MAX_MESSAGE: Final = 500

Json = dict[str, Any]


class KubeFault(Exception):
    """A call that did not succeed. status: HTTP's, 0 when there was no answer. reason: as in Kubernetes' Status."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def missing(self) -> bool:
        """There is no such object, or no such kind."""
        return self.status == HTTPStatus.NOT_FOUND

    @property
    def conflict(self) -> bool:
        """The object is not what the writer had read."""
        return self.status == HTTPStatus.CONFLICT

    @property
    def forbidden(self) -> bool:
        """Credentials are missing, or don't allow it."""
        return self.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class NotLeading(Exception):
    """A write was held back: this process does not hold the Lease any more, or can't be sure of it."""


class KubeClient:
    """One API server. Thread-safe; each call raises KubeFault, writes also NotLeading."""

    def __init__(
        self,
        api: client.ApiClient,
        name: str,
        may_write: Callable[[], bool] = lambda: True,
        *,
        timeout: tuple[float, float] = TIMEOUT,
    ) -> None:
        """name: the cluster's, for messages. may_write: asked before every write. timeout: see TIMEOUT."""
        self.name = name
        self.may_write = may_write
        self._api = api
        self._timeout = timeout

    @property
    def settings(self) -> client.Configuration:
        """Address, TLS and credentials, for those who must speak to the same server in another way (watches)."""
        return self._api.configuration

    def get(self, path: str) -> Json:
        """The object at a path such as ``/api/v1/namespaces/a/configmaps/b``."""
        return self._call("GET", path)

    def list(self, path: str, *, labels: str = "", fields: str = "", metadata_only: bool = False) -> Json:
        """A list, with its resourceVersion; labels, fields: selectors. metadata_only: without spec, data and status."""
        query = {"labelSelector": labels, "fieldSelector": fields}
        return self._call(
            "GET",
            path,
            query={key: value for key, value in query.items() if value},
            headers={"Accept": METADATA_ONLY} if metadata_only else None,
        )

    def every(
        self, path: str, *, labels: str = "", fields: str = "", metadata_only: bool = False, page: int = 500
    ) -> Iterator[Json]:
        """All objects of a list, page by page; some of them twice when the list had to be begun anew."""
        after = ""
        while True:
            query = {"limit": str(page), "labelSelector": labels, "fieldSelector": fields, "continue": after}
            try:
                found = self._call(
                    "GET",
                    path,
                    query={key: value for key, value in query.items() if value},
                    headers={"Accept": METADATA_ONLY} if metadata_only else None,
                )
            except KubeFault as fault:
                if fault.status != HTTPStatus.GONE or not after:
                    raise
                after = ""
                continue
            items = found.get("items")
            yield from items if isinstance(items, list) else ()
            metadata = found.get("metadata")
            after = str(metadata.get("continue", "")) if isinstance(metadata, dict) else ""
            if not after:
                return

    def apply(self, path: str, manifest: Mapping[str, Any], *, manager: str = MANAGER, force: bool = True) -> Json:
        """Server-side apply. A ``metadata.resourceVersion`` in the manifest must be the standing one, else conflict."""
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        return self._write("PATCH", path, manifest, query=query, headers={"Content-Type": APPLY})

    def create(self, path: str, manifest: Mapping[str, Any]) -> Json:
        """Create below a collection's path."""
        return self._write("POST", path, manifest, query={"fieldManager": MANAGER})

    def replace(self, path: str, manifest: Mapping[str, Any]) -> Json:
        """Put the whole object; ``metadata.resourceVersion`` guards against lost updates."""
        return self._write("PUT", path, manifest, query={"fieldManager": MANAGER})

    def merge(self, path: str, patch: Mapping[str, Any], *, manager: str = MANAGER) -> Json:
        """A JSON merge patch: for a person's command that sets or removes single fields."""
        headers = {"Content-Type": "application/merge-patch+json"}
        return self._write("PATCH", path, patch, query={"fieldManager": manager}, headers=headers)

    def delete(self, path: str, *, uid: str = "", resource_version: str = "") -> None:
        """Delete the object if it is still the one that was read; one that is gone already is no fault."""
        known = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {key: value for key, value in known.items() if value}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        try:
            self._write("DELETE", path, body)
        except KubeFault as fault:
            if not fault.missing:
                raise

    def _write(self, method: str, path: str, body: Mapping[str, Any], **more: Any) -> Json:
        if not self.may_write():
            raise NotLeading(f"{method} {path}: not the leader any more; nothing is written")
        return self._call(method, path, body=body, **more)

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Json:
        headers = {"Accept": "application/json", "Content-Type": "application/json", **(headers or {})}
        try:
            serialized = self._api.param_serialize(
                method,
                quote(path, safe="/"),
                query_params=list((query or {}).items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
            )
            answer = self._api.call_api(*serialized, _request_timeout=self._timeout)
            data: bytes = answer.read()
        except ApiException as error:  # of the library's own: TLS that doesn't come about
            raise KubeFault(error.status or 0, "NoAnswer", f"{self.name}: {_tls_words(error.reason)}") from None
        except (HTTPError, OSError) as error:
            raise KubeFault(0, "NoAnswer", f"{self.name}: {_why_silent(error)}") from None
        return self._understood(answer.status, data)

    def _understood(self, status: int, data: bytes) -> Json:
        try:
            found = json.loads(data) if data else {}
        except ValueError:
            found = None
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            raise KubeFault(status, "Redirect", f"{self.name} answered {status}: credentials are taken nowhere else")
        if not isinstance(found, dict):
            what = f"{self.name} answered {status} with something that is not a JSON object"
            if status == HTTPStatus.NOT_FOUND:
                what = f"{self.name} has no such kind of resource"
            raise KubeFault(status, "NotJson", what)
        if status >= HTTPStatus.BAD_REQUEST:
            raise KubeFault(status, str(found.get("reason", "")), _first_line(found.get("message", f"HTTP {status}")))
        return found


def connect(
    name: str,
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    may_write: Callable[[], bool] = lambda: True,
    timeout: tuple[float, float] = TIMEOUT,
) -> KubeClient:
    """The client of the cluster this runs in; outside of one that of a kubeconfig (its path, or kubectl's rules).

    Raises:
        EnvironmentFailed: there is neither.
    """
    settings = client.Configuration()
    try:
        if kubeconfig is None and context is None:
            try:
                config.load_incluster_config(client_configuration=settings)
            except config.ConfigException:
                config.load_kube_config(client_configuration=settings)
        else:
            config.load_kube_config(kubeconfig, context, client_configuration=settings)
    except (config.ConfigException, OSError, ValueError, TypeError) as error:
        raise EnvironmentFailed(
            f"no cluster: {_first_line(error)}; right would be a pod's service account, KUBECONFIG, or --kubeconfig"
        ) from error
    return client_of(settings, name, may_write, timeout=timeout)


def client_of(
    settings: client.Configuration,
    name: str,
    may_write: Callable[[], bool] = lambda: True,
    *,
    connections: int = 16,
    timeout: tuple[float, float] = TIMEOUT,
) -> KubeClient:
    """A client with these settings. The library never tries again by itself: whoever calls knows whether to."""
    settings.retries = False
    settings.connection_pool_maxsize = connections
    return KubeClient(client.ApiClient(settings), name, may_write, timeout=timeout)


def _why_silent(error: Exception) -> str:
    """Why there was no answer, in words that don't change from one try to the next (the library's carry addresses)."""
    cause: object = getattr(error, "reason", None) or error
    words: tuple[tuple[type[Exception], str], ...] = (
        (NameResolutionError, "its name is not known"),
        (NewConnectionError, "it can't be connected to"),  # the library has it as a kind of the next one
        (ConnectTimeoutError, "no connection within its time limit"),
        (ReadTimeoutError, "no answer within its time limit"),
        (SSLError, _tls_words(cause)),
        (ProtocolError, "the connection ended before the answer"),
    )
    return next((word for kind, word in words if isinstance(cause, kind)), type(cause).__name__)


def _tls_words(reason: object) -> str:
    """Why TLS did not come about, without the library's line numbers."""
    _, verify, why = str(reason).partition("certificate verify failed: ")
    return f"TLS: certificate verify failed: {why.split(' (_ssl')[0]}" if verify else "TLS could not be agreed on"


def _first_line(text: object) -> str:
    lines = str(text).strip().splitlines()
    return lines[0][:MAX_MESSAGE] if lines else ""

"""What a view of tables says to every request alike, worked out once a view.

On the request path, immutable but for answers that are kept: paths and body fields of all policies, header names as
bytes, the header lines that name an engine and a revision, addresses. Must not hold anything of a request; what is kept
here is bounded by the tables and by the attempts that a policy allows.
"""

from __future__ import annotations

from typing import Final

from headrace_api import names
from headrace_router.core.selection import Pick
from headrace_router.core.state import EndpointState
from headrace_router.core.view import PolicyView, TableView
from headrace_router.http1.lines import made
from headrace_router.http1.paths import BUILT_IN, Refused, Route, resolve
from headrace_router.upstream.credentials import ca_of
from headrace_router.upstream.port import Address

_POSTED: Final = {path: Route(kind, path, path) for path, kind in BUILT_IN.items()}
# Addresses kept; endpoints come and go under one view.
_MOST_KEPT: Final = 20_000


class PolicyHeaders:
    """Header names that a policy reads, in lower case.

    wanted: all of them. priority: the priority header's. keep: names that engines may see although such names steer.
    """

    __slots__ = ("keep", "priority", "wanted")

    def __init__(self, policy: PolicyView) -> None:
        self.priority = policy.table.priority_header.lower().encode("utf-8", "surrogateescape")
        self.keep = frozenset({self.priority})
        self.wanted = self.keep | {names.HEADER_CLIENT_RETRY.lower().encode()} | policy.affinity.headers


class Known:
    """See the module."""

    __slots__ = ("_addresses", "_said", "_single", "fields", "headers", "largest", "paths", "view")

    def __init__(self, view: TableView) -> None:
        self.view = view
        tables = [policy.table for policy in view.policies]
        self.paths = frozenset(path for table in tables for path in table.paths)
        self.fields: frozenset[str] = frozenset().union(*(policy.body_fields for policy in view.policies))
        self.largest = max((policy.body_limit for policy in view.policies), default=0)
        self.headers = {policy: PolicyHeaders(policy) for policy in view.policies}
        self._single: dict[str, str | None] = {}
        self._said: dict[tuple[str, str, str, int], bytes] = {}
        self._addresses: dict[EndpointState, Address] = {}

    def route(self, method: str, target: str) -> Route | Refused:
        """The route of a request's target."""
        found = _POSTED.get(target) if method == "POST" else None
        return resolve(method, target, self.paths) if found is None else found

    def only_model(self, path: str) -> str | None:
        """The model of a policy's path where no other can be meant."""
        if path not in self._single:
            found = [
                routes.model
                for policy in self.view.policies
                if path in policy.table.paths
                for routes in policy.table.models
            ]
            self._single[path] = found[0] if len(found) == 1 else None
        return self._single[path]

    def headers_of(self, policy: PolicyView) -> PolicyHeaders:
        """Header names of a policy."""
        return self.headers.get(policy) or PolicyHeaders(policy)

    def address(self, pick: Pick) -> Address:
        """Where an attempt goes."""
        endpoint = pick.endpoint
        found = self._addresses.get(endpoint)
        if found is None:
            config = pick.config
            server_name = config.tls.server_name if config.tls is not None else None
            found = Address(pick.engine, pick.url, server_name, ca_of(config))
            if len(self._addresses) >= _MOST_KEPT:
                self._addresses.clear()
            self._addresses[endpoint] = found
        return found

    def said(self, pick: Pick, attempts: int) -> bytes:
        """Header lines that say where an answer comes from."""
        key = (pick.engine_name, pick.reason, pick.revision, attempts)
        found = self._said.get(key)
        if found is None:
            if len(self._said) >= _MOST_KEPT:
                self._said.clear()
            found = self._said[key] = b"".join(
                made(name, value).raw
                for name, value in (
                    (names.HEADER_ENGINE, pick.engine_name),
                    (names.HEADER_REASON, pick.reason),
                    (names.HEADER_TABLE, str(pick.revision)),
                    (names.HEADER_ATTEMPTS, str(attempts)),
                )
            )
        return found

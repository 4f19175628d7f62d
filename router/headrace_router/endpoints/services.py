"""Engines' Services, followed: from EndpointSlices where the API server tells, else by name; into the selection.

Beside the routing-weight path. Tables name Services, never pods, so that pods come and go without a table. What is
known stays while nothing better is; requests in flight are untouched. Must not hold up a request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from headrace_api.table import RoutingTable, TableEngine
from headrace_api.urls import endpoint_url
from headrace_router.background import for_ever
from headrace_router.core.selection import Selector
from headrace_router.core.view import TableView
from headrace_router.endpoints.dns import DnsServices
from headrace_router.endpoints.slices import NamespaceSlices
from headrace_router.kube.client import KubeApi
from headrace_router.upstream.resolve import Resolver

log = logging.getLogger("headrace.router")

# Seconds from the first table on that readiness waits for the first word on Services, at most.
SETTLED_AFTER: Final = 5.0


class Wanted(NamedTuple):
    """What an engine's addresses are made from."""

    namespace: str
    port: int
    scheme: str
    name: str
    host: str


class Services:
    """All Services of the tables in force. To be made inside a running loop.

    Args:
        selector: told of every change.
        api: None: everything by name.
        chance: numbers from 0 to 1.
        changed: called after addresses of an engine changed.
        resolver: of names.
    """

    def __init__(
        self,
        selector: Selector,
        api: KubeApi | None,
        *,
        chance: Callable[[], float],
        changed: Callable[[], None],
        resolver: Resolver,
    ) -> None:
        self._selector = selector
        self._api = api
        self._chance = chance
        self._told = changed
        self._engines: dict[str, Wanted] = {}
        self._of_host: dict[str, list[str]] = {}
        self._namespaces: dict[str, NamespaceSlices] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._dns = DnsServices(resolver, chance=chance, changed=self._resolved)
        self._since: float | None = None
        self._settled = False
        self._ended: set[asyncio.Task[None]] = set()

    def known(self, tables: Sequence[RoutingTable]) -> dict[str, Collection[str]]:
        """Addresses by engine of the tables' Services, as far as they are known already."""
        found: dict[str, Collection[str]] = {}
        for engine in (engine for table in tables for engine in table.engines):
            if (wanted := _wanted(engine)) is not None and (urls := self._urls(wanted)) is not None:
                found[engine.id] = urls
        return found

    def follow(self, view: TableView) -> None:
        """Called with each new view, in the loop: follow its Services, and no others."""
        wanted = {engine.id: _wanted(engine.config) for engine in view.engines.values()}
        self._engines = {engine: service for engine, service in wanted.items() if service is not None}
        self._of_host = {}
        for engine, service in self._engines.items():
            self._of_host.setdefault(service.host, []).append(engine)
        if self._since is None:
            self._since = asyncio.get_running_loop().time()
        namespaces = {service.namespace for service in self._engines.values()} if self._api is not None else set()
        for namespace in self._namespaces.keys() - namespaces:
            self._stop(namespace)
        for namespace in sorted(namespaces - self._namespaces.keys()):
            self._start(namespace)
        self._want_names()
        self._tell(self._engines)
        self.settled()

    def settled(self) -> bool:
        """Whether there was a first word on all that the first tables named; never False for long, nor ever again."""
        if self._settled or self._since is None:
            return True
        self._settled = asyncio.get_running_loop().time() - self._since >= SETTLED_AFTER or (
            self._dns.answered()
            and all(slices.known or slices.fault is not None for slices in self._namespaces.values())
        )
        return self._settled

    def unreached(self, engine: str) -> None:
        """An address of the engine can't be connected to."""
        if (wanted := self._engines.get(engine)) is not None:
            self._dns.doubt(wanted.host)

    def detail(self) -> dict[str, object]:
        """For readiness detail: where the word on Services comes from, and what is wrong."""
        by_name = [wanted.host for wanted in self._engines.values() if self._by_name(wanted)]
        troubles = {host: trouble for host in sorted(set(by_name)) if (trouble := self._dns.trouble(host)) is not None}
        return {
            "settled": self.settled(),
            "watched": {name: slices.fault and slices.fault.reason for name, slices in self._namespaces.items()},
            "byName": len(by_name),
            "unresolved": dict(list(troubles.items())[:20]),
        }

    async def run(self) -> None:
        """Resolve names until cancelled."""
        await self._dns.follow()

    async def close(self) -> None:
        """End all watches."""
        for namespace in list(self._namespaces):
            self._stop(namespace)
        await asyncio.gather(*self._ended, return_exceptions=True)

    def _start(self, namespace: str) -> None:
        assert self._api is not None
        slices = NamespaceSlices(self._api, namespace, chance=self._chance, changed=self._changed)
        self._namespaces[namespace] = slices
        what = f"endpoints of {namespace}"
        self._tasks[namespace] = asyncio.create_task(for_ever(what, slices.follow), name=what)

    def _stop(self, namespace: str) -> None:
        del self._namespaces[namespace]
        task = self._tasks.pop(namespace)
        task.cancel()
        self._ended.add(task)
        task.add_done_callback(self._ended.discard)

    def _by_name(self, wanted: Wanted) -> bool:
        slices = self._namespaces.get(wanted.namespace)
        return slices is None or slices.by_name

    def _urls(self, wanted: Wanted) -> Collection[str] | None:
        """Addresses of a Service now; None: nothing is known of it, or nothing new."""
        if self._by_name(wanted):
            addresses = self._dns.addresses(wanted.host)
            if addresses is None:
                return None
            return list(_usable(addresses, wanted))
        slices = self._namespaces[wanted.namespace]
        return slices.urls(wanted.name, wanted.port, wanted.scheme) if slices.known else None

    def _want_names(self) -> None:
        self._dns.want({wanted.host for wanted in self._engines.values() if self._by_name(wanted)})

    def _changed(self, namespace: str, names: Iterable[str] | None) -> None:
        if namespace not in self._namespaces:
            return  # one that was given up
        if names is None:
            self._want_names()
            self._tell(engine for engine, wanted in self._engines.items() if wanted.namespace == namespace)
        else:
            self._tell(engine for name in names for engine in self._of_host.get(_host(name, namespace), ()))

    def _resolved(self, host: str) -> None:
        self._tell(self._of_host.get(host, ()))

    def _tell(self, engines: Iterable[str]) -> None:
        any_changed = False
        for engine in engines:
            urls = self._urls(self._engines[engine])
            if urls is not None and self._selector.set_endpoints(engine, urls):
                any_changed = True
                if not urls:
                    log.warning("engine %s: its Service has no ready endpoint", engine)
        if any_changed:
            self._told()


def _usable(addresses: Iterable[str], wanted: Wanted) -> Iterator[str]:
    for address in addresses:
        try:
            yield endpoint_url(address, wanted.port, wanted.scheme)
        except ValueError as error:
            log.warning("Service %s: %s", wanted.host, error)


def _wanted(engine: TableEngine) -> Wanted | None:
    service = engine.service
    if service is None:
        return None
    scheme = "http" if engine.tls is None else "https"
    return Wanted(service.namespace, service.port, scheme, service.name, _host(service.name, service.namespace))


def _host(name: str, namespace: str) -> str:
    """A Service's name in the cluster's DNS; the resolver's search list has the cluster's domain."""
    return f"{name}.{namespace}.svc"

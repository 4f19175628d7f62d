"""All EndpointSlices of one namespace, watched: who is behind each of its Services now.

Beside the routing-weight path. One watch a namespace, told apart here, so that thousands of engines cost no more
requests than one. Which target port a Service's port is stands in the Service: all of them are listed with the slices,
and again when one is named that isn't known. Must not keep more of a slice than is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from headrace_api.endpoint_slices import SERVICE_LABEL, read_endpoints, service_of
from headrace_api.urls import endpoint_url
from headrace_router.kube.client import ApiFault, FaultKind, KubeApi
from headrace_router.kube.watch import MAX_PAGE, Reflector

log = logging.getLogger("headrace.router")

# Seconds between two lists of Services; longer each time while they are refused.
SERVICES_EVERY: Final = 10.0
SERVICES_SELDOM: Final = 300.0
# Engines wait this long for the first list: slices alone mostly tell which port is meant.
FIRST_SERVICES_WITHIN: Final = 2.0
# An API server that has just started refuses what it will grant in a moment: what it said before is better than names.
REFUSED_FOR: Final = 20.0

Object = dict[str, Any]


class _Services(msgspec.Struct):
    items: list[Object] | None = None


_SERVICES: Final = msgspec.json.Decoder(_Services)


class NamespaceSlices:
    """One namespace. changed: called with the names of Services whose endpoints may have changed (None: any).

    known: the slices were listed once, and Services were asked for. fault: why slices can't be watched now.
    """

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        *,
        chance: Callable[[], float],
        changed: Callable[[str, Iterable[str] | None], None],
    ) -> None:
        self.namespace = namespace
        self.known = False
        self.fault: ApiFault | None = None
        self._api = api
        self._changed = changed
        self._slices: dict[str, dict[str, Object]] = {}
        self._services: dict[str, Object] = {}
        self._urls: dict[str, dict[tuple[int, str], Mapping[str, str]]] = {}
        # (Service, port) that Services were asked for since the last list of slices.
        self._asked: set[tuple[str, int]] = set()
        self._ask_services = asyncio.Event()
        self._refused_at: float | None = None
        self._refused_long = False
        self._reflector = Reflector(
            api,
            f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
            {"labelSelector": SERVICE_LABEL},
            kind=Object,
            chance=chance,
            listed=self._listed,
            changed=self._event,
            told=self._told,
        )

    @property
    def by_name(self) -> bool:
        """Whether names must do: the API server never told, or has long refused to and not told since."""
        return self.fault is not None and (self._refused_long or not self.known)

    async def follow(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reflector.run(), name=f"endpoints of {self.namespace}")
            group.create_task(self._list_services(), name=f"services of {self.namespace}")

    def urls(self, service: str, port: int, scheme: str) -> Mapping[str, str]:
        """Addresses behind a Service that take new requests now, and whose they are (a pod's uid, "" where that isn't
        known); the same object until they may have changed."""
        known = self._urls.setdefault(service, {})
        found = known.get((port, scheme))
        if found is None:
            found = known[port, scheme] = dict(self._read_urls(service, port, scheme))
        return found

    def _read_urls(self, service: str, port: int, scheme: str) -> Iterator[tuple[str, str]]:
        slices = self._slices.get(service, {})
        known = self._services.get(service)
        if slices and not _has_port(known, port) and (service, port) not in self._asked:
            self._asked.add((service, port))
            self._ask_services.set()
        for endpoint in read_endpoints(slices.values(), port, known):
            if endpoint.ready:
                try:
                    yield endpoint_url(endpoint.host, endpoint.port, scheme), endpoint.uid
                except ValueError as error:
                    log.warning("Service %s/%s: %s", self.namespace, service, error)

    def _listed(self, found: list[Object]) -> None:
        before, self._slices = self._slices, {}
        for one in found:
            self._keep(one)
        owners = before.keys() | self._slices.keys()
        self._asked.clear()
        self._ask_services.set()
        self._tell({owner for owner in owners if _versions(before, owner) != _versions(self._slices, owner)})

    def _event(self, kind: str, one: Object) -> None:
        service, name = self._whose(one)
        # A slice may be given to another Service, or to none.
        owners = {owner for owner, slices in self._slices.items() if name in slices} if kind != "ADDED" else set()
        for owner in owners:
            del self._slices[owner][name]
            if not self._slices[owner]:
                del self._slices[owner]
        if kind != "DELETED":
            self._keep(one)
        self._tell(owners | {service})

    def _keep(self, one: Object) -> None:
        service, name = self._whose(one)
        if service:
            kept = {"version": _version(one), "ports": one.get("ports"), "endpoints": one.get("endpoints")}
            self._slices.setdefault(service, {})[name] = kept

    def _tell(self, services: Iterable[str] | None) -> None:
        """The endpoints of these may have changed; None: of any."""
        if services is None:
            self._urls = {}
        else:
            for service in services:
                self._urls.pop(service, None)
        self._changed(self.namespace, services)

    def _whose(self, one: Object) -> tuple[str, str]:
        """The slice's Service and its own name; what is of another namespace is nobody's."""
        namespace, _, service = service_of(one).partition("/")
        name = _mapping(one.get("metadata")).get("name")
        ours = namespace == self.namespace and isinstance(name, str)
        return (service, str(name)) if ours else ("", "")

    def _told(self, fault: ApiFault | None) -> None:
        before, by_name = self.fault, self.by_name
        self.fault = fault
        now = asyncio.get_running_loop().time()
        if fault is None:
            self._refused_at, self._refused_long = None, False
        elif fault.kind is FaultKind.REFUSED:
            self._refused_at = now if self._refused_at is None else self._refused_at
            self._refused_long = self._refused_long or now - self._refused_at >= REFUSED_FOR
        if fault is not None and before is None:
            log.warning("EndpointSlices of namespace %s can't be watched: %s", self.namespace, fault.reason)
        if fault is None and before is not None:
            log.info("EndpointSlices of namespace %s are watched", self.namespace)
        if (before is None) != (fault is None) or self.by_name != by_name:
            self._changed(self.namespace, None)

    async def _list_services(self) -> None:
        """Whenever asked for, but not often; without the right to, the slices' own ports must do."""
        wait = SERVICES_EVERY
        while True:
            await self._ask_services.wait()
            self._ask_services.clear()
            services = self._services
            try:
                async with asyncio.timeout(None if self.known else FIRST_SERVICES_WITHIN):
                    services = await self._read_services()
                wait = SERVICES_EVERY
            except (ApiFault, TimeoutError) as fault:
                log.info("Services of namespace %s can't be listed: %s", self.namespace, fault or "no answer yet")
                refused = isinstance(fault, ApiFault) and fault.kind is FaultKind.REFUSED
                wait = min(SERVICES_SELDOM, 2.0 * wait) if refused else SERVICES_EVERY
                self._ask_services.set()
            if services != self._services or not self.known:
                self._services = services
                self.known = True
                self._tell(None)
            await asyncio.sleep(wait)

    async def _read_services(self) -> dict[str, Object]:
        """Ports of all Services.

        Raises:
            ApiFault: they can't be read.
        """
        path = f"/api/v1/namespaces/{self.namespace}/services"
        raw = await self._api.get(path, {}, MAX_PAGE)
        try:
            found = (await asyncio.to_thread(_SERVICES.decode, raw)).items or []
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ApiFault(FaultKind.BROKEN, f"{path} can't be read: {self._api.shown(str(error))}") from error
        return {
            str(_mapping(one.get("metadata")).get("name")): {"spec": {"ports": _mapping(one.get("spec")).get("ports")}}
            for one in found
        }


def _version(one: Object) -> object:
    return _mapping(one.get("metadata")).get("resourceVersion")


def _versions(slices: Mapping[str, Mapping[str, Object]], owner: str) -> dict[str, object]:
    return {name: kept["version"] for name, kept in slices.get(owner, {}).items()}


def _has_port(service: Object | None, port: int) -> bool:
    ports = _mapping(_mapping(service).get("spec")).get("ports")
    return isinstance(ports, list) and any(_mapping(entry).get("port") == port for entry in ports)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}

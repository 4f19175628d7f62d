"""A Service's endpoints, read from its EndpointSlices: who is behind it, on which port, and who takes new requests.

Shared by the operator, which counts ready replicas, and by the router, which sends requests there.
Pure; objects come as parsed JSON and may be anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

SERVICE_LABEL = "kubernetes.io/service-name"
"""Label of an EndpointSlice that names its Service."""


class Endpoint(NamedTuple):
    """One pod behind a Service: host and port to connect to; zone, node and pod where the slice names them.

    ready: takes new requests. A terminating pod is not ready, even while it still serves old ones.
    terminating: the pod is being deleted on somebody's word; one that is merely not ready is not. uid: the pod's own,
    which tells it from another at the same address.
    """

    host: str
    port: int
    ready: bool
    zone: str = ""
    node: str = ""
    pod: str = ""
    terminating: bool = False
    uid: str = ""

    @property
    def url(self) -> str:
        """``http://host:port``; IPv6 in brackets."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


def service_of(endpoint_slice: Mapping[str, Any]) -> str:
    """``namespace/name`` of the slice's Service; empty when it has none."""
    metadata = _mapping(endpoint_slice.get("metadata"))
    name = _mapping(metadata.get("labels")).get(SERVICE_LABEL)
    return f"{metadata.get('namespace', '')}/{name}" if isinstance(name, str) and name else ""


def read_endpoints(
    slices: Iterable[Mapping[str, Any]], port: int, service: Mapping[str, Any] | None = None
) -> tuple[Endpoint, ...]:
    """Endpoints of one Service, sorted by address, each once; a pod with addresses of both families once, by IPv4.

    port: the Service's. A slice names target ports, so which of them it is follows from the Service where that is
    given, else from the number, else the slice must have just one port.
    """
    wanted = _port_name(service, port)
    found: dict[tuple[str, int], Endpoint] = {}
    for one in slices:
        target = _target_port(one, port, wanted)
        if target is None:
            continue
        for entry in _list(one.get("endpoints")):
            for endpoint in _endpoints(_mapping(entry), target):
                known = found.get((endpoint.host, endpoint.port))
                # A pod that moves between slices is in both for a moment; either may be the newer word.
                if known is None or endpoint.ready:
                    found[endpoint.host, endpoint.port] = endpoint
    return tuple(_each_pod_once([found[key] for key in sorted(found)]))


def _each_pod_once(endpoints: list[Endpoint]) -> Iterable[Endpoint]:
    """A Service of both families has a slice of each: one pod there is one replica, not two."""
    by_ipv4 = {who: one for one in endpoints if ":" not in one.host and (who := one.uid or one.pod)}
    for one in endpoints:
        twin = by_ipv4.get(one.uid or one.pod) if ":" in one.host else None
        if twin is None or (one.ready and not twin.ready):
            yield one


def _endpoints(entry: Mapping[str, Any], port: int) -> Iterable[Endpoint]:
    conditions = _mapping(entry.get("conditions"))
    # Absent means ready (the EndpointSlice API), and a terminating pod takes nothing new.
    terminating = conditions.get("terminating") is True
    ready = conditions.get("ready") is not False and not terminating
    addresses = [address for address in _list(entry.get("addresses")) if isinstance(address, str) and address]
    # All addresses of one endpoint are fungible; clients use the first (the EndpointSlice API).
    target = _mapping(entry.get("targetRef"))
    for address in addresses[:1]:
        yield Endpoint(
            host=address,
            port=port,
            ready=ready,
            zone=_text(entry.get("zone")),
            node=_text(entry.get("nodeName")),
            pod=_text(target.get("name")),
            terminating=terminating,
            uid=_text(target.get("uid")),
        )


def _port_name(service: Mapping[str, Any] | None, port: int) -> str | None:
    """The name that the Service gives its port; None: it isn't known."""
    for entry in _list(_mapping(_mapping(service).get("spec")).get("ports")):
        if _mapping(entry).get("port") == port:
            return _text(_mapping(entry).get("name"))
    return None


def _target_port(one: Mapping[str, Any], port: int, name: str | None) -> int | None:
    ports = [entry for entry in map(_mapping, _list(one.get("ports"))) if _is_port(entry.get("port"))]
    if name is not None:
        ports = [entry for entry in ports if _text(entry.get("name")) == name]
    elif len(ports) > 1:
        ports = [entry for entry in ports if entry["port"] == port]
    return int(ports[0]["port"]) if len(ports) == 1 else None


def _is_port(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 65535


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""

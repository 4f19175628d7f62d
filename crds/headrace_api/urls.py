"""Engines' addresses in one canonical form, so that they are compared, joined with a path and shown alike.

Used where a spec is checked, where a table is built and where a router reads it. ``http://A:8000/`` and
``http://a:8000`` are one engine; IPv6 stands in brackets (RFC 3986, 3.2.2); a path can't be joined twice, because
none is accepted.
"""

from __future__ import annotations

import json
import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

_PORT = r"[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
_HOST = r"\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?"
# What RE2 can tell; normal_url tells the rest (whether the address in brackets is one).
URL_PATTERN: Final = rf"^https?://({_HOST})(:({_PORT}))?/?$"
MAX_URL: Final = 512

_PARTS = re.compile(r"(?:(?P<scheme>[^:/?#]*)://)?(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?P<rest>.*)", re.DOTALL)
_HOST_PORT = re.compile(r"(?P<host>\[[^\]]*\]|[^:]*)(?::(?P<port>.*))?", re.DOTALL)
_PORT_NUMBER = re.compile(_PORT)
_DIGITS = re.compile(r"[0-9.]+")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?)*")
_RIGHT = "https://engine.example:8443"
_SHOWN = 120
_MAX_HOST = 253
# What is mapped or translated into IPv6 leads to the IPv4 address in it.
_NAT64 = IPv6Network("64:ff9b::/96")


def normal_url(text: str) -> str:
    """The canonical form: lower case, no trailing slash, the shortest form of an IPv6 address.

    Raises:
        ValueError: not ``http(s)://host[:port]``; the message shows the text and what would be right, but never a
            password in it.
    """
    parts = _PARTS.fullmatch(text)
    assert parts is not None  # every part may be empty
    scheme, authority, path, rest = parts.group("scheme", "authority", "path", "rest")
    shown = without_credentials(text)
    if "@" in authority:
        raise ValueError(f"{shown} carries credentials; right would be the address alone, and endpoints.auth")
    if scheme is None:
        raise ValueError(f'{shown} has no scheme; right would be "http://{_authority(shown, "http", authority)}"')
    if scheme.lower() not in ("http", "https"):
        raise ValueError(f"{shown} has an unknown scheme; right would be http or https")
    base = f"{scheme.lower()}://{_authority(shown, scheme.lower(), authority)}"
    if path not in ("", "/") or rest:
        raise ValueError(f'{shown} has a path; right would be "{base}", the request brings its own')
    return base


def endpoint_url(address: str, port: int, scheme: str = "http") -> str:
    """The canonical URL of an address (name, IPv4 or bare IPv6) and a port.

    Raises:
        ValueError: the address is empty (a pod without one yet), or no address.
    """
    if not address:
        raise ValueError("the address is empty; right would be a name or an IP address")
    host = f"[{address}]" if ":" in address else address
    return normal_url(f"{scheme}://{host}:{port}")


def is_anybodys(address: str) -> bool:
    """Whether an IP address means something else on every machine: link-local (a cloud's metadata, which gives out
    credentials, is there), unspecified, multicast. No engine has such a one; API servers refuse them in EndpointSlices.
    """
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, IPv6Address):
        inner = found.ipv4_mapped or (IPv4Address(int(found) & 0xFFFFFFFF) if found in _NAT64 else None)
        found = inner or found
    return found.is_link_local or found.is_unspecified or found.is_multicast or int(found) == 2**32 - 1


def without_credentials(text: str) -> str:
    """The text as a message may show it: quoted, cut to a line's part, user and password left out."""
    start, scheme_end, rest = text.partition("://")
    if not scheme_end:
        start, rest = "", text
    secret, at, host = rest.rpartition("@")
    shown = f"{start}{scheme_end}…@{host}" if at and secret else text
    return json.dumps(shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "…", ensure_ascii=False)


def _authority(shown: str, scheme: str, authority: str) -> str:
    if authority.count(":") > 1 and not authority.startswith("["):
        right = _bracketed(authority)
        raise ValueError(f'{shown} has an IPv6 address without brackets; right would be "{scheme}://{right}"')
    parts = _HOST_PORT.fullmatch(authority)
    if parts is None or not parts["host"]:
        raise ValueError(f'{shown} names no host; right would be "{_RIGHT}"')
    host = _host(shown, parts["host"])
    if parts["port"] is None:
        return host
    if not _PORT_NUMBER.fullmatch(parts["port"]):
        raise ValueError(f"{shown} has no such port; right would be 1 to 65535")
    return f"{host}:{parts['port']}"


def _host(shown: str, host: str) -> str:
    if host.startswith("["):
        address = _address(IPv6Address, host[1:-1])
        if address is None:
            raise ValueError(f'{shown} has no IPv6 address in its brackets; right would be "http://[fd00::2]:8000"')
        return f"[{_somebodys(shown, address)}]"
    if _DIGITS.fullmatch(host):
        address = _address(IPv4Address, host)
        if address is None:
            raise ValueError(f'{shown} has no IPv4 address for its host; right would be "http://10.0.0.5:8000"')
        return _somebodys(shown, address)
    if len(host) > _MAX_HOST or not _NAME.fullmatch(host):
        raise ValueError(f'{shown} has no host name; right would be "{_RIGHT}"')
    return host.lower()


def _somebodys(shown: str, address: str) -> str:
    if is_anybodys(address):
        raise ValueError(
            f"{shown} is link-local, multicast or no address of a machine; right would be the engine's own"
        )
    return address


def _address(kind: type[IPv4Address] | type[IPv6Address], text: str) -> str | None:
    """The shortest form of an address; None when it is none. A zone (``%eth0``) means nothing on another machine."""
    if "%" in text:
        return None
    try:
        return kind(text).compressed
    except ValueError:
        return None


def _bracketed(authority: str) -> str:
    """What was probably meant by an IPv6 address without brackets, with or without a port behind it."""
    address, _, port = authority.rpartition(":")
    if len(port) > 3 and _PORT_NUMBER.fullmatch(port) and _address(IPv6Address, address):
        return f"[{address}]:{port}"
    return f"[{authority}]" if _address(IPv6Address, authority) else "[fd00::2]:8000"

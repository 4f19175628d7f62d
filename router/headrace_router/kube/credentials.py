"""Who this pod is to the API server: address, token and certificate authority, read again as they rotate.

Beside the routing-weight path. The kubelet replaces token and authority in their files while the pod runs, so neither
is kept longer than a request. Must never put a token into a message: what can't be one is told by its length alone.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MAX_TOKEN: Final = 16_384
MAX_CA: Final = 2**20
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]+")


class NoCredentials(Exception):
    """There is no API server to be asked, or nothing to prove who asks; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """url: of the API server, without a trailing slash. token, ca: files; none of either: none is used."""

    url: str
    token: Path | None = None
    ca: Path | None = None

    def read_token(self) -> str:
        """The token as it stands in its file now; empty without a file.

        Raises:
            NoCredentials: the file holds none.
        """
        if self.token is None:
            return ""
        text = _read(self.token, MAX_TOKEN, "token").decode("latin-1").strip()
        if not _TOKEN.fullmatch(text):
            raise NoCredentials(f"{self.token} holds no token: {len(text)} characters, not all of them a token's")
        return text

    def read_ca(self) -> bytes:
        """The authority's certificates as they stand in their file now; empty without a file: the system's.

        Raises:
            NoCredentials: the file can't be read.
        """
        return _read(self.ca, MAX_CA, "certificate") if self.ca is not None else b""

    def context(self, ca: bytes) -> ssl.SSLContext | None:
        """TLS that trusts ``ca`` alone (the system's authorities where it is empty); None for http.

        Raises:
            NoCredentials: these are no certificates.
        """
        if self.url.startswith("http://"):
            return None
        try:
            return ssl.create_default_context(cadata=ca.decode("ascii") if ca else None)
        except (ssl.SSLError, ValueError) as error:
            raise NoCredentials(f"{self.ca} holds no certificates: {error}") from error


def in_cluster(environment: Mapping[str, str], account: Path = SERVICE_ACCOUNT) -> Credentials:
    """A pod's own.

    Raises:
        NoCredentials: this is no pod, or its service account isn't mounted.
    """
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise NoCredentials("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is no pod")
    token, ca = account / "token", account / "ca.crt"
    if not token.exists():
        raise NoCredentials(f"{token} does not exist; right would be automountServiceAccountToken: true")
    address = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Credentials(address, token, ca if ca.exists() else None)


def stated(url: str, token: Path | None, ca: Path | None) -> Credentials:
    """What the command line states.

    Raises:
        NoCredentials: the address is none, or would carry a token in the clear.
    """
    right = "right would be https://10.0.0.1:6443"
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise NoCredentials(f"{_shown(url)} is no address of an API server; {right}") from error
    if not fits or "@" in parts.netloc or parts.query or parts.fragment or parts.hostname is None:
        raise NoCredentials(f"{_shown(url)} is no address of an API server; {right}")
    if parts.scheme == "http" and token is not None and not _is_loopback(parts.hostname):
        raise NoCredentials(f"{_shown(url)} would carry the token in the clear; right would be https")
    return Credentials(url.rstrip("/"), token, ca)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _shown(url: str) -> str:
    return repr(url.rpartition("@")[2][:80])


def _read(path: Path, most: int, what: str) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(most + 1)
    except OSError as error:
        raise NoCredentials(f"{path} can't be read: {error.strerror or error}") from error
    if not raw or len(raw) > most:
        raise NoCredentials(f"{path} holds no {what}: {'empty' if not raw else f'over {most} bytes'}")
    return raw

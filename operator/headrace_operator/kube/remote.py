"""The kubeconfig of another cluster, taken strictly: a server, whom to trust, who we are. Nothing that runs.

On the routing-weight path, when a file changes. A kubeconfig can name programs to run, files to read and proxies to
ask; whoever may write one would have the operator do that. So only inline data is taken, and everything else is
refused by name. Messages never carry a value out of the file.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import urllib3
import yaml
from kubernetes import client

from headrace_operator.kube.client import KubeClient

MAX_BYTES: Final = 2**20
CONNECTIONS: Final = 8
CLUSTER_FIELDS: Final = frozenset({"server", "certificate-authority-data"})
USER_FIELDS: Final = frozenset({"token", "client-certificate-data", "client-key-data"})
CONTEXT_FIELDS: Final = frozenset(
    {"cluster", "user", "namespace"}
)  # the namespace is not used: tables go to the policy's


class KubeconfigRefused(Exception):
    """The file can't be taken; the message says which field, and what would be right."""


class Access(NamedTuple):
    """What a kubeconfig comes to. authority, certificate, key: PEM; empty where there is none."""

    server: str
    authority: bytes
    token: str
    certificate: bytes
    key: bytes


def read_access(path: Path) -> Access:
    """The one access that the file's current context names.

    Raises:
        KubeconfigRefused: it can't be read, or says more or less than is taken.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise KubeconfigRefused(f"{path}: {error.strerror}; right would be a mounted kubeconfig") from None
    if len(data) > MAX_BYTES:
        raise KubeconfigRefused(f"{path}: more than {MAX_BYTES} bytes")
    try:
        raw = yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise KubeconfigRefused(f"{path}: not YAML; right would be a kubeconfig") from None
    return _access(raw, str(path))


def remote_client(name: str, access: Access, may_write: Callable[[], bool]) -> KubeClient:
    """A client that proves itself with ``access`` and trusts only its authority (none: the system's).

    Raises:
        KubeconfigRefused: certificate, key or authority are not what they should be.
    """
    settings = client.Configuration(host=access.server)
    settings.retries = False
    if access.token:
        settings.api_key["authorization"] = access.token
        settings.api_key_prefix["authorization"] = "Bearer"
    api = client.ApiClient(settings)
    # A pool with its own TLS context: no temporary files with keys, no proxy out of the environment.
    api.rest_client.pool_manager = urllib3.PoolManager(
        ssl_context=_context(access), maxsize=CONNECTIONS, retries=urllib3.Retry(False)
    )
    return KubeClient(api, name, may_write)


def _context(access: Access) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=access.authority.decode("ascii") if access.authority else None)
        if access.certificate:
            _present(context, access.certificate + b"\n" + access.key)
    except (ssl.SSLError, ValueError, OSError):
        raise KubeconfigRefused(
            "certificate-authority-data, client-certificate-data or client-key-data is no PEM that fits"
        ) from None
    return context


def _present(context: ssl.SSLContext, pem: bytes) -> None:
    """Load certificate and key from memory; the ssl module takes only files."""
    handle = os.memfd_create("client-certificate")
    try:
        with open(handle, "wb", closefd=False) as file:
            file.write(pem)
        context.load_cert_chain(f"/proc/self/fd/{handle}", password=_no_password)
    finally:
        os.close(handle)


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def _access(raw: object, where: str) -> Access:
    config = _mapping(raw, where)
    current = config.get("current-context")
    if not isinstance(current, str) or not current:
        raise KubeconfigRefused(f"{where}: current-context: missing; right would be the name of one of contexts")
    context = _named(config, "contexts", "context", current, where)
    _only(context, CONTEXT_FIELDS, f"{where}: context")
    cluster = _named(config, "clusters", "cluster", context.get("cluster"), where)
    _only(cluster, CLUSTER_FIELDS, f"{where}: cluster")
    user = _named(config, "users", "user", context.get("user"), where)
    _only(user, USER_FIELDS, f"{where}: user")
    certificate = _decoded(user, "client-certificate-data", where)
    key = _decoded(user, "client-key-data", where)
    token = user.get("token", "")
    if not isinstance(token, str) or not token.isascii() or any(not 32 < ord(letter) < 127 for letter in token):
        raise KubeconfigRefused(f"{where}: user.token: right would be one line of text")
    if bool(certificate) != bool(key) or not (token or certificate):
        raise KubeconfigRefused(f"{where}: user: right would be token, or client-certificate-data with client-key-data")
    return Access(
        _server(cluster, where), _decoded(cluster, "certificate-authority-data", where), token, certificate, key
    )


def _server(cluster: Mapping[str, Any], where: str) -> str:
    server = cluster.get("server")
    try:
        parts = urlsplit(server) if isinstance(server, str) else None
        good = (
            parts is not None
            and parts.scheme == "https"
            and bool(parts.hostname)
            and not (parts.query or parts.fragment)
        )
        good = good and parts is not None and parts.username is None and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good:
        raise KubeconfigRefused(f"{where}: cluster.server: right would be https://HOST:PORT")
    return str(server).rstrip("/")


def _only(found: Mapping[str, Any], fields: frozenset[str], where: str) -> None:
    """Refuse every other field: programs, files, proxies, other people's names, and TLS without a check."""
    others = sorted(str(field) for field in found if field not in fields)
    if others:
        raise KubeconfigRefused(f"{where}.{others[0]}: not taken here; right would be only {', '.join(sorted(fields))}")


def _named(config: Mapping[str, Any], group: str, field: str, name: object, where: str) -> Mapping[str, Any]:
    entries = config.get(group)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and entry.get("name") == name and isinstance(name, str):
            return _mapping(entry.get(field), f"{where}: {field}")
    raise KubeconfigRefused(f"{where}: {group}: none is the one that the current context names")


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise KubeconfigRefused(f"{where}: not a mapping; right would be a kubeconfig")
    return value


def _decoded(found: Mapping[str, Any], field: str, where: str) -> bytes:
    text = found.get(field, "")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise KubeconfigRefused(f"{where}: {field}: right would be base64 of PEM") from None

"""Certificate authorities and certificates for tests, and folders as the kubelet mounts them."""

from __future__ import annotations

import dataclasses
import os
import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import trustme

from headrace_api.table import RoutingTable, TableTls
from headrace_router.server.access_files import AccessFiles


@dataclass(frozen=True)
class Issued:
    """A certificate and its key, as PEM."""

    cert: bytes
    key: bytes

    def server(self) -> ssl.SSLContext:
        """What a server with it needs."""
        return self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def client(self, authority: Authority) -> ssl.SSLContext:
        """What a client with it needs, that trusts the server's authority."""
        return self._load(authority.client())

    def _load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        with tempfile.TemporaryDirectory() as folder:
            context.load_cert_chain(*self.write(Path(folder)))
        return context

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write them as tls.crt and tls.key."""
        folder.mkdir(parents=True, exist_ok=True)
        cert, key = folder / "tls.crt", folder / "tls.key"
        cert.write_bytes(self.cert)
        key.write_bytes(self.key)
        return cert, key


class Authority:
    """Signs certificates; its own is ``cert``, PEM."""

    def __init__(self) -> None:
        self._ca = trustme.CA()
        self.cert = self._ca.cert_pem.bytes()

    def client(self) -> ssl.SSLContext:
        """What a client needs that trusts it."""
        return ssl.create_default_context(cadata=self.cert.decode())

    def issue(self, *names: str, days: int = 30) -> Issued:
        """A certificate for DNS names and IP addresses. days: negative, it has expired so long ago."""
        now = datetime.now(UTC)
        end = now + timedelta(days=days)
        issued = self._ca.issue_cert(*names, not_before=min(now, end) - timedelta(days=1), not_after=end)
        chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
        return Issued(chain, issued.private_key_pem.bytes())


class MountedSecret:
    """A folder as the kubelet mounts a Secret or ConfigMap: files are links through ``..data``, swapped as one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._version = 0
        folder.mkdir(parents=True)

    def put(self, **contents: bytes) -> None:
        """Swap all contents; ``__`` in a name stands for a dot."""
        files = {name.replace("__", "."): content for name, content in contents.items()}
        self._version += 1
        version = self.folder / f"..{self._version}"
        version.mkdir()
        for name, content in files.items():
            (version / name).write_bytes(content)
        (self.folder / "..data_tmp").symlink_to(version.name)
        os.replace(self.folder / "..data_tmp", self.folder / "..data")  # noqa: PTH105
        for name in files:
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")
        for link in self.folder.iterdir():
            if link.is_symlink() and not link.name.startswith("..") and link.name not in files:
                link.unlink()


def trusted_engines(
    table: RoutingTable, access: AccessFiles, authority: Authority, credentials: Path
) -> tuple[RoutingTable, AccessFiles]:
    """The same with all engines believed by an authority, whose ConfigMap is mounted below ``credentials``."""
    MountedSecret(credentials / table.policy_namespace / "configmaps" / "ca").put(ca__crt=authority.cert)
    tls = TableTls(ca_config_map="ca", ca_key="ca.crt")
    engines = tuple(msgspec.structs.replace(engine, tls=tls) for engine in table.engines)
    return msgspec.structs.replace(table, engines=engines), dataclasses.replace(access, credentials=credentials)

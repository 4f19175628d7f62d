"""Certificate authorities and certificates for tests, made by the openssl program."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Issued:
    """A certificate and its key, as PEM."""

    cert: bytes
    key: bytes

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write them as tls.crt and tls.key."""
        folder.mkdir(parents=True, exist_ok=True)
        cert, key = folder / "tls.crt", folder / "tls.key"
        cert.write_bytes(self.cert)
        key.write_bytes(self.key)
        return cert, key


class Authority:
    """Signs certificates. folder: where its files are."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._count = 0
        _new_key(folder / "ca.key")
        _openssl("req", "-x509", "-new", "-key", folder / "ca.key", "-subj", f"/CN={name}", "-days", "30",
                 "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-out", folder / "ca.crt")  # fmt: skip
        self.path = folder / "ca.crt"
        self.cert = self.path.read_bytes()

    def issue(self, *names: str, days: int = 30) -> Issued:
        """A certificate for DNS names and IP addresses; the first is its common name. days: negative, it has expired."""
        self._count += 1
        stem = self._folder / f"issued-{self._count}"
        key, request, cert, extensions = (stem.with_suffix(suffix) for suffix in (".key", ".csr", ".crt", ".ext"))
        stated = ",".join(f"IP:{name}" if name[0].isdigit() else f"DNS:{name}" for name in names)
        extensions.write_text(f"subjectAltName={stated}\n")
        _new_key(key)
        _openssl("req", "-new", "-key", key, "-subj", f"/CN={names[0]}", "-out", request)
        _openssl("x509", "-req", "-in", request, "-CA", self.path, "-CAkey", self._folder / "ca.key", "-CAcreateserial",
                 "-days", str(days), "-extfile", extensions, "-out", cert)  # fmt: skip
        return Issued(cert.read_bytes(), key.read_bytes())


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


def _new_key(path: Path) -> None:
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()

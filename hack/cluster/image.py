#!/usr/bin/env python3
"""Images without Docker: a tar of a root file system becomes an archive that Docker, containerd and kind load.

Several images of one archive share their layers and differ in name and entry point: all that a control plane needs.
Nothing in it depends on when or where it was written.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import platform
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
LAYER_TYPE = "application/vnd.oci.image.layer.v1"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIGURATION_TYPE = "application/vnd.oci.image.config.v1+json"
SEARCH_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def write_archive(archive: Path, layers: list[Path], images: dict[str, list[str]], settings: dict[str, object]) -> None:
    """Write ``archive`` with one image per item of ``images`` (name with tag -> entry point; empty: none).

    All of them lie on the same ``layers``, the lowest first. ``settings`` go into each image's configuration by the OCI
    image specification's names (User, Env, WorkingDir, …).
    """
    digests = [_digest(layer) for layer in layers]
    manifest = []
    with tarfile.open(archive, "w") as out:
        for digest, layer in zip(digests, layers, strict=True):
            out.add(layer, f"{digest}/layer.tar", filter=_plain)
        for name, entrypoint in images.items():
            configuration = json.dumps(_configuration(digests, entrypoint, settings), sort_keys=True).encode()
            file_name = f"{hashlib.sha256(configuration).hexdigest()}.json"
            if file_name not in out.getnames():
                _add(out, file_name, configuration)
            paths = [f"{digest}/layer.tar" for digest in digests]
            manifest.append({"Config": file_name, "RepoTags": [name], "Layers": paths})
        _add(out, "manifest.json", json.dumps(manifest).encode())


@dataclass(frozen=True)
class Image:
    """An image by its parts: layers, the lowest first, and as in the OCI image specification what runs in it how."""

    name: str
    layers: list[Path]
    entrypoint: list[str]
    settings: dict[str, object]

    def identity(self) -> str:
        """The digest of its configuration, which names its layers: what a pod's status calls imageID."""
        return hashlib.sha256(self.configuration()).hexdigest()

    def configuration(self) -> bytes:
        """Its configuration, as JSON."""
        digests = [_digest(layer) for layer in self.layers]
        return json.dumps(_configuration(digests, self.entrypoint, self.settings), sort_keys=True).encode()


def write_missing(out: IO[bytes], made: Image, known: set[str]) -> list[Path]:
    """Write an OCI archive of ``made`` to a stream, without the layers whose digests (``sha256:…``) are ``known``.

    A containerd that has those layers takes it like a whole one. Returns the layers that were written.
    """
    digests = [_digest(layer) for layer in made.layers]
    configuration = made.configuration()
    blobs = [
        _blob(f"{LAYER_TYPE}.tar", digest, layer.stat().st_size)
        for digest, layer in zip(digests, made.layers, strict=True)
    ]
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": _blob(CONFIGURATION_TYPE, hashlib.sha256(configuration).hexdigest(), len(configuration)),
            "layers": blobs,
        }
    )
    described = _blob(MANIFEST_TYPE, hashlib.sha256(manifest).hexdigest(), len(manifest))
    described["annotations"] = {"io.containerd.image.name": made.name}
    missing = [(d, at) for d, at in zip(digests, made.layers, strict=True) if f"sha256:{d}" not in known]
    with tarfile.open(fileobj=out, mode="w|") as archive:
        _add(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        for content in (configuration, manifest):
            _add(archive, f"blobs/sha256/{hashlib.sha256(content).hexdigest()}", content)
        for digest, layer in missing:
            archive.add(layer, f"blobs/sha256/{digest}", filter=_plain)
        _add(archive, "index.json", _json({"schemaVersion": 2, "manifests": [described]}))
    return [layer for _, layer in missing]


def _json(content: object) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


def _blob(media_type: str, digest: str, size: int) -> dict[str, object]:
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": size}


def _digest(layer: Path) -> str:
    """A layer's digest, kept beside it: built parts never change."""
    kept = layer.with_name(f"{layer.name}.sha256")
    if not kept.exists():
        with layer.open("rb") as content:
            written = layer.with_name(f"{layer.name}.sha256.{os.getpid()}")
            written.write_text(hashlib.file_digest(content, "sha256").hexdigest())
        written.rename(kept)
    return kept.read_text()


def _configuration(digests: list[str], entrypoint: list[str], settings: dict[str, object]) -> dict[str, object]:
    machine = platform.machine()
    return {
        "architecture": ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Env": [SEARCH_PATH], **({"Entrypoint": entrypoint} if entrypoint else {}), **settings},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
    }


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def _add(out: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    out.addfile(entry, io.BytesIO(content))


def main() -> None:
    """``image.py ARCHIVE LAYER NAME:TAG[=ENTRYPOINT]…``."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("layer", type=Path)
    parser.add_argument("images", nargs="+", metavar="NAME:TAG[=ENTRYPOINT]")
    asked = parser.parse_args()
    images = {}
    for image in asked.images:
        name, _, entrypoint = image.partition("=")
        images[name] = entrypoint.split()
    write_archive(asked.archive, [asked.layer], images, settings={})


if __name__ == "__main__":
    main()

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
import platform
import tarfile
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
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


def _digest(layer: Path) -> str:
    with layer.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


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

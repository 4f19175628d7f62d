"""Images that are built here, without Docker, for `load-image`: from one list of what goes into each.

An image is a Debian with a list of packages (steps/NAME.packages) and, on it, what IMAGES says. They exist for tests on
machines that can pull nothing; a release is built from Dockerfiles.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import cache
import image
import parts


@dataclass(frozen=True)
class Contents:
    """What an image is made from."""

    base: str  # steps/<base>.packages
    entrypoint: list[str] = field(default_factory=list)
    settings: dict[str, object] = field(default_factory=dict)  # as in the OCI image specification: User, Env, …


IMAGES = {
    # A shell, socat and the network's tools: for pods that ask and answer in tests.
    "tools": Contents(base="node"),
}


def name(which: str) -> str:
    """What a pod calls the image."""
    return f"localhost/headrace/{which}:test"


def archive(which: str) -> Path:
    """Build an image of our own, if it is not there, and print its archive's path, for load-image."""
    contents = IMAGES[which]
    base = parts.base_root(contents.base)
    key = cache.content_hash([parts.HERE / "image.py"], base.parent.name, repr(contents))

    def build(place: Path) -> None:
        image.write_archive(place / f"{which}.tar", base, {name(which): contents.entrypoint}, contents.settings)

    return cache.part(f"image-{which}", key, build) / f"{which}.tar"

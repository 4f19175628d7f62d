#!/usr/bin/env python3
"""A real Prometheus for tests: Debian's, unpacked into the cache, as a program on loopback and as a layer of an image.

`prometheus.py` prints the program's path. A `prometheus` on PATH is taken instead where apt-get is not to be had.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import cache
import parts

SCRIPT = parts.HERE / "steps" / "prometheus.sh"


def program() -> Path:
    """The program's path; built into the cache if need be.

    Raises:
        parts.Unable: this machine has neither a Prometheus nor Debian's packages.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        found = shutil.which("prometheus")
        if found is None:
            raise parts.Unable("no prometheus on PATH, and no apt-get to fetch Debian's")
        return Path(found)
    return _part() / "prometheus"


def layer() -> Path:
    """The program as a layer on Debian's root."""
    return _part() / "layer.tar"


def _part() -> Path:
    return cache.part("prometheus", cache.content_hash([SCRIPT]), lambda place: parts.step(SCRIPT.name, place))


def main() -> int:
    """Print the program's path."""
    try:
        sys.stdout.write(f"{program()}\n")
    except parts.Unable as error:
        sys.stderr.write(f"headrace: {error}\n")
        return parts.EXIT_ENVIRONMENT
    return 0


if __name__ == "__main__":
    sys.exit(main())

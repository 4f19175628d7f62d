#!/usr/bin/env python3
"""Print the folder with Argo CD's programs, its CRDs and kustomize; built if need be, 10 minutes the first time.

It needs Go and no cluster; redis-server is installed where it is missing, as root on Debian.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.dont_write_bytecode = True

import cache  # noqa: E402
import parts  # noqa: E402


def programs() -> Path:
    """The folder; put it on PATH."""
    parts.need({"redis-server": "redis-server"})
    key = cache.content_hash([parts.HERE / "steps" / "argocd.sh", parts.HERE / "argocd"])
    return cache.part("argocd", key, lambda place: parts.step("argocd.sh", place))


def main() -> int:
    """``argo.py``: exits with 3 where it can't be built."""
    try:
        sys.stdout.write(f"{programs()}\n")
    except parts.Unable as reason:
        sys.stderr.write(f"headrace: {reason}\n")
        return parts.EXIT_ENVIRONMENT
    return 0


if __name__ == "__main__":
    sys.exit(main())

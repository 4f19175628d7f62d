#!/usr/bin/env python3
"""Print where a program for tests is, built if it is not there: helm, or Kubernetes (kubectl by that name).

It needs Go and no cluster."""

from __future__ import annotations

import argparse
import sys

sys.dont_write_bytecode = True

import parts  # noqa: E402

PROGRAMS = {"helm": parts.helm, "kubernetes": parts.kubernetes}


def main() -> int:
    """``program.py NAME``: exits with 3 where it can't be built."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", choices=PROGRAMS)
    try:
        sys.stdout.write(f"{PROGRAMS[parser.parse_args().program]()}\n")
    except parts.Unable as reason:
        sys.stderr.write(f"headrace: {reason}\n")
        return parts.EXIT_ENVIRONMENT
    return 0


if __name__ == "__main__":
    sys.exit(main())

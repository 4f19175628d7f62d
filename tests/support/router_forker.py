"""Starts router processes fast: imports once, then forks one for each line on stdin and prints its pid.

Each child runs the command ``headrace router`` with this script's own arguments. Forking happens before any loop or
thread exists, so a child is a fresh router that only saved the imports.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

import uvloop  # noqa: F401

import headrace_router.server.server  # noqa: F401
from headrace_router.cli.router import COMMAND


def main() -> None:
    """Fork until stdin ends."""
    parser = argparse.ArgumentParser()
    COMMAND.add_arguments(parser)
    arguments = parser.parse_args()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os._exit(COMMAND.run(arguments))
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

"""Starts another program so that it can't outlive the demo: ``python -m headrace_lab.demo.child PARENT ARGV…``.

On Linux the kernel ends it when its parent ends, even by kill -9 (PR_SET_PDEATHSIG outlasts exec). Elsewhere nothing
but the demo's own clean-up does.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with(parent: int) -> None:
    """Let the kernel end this process when its parent ends; exits at once if it has already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def main() -> None:
    """Become the program of the remaining arguments."""
    die_with(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606  the demo's own argument list, no shell


if __name__ == "__main__":
    main()

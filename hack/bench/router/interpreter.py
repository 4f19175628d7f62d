"""The Python that our router runs on here: one like the images', if the machine has it.

Images have distributions' builds (Debian's in the test cluster), which were compiled after a rehearsal, as our hot
modules are; one that a version manager compiled here usually wasn't, and takes a twentieth longer for a request.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path

DISTRIBUTIONS = Path("/usr/bin")
# What extension modules must find again.
ASK = "import platform, sysconfig; print(platform.python_version(), sysconfig.get_config_var('SOABI'))"


@cache
def interpreter() -> str:
    """The distribution's, if it takes the environment's packages; else the environment's own."""
    there = DISTRIBUTIONS / f"python{sys.version_info.major}.{sys.version_info.minor}"
    return str(there) if _answer(str(there))[1:] == [sysconfig.get_config_var("SOABI")] else sys.executable


def said() -> str:
    """Its version, and whose it is."""
    version = _answer(interpreter())[0]
    return f"CPython {version}, {'the environment' if interpreter() == sys.executable else 'the distribution'}'s"


def path(*folders: str) -> str:
    """PYTHONPATH for it: these, then the environment's packages."""
    return os.pathsep.join([*folders, *dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))])


def _answer(python: str) -> list[str]:
    try:
        return subprocess.run([python, "-c", ASK], capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        return []

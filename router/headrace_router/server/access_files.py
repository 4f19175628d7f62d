"""Which files say who is believed: what the command line names and the router then follows.

Beside every path. Must stay light: the command line reads it to show its help.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class AccessFiles:
    """tls: certificate and key; keys: a file, or the folder of a mounted Secret; credentials: the engines' folder."""

    tls: tuple[Path, Path] | None = None
    client_ca: Path | None = None
    keys: Path | None = None
    credentials: Path | None = None

"""A status as ``kubectl describe`` prints it: keys in the order of their names, a line a value and list item."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any


def described(status: dict[str, Any]) -> list[str]:
    """The lines of a status; values of lines that follow each other stand in one column."""
    found = ["Status:"]
    for paired, run in groupby(_lines(status, "  "), key=lambda line: line[1] is not None):
        lines = list(run)
        column = max(len(label) for label, _ in lines) + 2
        found += [f"{label:{column}}{value}" if paired else label for label, value in lines]
    return found


def _lines(value: dict[str, Any], margin: str) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    for key in sorted(value):
        one, title = value[key], f"{margin}{_title(key)}:"
        if isinstance(one, dict):
            found += [(title, None), *_lines(one, margin + "  ")]
        elif isinstance(one, list | tuple):
            found.append((title, None))
            for item in one:
                found += _lines(item, margin + "  ") if isinstance(item, dict) else [(f"{margin}  {item}", None)]
        else:
            found.append((title, str(one)))
    return found


def _title(key: str) -> str:
    """``lastTransitionTime`` as ``Last Transition Time``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", key[:1].upper() + key[1:])

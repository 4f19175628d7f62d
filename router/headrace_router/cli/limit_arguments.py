"""Arguments of ``headrace router`` that bound what one client may cost, and all together.

Beside the request path. Defaults are those of Limits. Must not know what a bound is enforced by.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import fields
from typing import Any, Final, NamedTuple

from headrace_router.listener.limits import Limits

_SUFFIXES: Final = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_DAY: Final = 86_400
_MOST: Final = 2**40


class _Flag(NamedTuple):
    field: str
    flag: str
    unit: str
    least: int
    most: int
    help: str


_FLAGS: Final = (
    _Flag("head_bytes", "--max-head", "BYTES", 1024, 65_536, "a request's head"),
    _Flag("head_lines", "--max-head-lines", "N", 8, 100, "header lines"),
    _Flag("head_seconds", "--head-timeout", "S", 1, _DAY, "from a head's first byte to its end"),
    _Flag("body_idle", "--body-timeout", "S", 1, _DAY, "of patience with a body that is being read, see --body-rate"),
    _Flag("body_rate", "--body-rate", "BYTES", 1, 2**30, "a second, at least, of a body that is being read"),
    _Flag("first_request", "--first-request-timeout", "S", 1, _DAY, "from connecting to the first whole head"),
    _Flag("idle", "--idle-timeout", "S", 1, _DAY, "between requests"),
    _Flag("connections", "--max-connections", "N", 1, 10**7, "clients' connections of each process, see --processes"),
    _Flag("body_memory", "--body-memory", "BYTES", 1024, _MOST, "bodies in memory of each process, see --processes"),
)


def add_limit_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments."""
    defaults = Limits()
    for each in _FLAGS:
        default = _shown(each, getattr(defaults, each.field))
        parser.add_argument(each.flag, metavar=each.unit, default=default, help=f"{each.help} (%(default)s)")


def read_limit_arguments(arguments: argparse.Namespace, faults: list[str]) -> Limits:
    """What they say; what is wrong is added to ``faults``."""
    known = {field.name for field in fields(Limits)}
    stated: dict[str, Any] = {}
    for each in _FLAGS:
        assert each.field in known
        text = getattr(arguments, each.flag.removeprefix("--").replace("-", "_"))
        value = _value(each, text)
        if value is None or not each.least <= value <= each.most:
            least, most = _shown(each, each.least), _shown(each, each.most)
            faults.append(f"{each.flag} {text}: right would be {each.unit} from {least} to {most}")
        else:
            stated[each.field] = value
    return Limits(**stated)


def _value(flag: _Flag, text: str) -> float | int | None:
    if flag.unit == "S":
        try:
            value = float(text)
        except ValueError:
            return None
        return value if math.isfinite(value) else None
    digits = text.rstrip("KMGi")
    suffix = text[len(digits) :]
    if not digits.isascii() or not digits.isdigit() or len(digits) > 15 or suffix not in _SUFFIXES:
        return None
    if suffix and flag.unit != "BYTES":
        return None
    return int(digits) * _SUFFIXES[suffix]


def _shown(flag: _Flag, value: float) -> str:
    if flag.unit == "BYTES":
        for suffix in ("Gi", "Mi", "Ki"):
            if not value % _SUFFIXES[suffix]:
                return f"{value // _SUFFIXES[suffix]:.0f}{suffix}"
    return f"{value:g}" if flag.unit == "S" else f"{value:.0f}"

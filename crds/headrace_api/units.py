"""Durations and quantities as Kubernetes writes them, and the numbers they mean.

On every path: specs hold text that a person wrote (``200ms``, ``500m``, ``4Mi``); all arithmetic uses floats of
base units (seconds, plain counts, bytes). No spec field is a float, so that YAML round-trips byte for byte.

Patterns bound the form, ``between`` the value: the CRD generator makes a CEL rule of it, the validator a check.
Patterns are written for RE2 and Python alike (no lookahead, anchored at both ends).
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from msgspec import Meta

MAX_UNIT_TEXT: Final = 24
MAX_WHOLE: Final = 10**12 - 1  # twelve digits, as in QUANTITY_PATTERN
# At most 4 x 99999 h = 45 years, so that CEL's duration() (64-bit nanoseconds) never overflows.
DURATION_PATTERN: Final = r"^([0-9]{1,5}(\.[0-9]{1,3})?(ms|s|m|h)){1,4}$"
QUANTITY_PATTERN: Final = r"^[0-9]{1,12}(\.[0-9]{1,3})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"

# Keys of a field's extra schema: the lowest and highest value it may have, as the user would write them.
LOWEST: Final = "x-headrace-lowest"
HIGHEST: Final = "x-headrace-highest"


def between(low: str, high: str) -> Meta:
    """Bounds of a duration or quantity field, both included; given again, the later ones hold."""
    return Meta(extra_json_schema={LOWEST: low, HIGHEST: high})


Duration = Annotated[
    str,
    Meta(pattern=DURATION_PATTERN, max_length=MAX_UNIT_TEXT, description="A duration: 200ms, 2s, 1m30s."),
    between("0s", "24h"),
]
Quantity = Annotated[
    Annotated[int, Meta(ge=0, le=MAX_WHOLE)]
    | Annotated[str, Meta(pattern=QUANTITY_PATTERN, min_length=1, max_length=MAX_UNIT_TEXT)],
    Meta(description="A quantity: 12, 500m, 32Mi."),
    between("0", "1T"),
]

_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_DURATION = re.compile(DURATION_PATTERN)
_UNIT_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_QUANTITY = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,3})?)(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
_SUFFIX = {
    None: 1.0,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
}


def seconds(text: str) -> float:
    """Seconds meant by a duration such as ``1m30s``.

    Raises:
        ValueError: the text is not a duration; the message shows it and a right one.
    """
    if not isinstance(text, str) or not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration; right would be 200ms, 2s or 1m30s")
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PART.findall(text))


def number(quantity: int | str) -> float:
    """The plain number meant by a quantity such as ``500m`` (0.5) or ``4Mi`` (4194304).

    Raises:
        ValueError: the value is not a quantity; the message shows it and a right one.
    """
    match = _QUANTITY.fullmatch(str(quantity)) if isinstance(quantity, int | str) else None
    if match is None or isinstance(quantity, bool):
        raise ValueError(f"{quantity!r} is not a quantity; right would be 12, 500m or 32Mi")
    return float(match[1]) * _SUFFIX[match[2]]

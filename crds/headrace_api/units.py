"""Durations and quantities as Kubernetes writes them, and the numbers they mean.

On every path: specs hold text that a person wrote (``200ms``, ``500m``, ``4Mi``); all arithmetic uses floats of
base units (seconds, plain counts, bytes). No spec field is a float, so that YAML round-trips byte for byte.
"""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta

DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$"
QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"

Duration = Annotated[str, Meta(pattern=DURATION_PATTERN, max_length=24, description="A duration: 200ms, 2s, 1m30s.")]
Quantity = Annotated[
    int | str,
    Meta(
        description="A quantity: 12, 500m, 32Mi.",
        extra_json_schema={
            "x-kubernetes-int-or-string": True,
            "pattern": QUANTITY_PATTERN,
            "maxLength": 24,
            "minimum": 0,
        },
    ),
]

_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_UNIT_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
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
    if not re.fullmatch(DURATION_PATTERN, text):
        raise ValueError(f"{text!r} is not a duration; right would be 200ms, 2s or 1m30s")
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PART.findall(text))


def number(quantity: int | str) -> float:
    """The plain number meant by a quantity such as ``500m`` (0.5) or ``4Mi`` (4194304).

    Raises:
        ValueError: the value is not a quantity; the message shows it and a right one.
    """
    match = _QUANTITY.fullmatch(str(quantity)) if not isinstance(quantity, bool) else None
    if match is None:
        raise ValueError(f"{quantity!r} is not a quantity; right would be 12, 500m or 32Mi")
    return float(match[1]) * _SUFFIX[match[2]]

"""A parsed signals file into ``Signals``, entry by entry: every fault is told, one bad number costs one value.

On the engine-signal path of ``headrace plan --signals`` and of records. Two kinds of wrong: a fault of form (unknown
field, text where a number belongs) refuses the file; a number no instrument can have measured (NaN, infinite, negative)
only makes that one value unknown, because live metrics contain such numbers and one of them must not stop a solve
(coin-or/pulp#855). Must not read files or clocks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

import msgspec

from headrace_operator.snapshot.signals import (
    DemandSignal,
    EngineSignal,
    RoundTripSignal,
    Signals,
    SignalStatus,
)

_LISTS: Final[dict[str, tuple[type[msgspec.Struct], tuple[str, ...], str]]] = {
    "demand": (DemandSignal, ("policy", "frontend", "model"), "requestsPerSecond"),
    "roundTrips": (RoundTripSignal, ("frontend", "engine"), "seconds"),
    "engines": (EngineSignal, ("engine",), ""),
    "states": (SignalStatus, ("name",), ""),
}


_STEP: Final = re.compile(r"\.([A-Za-z]+)|\[(\d+)\]")
MAX_SHOWN: Final = 80  # characters of a wrong value


def measurable(value: object) -> bool:
    """Whether a number can have been measured: finite and not negative (bool is no number)."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value >= 0


def load_signals(data: object) -> Signals | tuple[str, ...]:
    """Signals out of parsed YAML or JSON, or the faults of its form, one line each.

    Values that can't have been measured are left out and named in ``Signals.states`` as Unknown.
    """
    if data is None:
        return Signals()
    if not isinstance(data, Mapping):
        return (f"signals: must be a mapping with demand, roundTrips, engines; it is {type(data).__name__}",)
    faults: list[str] = []
    unknown: list[SignalStatus] = []
    parts: dict[str, Any] = {}
    for name, value in data.items():
        if name in _LISTS:
            parts[name] = _entries(str(name), value, faults, unknown)
        else:
            parts[str(name)] = value
    try:
        signals = msgspec.convert({**parts, **{name: [] for name in _LISTS}}, Signals)
    except msgspec.ValidationError as error:
        return (*faults, _told("signals", parts, error))
    if faults:
        return tuple(faults)
    return msgspec.structs.replace(
        signals,
        demand=tuple(parts.get("demand", ())),
        round_trips=tuple(parts.get("roundTrips", ())),
        engines=tuple(parts.get("engines", ())),
        states=(*parts.get("states", ()), *unknown),
    )


def _entries(name: str, value: object, faults: list[str], unknown: list[SignalStatus]) -> list[msgspec.Struct]:
    """The entries of one list that hold; the others go to ``faults``, unmeasurable values to ``unknown``."""
    kind, keys, required = _LISTS[name]
    if not isinstance(value, list | tuple):
        faults.append(f"signals.{name}: must be a list; it is {type(value).__name__}")
        return []
    found: list[msgspec.Struct] = []
    for position, entry in enumerate(value):
        cleaned = _without_unmeasurable(entry, keys, required, unknown)
        if cleaned is None:
            continue
        try:
            found.append(msgspec.convert(cleaned, kind))
        except msgspec.ValidationError as error:
            faults.append(_told(f"signals.{name}[{position}]", cleaned, error))
    return found


def _told(place: str, value: object, error: msgspec.ValidationError) -> str:
    """A fault of form with the field, its value and what would be right."""
    what, _, where = str(error).replace("`", "").partition(" - at $")
    for key, index in _STEP.findall(where):
        if isinstance(value, Mapping):
            value = value.get(key)
        else:
            value = value[int(index)] if isinstance(value, list | tuple) else None
    right = "; right would be a reading such as {value: 12.5, age: 3}" if what.startswith("Expected object") else ""
    shown = repr(value)
    return f"{place}{where}: {shown if len(shown) <= MAX_SHOWN else shown[:MAX_SHOWN] + '…'}: {what}{right}"


def _without_unmeasurable(
    entry: object, keys: tuple[str, ...], required: str, unknown: list[SignalStatus]
) -> object | None:
    """The entry without values that no instrument measures; None when the one that it is about is among them."""
    if not isinstance(entry, Mapping):
        return entry
    kept: dict[str, object] = {}
    for field, value in entry.items():
        number = value.get("value") if isinstance(value, Mapping) else None
        if isinstance(number, int | float) and not isinstance(number, bool) and not measurable(number):
            who = " ".join(str(entry.get(key, "?")) for key in keys)
            what = "engine" if keys == ("engine",) else "demand" if required == "requestsPerSecond" else "round trip"
            unknown.append(SignalStatus(name=f"{what} {who} {field} ({number})", state="Unknown"))
            if field == required:
                return None
        else:
            kept[str(field)] = value
    return kept

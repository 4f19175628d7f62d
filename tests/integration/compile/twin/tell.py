"""Prints what twin.kinds does, as JSON: one outcome for each call. Not compiled."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import sys
from collections.abc import Callable
from typing import Any

from twin import kinds

NUMBERS = (0, 1, -1, 7, -7, 1 << 61, (1 << 62) - 1, 1 << 62, -(1 << 62), -(1 << 62) - 1, 1 << 63, 1 << 80)
FLOATS = (0.0, -0.0, 1.5, -7.25, 1e308, 1e-320, float("inf"), float("nan"))
AT = (-(1 << 70), -9, -4, -3, -1, 0, 1, 2, 3, 4, 9, 1 << 62, 1 << 70)


def outcome(action: Callable[..., Any], *arguments: Any, **more: Any) -> str:
    try:
        return repr(action(*arguments, **more))
    except Exception as error:  # noqa: BLE001 (which one is the outcome)
        return f"raised {type(error).__name__}"


def slices() -> dict[str, str]:
    ways: list[tuple[Callable[..., Any], Any]] = [
        (kinds.bytes_between, b"abc"),
        (kinds.text_between, "aäz"),
        (kinds.list_between, [1, 2, 3]),
        (kinds.tuple_between, (1, 2, 3)),
        (kinds.view_between, b"abc"),
    ]
    told = {
        f"{way.__name__} {start} {end}": outcome(way, data, start, end)
        for way, data in ways
        for start, end in itertools.product(AT, AT)
    }
    for at in AT:
        told[f"from {at}"] = outcome(kinds.bytes_from, b"abc", at)
        told[f"to {at}"] = outcome(kinds.bytes_to, b"abc", at)
        told[f"byte {at}"] = outcome(kinds.byte_at, b"abc", at)
        told[f"item {at}"] = outcome(kinds.item_at, [1, 2, 3], at)
    data = bytes(5000)
    told["whole"] = repr([kinds.bytes_from(data, 0) is data, kinds.bytes_between(data, 0, 5000) is data])
    return told


def numbers() -> dict[str, str]:
    two = (kinds.add, kinds.multiply, kinds.divide, kinds.bits)
    told = {
        f"{way.__name__} {a} {b}": outcome(way, a, b) for way in two for a, b in itertools.product(NUMBERS, NUMBERS)
    }
    told |= {f"shift {a} {by}": outcome(kinds.shift, a, by) for a in NUMBERS for by in (0, 1, 61, 63, 64, 200, -1)}
    told |= {f"float {a} {b}": outcome(kinds.parts_of, a, b) for a, b in itertools.product(FLOATS, FLOATS)}
    told |= {f"whole {a}": outcome(kinds.whole, a) for a in FLOATS}
    texts = (b"12", b" 12\n", b"+1", b"1_0", b"-0", b"", b"0x1", b"\xff", b"9" * 40, b"9" * 5000)
    return told | {f"number {text[:9]!r}": outcome(kinds.number_of, text) for text in texts}


def faults() -> dict[str, str]:
    def refuse(error: BaseException) -> Callable[[], object]:
        def action() -> object:
            raise error

        return action

    errors = (KeyError("k"), IndexError("i"), OSError("o"), ValueError("v"))
    told = {f"order {error!r}": outcome(kinds.order_of, refuse(error)) for error in errors}
    told["order"] = outcome(kinds.order_of, lambda: None)
    told |= {f"left {steps}": outcome(kinds.left_early, steps) for steps in (0, 3, 4, 20)}
    told |= {f"two of {count}": outcome(kinds.two_of, list(range(count))) for count in range(4)}
    told |= {f"table {key!r}": outcome(kinds.looked_up, {b"a": 1}, key) for key in (b"a", b"b")}
    told["grown"] = outcome(kinds.grown_while_read, {1: 1, 2: 2})
    told["shortened"] = outcome(kinds.shortened_while_read, [1, 2, 3, 4, 5])
    return told


def objects() -> dict[str, str]:
    told = {"own": repr(kinds.Count().more()), "shared": repr(kinds.SharedCount(5).more())}
    told["abstract"] = outcome(kinds.Taker)
    told["twice"] = repr(kinds.Length().twice(b"abc"))
    kept = kinds.Kept(1)
    kept.put(b"late")
    del kept
    told["kept"] = outcome(lambda: kinds.Kept(2).late)
    told["unknown"] = outcome(lambda: setattr(kinds.Count(), "unknown", 1))
    ended: list[str] = []
    kinds.alone(ended)
    told["alone"] = repr(ended)
    kinds.ring(ended)
    gc.collect()
    told["ring"] = repr(sorted(ended))
    calls: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
        ((), {}),
        ((1,), {}),
        ((1, 5, 6, 7), {"third": 8, "fourth": 9}),
        ((1,), {"first": 2}),
    )
    told |= {
        f"call {given} {named}": outcome(kinds.called, kinds.with_defaults, *given, **named) for given, named in calls
    }
    return told


def flows() -> dict[str, str]:
    told: dict[str, str] = {}
    closed: list[str] = []
    begun = kinds.steps(closed, 3)
    told["step"] = repr(next(begun))
    begun.close()  # type: ignore[attr-defined]
    told["closed"] = repr(closed)
    told["all"] = repr(list(kinds.steps(closed, 3)))

    async def main() -> None:
        noted: list[str] = []
        told["awaited"] = repr(await kinds.waits(noted, 0.0))
        task = asyncio.create_task(kinds.waits(noted, 60.0))
        await asyncio.sleep(0)
        task.cancel()
        told["cancelled"] = repr(await asyncio.gather(task, return_exceptions=True))
        told["noted"] = repr(noted)

    asyncio.run(main())
    return told


if __name__ == "__main__":
    json.dump(
        {
            "file": kinds.__file__,
            "told": slices() | numbers() | faults() | objects() | flows(),
        },
        sys.stdout,
    )

"""Of each kind of thing that the hot modules do, one: its meaning must not depend on the form.

Run as source and compiled by test_both_forms.py, which compares.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Final

from mypy_extensions import mypyc_attr

BIG: Final = 1 << 62


def bytes_between(data: bytes, start: int, end: int) -> bytes:
    return data[start:end]


def bytes_to(data: bytes, end: int) -> bytes:
    return data[:end]


def bytes_from(data: bytes, start: int) -> bytes:
    return data[start:]


def text_between(data: str, start: int, end: int) -> str:
    return data[start:end]


def list_between(data: list[int], start: int, end: int) -> list[int]:
    return data[start:end]


def tuple_between(data: tuple[int, ...], start: int, end: int) -> tuple[int, ...]:
    return data[start:end]


def view_between(data: bytes, start: int, end: int) -> bytes:
    return bytes(memoryview(data)[start:end])


def byte_at(data: bytes, at: int) -> int:
    return data[at]


def item_at(data: list[int], at: int) -> int:
    return data[at]


def add(a: int, b: int) -> int:
    return a + b


def multiply(a: int, b: int) -> int:
    return a * b


def divide(a: int, b: int) -> tuple[int, int]:
    return a // b, a % b


def shift(a: int, by: int) -> tuple[int, int]:
    return a << by, a >> by


def bits(a: int, b: int) -> tuple[int, int, int]:
    return a & b, a | b, a ^ b


def parts_of(number: float, by: float) -> tuple[float, float, float]:
    return number / by, number // by, number % by


def whole(number: float) -> int:
    return int(number)


def number_of(text: bytes) -> int:
    return int(text)


def two_of(parts: list[int]) -> int:
    first, second = parts
    return first - second


def looked_up(table: dict[bytes, int], key: bytes) -> int:
    return table[key]


def grown_while_read(table: dict[int, int]) -> list[int]:
    seen: list[int] = []
    for key in table:
        seen.append(key)
        if len(seen) < 3:
            table[len(table) + 100] = 0
    return seen


def shortened_while_read(items: list[int]) -> list[int]:
    seen: list[int] = []
    for item in items:
        seen.append(item)
        items.pop()
    return seen


def order_of(action: Callable[[], object]) -> list[str]:
    """What try, except, else and finally do, in their order."""
    told: list[str] = []
    try:
        try:
            action()
        except (KeyError, IndexError) as error:
            told.append(f"{type(error).__name__} {error.__cause__!r}")
            raise ValueError("another") from error
        except OSError:
            told.append("OSError")
        else:
            told.append("else")
        finally:
            told.append("finally")
    except ValueError as error:
        told.append(f"{error} because {error.__cause__!r} in {error.__context__!r}")
    return told


def left_early(steps: int) -> list[int]:
    seen: list[int] = []
    for number in range(10):
        try:
            if number == steps:
                return seen
        finally:
            seen.append(number)
    return seen


class Count:
    """Fields, and methods that read them by a property."""

    __slots__ = ("own",)

    def __init__(self) -> None:
        self.own = 0

    @property
    def all(self) -> int:
        return self.own

    def more(self) -> int:
        self.own += 1
        return self.all


class SharedCount(Count):
    """The base's methods ask this property."""

    __slots__ = ("others",)

    def __init__(self, others: int) -> None:
        super().__init__()
        self.others = others

    @property
    def all(self) -> int:
        return self.own + self.others


class Taker(ABC):
    @abstractmethod
    def take(self, data: bytes) -> int: ...

    def twice(self, data: bytes) -> int:
        return self.take(data) + self.take(data)


class Length(Taker):
    def take(self, data: bytes) -> int:
        return len(data)


@mypyc_attr(free_list_len=1)
class Kept:
    """One that is used again: nothing of the last one may be there."""

    __slots__ = ("late", "number")

    def __init__(self, number: int) -> None:
        self.number = number

    def put(self, late: bytes) -> None:
        self.late = late


class Node:
    """Rings are found; whoever ends says so."""

    def __init__(self, told: list[str], name: str) -> None:
        self.told = told
        self.name = name
        self.next: Node | None = None

    def __del__(self) -> None:
        self.told.append(self.name)


def ring(told: list[str]) -> None:
    first, second = Node(told, "first"), Node(told, "second")
    first.next, second.next = second, first


def alone(told: list[str]) -> None:
    Node(told, "alone")


def steps(told: list[str], count: int) -> Iterator[int]:
    try:
        yield from range(count)
    finally:
        told.append("closed")


async def waits(told: list[str], seconds: float) -> str:
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        told.append("cancelled")
        raise
    finally:
        told.append("finally")
    return "done"


def called(action: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    return action(*arguments, **more)


def with_defaults(first: int, second: int = 2, *rest: int, third: int = 3, **more: int) -> list[object]:
    return [first, second, rest, third, sorted(more.items())]

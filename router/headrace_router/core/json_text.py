"""Questions about a JSON text that need no objects: how deep, how long its numbers, where one key or element stands.

On the request path, over bodies that a decoder has already found valid. A hostile body must cost neither memory nor
seconds of the loop: whole texts are looked at by a fixed number of passes in C, and whatever goes part by part in
Python counts its parts and gives up at a bound. Must not judge what a key or element means.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

import msgspec

# Strings, and arrays and objects, that a body may hold where they have to be looked at: an agent's talk of 10,000
# turns has half of it.
MAX_PARTS: Final = 2**18
# Steps in Python, 0.3 us each.
MAX_STEPS: Final = 2**17

# Possessive: a string of megabytes is one step without a way back.
_QUOTED: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_STRING: Final = re.compile(_QUOTED, re.DOTALL)
_KEY: Final = re.compile(rb"[\s,]*(" + _QUOTED + rb")\s*:\s*", re.DOTALL)
_TOKEN: Final = re.compile(_QUOTED + rb"|[\[\]{}]", re.DOTALL)
_BARE: Final = re.compile(rb"[^\s,}\]]+")
_GAP: Final = re.compile(rb"[\s,]*")
# Once escapes are gone a string ends at the next quote.
_PLAIN_STRING: Final = re.compile(rb'"[^"]*+"')
_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
# Opening brackets as +1, closing ones as -1, in signed bytes.
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_TEXT: Final = msgspec.json.Decoder(str)


class Shape:
    """What a valid JSON text is like. strings, brackets: how many; depth, digits: None where there are too many parts
    to tell."""

    __slots__ = ("brackets", "depth", "long_number", "strings")

    def __init__(self, data: bytes, digits: int) -> None:
        """``digits``: from this many in a row on a number is a long one."""
        self.depth: int | None = None
        self.long_number: bool | None = None
        text = data.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in data else data
        self.brackets = 0
        self.strings = text.count(b'"') // 2
        if self.strings > MAX_PARTS:
            return
        bare = _PLAIN_STRING.sub(b"", text)
        self.long_number = b"0" * digits in bare.translate(_ZEROS)
        steps = bare.translate(_STEPS, _NO_BRACKETS)
        self.brackets = len(steps) // 2
        if self.brackets <= MAX_PARTS:
            self.depth = max(accumulate(array("b", steps)), default=0)


class _Walk:
    """Goes over a valid JSON text value by value, at most ``left`` steps."""

    __slots__ = ("data", "left")

    def __init__(self, data: bytes, steps: int) -> None:
        self.data = data
        self.left = steps

    def end(self, at: int) -> int:
        """Where the value that starts at ``at`` ends; -1 if that takes too many steps."""
        data = self.data
        self.left -= 1
        first = data[at : at + 1]
        if first not in (b"[", b"{"):
            scalar = (_STRING if first == b'"' else _BARE).match(data, at)
            assert scalar is not None
            return scalar.end() if self.left >= 0 else -1
        depth = 0
        tokens = _TOKEN.finditer(data, at)
        while True:
            match = next(tokens)
            kind = data[match.start()]
            depth += (kind in b"[{") - (kind in b"]}")
            self.left -= 1
            if self.left < 0:
                return -1
            if depth == 0:
                return match.end()


def value_spans(data: bytes, name: str) -> list[tuple[int, int]] | None:
    """Where the values of an object's own keys called ``name`` stand, however the key is written.

    None: the object has too many parts. ``data`` is a valid JSON object.
    """
    spans = []
    walk = _Walk(data, MAX_STEPS)
    at = data.index(b"{") + 1
    while (key := _KEY.match(data, at)) is not None:
        end = walk.end(key.end())
        if end < 0:
            return None
        if _is(key[1], name):
            spans.append((key.end(), end))
        at = end
    return spans


def elements(data: bytes, steps: int) -> Iterator[bytes | None]:
    """The elements of a valid JSON array, as they stand; at last None if ``steps`` are too few for the next one."""
    walk = _Walk(data, steps)
    at = _next(data, data.index(b"[") + 1)
    while data[at : at + 1] != b"]":
        end = walk.end(at)
        if end < 0:
            yield None
            return
        yield data[at:end]
        at = _next(data, end)


def _next(data: bytes, at: int) -> int:
    gap = _GAP.match(data, at)
    assert gap is not None
    return gap.end()


def _is(key: bytes, name: str) -> bool:
    return key[1:-1] == name.encode() if b"\\" not in key else _TEXT.decode(key) == name

"""Heads that come one after the other on a connection: lines that stood in the last one are not read again.

On the request path. Clients and engines repeat their heads but for a few lines. A Pattern holds what stood still at the
beginning and at the end as bytes, so that two comparisons settle it, and reads the lines between by what stood there
last. It never refuses: a head that it can't read as usual is read by itself, by the rules that refuse. It belongs to
one client's connection or to one engine's address, is never shared beyond that, and is bounded in bytes and in lines.
"""

from __future__ import annotations

from typing import Final

from headrace_router.http1.heads import NOTHING, Still
from headrace_router.http1.lines import (
    BAD_LENGTH,
    LENGTH,
    MAX_DIGITS,
    VALUE_COUNTS,
    KnownLines,
    Line,
    Malformed,
    check_value,
    rule_of,
)

# Of heads that are remembered.
MAX_BYTES: Final = 4096
MAX_REMEMBERED: Final = 48
# Heads between two looks at whether more stands still by now.
_LOOK_AFTER: Final = 32
# Heads that are read by themselves, without a look at the last one, where remembering didn't help.
_REST: Final = 64
_MAX_CREDIT: Final = 8
_CREDIT: Final = 4
_MISS: Final = 2
_CRLF: Final = b"\r\n"
_HEAD_ENDS: Final = b"\r\n\r\n"


class Slot:
    """A line between those that stand still: what it was last, and how its name is spelt."""

    __slots__ = ("_length", "_rule", "_simple", "_size", "_spelt", "changed", "line", "part")

    def __init__(self, line: Line) -> None:
        self.changed = True
        self._aim(line, line.raw[:-2])

    def _aim(self, line: Line, part: bytes) -> None:
        size = len(line.name) + 1
        if part[size : size + 1] == b" ":
            size += 1
        self.line = line
        self.part = part
        self._size = size
        self._spelt = part[:size]
        self._rule = rule = rule_of(line.name)
        self._length = bool(rule & LENGTH)
        self._simple = not rule & VALUE_COUNTS

    def read(self, part: bytes, known: KnownLines) -> Line:
        """The line without its CRLF, which isn't what it was last.

        Raises:
            Malformed: it is none.
        """
        self.changed = True
        size = self._size
        # With space around the value, or none, it is read from the beginning; so is what isn't usual.
        if len(part) > size and part.startswith(self._spelt) and part[size] > 32 and part[-1] > 32:
            value = part[size:]
            if self._simple:
                rule = self._rule
                if not value.isalnum():
                    rule |= check_value(self.line.name, value)
                self.part = part
                self.line = line = Line(part + _CRLF, self.line.name, value, rule)
                return line
            if self._length and len(value) <= MAX_DIGITS and value.isdigit():
                self.part = part
                self.line = line = Line(part + _CRLF, self.line.name, value, self._rule)
                return line
        line = known[part]
        self._aim(line, part)
        return line


class Pattern:
    """See the module. What it says of a head goes with what ``own`` gave last.

    Args:
        known: where lines are looked up that aren't like the last.
        once: flags of lines that a head has one of.

    Attributes:
        before, behind: the lines that stood still. rules: the flags of all lines together. length: Content-Length, None
        without one.
    """

    __slots__ = (
        "_credit",
        "_first",
        "_known",
        "_last",
        "_length",
        "_looked",
        "_number",
        "_once",
        "_prefix",
        "_rest",
        "_rules",
        "_slots",
        "_start",
        "_stated",
        "_still",
        "_suffix",
        "_tail",
        "before",
        "behind",
        "length",
        "rules",
    )

    _prefix: bytes | None
    _length: int | None
    _slots: list[Slot]

    def __init__(self, known: KnownLines, once: int) -> None:
        self._known = known
        self._once = once
        self._last: list[Line] | None = None  # of a head that nothing was compared with yet
        self._credit = _CREDIT
        self._rest = 0
        self._looked = 0
        self._stated: Line | None = None  # the last Content-Length between, and what it says
        self._number = 0
        self.rules = 0
        self.length: int | None = None
        self.forget()

    def find_end(self, data: bytes) -> int:
        """As request_head.find_end from the beginning; what stood still there is known to have none."""
        prefix = self._prefix
        start = self._start - 2 if prefix is not None and data.startswith(prefix) else 0
        found = data.find(_HEAD_ENDS, start)
        return found + 4 if found >= 0 else -1

    def own(self, head: bytes) -> list[Line] | None:
        """The lines of a head between ``before`` and ``behind``; None: it isn't like the last, or not as it should be.

        Of a Content-Length that isn't one, ``length`` tells nothing. Who doesn't take the head must ``forget``: what
        stands still is made of lines that stood beside each other in heads that were taken.
        """
        prefix = self._prefix
        if prefix is None or not head.startswith(prefix) or not head.endswith(self._suffix):
            return None
        size = len(head)
        start, stop = self._start, size - self._tail
        if stop < start or size > MAX_BYTES:
            return None
        self._looked += 1
        if self._looked == _LOOK_AFTER and self._look():
            return self.own(head)
        if self._credit < _MAX_CREDIT:
            self._credit += 1
        self.rules, self.length = self._rules, self._length
        if stop == start:
            self._slots = []
            return []
        # Never shorter than this: what stands before ``start`` is LF.
        if head[stop - 2 : stop] != _CRLF:
            return None
        parts = head[start : stop - 2].split(_CRLF)
        if self._still + len(parts) > MAX_REMEMBERED:
            return None
        try:
            own = self._between(parts)
        except Malformed:
            self.forget()
            return None
        if self._together(own):
            return own
        self.forget()
        return None

    def _between(self, parts: list[bytes]) -> list[Line]:
        slots, known = self._slots, self._known
        if len(parts) != len(slots):
            own = [known[part] for part in parts]
            self._slots = [Slot(line) for line in own]
            return own
        own = []
        for at in range(len(parts)):
            part = parts[at]
            slot = slots[at]
            own.append(slot.line if part == slot.part else slot.read(part, known))
        return own

    def _together(self, own: list[Line]) -> bool:
        """Whether they may stand beside those that stand still."""
        together = self.rules
        for line in own:
            rule = line.rule
            if rule:
                if rule & together & self._once:
                    return False
                if rule & LENGTH and not rule & BAD_LENGTH:
                    if line is not self._stated:
                        self._number = int(line.value)
                        self._stated = line
                    self.length = self._number
                together |= rule
        self.rules = together
        return True

    def missed(self, head: bytes, lines: list[Line]) -> bool:
        """A sound head that was read by itself: no flag of its says that anything is wrong.

        Whether heads that begin with its first line are expected from now on; else with what they were.
        """
        if self._rest:
            self._rest -= 1
            return False
        if len(head) > MAX_BYTES or len(lines) > MAX_REMEMBERED or head.startswith(_CRLF):
            return False
        first = head[: head.find(_CRLF) + 2]
        if self._prefix is None:
            last, self._last = self._last, lines
            if last is None:
                return False
            self._last = None
            self._build(first, lines, *_common(last, lines, len(lines), len(lines)))
            return True
        self._credit -= _MISS
        if self._credit < 0:
            self._credit = _CREDIT
            self._rest = _REST
            self.forget()
            return False
        before, behind = self.before.lines, self.behind.lines
        last = [*before, *[slot.line for slot in self._slots], *behind]
        self._build(first, lines, *_common(last, lines, len(before), len(behind)))
        return True

    def _look(self) -> bool:
        """Lines between that haven't changed for long stand still, too; whether there were such."""
        self._looked = 0
        slots = self._slots
        count = len(slots)
        more = 0
        while more < count and not slots[more].changed:
            more += 1
        less = 0
        while less < count - more and not slots[count - 1 - less].changed:
            less += 1
        for slot in slots:
            slot.changed = False
        if not more and not less:
            return False
        before, behind = self.before.lines, self.behind.lines
        lines = [*before, *[slot.line for slot in slots], *behind]
        self._build(self._first, lines, len(before) + more, len(behind) + less)
        return True

    def _build(self, first: bytes, lines: list[Line], before: int, behind: int) -> None:
        """``before``, ``behind``: how many lines stand still at the beginning and at the end."""
        until = len(lines) - behind
        self.before = Still(lines[:before]) if before else NOTHING
        self.behind = Still(lines[until:]) if behind else NOTHING
        self._rules = self.before.rules | self.behind.rules
        self._still = before + behind
        self._first = first
        self._prefix = prefix = b"".join([first, *[line.raw for line in lines[:before]]])
        self._suffix = suffix = b"".join([*[line.raw for line in lines[until:]], _CRLF])
        self._start = len(prefix)
        self._tail = len(suffix)
        self._slots = [Slot(line) for line in lines[before:until]]
        self._looked = 0
        self._length = None
        for line in [*self.before.lines, *self.behind.lines]:
            if line.rule & LENGTH:
                self._length = int(line.value)

    def forget(self) -> None:
        """Begin anew."""
        self._prefix = None
        self._first = self._suffix = b""
        self._start = self._tail = self._still = self._rules = 0
        self._length = None
        self._slots = []
        self.before = self.behind = NOTHING


def _common(last: list[Line], lines: list[Line], most_before: int, most_behind: int) -> tuple[int, int]:
    """How many lines two heads share at the beginning and, of the others, at the end."""
    fewer = min(len(last), len(lines))
    before = 0
    most = min(fewer, most_before)
    while before < most and last[before].raw == lines[before].raw:
        before += 1
    behind = 0
    most = min(fewer - before, most_behind)
    while behind < most and last[-1 - behind].raw == lines[-1 - behind].raw:
        behind += 1
    return before, behind

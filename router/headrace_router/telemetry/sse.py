"""Reads along in an answer: when the first token came, how many events had content, what usage says.

On the request path, beside the relay: it sees every byte and alters none (STR-05). Works on lines whatever the chunk
edges, line ends and comments (WHATWG HTML, server-sent events); memory is bounded whatever the length of an event
(STR-04). Must never raise for what an engine sends.

Events are decoded until one has content. From then on an event is counted by its sign (signs.py) where it has it, and
decoded where it hasn't; usage is always decoded.
"""

from __future__ import annotations

from typing import Final

import msgspec
from mypy_extensions import i64, mypyc_attr

from headrace_router.telemetry.events import Event, Inner, StatedUsage
from headrace_router.telemetry.signs import sign_of

MAX_LINE: Final = 64 * 1024
# No answer has more tokens; a larger number is an engine's fault and would stand in demand for ever.
_MOST_TOKENS: Final = 10**8
USAGE: Final = b'"usage"'
# A longer way to the content is not worth remembering.
_MAX_OPENING: Final = 1024
# Content up to this is looked at byte by byte, which is cheaper than to search it.
_SHORT: Final = 64
_TOO_LONG: Final = bytes(MAX_LINE + 1)
_QUOTE: Final = ord('"')
_LINE_FEED: Final = ord("\n")
_SPACE: Final = ord(" ")
_EVENT: Final = msgspec.json.Decoder(Event)
STATED: Final = msgspec.json.Decoder(Inner)


@mypyc_attr(free_list_len=1, acyclic=True)
class Usage:
    """Tokens that an answer's usage states; None is unknown."""

    __slots__ = ("input_tokens", "output_tokens")

    def __init__(self) -> None:
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None

    def take(self, usage: StatedUsage | None) -> None:
        """Later statements correct earlier ones; what is absent, negative or absurd says nothing."""
        if usage is None:
            return
        stated = usage.prompt_tokens if usage.input_tokens is None else usage.input_tokens
        if stated is not None and 0 <= stated <= _MOST_TOKENS:
            self.input_tokens = stated
        stated = usage.completion_tokens if usage.output_tokens is None else usage.output_tokens
        if stated is not None and 0 <= stated <= _MOST_TOKENS:
            self.output_tokens = stated


NO_USAGE: Final = Usage()


def stated_usage(rest: bytes) -> StatedUsage | None:
    """The usage of a JSON object, out of its ``rest`` from the key ``"usage"`` on.

    The rest is an object of its own, but for the opening brace, if and only if the key stands in the object itself and
    not deeper: else a closing brace is too many. No string can hold the key, because its quotes would be escaped. So
    nothing before it need be decoded.

    Raises:
        MsgspecError, UnicodeDecodeError, RecursionError: it stands deeper, or the object is broken.
    """
    return STATED.decode(b"{" + rest).usage


@mypyc_attr(free_list_len=1, acyclic=True)
class StreamObserver:
    """Feed it every chunk; ``feed`` tells whether the first token has been seen by now."""

    __slots__ = (
        "_after_cr",
        "_behind",
        "_data",
        "_dropping",
        "_ending",
        "_fresh",
        "_mid",
        "_opening",
        "_sign",
        "_size",
        "_tail",
        "content_events",
        "started",
        "usage",
    )

    def __init__(self) -> None:
        self.usage = Usage()
        self.content_events = 0
        self.started = False
        self._sign: bytes | None = None
        # The bytes of an event from its start to its sign's end; most events of a stream begin like the one before.
        self._opening = b""
        # What followed the content of the last that said no usage, to its end, and to its chunk's.
        self._behind = b""
        self._ending = b""
        self._tail = b""
        self._data: list[bytes] = []
        self._size = 0  # of the data, its lines joined
        self._dropping = False
        self._after_cr = False
        # In the middle of an event, of a line that is dropped, or of a line end.
        self._mid = False
        # The next chunk begins an event, and how they begin is known.
        self._fresh = False

    def feed(self, chunk: bytes) -> bool:
        """Read one chunk of any size and edge."""
        if self._fresh and self._usual(chunk):
            return True
        if self._sign is None or self._mid:
            self._read(chunk)
        elif self._tail or b"\r" in chunk:
            self._pieces(chunk, self._sign)
        else:
            self._count(chunk, self._sign)
        self._fresh = bool(self._opening) and not self._mid and not self._tail
        return self.started

    def end(self) -> None:
        """The stream ended; an event without its blank line still counts."""
        if self._tail and not self._dropping:
            self._line(self._tail)
        self._tail = b""
        self._dispatch()

    def usual(self, raw: bytes, at: int) -> bool:
        """Count one whole chunk in its framing, payload from ``at`` on, if it is one event like the last but for its
        content. False: it is to be fed; nothing was taken of it.

        The same opening and ending as those of an event that ``_usual`` has found to be one, and between them neither
        the end of a line nor usage: it would find the same again.
        """
        opening = self._opening
        ending = self._ending
        if not self._fresh or not ending or not raw.endswith(ending):
            return False
        content: i64 = at + len(opening)
        end: i64 = len(raw) - len(ending)
        if content >= end or end - content > _SHORT or raw[at:content] != opening or raw[content] == _QUOTE:
            return False
        quotes = False
        byte: i64
        while content < end:
            byte = raw[content]
            if byte < _SPACE:
                return False
            if byte == _QUOTE:
                quotes = True
            content += 1
        if quotes and raw.find(USAGE, at + len(opening)) >= 0:
            return False
        self.content_events += 1
        return True

    def _usual(self, chunk: bytes) -> bool:
        """Count the usual chunk: one event that begins like the last, has content, and ends with its data line."""
        if not chunk.startswith(self._opening):
            return False
        at, size = len(self._opening), len(chunk)
        end = chunk.find(b"\n", at)
        if end == size - 2:
            whole = chunk[end + 1] == _LINE_FEED and chunk.find(b"\r", at) < 0
        elif end == size - 3:
            whole = chunk[end + 1 :] == b"\r\n" and chunk.find(b"\r", at) == end - 1
        else:
            whole = False
        if not whole or chunk[at] == _QUOTE:
            return False
        usage = chunk.find(USAGE, at)
        if usage >= 0 and not self._took_usage(chunk[usage:]):
            return False
        self.content_events += 1
        if usage < 0 or _says_none(chunk[usage:]):
            self._learn(chunk, at, size)
        return True

    def _learn(self, chunk: bytes, at: int, stop: int) -> None:
        """How an event ends behind its content, which begins at ``at``."""
        quote = chunk.find(b'"', at, stop)
        if quote > 0 and stop - quote <= _MAX_OPENING:
            self._behind = chunk[quote:stop]
            self._ending = self._behind + b"\r\n"

    def _like_the_last(self, chunk: bytes, start: i64) -> i64:
        """Where an event at ``start`` ends if it is one like the last but for its content; 0: it is to be looked at.

        See ``usual``; content with a quote in it is left to others.
        """
        opening = self._opening
        behind = self._behind
        at: i64 = start + len(opening)
        if not behind or at >= len(chunk) or chunk[start:at] != opening:
            return 0
        end: i64 = min(at + _SHORT, len(chunk) - len(behind))
        content: i64 = at
        while content < end and chunk[content] != _QUOTE:
            if chunk[content] < _SPACE:
                return 0
            content += 1
        stop: i64 = content + len(behind)
        if content == at or chunk[content:stop] != behind:
            return 0
        return stop

    def _pieces(self, chunk: bytes, sign: bytes) -> None:
        """Count a chunk that goes on where a line was cut, or has other line ends."""
        plain = chunk.replace(b"\r\n", b"\n") if b"\r" in chunk else chunk
        if b"\r" in plain or b"\n" not in plain:
            self._read(chunk)
            return
        joined, self._tail = self._tail + plain, b""
        self._count(joined, sign)
        if plain is not chunk and b"\n" in self._opening:
            self._opening = self._opening.replace(b"\r", b"").replace(b"\n", b"\r\n")

    def _count(self, chunk: bytes, sign: bytes) -> None:
        """Count events by their sign from the start of one on; what hasn't got it is read."""
        start, size = 0, len(chunk)
        while start < size:
            stop = self._like_the_last(chunk, start)
            if stop:
                self.content_events += 1
                start = stop
                continue
            opening = self._opening
            if opening and chunk.startswith(opening, start):
                at = start + len(opening)
                end = chunk.find(b"\n", at)
                if end >= 0 and chunk[end + 1 : end + 2] == b"\n" and self._has(at, chunk, end):
                    if chunk.find(USAGE, at, end) < 0:
                        self._learn(chunk, at, end + 2)
                    start = end + 2
                    continue
            # The data line: the event's only one, or the one behind its name.
            line, end = start, chunk.find(b"\n", start)
            if chunk[start : start + 6] == b"event:" and end >= 0 and chunk[end + 1 : end + 6] == b"data:":
                line = end + 1
                end = chunk.find(b"\n", line)
            if end < 0 or chunk[end + 1 : end + 2] != b"\n" or chunk[line : line + 5] != b"data:":
                end = chunk.find(b"\n\n", start)
                self._read(chunk[start:] if end < 0 else chunk[start : end + 2])
                if end < 0:
                    return
            else:
                at = chunk.find(sign, line, end)
                opening = chunk[start : at + len(sign)] if at >= 0 else b""
                if at >= 0 and USAGE not in opening and self._has(at + len(sign), chunk, end):
                    self._opening = opening if len(opening) <= _MAX_OPENING else b""
                else:
                    self._read(chunk[line : end + 2])
            start = end + 2

    def _has(self, at: int, chunk: bytes, end: int) -> bool:
        """Count an event whose content begins at ``at`` and which ends at ``end``; False: it must be decoded.

        There is no usage in front of ``at``.
        """
        if chunk[at] == _QUOTE:
            return False
        usage = chunk.find(USAGE, at, end)
        if usage >= 0 and not self._took_usage(chunk[usage:end]):
            return False
        self.content_events += 1
        return True

    def _took_usage(self, rest: bytes) -> bool:
        """Whether the usage that an event's ``rest`` begins with could be taken without decoding what is before it."""
        if _says_none(rest):
            return True
        try:
            self.usage.take(stated_usage(rest))
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return False
        return True

    def _read(self, chunk: bytes) -> None:
        """Read line by line."""
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[:1] == b"\n":
                chunk = chunk[1:]
        if chunk:
            lines = (self._tail + chunk).splitlines(keepends=True)
            last = lines[-1]
            if last[-1:] in (b"\n", b"\r"):
                self._tail = b""
                self._after_cr = last[-1:] == b"\r"
            else:
                lines.pop()
                self._keep(last)
            for line in lines:
                self._line(line.rstrip(b"\r\n"))
        self._mid = bool(self._data) or self._dropping or self._after_cr

    def _keep(self, rest: bytes) -> None:
        if len(rest) > MAX_LINE:
            if not self._dropping and rest.startswith(b"data:"):
                self._counted()
            self._dropping = True
        # While a long line is dropped one byte of it stays, so that its end is not taken for an empty line.
        self._tail = rest[:1] if self._dropping else rest

    def _line(self, line: bytes) -> None:
        if self._dropping:
            self._dropping = False
            self._data.clear()
        elif not line:
            self._dispatch()
        elif line.startswith(b"data:"):
            self._size = self._size + 1 if self._data else 0
            data = line[6:] if line[5:6] == b" " else line[5:]
            self._size += len(data)
            if self._size <= MAX_LINE:
                self._data.append(data)
            else:
                # However many lines follow, of this event nothing is kept.
                self._data = [_TOO_LONG]

    def _dispatch(self) -> None:
        if not self._data:
            return
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        self._data.clear()
        if data == b"[DONE]":
            return
        if len(data) > MAX_LINE:
            self._counted()
            return
        try:
            event = _EVENT.decode(data)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return
        if event.says_something():
            self._counted()
            self._sign = sign_of(data) or self._sign
        self.usage.take(event.usage)
        for inner in (event.response, event.message):
            if inner is not None:
                self.usage.take(inner.usage)

    def _counted(self) -> None:
        self.content_events += 1
        self.started = True


def _says_none(rest: bytes) -> bool:
    """Whether the usage that begins an event's ``rest`` is null, and the only one."""
    return rest[7:12] == b":null" and rest.find(USAGE, 12) < 0

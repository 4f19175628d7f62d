"""Reads along in an SSE answer: when the first token came, how many events had content, what usage says.

On the request path, beside the relay: it sees every byte and alters none (STR-05). Works on lines whatever the chunk
edges, line ends and comments (WHATWG HTML, server-sent events); memory is bounded whatever the length of an event
(STR-04). Must never raise for what an engine sends.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

MAX_LINE: Final = 64 * 1024
MAX_UNARY: Final = 256 * 1024
_TAIL: Final = 8 * 1024
# No answer has more tokens; a larger number is an engine's fault and would stand in demand for ever.
_MOST_TOKENS: Final = 10**8


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Delta(msgspec.Struct):
    content: object = None
    reasoning: object = None
    reasoning_content: object = None
    refusal: object = None
    tool_calls: object = None
    function_call: object = None
    audio: object = None

    def says_something(self) -> bool:
        return bool(
            self.content
            or self.tool_calls
            or self.reasoning_content
            or self.reasoning
            or self.refusal
            or self.function_call
            or self.audio
        )


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: str | None = None

    def says_something(self) -> bool:
        return bool(self.text) or (self.delta is not None and self.delta.says_something())


class _Inner(msgspec.Struct):
    usage: _Usage | None = None


class _Event(msgspec.Struct):
    """The few fields of any of the three APIs that count; others are skipped, not built."""

    type: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    response: _Inner | None = None
    message: _Inner | None = None

    def says_something(self) -> bool:
        if self.choices:
            return any(choice.says_something() for choice in self.choices)
        return self.type is not None and (self.type == "content_block_delta" or self.type.endswith(".delta"))


_EVENT: Final = msgspec.json.Decoder(_Event)
_UNARY_USAGE: Final = msgspec.json.Decoder(_Inner)
_INPUT: Final = re.compile(rb'"(?:prompt|input)_tokens"\s*:\s*([0-9]{1,12})\b')
_OUTPUT: Final = re.compile(rb'"(?:completion|output)_tokens"\s*:\s*([0-9]{1,12})\b')


class Usage:
    """Tokens that an answer's usage states; None is unknown."""

    __slots__ = ("input_tokens", "output_tokens")

    def __init__(self) -> None:
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None

    def take(self, usage: _Usage | None) -> None:
        """Later statements correct earlier ones; what is absent, negative or absurd says nothing."""
        if usage is None:
            return
        for stated in (usage.prompt_tokens, usage.input_tokens):
            if stated is not None and 0 <= stated <= _MOST_TOKENS:
                self.input_tokens = stated
        for stated in (usage.completion_tokens, usage.output_tokens):
            if stated is not None and 0 <= stated <= _MOST_TOKENS:
                self.output_tokens = stated


class StreamObserver:
    """Feed it every chunk; ``feed`` tells whether the first token has been seen by now."""

    __slots__ = ("_after_cr", "_data", "_dropping", "_tail", "content_events", "started", "usage")

    def __init__(self) -> None:
        self.usage = Usage()
        self.content_events = 0
        self.started = False
        self._tail = b""
        self._data: list[bytes] = []
        self._dropping = False
        self._after_cr = False

    def feed(self, chunk: bytes) -> bool:
        """Read one chunk of any size and edge."""
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[:1] == b"\n":
                chunk = chunk[1:]
        if not chunk:
            return self.started
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
        return self.started

    def end(self) -> None:
        """The stream ended; an event without its blank line still counts."""
        if self._tail and not self._dropping:
            self._line(self._tail)
        self._tail = b""
        self._dispatch()

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
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])

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
        self.usage.take(event.usage)
        for inner in (event.response, event.message):
            if inner is not None:
                self.usage.take(inner.usage)

    def _counted(self) -> None:
        self.content_events += 1
        self.started = True


class UnaryObserver:
    """Collects a unary answer up to a bound and reads its usage at the end; beyond the bound, out of its last bytes."""

    __slots__ = ("_all", "_size", "_tail")

    def __init__(self) -> None:
        self._all = bytearray()
        self._tail = b""
        self._size = 0

    def feed(self, chunk: bytes) -> bool:
        """Read one chunk; a unary answer has no first token to see."""
        self._size += len(chunk)
        if self._size <= MAX_UNARY:
            self._all += chunk
        else:
            self._all.clear()
        self._tail = (self._tail + chunk[-_TAIL:])[-_TAIL:]
        return False

    def usage(self) -> Usage:
        """What the whole answer's usage says."""
        found = Usage()
        if self._all:
            try:
                found.take(_UNARY_USAGE.decode(self._all).usage)
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
                return found
        elif self._size:
            inputs, outputs = _INPUT.findall(self._tail), _OUTPUT.findall(self._tail)
            found.take(
                _Usage(
                    input_tokens=int(inputs[-1]) if inputs else None,
                    output_tokens=int(outputs[-1]) if outputs else None,
                )
            )
        return found

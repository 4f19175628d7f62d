"""Reads a stream of server-sent events as it arrives: first content, errors, the end. Pure.

Only what the replay must know is decoded; an event that can't be read counts as an error, never as content.
"""

from __future__ import annotations

import msgspec

MAX_EVENT_BYTES = 4 * 2**20  # a stream without an event's end is no stream of events


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: str | None = None


class _Error(msgspec.Struct):
    message: str = ""
    code: str | int | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    error: _Error | None = None


class EventReader:
    """Feed it bytes; it tells when content was first there, whether [DONE] came, and the first error."""

    def __init__(self) -> None:
        self._rest = b""
        self._decoder = msgspec.json.Decoder(_Event)
        self.content = False
        self.done = False
        self.error = ""

    def feed(self, data: bytes) -> None:
        """Take bytes at any boundary."""
        *events, self._rest = (self._rest + data).split(b"\n\n")
        if len(self._rest) > MAX_EVENT_BYTES:
            self._rest, self.error = b"", self.error or "an event above 4 MiB"
        for event in events:
            for line in event.split(b"\n"):
                if line.startswith(b"data:"):
                    self._read(line[5:].strip())

    def _read(self, payload: bytes) -> None:
        if payload == b"[DONE]":
            self.done = True
            return
        try:
            event = self._decoder.decode(payload)
        except msgspec.MsgspecError as error:
            self.error = self.error or f"unreadable event: {error}"
            return
        if event.error is not None:
            self.error = self.error or event.error.message or str(event.error.code)
        for choice in event.choices:
            if (choice.delta and choice.delta.content) or choice.text:
                self.content = True


class ErrorBody(msgspec.Struct):
    """An answer's error in OpenAI's form."""

    error: _Error | None = None


def error_of(body: bytes) -> tuple[str, str]:
    """(code, message) of an error body; both empty when it is none."""
    try:
        error = msgspec.json.decode(body, type=ErrorBody).error
    except msgspec.MsgspecError:
        return "", ""
    return ("", "") if error is None else (str(error.code or ""), error.message)

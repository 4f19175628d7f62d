"""Reads along in a unary answer: what its usage says when it has ended.

On the request path, beside the relay: it sees every byte and alters none (STR-05); memory is bounded whatever the
length of an answer (STR-04). Must never raise for what an engine sends.
"""

from __future__ import annotations

from typing import Final

import msgspec
from mypy_extensions import mypyc_attr

from headrace_router.telemetry.events import StatedUsage
from headrace_router.telemetry.sse import NO_USAGE, STATED, USAGE, Usage, stated_usage
from headrace_router.telemetry.usage_form import UsageForm

MAX_UNARY: Final = 256 * 1024
_TAIL: Final = 8 * 1024


@mypyc_attr(free_list_len=1, acyclic=True)
class UnaryObserver:
    """Collects a unary answer up to a bound and reads its usage at the end; beyond the bound, out of its last bytes."""

    __slots__ = ("_data", "_more", "_size")

    def __init__(self) -> None:
        self._data = b""
        self._more: list[bytes] | None = None  # what came behind it
        self._size = 0

    def feed(self, chunk: bytes) -> bool:
        """Read one chunk; a unary answer has no first token to see."""
        if not self._size:
            self._data = chunk
        elif self._more is None:
            self._more = [chunk]
        else:
            self._more.append(chunk)
        self._size += len(chunk)
        if self._size > MAX_UNARY:
            self._data = self._whole()[-_TAIL:]
            self._more = None
        return False

    def usage(self, form: UsageForm | None = None) -> Usage:
        """What the whole answer's usage says; not to be changed. ``form``: of answers from where this one came."""
        data = self._whole()
        if form is not None and form.meets(data):
            found = Usage()
            if form.inputs >= 0:
                found.input_tokens = form.inputs
            if form.outputs >= 0:
                found.output_tokens = form.outputs
            return found
        at = data.rfind(USAGE)
        if at < 0:
            return NO_USAGE
        found = Usage()
        rest = data[at:]
        try:
            found.take(stated_usage(rest))
            if form is not None:
                form.take_on(rest, found.input_tokens, found.output_tokens)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            if self._size <= MAX_UNARY:
                found.take(_usage_of(data))
        return found

    def _whole(self) -> bytes:
        return self._data if self._more is None else b"".join([self._data, *self._more])


def _usage_of(data: bytes) -> StatedUsage | None:
    try:
        return STATED.decode(data).usage
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None

"""Reads the usage at the end of a unary answer where it is written as in the answer before, without decoding it.

On the request path, at the end of a request. An engine writes the end of its answers in one way: only the numbers
differ. So what a decoder has read once is kept as a form, and an end that differs from it in nothing but whole numbers
says the same with its own numbers. Whatever has another form is decoded. Must not read what a decoder wouldn't.
"""

from __future__ import annotations

import re
from typing import Final

from mypy_extensions import i64, mypyc_attr

# Stands for a number in a form; no JSON holds it.
_NUMBER: Final = 0
_ZERO: Final = 48
# Of a number, and of a form in bytes.
_MOST_DIGITS: Final = 8
_LONGEST: Final = 1024
# Forms that are taken on without any of them being met again.
_PATIENCE: Final = 8
# A value that is a whole number.
_VALUE: Final = re.compile(rb"(?<=:)(?:0|[1-9][0-9]{0,7})(?=[,}])")
_INPUTS: Final = (b'"prompt_tokens":', b'"input_tokens":')
_OUTPUTS: Final = (b'"completion_tokens":', b'"output_tokens":')


@mypyc_attr(acyclic=True)
class UsageForm:
    """How one engine's answers end, from the key ``"usage"`` on.

    Attributes:
        inputs, outputs: the tokens that ``meets`` has read; -1: not stated.
    """

    __slots__ = ("_form", "_inputs_at", "_left", "_number", "_outputs_at", "inputs", "outputs")

    def __init__(self) -> None:
        self._form = b""
        self._inputs_at: i64 = -1
        self._outputs_at: i64 = -1
        self._number: i64 = 0
        self._left = _PATIENCE
        self.inputs: i64 = -1
        self.outputs: i64 = -1

    def meets(self, data: bytes) -> bool:
        """Whether an answer ends so; its tokens are then in ``inputs`` and ``outputs``."""
        form = self._form
        at: i64 = len(data)
        place: i64 = len(form)
        if not place:
            return False
        inputs: i64 = -1
        outputs: i64 = -1
        while place > 0:
            place -= 1
            if at <= 0:
                return False
            at -= 1
            if form[place] != _NUMBER:
                if data[at] != form[place]:
                    return False
                continue
            at = self._read(data, at)
            if at < 0:
                return False
            if place == self._inputs_at:
                inputs = self._number
            elif place == self._outputs_at:
                outputs = self._number
        self.inputs = inputs
        self.outputs = outputs
        self._left = _PATIENCE
        return True

    def _read(self, data: bytes, at: i64) -> i64:
        """Where the number begins whose last digit is at ``at``, which is then in ``_number``; -1 if there is none."""
        number: i64 = 0
        scale: i64 = 1
        end: i64 = at - _MOST_DIGITS
        digit: i64 = 0
        while at >= 0:
            digit = data[at] - _ZERO
            if digit < 0 or digit > 9:
                break
            if at == end:
                return -1
            number += digit * scale
            scale *= 10
            at -= 1
        # None at all, or one too many in front: no JSON has 07.
        if scale == 1 or (scale > 10 and data[at + 1] == _ZERO):
            return -1
        self._number = number
        return at + 1

    def take_on(self, rest: bytes, inputs: int | None, outputs: int | None) -> None:
        """An answer ended with ``rest``, and a decoder read these tokens in it: the form to expect next, if it is plain
        where they stand."""
        if not self._left or len(rest) > _LONGEST or b"\\" in rest or bytes([_NUMBER]) in rest:
            return
        self._left -= 1
        self._form = b""
        found_inputs = _place(rest, _INPUTS, inputs)
        found_outputs = _place(rest, _OUTPUTS, outputs)
        if found_inputs < -1 or found_outputs < -1:
            return
        form = b""
        end = 0
        inputs_at = outputs_at = -1
        for match in _VALUE.finditer(rest):
            form += rest[end : match.start()]
            if match.start() == found_inputs:
                inputs_at = len(form)
            elif match.start() == found_outputs:
                outputs_at = len(form)
            form += bytes([_NUMBER])
            end = match.end()
        if (found_inputs >= 0) != (inputs_at >= 0) or (found_outputs >= 0) != (outputs_at >= 0):
            return
        self._inputs_at, self._outputs_at = inputs_at, outputs_at
        self._form = form + rest[end:]


def _place(rest: bytes, names: tuple[bytes, ...], value: int | None) -> int:
    """Where the number stands that was read as ``value``: -1 if none was, -2 if that can't be told for certain."""
    found = [(rest.find(name), name) for name in names if name in rest]
    if value is None:
        return -2 if found else -1
    if len(found) != 1 or rest.count(found[0][1]) != 1:
        return -2
    at = found[0][0] + len(found[0][1])
    match = _VALUE.match(rest, at)
    return at if match is not None and int(match[0]) == value else -2

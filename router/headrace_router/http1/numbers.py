"""Whole numbers out of what strangers send: ASCII digits alone, within a bound, never an exception.

Beside the request path. ``str.isdigit`` takes superscripts that ``int`` does not, and ``int`` refuses thousands of
digits: both raised for what a client may put into a header.
"""

from __future__ import annotations

from typing import Final

_MOST_DIGITS: Final = 15


def whole(text: str, most: int) -> int | None:
    """``text`` as a number from 0 to ``most``; None if it is none."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        return None
    number = int(text)
    return number if number <= most else None

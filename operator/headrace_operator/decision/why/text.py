"""Numbers as people read them: short, with units, never more digits than anyone would act on.

Pure. Sentences in status, Events and plans share these, so that one number looks the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace_api.status import clip


def plain(value: float) -> str:
    """A figure at three digits, or whole from a hundred on: 0.01, 7.5, 120, 12,400."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    text = f"{value:.3g}"
    return "0" if text in ("-0", "0") else text


def latency(seconds: float) -> str:
    """Seconds as latency: 0.4 ms, 7.3 ms, 41 ms, 1.3 s, 12 s."""
    milliseconds = seconds * 1e3
    if abs(milliseconds) < 9.95:
        return f"{milliseconds:.1f}".removesuffix(".0") + " ms"
    if abs(milliseconds) < 999.5:
        return f"{milliseconds:.0f} ms"
    return f"{seconds:.1f} s" if abs(seconds) < 9.95 else f"{seconds:,.0f} s"


def percent(share: float) -> str:
    """A share of 1 as percent: 0.4 %, 17 %, 100 %; what is above 0 never reads 0 %, what is below 1 never 100 %."""
    hundred = share * 100
    if 0 < hundred < 0.05:
        return "<0.1 %"
    if 99.5 <= hundred < 99.9999:
        return f"{min(hundred, 99.9):.1f} %"
    if 0 < hundred < 9.95 and abs(hundred - round(hundred)) >= 0.05:
        return f"{hundred:.1f} %"
    return f"{hundred:.0f} %"


def rate(value: float) -> str:
    """Requests per second."""
    return f"{plain(value)} requests/s"


def listed(items: Sequence[str], bound: int = 3) -> str:
    """The first items and how many more: "a, b, c and 4 more"."""
    shown = ", ".join(items[:bound])
    return shown if len(items) <= bound else f"{shown} and {len(items) - bound} more"


def plural(count: int, noun: str) -> str:
    """1 engine, 2 engines, 1 replica."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _others(count: int) -> str:
    """ " and 3 others": never "3 more", which beside a figure reads as three more of that."""
    return f" and {count} other{'s' if count > 1 else ''}"


def fitted(parts: Sequence[str], bound: int, separator: str = ", ") -> str:
    """As many parts as fit into ``bound`` characters, and how many were left out; the first is cut if it must be."""
    for count in range(len(parts), 0, -1):
        rest = len(parts) - count
        text = separator.join(parts[:count]) + (_others(rest) if rest else "")
        if len(text) <= bound:
            return text
    if not parts:
        return ""
    end = _others(len(parts) - 1) if len(parts) > 1 else ""
    return clip(parts[0], bound - len(end)) + end if bound > len(end) + 1 else clip(parts[0], bound)

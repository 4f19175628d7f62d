"""Bar charts as plain SVG: medians as bars, extremes as whiskers. Drawn here, so that no plotting library is needed."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

import msgspec

from bench.router.figures import Spread
from bench.router.text import number

WIDTH, NAMES, FIGURES, BAR, GAP = 720, 110, 130, 22, 8
OURS, OTHERS, INK, MARK = "#1b6ca8", "#9aa7b1", "#24292f", "#c0392b"


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One peer."""

    name: str
    value: Spread
    ours: bool


def chart(title: str, bars: Sequence[Bar], marks: Sequence[tuple[str, float]] = ()) -> str:
    """Bars from the top, the longest first as given. marks: name and value of vertical lines, such as must and aim."""
    top = 40
    height = top + len(bars) * (BAR + GAP) + 34
    most = max([bar.value.high for bar in bars] + [value for _, value in marks] + [1e-9])
    scale = (WIDTH - NAMES - FIGURES) / most
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"',
        '  font-family="sans-serif" font-size="13">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(10, 24, title, 'font-size="15" font-weight="bold"'),
    ]
    for at, bar in enumerate(bars):
        parts += _bar(bar, top + at * (BAR + GAP), scale)
    for at, (name, value) in enumerate(marks):
        x, foot = NAMES + value * scale, height - 20 + 12 * (at % 2)
        parts.append(_line(x, top - 4, x, height - 32, f'stroke="{MARK}" stroke-dasharray="4 3"'))
        parts.append(_text(x, foot, f"{name} {value:g}", f'text-anchor="middle" font-size="11" fill="{MARK}"'))
    return "\n".join([*parts, "</svg>", ""])


def _bar(bar: Bar, y: float, scale: float) -> list[str]:
    middle = y + BAR / 2
    low, high, end = (NAMES + at * scale for at in (bar.value.low, bar.value.high, bar.value.median))
    fill = OURS if bar.ours else OTHERS
    return [
        _text(NAMES - 8, middle + 5, bar.name, 'text-anchor="end"'),
        f'<rect x="{NAMES}" y="{y:.1f}" width="{max(0.0, end - NAMES):.1f}" height="{BAR}" fill="{fill}"/>',
        _line(low, middle, high, middle, f'stroke="{INK}" stroke-width="1.5"'),
        _text(max(end, high) + 8, middle + 5, number(bar.value.median)),
    ]


def _text(x: float, y: float, words: str, more: str = "") -> str:
    fill = "" if "fill=" in more else f' fill="{INK}"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{fill} {more}>{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, more: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {more}/>'

"""Text for people: aligned columns, colour only on a terminal, NO_COLOR respected; JSON and YAML for programs.

Shared by the operator's commands. Knows nothing of plans; takes cells and gives lines.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import IO, Final, NamedTuple

_CODES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_ESCAPE: Final = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
BAR_CELLS: Final = 10
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"


class Style(NamedTuple):
    """Whether colours are wanted."""

    colour: bool

    def __call__(self, text: str, *names: str) -> str:
        """The text in a colour, or as it is."""
        codes = ";".join(_CODES[name] for name in names)
        return f"\x1b[{codes}m{text}\x1b[0m" if self.colour and text and codes else text


def style_for(stream: IO[str]) -> Style:
    """Colours on a terminal, unless NO_COLOR is set (https://no-color.org) or the terminal is dumb."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Style(wanted and stream.isatty())


def plain_text(text: str) -> str:
    """The text without control characters, so that a name can't move the cursor."""
    return _CONTROL.sub("�", text)


def width(text: str) -> int:
    """Columns a text takes, colours not counted."""
    return len(_ESCAPE.sub("", text))


def columns(
    rows: Iterable[Sequence[str]], *, right: Iterable[int] = (), indent: str = "", gap: str = "  "
) -> list[str]:
    """Rows as aligned lines; ``right``: columns of figures. Trailing blanks are cut."""
    table = [list(row) for row in rows]
    if not table:
        return []
    figures = set(right)
    widths = [max(width(row[index]) for row in table) for index in range(len(table[0]))]
    lines: list[str] = []
    for row in table:
        cells = [
            " " * (room - width(cell)) + cell if index in figures else cell + " " * (room - width(cell))
            for index, (cell, room) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append((indent + gap.join(cells)).rstrip())
    return lines


def bar(share: float, cells: int = BAR_CELLS) -> str:
    """A share of 1 as a bar of ``cells`` characters; more than 1 shows full."""
    eighths = round(min(1.0, max(0.0, share)) * cells * 8)
    whole, rest = divmod(eighths, 8)
    text = "█" * whole + (_EIGHTHS[rest] if rest else "")
    return text.ljust(cells, "·")

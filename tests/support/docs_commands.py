"""Commands in documentation: found in fenced blocks, run as a reader would, their shown output compared.

``sh`` blocks hold commands that must exit 0. ``console`` blocks hold ``$ command`` lines, each followed by the output
that it must print; a line ``…`` stands for any lines, ``…`` inside a line for any text. Other blocks are not run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class DocCommand:
    """One command of a page; ``expected`` is None where the page shows no output."""

    page: str
    line: int
    command: str
    expected: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.command}"


def commands_of(page: Path, root: Path) -> list[DocCommand]:
    """All commands of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found: list[DocCommand] = []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start(2)) + 1
        name = str(page.relative_to(root))
        if match[1] == "sh":
            found.append(DocCommand(name, line, match[2], None))
        elif match[1] == "console":
            found.extend(_console(name, line, match[2]))
    return found


def _console(page: str, line: int, body: str) -> list[DocCommand]:
    blocks: list[tuple[int, str, list[str]]] = []
    for offset, text in enumerate(body.splitlines()):
        if text.startswith("$ "):
            blocks.append((line + offset, text[2:], []))
        elif blocks and blocks[-1][1].endswith("\\"):
            number, command, output = blocks.pop()
            blocks.append((number, command[:-1] + text.strip(), output))
        else:
            blocks[-1][2].append(text)
    return [DocCommand(page, number, command, "\n".join(output)) for number, command, output in blocks]


def matches(expected: str, actual: str) -> bool:
    """Whether an output is what a page shows; trailing blanks and trailing empty lines do not count."""

    def lines(text: str) -> list[str]:
        return [line.rstrip() for line in text.rstrip().splitlines()]

    pattern = "".join(
        r"(?:.*\n)*?" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + r"\n" for line in lines(expected)
    )
    return re.fullmatch(pattern, "".join(line + "\n" for line in lines(actual))) is not None

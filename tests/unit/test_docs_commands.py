"""The reader of documentation commands finds what a page shows, and its comparison can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.docs_commands import commands_of, matches


def test_finds_commands_and_outputs(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "a\n```sh\nmake x\n```\n```console\n$ one \\\n  two\nout 1\n$ three\n```\n```yaml\nno: command\n```\n"
    )
    found = [(c.line, c.command, c.expected) for c in commands_of(page, tmp_path)]
    assert found == [(3, "make x\n", None), (6, "one two", "out 1"), (9, "three", "")]


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ("a\nb", "a\nb\n", True),
        ("a\nb", "a\nc", False),
        ("took … s", "took 0.1 s", True),
        ("a\n…\nd", "a\nb\nc\nd", True),
        ("a\n…\nd", "a\nb\nc", False),
        ("1.5", "1x5", False),
    ],
)
def test_comparison(expected: str, actual: str, same: bool) -> None:
    assert matches(expected, actual) is same

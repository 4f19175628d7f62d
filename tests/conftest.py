"""Golden texts: what a test produces is compared with a file that people review; --update-golden writes it anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden texts anew; read the diff")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare a text with a golden file, or write the file under --update-golden."""
    update = bool(request.config.getoption("--update-golden", default=False))

    def compare(path: Path, text: str) -> None:
        if update:
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path.name} is missing; write it with: pytest --update-golden, and read it"
        assert text == path.read_text(encoding="utf-8")

    return compare

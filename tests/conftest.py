"""Golden texts: what a test produces is compared with a file that people review; --update-golden writes it anew.

--form says in which form the router must run (docs/adr/0021); without it nobody asks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden texts anew; read the diff")
    parser.addoption("--form", choices=("source", "compiled"), help="fail unless the router runs in this form")


def pytest_configure(config: pytest.Config) -> None:
    wanted = config.getoption("--form")
    if wanted is not None:
        from headrace_router.telemetry.form import FORM

        if wanted != FORM:
            raise pytest.UsageError(f"the router that would be tested runs as {FORM}; right would be {wanted}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that stand in for compiled parts have nothing to stand in for."""
    if config.getoption("--form") == "compiled":
        apart = [item for item in items if item.get_closest_marker("stand_ins")]
        config.hook.pytest_deselected(items=apart)
        items[:] = [item for item in items if not item.get_closest_marker("stand_ins")]


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

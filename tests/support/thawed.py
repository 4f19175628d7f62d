"""What a router's tests freeze is collected again afterwards: tables are read aside, which freezes all that lives."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """Without it a test process keeps every cycle that its tests leave behind."""
    yield
    gc.unfreeze()

"""A cluster store that the test tells of what there is."""

from __future__ import annotations

import pytest

from support.told_store import Server


@pytest.fixture
def server() -> Server:
    return Server()

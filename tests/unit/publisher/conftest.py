"""An API server of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.fake_kube import FakeKube


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    made = FakeKube()
    try:
        yield made
    finally:
        made.close()

"""API servers of the test's own, threads to call them with, and publishers of tables there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace_operator.kube.client import KubeClient
from headrace_operator.kube.pool import Pool
from headrace_operator.kube.remote import Access
from headrace_operator.publisher.cluster import access, remote
from headrace_operator.publisher.cluster.target import TableTarget
from support.fake_kube import FakeKube
from support.publisher_world import World
from support.table_target import Clock, target


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    made = FakeKube()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool(4, "test")
    yield made
    made.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def made(kube: FakeKube, pool: Pool, clock: Clock) -> TableTarget:
    return target(kube, pool, clock)


@pytest.fixture
def world(kube: FakeKube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    there = FakeKube()
    made = World(kube, there, tmp_path)

    def client(name: str, _: Access, may_write: Callable[[], bool]) -> KubeClient:
        return there.client(name, may_write, timeout=0.3)

    monkeypatch.setattr(access, "remote_client", client)
    monkeypatch.setattr(remote, "PATIENCE_SECONDS", 0.1)
    try:
        yield made
    finally:
        there.hang.clear()
        for one in made.made:
            one.close()
        there.close()

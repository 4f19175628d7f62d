"""Clusters that end-to-end tests share: one with nothing in it, and one with the whole product and its sample.

Each comes up when the first test asks for it and ends with the run, also with one that is killed. HEADRACE_E2E_NAME
names a cluster that hack/cluster/cluster.py made: it is used for both, and left running; for work on the tests.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.cluster import Cluster
from support.stage import Stage


@contextmanager
def running(name: str) -> Iterator[Cluster]:
    """A cluster, up for as long as the context."""
    kept = os.environ.get("HEADRACE_E2E_NAME")
    made = Cluster(name)
    if kept:
        made.name = kept
    made.up()
    try:
        yield made
    finally:
        if not kept:
            made.down()


@pytest.fixture(scope="session")
def bare() -> Iterator[Cluster]:
    """A cluster in which nothing of ours runs. Tests take out what they put in, or use a namespace of their own."""
    with running("bare") as made:
        yield made


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    """The product and its sample, installed once. Tests leave them as they found them."""
    with running("stage") as made:
        staged = Stage(made)
        staged.install()
        yield staged

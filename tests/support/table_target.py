"""Tables on one API server of the tests, by publishers of one term after the other."""

from __future__ import annotations

from typing import Any

from headrace_api.table import RoutingTable
from headrace_operator.kube.pool import Pool
from headrace_operator.publisher.cluster.target import TableTarget
from support.fake_kube import FakeKube
from support.tables import places_of, policy_of

NAME = "inf/headrace-chat-fe-a"
PLACES = places_of(policy_of())


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def target(kube: FakeKube, pool: Pool, clock: Clock, term: int = 1, **more: Any) -> TableTarget:
    client = kube.client()
    found = TableTarget("local", lambda: client, pool, term=term, owned=more.pop("owned", True), steady=clock, **more)
    found.read_back()
    kube.calls.clear()
    return found


def standing(kube: FakeKube, name: str = NAME) -> RoutingTable:
    from headrace_operator.publisher.cluster.objects import seen_of

    found = seen_of(kube.get("configmaps", name)).table
    assert found is not None
    return found


def foreign(name: str = NAME) -> dict[str, Any]:
    namespace, _, bare = name.partition("/")
    return {"metadata": {"name": bare, "namespace": namespace}, "data": {"mine": "1"}}


def deleted(kube: FakeKube) -> None:
    kube.remove("configmaps", NAME)

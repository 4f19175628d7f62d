"""An upgrade's two halves: last release's routers on this operator's tables, and the reverse, with real requests.

api.md, Evolution: within a schemaVersion fields are only added and readers ignore those that they don't know.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from headrace_api.names import LABELS_DEMAND, METRIC_OFFERED
from headrace_api.table import Route, RoutingTable
from support.engine_manifests import engine_dict, policy_dict
from support.fake_engine import FakeEngine, answers
from support.operator_process import operator, tables, until, write_manifests
from support.previous import Unavailable, environment
from support.raw_client import ask, post
from support.router_process import reads, ready, router_process, until_async

NOW: Mapping[str, str] | None = None
HERE = {"region": "r1", "cluster": "c1"}


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    try:
        return environment(tmp_path_factory.mktemp("previous"))
    except Unavailable as missing:
        pytest.skip(f"NOT RUN: {missing}")


class Place(NamedTuple):
    pods: list[FakeEngine]
    manifests: Path
    state: Path
    log: Path
    config: Path

    def path(self, frontend: str) -> Path:
        return self.state / "inf" / f"headrace-chat-{frontend}.yaml"


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """Engines by url and by Service, and a policy that sets what both releases know."""
    made = Place([], tmp_path / "manifests", tmp_path / "state", tmp_path / "log", tmp_path / "config.yaml")
    async with AsyncExitStack() as stack:
        for _ in range(3):
            made.pods.append(await stack.enter_async_context(FakeEngine(answers)))
        first, second, third = (pod.url for pod in made.pods)
        made.config.write_text(yaml.safe_dump({"tick": "200ms"}))
        engines = [
            engine_dict("a", first, location=HERE, models=[{"name": "m", "servedName": "org/M"}], maxModelLen=9000),
            engine_dict("b", [second], location={"region": "r2", "cluster": "c2"}, capabilities=["tools"]),
            engine_dict("c", third, location=HERE),
        ]
        engines[2]["spec"]["endpoints"]["service"] = {"name": "localhost", "port": made.pods[2].port}
        policy = policy_dict(
            frontends=[
                {"name": "fe-a", "location": HERE, "demand": {"requestsPerSecond": 140}},
                {"name": "fe-b", "location": {"region": "r2"}, "demand": {"requestsPerSecond": 140}},
            ],
            network={"default": "20ms", "measured": True},
            affinity={"keys": [{"header": "x-session-id"}, {"prefix": {}}], "slack": "1s"},
            timeouts={"connect": "10s"},
            protection={"shedding": {"priorities": [{"name": "hi", "value": 9}, {"name": "lo", "value": 1}]}},
            paths=["/v1/rerank"],
        )
        write_manifests(made.manifests, "engines.yaml", *engines)
        write_manifests(made.manifests, "policy.yaml", policy)
        yield made


async def written(place: Place, by: Mapping[str, str] | None) -> dict[str, RoutingTable]:
    """The tables that an operator makes of the place."""
    async with operator(place.manifests, place.state, place.log, "--config", str(place.config), env=by) as running:
        await until(lambda: tables(place.state).keys() == {"fe-a", "fe-b"}, "both tables stand")
        assert await running.terminate() == 0
    return tables(place.state)


async def serve(place: Place, frontend: str, by: Mapping[str, str] | None) -> Counter[str]:
    """What a router answers on a front-end's table: requests by engine; each must be served."""
    arguments = ("--table", str(place.path(frontend)), "--frontend", frontend)
    async with router_process(*arguments, env=by) as router:
        await until_ready(router.admin)
        found: Counter[str] = Counter()
        for number in range(40):
            stream = number % 2 == 0
            sent: dict[str, Any] = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": "hi"}]}
            session = f"x-session-id: s{number}"
            answer = await ask(router.url, post(sent, "/v1/chat/completions", session, "x-headrace-priority: hi"))
            assert (answer.status, answer.complete) == (200, True), (answer.body, router.said)
            found[answer.header("x-headrace-engine")] += 1
        labels = {"policy_namespace": "inf", "policy": "chat", "frontend": frontend, "model": "m", "priority": "hi"}
        assert {*labels, "prompt_class"} == set(LABELS_DEMAND)
        await reads(40, router.admin, METRIC_OFFERED, **labels)
        assert not [line for line in router.said if "refused" in line or "Traceback" in line]
        return found


async def until_ready(admin: str) -> None:
    async def is_ready() -> bool:
        return (await ready(admin))[0] == 200

    await until_async(is_ready)


@pytest.mark.parametrize("which", ["last router, this operator", "this router, last operator"])
async def test_routers_serve_by_tables_of_the_other_release(
    place: Place, previous: Mapping[str, str], which: str
) -> None:
    by_operator, by_router = (NOW, previous) if which.startswith("last router") else (previous, NOW)
    made = await written(place, by_operator)
    if by_operator is NOW:
        assert all(table.measure_round_trips for table in made.values())
    assert [engine.service is not None for engine in made["fe-a"].engines] == [False, False, True]
    near, far = await asyncio.gather(serve(place, "fe-a", by_router), serve(place, "fe-b", by_router))
    # Nothing resolves the Service here: its engine is passed over.
    assert near.keys() <= {"a", "b"}
    assert far.keys() == {route.engine.partition("/")[2] for route in weighted(made["fe-b"])}
    assert len(far) > 1
    renamed = [pod.requests for pod in place.pods[:1]]
    asked = [one.body for requests in renamed for one in requests if one.target == "/v1/chat/completions"]
    assert asked
    assert all(b'"org/M"' in body for body in asked)


def weighted(table: RoutingTable) -> list[Route]:
    return [route for route in table.models[0].classes[0].routes if route.weight > 1_000]

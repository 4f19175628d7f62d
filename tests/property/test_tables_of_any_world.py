"""Whatever the world: the same bytes in any order of its parts and in another process; sums and capacities that hold.

The worlds are drawn at random (seeded by hypothesis): engines on mixed hardware, rules and optimized policies, prompt
classes, priorities, earlier tables, signals that are missing, stale or no numbers.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from math import inf, nan
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace_api.engine import InferenceEngine
from headrace_api.policy import RoutingPolicy
from headrace_api.table import WEIGHT_TOTAL, RoutingTable
from headrace_operator.decision.decide import decide
from headrace_operator.decision.memory import Memory
from headrace_operator.decision.tables.encode import encode_table
from headrace_operator.decision.warm import WarmModels
from headrace_operator.snapshot.build import build_snapshot
from headrace_operator.snapshot.signals import DemandSignal, EngineSignal, Reading, Signals
from headrace_router.core.table_check import parse_table
from support.examples import examples
from support.world import AT, engine, frontend, policy

REGIONS = ("r1", "r2", "r3")
HARDWARE: tuple[dict[str, Any], ...] = (
    {"perReplica": {"requestsPerSecond": 12}},
    {"perReplica": {"requestsPerSecond": 30}},
    {"perReplica": {"prefillTokensPerSecond": 40000, "decodeTokensPerSecond": 6000, "maxConcurrency": 64}},
    {"perReplica": {"prefillTokensPerSecond": 20000, "decodeTokensPerSecond": 9000}},
)
PROFILES: tuple[dict[str, Any], ...] = (
    {},
    {"ttft": [{"utilizationPercent": 0, "latency": "80ms"}, {"utilizationPercent": 100, "latency": "2s"}]},
    {"tbot": [{"utilizationPercent": 0, "latency": "8ms"}, {"utilizationPercent": 90, "latency": "25ms"}]},
)
LEVELS = [{"name": "high", "value": 100}, {"name": "low", "value": 1}]
TRIPS = [{"from": "r1", "to": "r2", "latency": "40ms"}, {"from": "r2", "to": "r3", "latency": "70ms"}]


class World(msgspec.Struct, frozen=True):
    """All that a tick is given."""

    engines: tuple[InferenceEngine, ...]
    policies: tuple[RoutingPolicy, ...]
    signals: Signals


def world_of(seed: int) -> World:
    """One random world."""
    dice = random.Random(seed)
    engines = tuple(
        engine(
            f"e{index}",
            replicas=dice.choice((0, 1, 2, 5)),
            region=dice.choice(REGIONS),
            capacity=dice.choice(HARDWARE),
            profile=dice.choice(PROFILES),
            state=dice.choice(("Active", "Active", "Active", "Draining")),
        )
        for index in range(dice.randint(1, 6))
    )
    policies = tuple(
        policy(
            f"p{index}",
            [
                frontend(f"fe-{index}-{place}", dice.choice((None, 3, 25, 80)), region=dice.choice(REGIONS))
                for place in range(dice.randint(1, 3))
            ],
            strategy={"type": dice.choice(("Optimized", "Optimized", "Optimized", "Nearest", "RoundRobin", "Static"))},
            network={"roundTrip": TRIPS},
            protection={"shedding": {"priorities": dice.choice(([], LEVELS))}},
            mode=dice.choice(("Enforce", "Enforce", "Shadow")),
            metadata={"uid": f"uid-{index}"},
        )
        for index in range(dice.randint(1, 3))
    )
    return World(engines, policies, _signals(dice, engines, policies))


def _signals(dice: random.Random, engines: tuple[InferenceEngine, ...], policies: tuple[RoutingPolicy, ...]) -> Signals:
    def reading(*values: float) -> Reading:
        return Reading(value=dice.choice((*values, nan, inf, -1.0)), age=dice.choice((0.0, 60.0, 1e4)))

    demand = tuple(
        DemandSignal(
            policy=f"ns/{one.metadata.name}",
            frontend=front.name,
            model="m",
            requests_per_second=reading(0.0, 4.0, 60.0),
            input_tokens=dice.choice((None, reading(100.0, 5000.0))),
            prompt_class=dice.choice((None, 0, 1)),
        )
        for one in policies
        for front in one.spec.frontends
        if dice.random() < 0.5
    )
    measured = tuple(
        EngineSignal(
            engine=f"ns/{one.metadata.name}",
            ready_replicas=reading(0.0, 1.0, 3.0),
            alive=dice.choice((None, True, False)),
            hit_share=reading(0.0, 0.5),
        )
        for one in engines
        if dice.random() < 0.5
    )
    return Signals(demand=demand, engines=measured, class_edges=dice.choice(((), (600,))))


def decided(
    world: World, previous: tuple[RoutingTable, ...] = (), models: WarmModels | None = None
) -> tuple[RoutingTable, ...]:
    snapshot = build_snapshot(world.engines, world.policies, world.signals, at=AT, previous=previous)
    return decide(snapshot, Memory(), previous, uid="u", term=1, assess=models.assess if models else None).tables


def bytes_of(tables: tuple[RoutingTable, ...]) -> bytes:
    return b"".join(encode_table(table) for table in tables)


def shuffled(world: World, seed: int) -> World:
    """The same world with its lists in another order, down to models, labels and urls."""
    dice = random.Random(seed)

    def any_order(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(dice.sample(items, len(items)))

    policies = tuple(
        msgspec.structs.replace(
            one,
            spec=msgspec.structs.replace(
                one.spec,
                frontends=any_order(one.spec.frontends),
                network=msgspec.structs.replace(one.spec.network, round_trip=any_order(one.spec.network.round_trip)),
            ),
        )
        for one in any_order(world.policies)
    )
    signals = msgspec.structs.replace(
        world.signals, demand=any_order(world.signals.demand), engines=any_order(world.signals.engines)
    )
    return World(any_order(world.engines), policies, signals)


SEEDS = st.integers(0, 10**6)


@settings(max_examples=examples(15), deadline=None)
@given(SEEDS, SEEDS)
def test_the_order_of_the_parts_does_not_matter(seed: int, order: int) -> None:
    world = world_of(seed)
    first = decided(world)
    assert bytes_of(decided(shuffled(world, order))) == bytes_of(first)
    backwards = tuple(reversed(first))
    assert bytes_of(decided(shuffled(world, order), backwards)) == bytes_of(decided(world, first))


@settings(max_examples=examples(40), deadline=None)
@given(SEEDS)
def test_every_table_is_one_that_routers_apply(seed: int) -> None:
    for table in decided(world_of(seed)):
        listed = {entry.id for entry in table.engines}
        for model in table.models:
            assert len(model.classes) == 1 + len(table.class_edges)
            for entry in model.classes:
                assert sum(route.weight for route in entry.routes) == WEIGHT_TOTAL
                assert {route.engine for route in entry.routes} <= listed
                assert all(0 < shed.share <= 1 for shed in entry.shed)
        assert parse_table(encode_table(table)) == table
        assert b"NaN" not in encode_table(table)
        assert b"null" not in encode_table(table)


@settings(max_examples=examples(15), deadline=None)
@given(SEEDS)
@example(295)  # one front-end is refused all it asks
def test_a_second_look_writes_nothing(seed: int) -> None:
    """Nothing moved, nothing written, however odd the world: also where a front-end is refused all it asks."""
    world = world_of(seed)
    assert decided(world, decided(world), WarmModels()) == ()


SCRIPT = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from test_tables_of_any_world import bytes_of, decided, shuffled, world_of
for seed in range(12):
    sys.stderr.buffer.write(bytes_of(decided(shuffled(world_of(seed), int(sys.argv[3])))))
"""


@pytest.mark.parametrize("hash_seed", ["0", "1234"])
def test_another_process_gives_the_same_bytes(hash_seed: str) -> None:
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(here), str(here.parent), hash_seed],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
    )
    assert done.stderr == b"".join(bytes_of(decided(world_of(seed))) for seed in range(12))

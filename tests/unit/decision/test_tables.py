"""Solution -> table: what a router gets, and what never enters it.

Cases WEI-02 (https://github.com/emissary-ingress/emissary/pull/1605: weight 0 is no request, not an equal share), LP-02
(https://github.com/llm-d/llm-d-autoscaling/pull/102: never all zero, never empty).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from headrace_api.engine import InferenceEngine
from headrace_api.policy import RoutingPolicy
from headrace_api.table import WEIGHT_TOTAL, Guard, Identity, RoutingTable, TableAuth, TableService, TableTls
from headrace_operator.decision.tables.build import build_table, tidy, view_of
from headrace_operator.decision.tables.encode import configmap_name, content_hash, encode_table, stamped, too_large
from headrace_operator.decision.tables.parts import guard
from headrace_operator.decision.tables.slack import held_slack, slack_of
from headrace_operator.optimizer.solution import RouteResult, Solution
from headrace_operator.snapshot.model import Snapshot
from headrace_operator.snapshot.signals import Reading, Signals
from headrace_operator.strategies.run import run_strategies
from support.world import classic, demand, engine, frontend, policy, snapshot

MIXED = {"perReplica": {"prefillTokensPerSecond": 20000, "decodeTokensPerSecond": 4000}}
OTHER = {"perReplica": {"prefillTokensPerSecond": 20000, "decodeTokensPerSecond": 8000}}


def tables_of(world: Snapshot, change: Any = None) -> dict[str, RoutingTable]:
    """All tables of a world, by front-end; ``change`` alters the solution first."""
    policies = {state.id: state for state in world.policies}
    found: dict[str, RoutingTable] = {}
    for result in run_strategies(world):
        solution = change(result.solution) if change else result.solution
        for name in result.policies:
            for front in policies[name].spec.frontends:
                view = view_of(world, policies[name], front, solution)
                table = build_table(view, held_slack(None, slack_of(view)))
                if table is not None:
                    found[front.name] = table
    return found


def table_of(engines: Sequence[InferenceEngine], policies: Sequence[RoutingPolicy], *args: Any) -> RoutingTable:
    (table,) = tables_of(snapshot(engines, policies, *args)).values()
    return table


def weights(table: RoutingTable, prompt_class: int = 0) -> dict[str, int]:
    routes = table.models[0].classes[prompt_class].routes
    return {route.engine.removeprefix("ns/"): route.weight for route in routes}


def test_classic_example() -> None:
    found = tables_of(snapshot(*classic()))
    assert {name: weights(table) for name, table in found.items()} == {
        "fe-a": {"a": 10_000, "b": 0, "c": 0},
        "fe-b": {"a": 0, "b": 8333, "c": 1667},
        "fe-c": {"a": 0, "b": 0, "c": 10_000},
    }
    (routes,) = (entry.classes[0].routes for entry in found["fe-b"].models)
    assert [route.reduced_cost for route in routes] == [0.02, 0, 0]
    assert [route.work_share for route in routes] == [0.01, 0.01, 0.0125]
    engines = {engine.id: engine for engine in found["fe-b"].engines}
    # Little's law by hand: 20 requests/s x (40 ms away + 200 ms there), 40 x (1 + 200) ms of fe-c beside them.
    assert engines["ns/c"].in_flight_here == pytest.approx(20 * 0.24)
    assert engines["ns/c"].in_flight_all == pytest.approx(20 * 0.24 + 40 * 0.201)
    assert engines["ns/c"].capacity_share == pytest.approx(80 / 280, abs=1e-6)
    assert engines["ns/c"].round_trip == 0.04


def test_shed_shares_by_priority() -> None:
    found = tables_of(snapshot(*classic(b=50)))
    shed = {name: table.models[0].classes[0].shed for name, table in found.items()}
    assert [(name, entry.priority) for name, (entry,) in shed.items()] == [
        ("fe-a", "default"),
        ("fe-b", "default"),
        ("fe-c", "default"),
    ]
    assert [entries[0].share for entries in shed.values()] == [pytest.approx(4 / 90, abs=1e-6), 0.1, 0.1]
    assert weights(found["fe-b"]) == {"a": 1296, "b": 4630, "c": 4074}


def without_flow(solution: Solution) -> Solution:
    routes = tuple(msgspec.structs.replace(route, flow=0.0) for route in solution.routes)
    return msgspec.structs.replace(solution, routes=routes)


def test_with_nothing_routed_weights_follow_capacity() -> None:
    """Case LP-02: never all zero."""
    world = snapshot([engine("a", 60), engine("b", 20, replicas=2)], [policy()])
    assert weights(tables_of(world, without_flow)["fe"]) == {"a": 6000, "b": 4000}


def test_with_nothing_known_weights_are_equal() -> None:
    def nothing(solution: Solution) -> Solution:
        routes = tuple(msgspec.structs.replace(route, flow=0.0, work=0.0) for route in solution.routes)
        engines = tuple(msgspec.structs.replace(entry, capacity=0.0, mean_work=0.0) for entry in solution.engines)
        return msgspec.structs.replace(solution, routes=routes, engines=engines)

    table = tables_of(snapshot([engine("a"), engine("b")], [policy()]), nothing)["fe"]
    assert weights(table) == {"a": 5000, "b": 5000}
    assert {entry.capacity_share for entry in table.engines} == {0.0}
    assert {route.work_share for route in table.models[0].classes[0].routes} == {0.0}


def test_no_eligible_engine_no_table() -> None:
    """Case LP-02 c, d: no capacity, no engines."""
    assert tables_of(snapshot([], [policy()])) == {}
    assert tables_of(snapshot([engine(replicas=0)], [policy()])) == {}
    assert tables_of(snapshot([engine(rps=0)], [policy()])) == {}


def test_one_engine_gets_everything() -> None:
    """Case LP-02 e, f: one engine; demand 0."""
    assert weights(table_of([engine()], [policy()])) == {"a": WEIGHT_TOTAL}
    signals = Signals(demand=(demand(rps=0),))
    assert weights(table_of([engine()], [policy()], signals)) == {"a": WEIGHT_TOTAL}


def test_at_most_sixteen_next_best_the_cheapest_first() -> None:
    engines = [engine(f"e{index:02d}", region=f"r{index}") for index in range(30)]
    trips = [{"from": "r0", "to": f"r{index}", "latency": f"{index + 1}ms"} for index in range(1, 30)]
    table = table_of(engines, [policy(frontends=[frontend(region="r0")], network={"roundTrip": trips})])
    found = weights(table)
    assert found["e00"] == WEIGHT_TOTAL
    assert [name for name, weight in found.items() if weight == 0] == [f"e{index:02d}" for index in range(1, 17)]
    assert [entry.id for entry in table.engines] == sorted(f"ns/{name}" for name in found)


def test_an_engine_that_can_not_be_reached_is_not_in_it() -> None:
    """Case WEI-02: drained is out, not equal."""
    table = table_of([engine("a"), engine("b", state="Draining")], [policy()])
    assert weights(table) == {"a": WEIGHT_TOTAL}
    assert [entry.id for entry in table.engines] == ["ns/a"]


CLUSTER = {"region": "r1", "cluster": "c1"}
SERVICE = {"urls": ["https://Gpu.example:8443/"], "service": {"name": "vllm", "port": 8000}}


@pytest.mark.parametrize(
    ("engine_cluster", "frontend_cluster", "service"),
    [("c1", "c1", True), ("c1", "c2", False), (None, None, True), ("c1", None, False), (None, "c1", False)],
)
def test_reach(engine_cluster: str | None, frontend_cluster: str | None, service: bool) -> None:
    here = {"cluster": frontend_cluster} if frontend_cluster else {}
    there = {"cluster": engine_cluster} if engine_cluster else {}
    spec = engine("a", endpoints=SERVICE, location=there)
    (found,) = table_of([spec], [policy(frontends=[frontend(location=here)])]).engines
    if service:
        assert (found.service, found.urls) == (TableService(name="vllm", namespace="ns", port=8000), ())
    else:
        assert (found.service, found.urls) == (None, ("https://gpu.example:8443",))


def test_references_and_names_of_an_engine() -> None:
    spec = engine(
        models=[{"name": "m", "servedName": "meta/m", "adapters": ["m-legal"]}],
        endpoints={
            "tls": {"serverName": "gpu.example", "caFrom": {"configMap": {"name": "ca", "key": "ca.crt"}}},
            "auth": {"secretRef": {"name": "key", "key": "token"}},
        },
        capabilities=["vision", "tools"],
        maxModelLen=8192,
    )
    table = table_of([spec], [policy(models=[{"name": "m", "requires": ["vision", "tools"]}])])
    (found,) = table.engines
    assert [(entry.model, entry.served_name) for entry in found.models] == [("m", "meta/m")]
    assert found.tls == TableTls(server_name="gpu.example", ca_config_map="ca", ca_key="ca.crt")
    assert found.auth == TableAuth(secret="key", key="token")
    assert (found.capabilities, found.max_model_len) == (("tools", "vision"), 8192)
    assert [(entry.model, entry.requires) for entry in table.models] == [
        ("m", ("tools", "vision")),
        ("m-legal", ("tools", "vision")),
    ]


def test_tls_without_a_ca() -> None:
    (found,) = table_of([engine(endpoints={"tls": {}})], [policy()]).engines
    assert found.tls == TableTls()


def test_rules_of_the_policy_in_base_units() -> None:
    table = table_of(
        [engine()],
        [
            policy(
                affinity={"keys": [{"header": "x-id"}, {"field": "user"}, {"prefix": {}}], "slack": "500ms"},
                protection={
                    "retry": {"maxAttempts": 2, "budget": {"idlePercent": 15, "minPerSecond": 4}},
                    "shedding": {
                        "header": "x-p",
                        "priorities": [{"name": "high", "value": 9}, {"name": "low", "value": 1}],
                    },
                },
                timeouts={"connect": "1s", "unary": "30s"},
                limits={"body": "1Mi"},
                queue={"max": 5, "deadline": "3s"},
                ejection={"max": "1m"},
                paths=["/v1/score", "/v1/rerank"],
                staleness={"widenAfter": "10m"},
                network={"measured": True},
            )
        ],
    )
    assert [(key.header, key.field, key.prefix) for key in table.affinity.keys] == [
        ("x-id", None, False),
        (None, "user", False),
        (None, None, True),
    ]
    assert table.affinity.slack == 0.5
    retry = table.retry
    assert (retry.max_attempts, retry.saturated_percent, retry.min_per_second) == (2, 1.0, 4.0)
    assert retry.percent == pytest.approx(1.0 + 14.0 * retry.slack)
    assert 0.0 < retry.slack < 1.0
    assert [(entry.name, entry.value) for entry in table.priorities] == [("low", 1), ("high", 9)]
    assert table.priority_header == "x-p"
    assert (table.timeouts.connect, table.timeouts.first_byte, table.timeouts.unary) == (1.0, 120.0, 30.0)
    assert (table.limits.body, table.limits.retry_body) == (2**20, 4 * 2**20)
    assert (table.queue.max, table.queue.deadline, table.ejection.max) == (5, 3.0, 60.0)
    assert table.paths == ("/v1/rerank", "/v1/score")
    assert table.widen_after == 600.0
    assert table.measure_round_trips
    assert not table_of([engine("a")], [policy()]).measure_round_trips


@pytest.mark.parametrize(
    ("spec", "routers", "in_flight", "expected"),
    [
        pytest.param({"strategy": {"type": "Nearest"}}, 1, 99, None, id="a rule has no prices"),
        pytest.param({"affinity": {"keys": [{"prefix": {}}], "slack": "2s"}}, 3, 99, (2.0, 1.0, 0.0), id="keyed"),
        pytest.param({}, 2, 99, (1.0, 1.0, 0.0), id="keyless, several routers"),
        pytest.param({}, 1, 40, (0.0, 0.0, 1.0), id="keyless, enough in flight"),
        pytest.param({}, 1, 39.9, (0.0, 1.0, 0.0), id="keyless, few in flight"),
    ],
)
def test_guard(spec: Mapping[str, Any], routers: int, in_flight: float, expected: tuple[float, ...] | None) -> None:
    found = guard(policy(**spec).spec, routers, in_flight)
    assert found == (None if expected is None else Guard(x=expected[0], z=expected[1], nu=expected[2]))


@pytest.mark.parametrize(
    ("concurrency", "routers", "expected"),
    [
        pytest.param(None, 1, {"fe-1": 0, "fe-2": 0}, id="none stated: no limit"),
        # 1.3 x 100 x 2 replicas; fe-1 has 3/4 of the requests in flight, fe-2 a quarter.
        pytest.param(100, 1, {"fe-1": 195, "fe-2": 65}, id="by share of the load"),
        pytest.param(100, 4, {"fe-1": 49, "fe-2": 65}, id="divided by the routers"),
        pytest.param(1, 9, {"fe-1": 1, "fe-2": 1}, id="at least one"),
    ],
)
def test_concurrency_limits(concurrency: int | None, routers: int, expected: dict[str, int]) -> None:
    capacity = {"perReplica": {} if concurrency is None else {"maxConcurrency": concurrency}}
    world = snapshot(
        [engine(replicas=2, capacity=capacity)],
        [policy(frontends=[frontend("fe-1", 15), frontend("fe-2", 5)])],
        Signals(routers=(("fe-1", routers),)),
    )
    found = tables_of(world)
    assert {name: table.engines[0].concurrency_limit for name, table in found.items()} == expected
    assert (found["fe-1"].routers, found["fe-2"].routers) == (routers, 1)


def test_a_front_end_without_load_still_may_send_a_little() -> None:
    capacity = {"perReplica": {"maxConcurrency": 100}}
    world = snapshot(
        [engine("a", capacity=capacity), engine("b", capacity=capacity, region="r2")],
        [policy(frontends=[frontend("fe-1", 15), frontend("fe-2", 5, region="r2")])],
    )
    limits = {entry.id: entry.concurrency_limit for entry in tables_of(world)["fe-1"].engines}
    assert limits == {"ns/a": 130, "ns/b": 17}  # the other one: 1.3 x 100 / (4 x 2 front-ends)


def test_prompt_classes() -> None:
    signals = Signals(
        class_edges=(600, 1500),
        demand=tuple(
            demand(rps=4, prompt_class=number, input_tokens=Reading(value=length), output_tokens=Reading(value=100))
            for number, length in enumerate((300.0, 900.0, 3000.0))
        ),
        bytes_per_token=(("m", 3.5),),
    )
    engines = [engine("a", capacity=MIXED), engine("b", capacity=OTHER, models=[{"name": "m"}])]
    table = table_of(engines, [policy()], signals)
    assert table.class_edges == (600, 1500)
    assert [len(model.classes) for model in table.models] == [3]
    assert table.models[0].bytes_per_token == 3.5
    assert all(sum(weights(table, index).values()) == WEIGHT_TOTAL for index in range(3))


def test_an_unsplit_model_stands_once_for_each_class_of_a_split_table() -> None:
    signals = Signals(class_edges=(600,), demand=(demand(rps=4, prompt_class=0), demand(rps=4, prompt_class=1)))
    engines = [engine("a", capacity=MIXED), engine("b", capacity=OTHER), engine("c", models=[{"name": "n"}])]
    table = table_of(engines, [policy(models=[{"name": "m"}, {"name": "n"}])], signals)
    assert [(model.model, len(model.classes)) for model in table.models] == [("m", 2), ("n", 2)]
    assert table.models[1].classes[0] == table.models[1].classes[1]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0, 0.0), (1 / 3, 0.333333), (123456789.0, 123457000.0), (1e-10, 0.0), (-1.0, 0.0), (float("nan"), 0.0)],
)
def test_tidy(value: float, expected: float) -> None:
    assert tidy(value) == expected


def test_flows_below_rounding_are_not_weights() -> None:
    def trickle(solution: Solution) -> Solution:
        def change(route: RouteResult) -> RouteResult:
            return msgspec.structs.replace(route, flow=1e-7 if route.engine == "ns/b" else 10.0)

        return msgspec.structs.replace(solution, routes=tuple(change(route) for route in solution.routes))

    assert weights(tables_of(snapshot([engine("a"), engine("b")], [policy()]), trickle)["fe"]) == {"a": 10_000, "b": 0}


def test_hash_leaves_out_identity_and_time() -> None:
    table = table_of([engine()], [policy()])
    one = stamped(table, Identity(uid="u", term=1, revision=1), "2026-11-29T12:00:00Z")
    other = stamped(table, Identity(uid="v", term=2, revision=9), "2026-11-30T12:00:00Z")
    assert one.hash == other.hash == content_hash(one) == content_hash(other)
    assert encode_table(one) != encode_table(other)
    assert stamped(msgspec.structs.replace(table, routers=2), one.identity, "").hash != one.hash


def test_codec_round_trip() -> None:
    table = table_of([engine()], [policy()])
    assert msgspec.json.decode(encode_table(table), type=RoutingTable) == table


def test_too_large() -> None:
    table = table_of([engine()], [policy()])
    assert too_large(table) is None
    fault = too_large(msgspec.structs.replace(table, paths=("/" + "x" * 1_000_000,)))
    assert fault is not None
    assert (fault.policy, fault.frontend) == ("ns/p", "fe")
    assert "more than 1,000,000" in fault.message
    assert "the old table stays" in fault.message


def test_names_of_config_maps() -> None:
    named = policy(frontends=[frontend(publish={"configMap": "mine"})]).spec.frontends[0]
    assert configmap_name("ns/p", named) == "mine"
    assert configmap_name("ns/p", policy().spec.frontends[0]) == configmap_name("p", policy().spec.frontends[0])
    assert configmap_name("ns/p", policy().spec.frontends[0]) == "headrace-p-fe"


def test_no_secret_and_no_metric_address_enters() -> None:
    spec = engine(
        endpoints={"auth": {"secretRef": {"name": "ref", "key": "token"}}},
        metrics={"source": "gpu", "selector": {"job": "planted-selector"}},
        metadata={"annotations": {"planted": "planted-annotation"}, "labels": {"planted": "planted-label"}},
    )
    data = encode_table(table_of([spec], [policy()])).decode()
    assert "planted" not in data
    assert '"secret":"ref"' in data

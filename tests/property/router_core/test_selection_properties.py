"""What must hold of a selection whatever the weights, loads and inputs."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_api.table import WEIGHT_TOTAL, RoutingTable
from headrace_router.core.body import Body, read_body, replace_model
from headrace_router.core.json_shapes import BadBody
from headrace_router.core.slots import SLOTS, SlotOrders
from headrace_router.core.table_check import Rejected, parse_table
from headrace_router.core.weighted import Turns, succeed
from support.examples import examples
from support.router_core import (
    GUARD,
    encoded,
    engine,
    facts,
    freely,
    held,
    make_selector,
    make_table,
    one_model,
    raw_table,
    route,
)

NAMES = [f"e{number:02}" for number in range(40)]


@st.composite
def weights(draw: st.DrawFn, least: int = 1) -> dict[str, int]:
    """Weights that sum to WEIGHT_TOTAL over 1 to 12 engines, each at least ``least``."""
    raw = draw(st.lists(st.integers(1, 1000), min_size=1, max_size=12))
    total = sum(raw)
    scaled = [max(least, value * WEIGHT_TOTAL // total) for value in raw]
    scaled[scaled.index(max(scaled))] += WEIGHT_TOTAL - sum(scaled)
    return dict(zip(NAMES, scaled, strict=False))


def first_engines(given_weights: dict[str, float]) -> list[str]:
    ids = tuple(sorted(given_weights))
    orders = SlotOrders(ids, tuple(given_weights[name] for name in ids))
    return [ids[orders.first(slot)] for slot in range(0, SLOTS, 8)]


many = st.dictionaries(st.sampled_from(NAMES), st.floats(0.5, 50.0), min_size=2, max_size=12)


@settings(max_examples=examples(25), deadline=None)
@given(before=many, after=many)
def test_keys_move_as_weights_move(before: dict[str, float], after: dict[str, float]) -> None:
    """HAS-02: between TV and 2 TV/(1 + TV), up to five deviations of an eighth of the slots.

    https://github.com/vllm-project/production-stack/issues/15
    """
    total, new_total = sum(before.values()), sum(after.values())
    distance = sum(abs(before.get(n, 0) / total - after.get(n, 0) / new_total) for n in {*before, *after}) / 2
    pairs = list(zip(first_engines(before), first_engines(after), strict=True))
    moved = sum(old != new for old, new in pairs) / len(pairs)
    noise = 5 * (0.25 / len(pairs)) ** 0.5
    assert distance - noise <= moved <= 2 * distance / (1 + distance) + noise


@settings(max_examples=examples(25), deadline=None)
@given(many, st.randoms(use_true_random=False))
def test_a_lost_engine_moves_only_its_own_keys(before: dict[str, float], rng: Any) -> None:
    """HAS-02. https://github.com/ray-project/ray/pull/62906"""
    lost = rng.choice(sorted(before))
    after = {name: weight for name, weight in before.items() if name != lost}
    pairs = zip(first_engines(before), first_engines(after), strict=True)
    assert all(old == new for old, new in pairs if old != lost)


@settings(max_examples=examples(20), deadline=None)
@given(weights())
def test_keyless_shares_are_the_weights(given_weights: dict[str, int]) -> None:
    """WEI-01: every engine with weight above 0 is selected, as often as its weight says.

    https://github.com/openservicemesh/osm/issues/4092
    """
    selector = make_selector(make_table(given_weights))
    counted = Counter(freely(selector) for _ in range(WEIGHT_TOTAL // 5))
    for name, weight in given_weights.items():
        assert abs(counted[name] - weight / 5) <= 2


@settings(max_examples=examples(30), deadline=None)
@given(weights(), st.lists(weights(), max_size=5), st.floats(0, 1))
def test_turns_survive_any_swaps(first: dict[str, int], later: list[dict[str, int]], phase: float) -> None:
    turns = Turns(tuple(first), tuple(map(float, first.values())), phase)
    for following in [first, *later]:
        turns = succeed(tuple(following), tuple(map(float, following.values())), phase, turns)
        count = 200
        counted = Counter(turns.ids[turns.next()] for _ in range(count))
        for name, weight in following.items():
            assert abs(counted[name] - count * weight / WEIGHT_TOTAL) <= len(following) + 1


@settings(max_examples=examples(40), deadline=None)
@given(given_weights=weights(), expected=st.lists(st.integers(1, 60), min_size=12, max_size=12), data=st.data())
def test_the_guard_never_spills_while_nobody_is_over(
    given_weights: dict[str, int], expected: list[int], data: st.DataObject
) -> None:
    engines = [
        engine(name, inFlightHere=float(count), inFlightAll=float(count))
        for name, count in zip(given_weights, expected, strict=False)
    ]
    models = one_model(*(route(name, weight, workShare=1.0) for name, weight in given_weights.items()))
    selector = make_selector(make_table({}, models=models, engines=engines, guard=GUARD))
    for name, count in zip(given_weights, expected, strict=False):
        state = selector.view.engines[f"ns/{name}"].state
        for _ in range(data.draw(st.integers(0, count))):
            state.take(state.endpoints[0])
    for number in range(30):
        pick = held(selector, b"key %d" % number)
        pick.release()
        assert pick.reason == "affinity"


@settings(max_examples=examples(80), deadline=None)
@given(given_weights=weights(), loads=st.lists(st.integers(0, 40), min_size=12, max_size=12), keyed=st.booleans())
def test_the_guard_takes_the_cheapest_or_what_is_cheap_enough(
    given_weights: dict[str, int], loads: list[int], keyed: bool
) -> None:
    """Against a brute force over all engines."""
    engines = [engine(name, inFlightHere=5.0, inFlightAll=5.0) for name in given_weights]
    models = one_model(*(route(name, weight, workShare=0.3) for name, weight in given_weights.items()))
    selector = make_selector(make_table({}, models=models, engines=engines, guard=GUARD))
    routes = selector.view.models["m"].classes[0].everyone
    for name, load in zip(given_weights, loads, strict=False):
        state = selector.view.engines[f"ns/{name}"].state
        for _ in range(load):
            state.take(state.endpoints[0])
    variant = routes.keyed if keyed else routes.keyless
    assert variant is not None
    costs = {candidate.id: candidate.cost(variant) for candidate in routes.routes}
    pick = held(selector, b"k" if keyed else None)
    least = min(costs.values())
    if pick.reason == "spill":
        assert costs[pick.engine] == least
        assert not keyed or costs[routes.routes[routes.orders.first(pick.slot)].id] > least + variant.x
    else:
        assert costs[pick.engine] <= least + variant.x


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_no_table_makes_the_check_raise(data: st.DataObject) -> None:
    """Any part replaced by anything: the table comes out whole, or the reason does."""
    table = raw_table(engines=[engine(name, models=[{"model": "m", "servedName": "x"}]) for name in "abc"])
    place: Any = table
    while True:
        key: Any = data.draw(
            st.sampled_from(sorted(place)) if isinstance(place, dict) else st.integers(0, len(place) - 1)
        )
        if isinstance(place[key], dict | list) and place[key] and data.draw(st.booleans()):
            place = place[key]
        else:
            place[key] = data.draw(json_values)
            break
    found = parse_table(encoded(table))
    assert isinstance(found, RoutingTable | Rejected)
    if isinstance(found, RoutingTable):
        make_selector(found).pick(facts(b"k"), 0.0)


@settings(max_examples=examples(80), deadline=None)
@given(
    st.binary(max_size=60) | st.text(max_size=60).map(str.encode) | json_values.map(lambda v: json.dumps(v).encode())
)
def test_no_body_makes_the_reader_raise(data: bytes) -> None:
    """SEC-05. https://github.com/MemPalace/mempalace/issues/2556"""
    found = read_body(data)
    if isinstance(found, Body):
        assert json.loads(data)["model"] == found.facts.model
    else:
        assert isinstance(found, BadBody)


letters = st.characters(exclude_categories=["Cs"])
names = st.text(letters, max_size=12) | st.sampled_from(["model", "messages", "mode", "\\model", '"model"'])
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names
nested = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=6
)


objects = st.dictionaries(names, nested, max_size=4)


@settings(max_examples=examples(60), deadline=None)
@given(before=objects, after=objects, compact=st.booleans())
def test_rewriting_the_model_agrees_with_another_parser(
    before: dict[str, Any], after: dict[str, Any], compact: bool
) -> None:
    """Differential: the standard library's parser sees the new model and everything else as it was."""
    wanted = {"stream", "model"}
    body = {name: value for name, value in before.items() if name not in wanted} | {"model": "old"}
    body |= {name: value for name, value in after.items() if name not in wanted}
    data = json.dumps(body, ensure_ascii=compact, indent=None if compact else 2).encode()
    found = read_body(data)
    assert isinstance(found, Body), found
    assert found.facts.model == "old"
    changed = replace_model(data, "served/new")
    assert json.loads(changed) == json.loads(data) | {"model": "served/new"}
    assert len(changed) - len(data) == len("served/new") - len("old")

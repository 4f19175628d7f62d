"""Any interleaving of picks, ends, reports, swaps and probes: counts are right and end at 0."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace_router.core.facts import Outcome, Refusal
from headrace_router.core.selection import Pick, Selector
from support.examples import examples
from support.router_core import GUARD, engine, facts, make_selector, make_table, one_model, route, swap

NAMES = ["a", "b", "c"]
LIMIT = 6

tables = st.fixed_dictionaries(
    {
        "names": st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True),
        "replicas": st.integers(1, 3),
        "priced": st.booleans(),
        "limited": st.booleans(),
        "spare": st.booleans(),
        "uneven": st.booleans(),
    }
)


def table_of(names: list[str], replicas: int, priced: bool, limited: bool, spare: bool, uneven: bool) -> Any:
    engines = [
        engine(name, concurrencyLimit=LIMIT if limited else 0, inFlightHere=2.0, inFlightAll=2.0)
        | {"urls": [f"http://{name}-{number}" for number in range(replicas)]}
        for name in names
    ]
    last = len(names) - 1
    weights = [10_000 // len(names)] * len(names)
    if spare and last:
        weights = [10_000 // last] * last + [0]
    if uneven:
        weights = [10_000 - 10 * last, *([10] * last)]
    routes = one_model(*(route(name, weight, workShare=0.5) for name, weight in zip(names, weights, strict=True)))
    fields = {"guard": GUARD} if priced else {}
    limits = {"consecutive": 2, "maxPercent": 60, "base": 5.0}
    return make_table({}, models=routes, engines=engines, ejection=limits, **fields)


class Selecting(RuleBasedStateMachine):
    """HAS-04: requests end in every way while tables come and go.

    https://github.com/kubeai-project/kubeai/issues/447 https://github.com/sgl-project/sglang/issues/9484
    """

    @initialize(table=tables)
    def begin(self, table: dict[str, Any]) -> None:
        self.now = 0.0
        self.selector: Selector = make_selector(table_of(**table))
        self.running: list[Pick] = []
        self.ended: list[Pick] = []

    @rule(key=st.integers(0, 5), keyed=st.booleans(), again=st.booleans())
    def arrive(self, key: int, keyed: bool, again: bool) -> None:
        tried = tuple((p.engine, p.url) for p in self.running[-1:]) if again else ()
        found = self.selector.pick(facts(b"%d" % key if keyed else None, tried=tried), self.now)
        if isinstance(found, Refusal):
            return
        view = self.selector.view.engines[found.engine]
        assert found.url in {endpoint.url for endpoint in view.endpoints}
        assert not view.limit or view.state.in_flight <= view.limit
        assert (found.engine, found.url) not in tried
        self.running.append(found)

    @rule(data=st.data(), outcome=st.sampled_from(Outcome), wait=st.none() | st.floats(0, 20))
    def end(self, data: st.DataObject, outcome: Outcome, wait: float | None) -> None:
        if self.running:
            pick = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
            self.selector.report(pick, outcome, self.now, wait)
            pick.release()
            self.ended.append(pick)

    @rule(data=st.data(), outcome=st.sampled_from(Outcome))
    def report_in_passing(self, data: st.DataObject, outcome: Outcome) -> None:
        if self.running:
            self.selector.report(data.draw(st.sampled_from(self.running)), outcome, self.now)

    @rule(data=st.data())
    def release_again(self, data: st.DataObject) -> None:
        if self.ended:
            data.draw(st.sampled_from(self.ended)).release()

    @rule(table=tables)
    def swap_tables(self, table: dict[str, Any]) -> None:
        swap(self.selector, table_of(**table))

    @rule(name=st.sampled_from(NAMES), numbers=st.lists(st.integers(0, 3), max_size=4))
    def follow_a_service(self, name: str, numbers: list[int]) -> None:
        self.selector.set_endpoints(f"ns/{name}", [f"http://{name}-{number}" for number in numbers])

    @rule(name=st.sampled_from(NAMES), number=st.integers(0, 2), ready=st.booleans())
    def probe(self, name: str, number: int, ready: bool) -> None:
        self.selector.due_probes(self.now)
        self.selector.set_ready(f"ns/{name}", f"http://{name}-{number}", ready)

    @rule(seconds=st.floats(0.1, 30))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def counts_are_those_of_running_requests(self) -> None:
        view = self.selector.view
        for known in view.engines.values():
            ours = [pick for pick in self.running if pick.state is known.state]
            assert known.state.in_flight == len(ours)
            for endpoint in known.endpoints:
                assert endpoint.in_flight == sum(pick.endpoint is endpoint for pick in ours)
        pool = view.models["m"].pool
        endpoints = [endpoint for known in view.engines.values() for endpoint in known.endpoints]
        assert pool.in_flight == sum(known.state.in_flight for known in view.engines.values())
        assert (pool.total, pool.out) == (len(endpoints), sum(endpoint.ejected for endpoint in endpoints))

    @invariant()
    def nobody_is_refused_while_an_engine_is_open(self) -> None:
        """SCA-04. https://github.com/kubernetes-sigs/gateway-api-inference-extension/issues/1082"""
        for key in (b"probe", None):
            free = any(known.open(self.now) for known in self.selector.view.engines.values())
            found = self.selector.pick(facts(key), self.now)
            if isinstance(found, Refusal):
                assert found.retry_after is not None
                assert found.retry_after >= 1
                assert not free
            else:
                found.release()

    def teardown(self) -> None:
        for pick in self.running:
            pick.release()
        for known in self.selector.view.engines.values():
            assert known.state.in_flight == 0
            assert not any(endpoint.in_flight for endpoint in known.endpoints)


TestSelecting = Selecting.TestCase
TestSelecting.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)

"""Ready replicas from EndpointSlices: known zero and unknown, losses that somebody agrees with, what is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from headrace_api.endpoint_slices import Endpoint
from headrace_operator.estimators.liveness import Outcome
from headrace_operator.loader.config import OperatorConfig, RoutersConfig
from headrace_operator.loader.config_places import MetricSource, ServiceAddress
from headrace_operator.loader.loader import Loader
from headrace_operator.loader.source import EngineTarget, RouterCounts, RouterTarget, Target, TargetSample
from headrace_operator.snapshot.signals import EngineSignal
from support.engine_manifests import engine, policy

KEY = "inf/vllm:8000"
CONFIG = OperatorConfig(routers=(RoutersConfig(frontend="fe", urls=("http://10.9.0.1:9090",)),))
ROUTER = RouterTarget("fe", "http://10.9.0.1:9090")


def pod(number: int, *, ready: bool = True, terminating: bool = False) -> Endpoint:
    return Endpoint(f"10.0.0.{number}", 8000, ready, pod=f"a-{number}", terminating=terminating)


class World:
    """One engine behind a Service (and what else is given), read by a loader whose clock the test moves."""

    def __init__(self, *more: Any, config: OperatorConfig = CONFIG, **spec: Any) -> None:
        endpoints = {"service": {"name": "vllm", "port": 8000}} | spec.pop("endpoints", {})
        self.engines = [engine("a", endpoints=endpoints, **spec), *more]
        self.config = config
        self.loader = Loader(config)
        self.now = 0.0
        self.found: tuple[Target, ...] = ()

    def see(self, *endpoints: Endpoint, services: Mapping[str, tuple[Endpoint, ...]] | None = None) -> None:
        """Endpoints as they are listed now."""
        listed = {KEY: endpoints} if services is None else services
        self.found = self.loader.configure(self.engines, [policy()], self.config, listed)

    def signal(self, seconds: float = 1.0) -> EngineSignal:
        self.now += seconds
        return next(one for one in self.loader.signals(self.now, self.now).engines if one.engine == "inf/a")

    def tried(self, number: int, outcome: Outcome) -> None:
        """An attempt at a pod's page."""
        target = next(one for one in self.found if isinstance(one, EngineTarget) and one.pod == f"inf/a-{number}")
        values: Any = {"running": 1.0} if outcome == "Read" else {}
        self.loader.observe([TargetSample(target, self.now, outcome, values)])

    def router_says(self, **counts: Any) -> None:
        self.loader.observe([TargetSample(ROUTER, self.now, "Read", counts=RouterCounts(**counts))])


def ready(signal: EngineSignal) -> float | None:
    return None if signal.ready_replicas is None else signal.ready_replicas.value


def test_ready_endpoints_are_the_replicas() -> None:
    world = World()
    world.see(pod(1), pod(2), pod(3, ready=False), pod(4, ready=False, terminating=True))
    assert ready(world.signal()) == 2.0
    assert world.loader.views["inf/a"].counted == "ready endpoints of its Service"
    assert [target.url for target in world.found if isinstance(target, EngineTarget)] == [
        "http://10.0.0.1:8000",
        "http://10.0.0.2:8000",
    ]


def test_no_endpoint_is_a_known_zero() -> None:
    world = World()
    world.see()
    assert ready(world.signal()) == 0.0


def test_a_service_that_was_never_listed_is_unknown() -> None:
    """Lost permissions are not an outage: nothing is known, and nothing is zero."""
    world = World()
    world.see(services={})
    assert ready(world.signal()) is None


def test_a_service_that_is_listed_no_more_keeps_what_was_known() -> None:
    world = World()
    world.see(pod(1), pod(2))
    assert ready(world.signal()) == 2.0
    world.see(services={})
    assert ready(world.signal()) == 2.0


def test_silent_pages_do_not_kill_what_is_ready() -> None:
    """Liveness of an engine behind a Service comes from its endpoints: a metrics port may be closed for ever."""
    world = World()
    world.see(pod(1))
    for _ in range(20):
        world.tried(1, "Refused")
        signal = world.signal()
    assert (ready(signal), signal.alive) == (1.0, None)


def test_urls_beside_a_service() -> None:
    """The urls are other clusters' way to the same pods: replicas and pages are the pods'."""
    world = World(endpoints={"urls": ["https://gpu.example:8443"], "replicas": 9})
    world.see(pod(1), pod(2))
    assert ready(world.signal()) == 2.0
    assert {target.url for target in world.found if isinstance(target, EngineTarget)} == {
        "http://10.0.0.1:8000",
        "http://10.0.0.2:8000",
    }
    world = World(endpoints={"urls": ["https://gpu.example:8443"], "replicas": 9})
    world.see(services={})
    assert ready(world.signal()) is None  # and so the nine that are declared
    assert {target.url for target in world.found if isinstance(target, EngineTarget)} == {"https://gpu.example:8443"}


def test_scaled_down_on_purpose() -> None:
    """Deleted pods are seen terminating: somebody's word, at once, whoever else looks."""
    world = World()
    world.see(pod(1), pod(2), pod(3))
    world.signal()
    world.see(pod(1), pod(2, ready=False, terminating=True), pod(3, ready=False, terminating=True))
    signal = world.signal()
    assert (ready(signal), signal.loss_agreed) == (1.0, True)
    world.see(pod(1))
    assert world.signal().loss_agreed


def gone_two() -> World:
    """Two of three pods have vanished without a word."""
    world = World()
    world.see(pod(1), pod(2), pod(3))
    world.tried(2, "Read")
    world.tried(3, "Read")
    world.signal()
    world.see(pod(1))
    signal = world.signal()
    assert (ready(signal), signal.loss_agreed) == (1.0, False)
    world.now += 1.0
    return world


def test_pods_that_still_answer_are_not_gone() -> None:
    """A typo in the Service's selector, or an empty list: their own pages say otherwise."""
    world = gone_two()
    for _ in range(100):
        world.tried(2, "Read")
        world.tried(3, "Read")
        world.router_says()
        assert not world.signal().loss_agreed
    assert world.signal(30.0).loss_agreed, "what stands as long as signals are believed counts"


@pytest.mark.parametrize("outcome", ["Refused", "Failed", "Down", "Gone"])
def test_their_pages_agree(outcome: Outcome) -> None:
    world = gone_two()
    world.tried(2, outcome)
    assert not world.signal().loss_agreed
    world.tried(3, outcome)
    assert world.signal().loss_agreed


def test_the_routers_connects_agree() -> None:
    world = gone_two()
    world.router_says(ejected={"inf/a": 2.0})
    assert world.signal().loss_agreed


def test_they_come_back() -> None:
    world = gone_two()
    world.see(pod(1), pod(2), pod(3))
    signal = world.signal()
    assert (ready(signal), signal.loss_agreed) == (3.0, True)


def test_where_nobody_else_looks_the_one_word_counts_in_the_end() -> None:
    world = World(config=OperatorConfig())
    world.see(pod(1), pod(2), pod(3))
    world.signal()
    world.see(pod(1))
    assert not world.signal(60.0).loss_agreed
    assert world.signal(130.0).loss_agreed


def test_what_is_lost_is_read_until_somebody_agrees() -> None:
    world = gone_two()
    assert sum(isinstance(target, EngineTarget) for target in world.found) == 3
    world.tried(2, "Refused")
    world.tried(3, "Refused")
    world.signal()
    world.see(pod(1))
    assert sum(isinstance(target, EngineTarget) for target in world.found) == 1


def test_a_new_pod_at_an_old_address() -> None:
    """Case STA-04: it inherits nothing of the pod that had the address before.

    https://github.com/kubernetes/kubernetes/issues/109414
    """
    world = World()
    world.see(pod(1))
    world.tried(1, "Read")
    assert world.signal().running is not None
    world.see(pod(1)._replace(pod="b-1"))
    assert world.signal().running is None


def test_ramp_of_new_replicas() -> None:
    world = World(rampUp="100s")
    world.see(pod(1))
    assert world.signal().ramp is None
    world.see(pod(1), pod(2))
    ramp = world.signal().ramp
    assert ramp is not None
    assert 0.5 < ramp.value < 0.6
    assert world.signal(200.0).ramp is None


class TestRoutersBehindAService:
    """routers[].service: all its endpoints are all routers of the front-end."""

    CONFIG = OperatorConfig(
        routers=(RoutersConfig(frontend="fe", service=ServiceAddress(namespace="inf", name="r", port=9090)),)
    )

    def test_targets(self) -> None:
        loader = Loader(self.CONFIG)
        found = loader.configure([], [policy()], self.CONFIG, {"inf/r:9090": (pod(1), pod(2, ready=False))})
        assert found == (
            RouterTarget("fe", "http://10.0.0.1:8000", "", "inf/a-1"),
            RouterTarget("fe", "http://10.0.0.2:8000", "", "inf/a-2"),
        )
        assert loader.configure([], [policy()], self.CONFIG, {}) == ()


def test_sources_of_targets() -> None:
    config = OperatorConfig(metric_sources=(MetricSource(name="s", url="http://s"),), default_source="s")
    loader = Loader(config)
    found = loader.configure(
        [
            engine("a", endpoints={"service": {"name": "vllm", "port": 8000}}, metrics={"selector": {"x": "y"}}),
            engine("b", "http://b:1"),
            engine("c", "http://c:1", metrics={"selector": {"job": "c"}}),
            engine("d", "http://d:1", metrics={"source": "scrape", "selector": {"job": "c"}}),
        ],
        [policy()],
        config,
        {KEY: (pod(1),)},
    )
    told = [(one.engine, one.url, one.source, one.pod, one.selector) for one in found if isinstance(one, EngineTarget)]
    assert told == [
        ("inf/a", "http://10.0.0.1:8000", "s", "inf/a-1", (("x", "y"),)),
        ("inf/b", "http://b:1", "s", "", ()),
        ("inf/c", "", "s", "", (("job", "c"),)),
        ("inf/d", "http://d:1", "", "", ()),
    ]

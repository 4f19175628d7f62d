"""Which pairs may exist, and the rule that excludes the others."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from headrace_api.base import Location
from headrace_api.engine import Endpoints, ServedModel, ServiceRef
from headrace_api.policy import EngineSelector, Frontend, PolicyModel
from headrace_operator.snapshot.eligibility import capacity_exclusion, exclusion, served_as
from headrace_operator.snapshot.model import EngineState
from support.fleet import engine, policy

SERVICE = Endpoints(service=ServiceRef(name="svc", port=8000))
URLS = Endpoints(urls=("https://x.example:8443",))
BOTH = Endpoints(service=ServiceRef(name="svc", port=8000), urls=("https://x.example:8443",))


def rule(state: EngineState, model: str = "m", frontend: Frontend | None = None, **spec: Any) -> str | None:
    """The reason that excludes the pair; None where eligible."""
    found = exclusion(policy(**spec), frontend or Frontend(name="a"), model, state)
    assert found is None or found.message
    return found.reason if found else None


def labelled(**labels: str) -> EngineState:
    return msgspec.structs.replace(engine("x"), labels=tuple(sorted(labels.items())))


def test_an_engine_in_service_that_serves_the_model_is_eligible() -> None:
    assert rule(engine("x")) is None


def test_engines_of_another_namespace_are_not_the_policys() -> None:
    assert rule(msgspec.structs.replace(engine("x"), id="elsewhere/x")) == "OtherNamespace"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(labelled(tier="prod", team="a"), None, id="matches"),
        pytest.param(labelled(tier="dev"), "NotSelected", id="other-value"),
        pytest.param(labelled(), "NotSelected", id="no-label"),
    ],
)
def test_selector(state: EngineState, expected: str | None) -> None:
    assert rule(state, engine_selector=EngineSelector(match_labels={"tier": "prod"})) == expected


@pytest.mark.parametrize(
    ("model", "expected"), [("m", None), ("m-lora", None), ("other", "ModelNotServed"), ("m-lora-2", "ModelNotServed")]
)
def test_base_models_and_listed_adapters_are_served(model: str, expected: str | None) -> None:
    state = engine("x")
    spec = msgspec.structs.replace(state.spec, models=(ServedModel(name="m", adapters=("m-lora",)),))
    assert rule(msgspec.structs.replace(state, spec=spec), model) == expected


def test_what_a_base_requires_its_adapters_require() -> None:
    needs = (PolicyModel(name="m", requires=("tools", "vision")), PolicyModel(name="unused", requires=("audio",)))
    base = policy()
    asked = msgspec.structs.replace(base, spec=msgspec.structs.replace(base.spec, models=needs))
    state = engine("x", capabilities=("tools",))
    spec = msgspec.structs.replace(state.spec, models=(ServedModel(name="m", adapters=("m-lora",)),))
    state = msgspec.structs.replace(state, spec=spec)
    for model in ("m", "m-lora"):
        found = exclusion(asked, Frontend(name="a"), model, state)
        assert found is not None
        assert (found.reason, found.message) == ("CapabilityMissing", f"{model} requires vision, x lacks it")
    able = msgspec.structs.replace(spec, capabilities=("tools", "vision"))
    assert exclusion(asked, Frontend(name="a"), "m-lora", msgspec.structs.replace(state, spec=able)) is None


@pytest.mark.parametrize(
    ("endpoints", "here", "there", "expected"),
    [
        pytest.param(SERVICE, None, None, None, id="both-unset"),
        pytest.param(SERVICE, "k1", "k1", None, id="same-cluster"),
        pytest.param(SERVICE, "k1", "k2", "Unreachable", id="service-elsewhere"),
        pytest.param(SERVICE, "k1", None, "Unreachable", id="engine-unset"),
        pytest.param(SERVICE, None, "k2", "Unreachable", id="front-end-unset"),
        pytest.param(URLS, "k1", "k2", None, id="urls-reach-anywhere"),
        pytest.param(BOTH, "k1", "k2", None, id="urls-beside-a-service"),
        pytest.param(Endpoints(), None, None, "Unreachable", id="neither"),
    ],
)
def test_reach(endpoints: Endpoints, here: str | None, there: str | None, expected: str | None) -> None:
    state = engine("x", endpoints=endpoints, location=Location(cluster=there))
    assert rule(state, frontend=Frontend(name="a", location=Location(cluster=here))) == expected


@pytest.mark.parametrize(
    ("demanded", "held", "expected"),
    [
        pytest.param((), (), None, id="nothing-demanded"),
        pytest.param(("us",), ("us", "eu"), None, id="held"),
        pytest.param(("us",), (), "ResidencyMissing", id="none-held"),
        pytest.param(("us", "eu"), ("us",), "ResidencyMissing", id="one-of-two"),
    ],
)
def test_residency(demanded: tuple[str, ...], held: tuple[str, ...], expected: str | None) -> None:
    assert rule(engine("x", residency=held), frontend=Frontend(name="a", residency=demanded)) == expected


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(engine("x", state="Draining"), "Draining", id="draining"),
        pytest.param(engine("x", state="Disabled"), "Disabled", id="disabled"),
        pytest.param(engine("x", alive=False), "Down", id="dead"),
        pytest.param(engine("x", ready=0), "NoReadyReplicas", id="no-replicas"),
        pytest.param(engine("x", ready=-2), "NoReadyReplicas", id="negative"),
        pytest.param(engine("x", ready=math.nan), "ReplicasUnknown", id="unknown"),
    ],
)
def test_service(state: EngineState, expected: str) -> None:
    assert rule(state) == expected


def test_a_break_glass_drain_says_who_and_why() -> None:
    state = msgspec.structs.replace(engine("x", state="Draining"), message="drained until noon: new driver")
    found = exclusion(policy(), Frontend(name="a"), "m", state)
    assert found is not None
    assert found.message == "drained until noon: new driver"


@pytest.mark.parametrize(
    ("work", "expected"),
    [(0.01, None), (math.inf, "NoCapacity"), (math.nan, "CapacityUnknown"), (0.0, "CapacityUnknown")],
)
def test_capacity(work: float, expected: str | None) -> None:
    found = capacity_exclusion(engine("x"), work)
    assert (found.reason if found else None) == expected


def test_served_as_finds_the_base_of_an_adapter() -> None:
    state = engine("x", models=("p", "q"))
    assert served_as(state, "q") == ServedModel(name="q")
    assert served_as(state, "r") is None

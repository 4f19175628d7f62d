"""Where an engine stands when only its Service's endpoints know."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_api.base import Location
from headrace_api.endpoint_slices import Endpoint
from headrace_operator.store.topology import NOWHERE, REGION_LABEL, ZONE_LABEL, NodePlace, located, node_place
from support.engine_manifests import engine

NODES = {
    "n1": NodePlace("us", "us-a"),
    "n2": NodePlace("us", "us-b"),
    "n3": NodePlace("eu", "eu-a"),
    "bare": NOWHERE,
}


def endpoint(host: str, *, ready: bool = True, zone: str = "", node: str = "") -> Endpoint:
    return Endpoint(host, 8000, ready, zone=zone, node=node)


@pytest.mark.parametrize(
    ("endpoints", "stated", "expected"),
    [
        pytest.param([endpoint("1", zone="us-a", node="n1")], {}, ("us", "us-a"), id="slice and node agree"),
        pytest.param([endpoint("1", node="n1")], {}, ("us", "us-a"), id="the node alone"),
        pytest.param([endpoint("1", zone="us-a")], {}, (None, "us-a"), id="the slice alone: nodes can't be read"),
        pytest.param(
            [endpoint("1", zone="us-a", node="n1"), endpoint("2", zone="us-b", node="n2")], {}, ("us", None), id="zones"
        ),
        pytest.param([endpoint("1", node="n1"), endpoint("2", node="n3")], {}, (None, None), id="regions differ"),
        pytest.param([endpoint("1", node="n1"), endpoint("2")], {}, (None, None), id="one says nothing"),
        pytest.param(
            [endpoint("1", zone="us-a", node="n1"), endpoint("2", zone="eu-a", node="n3", ready=False)],
            {},
            ("us", "us-a"),
            id="who is not ready has no say",
        ),
        pytest.param([], {}, (None, None), id="nobody"),
        pytest.param([endpoint("1", node="bare")], {}, (None, None), id="a node without labels"),
        pytest.param([endpoint("1", zone="us-a", node="n1")], {"region": "us"}, ("us", "us-a"), id="region stated"),
        pytest.param(
            [endpoint("1", zone="us-a", node="n1")], {"region": "moon"}, ("moon", None), id="region overruled"
        ),
        pytest.param([endpoint("1", zone="us-a", node="n1")], {"zone": "us-x"}, (None, "us-x"), id="zone overruled"),
        pytest.param([endpoint("1", zone="us-a", node="n1")], {"cluster": "c"}, ("us", "us-a"), id="cluster stays"),
    ],
)
def test_only_what_all_ready_endpoints_agree_on(
    endpoints: list[Endpoint], stated: dict[str, str], expected: tuple[str | None, str | None]
) -> None:
    one = engine("a", location=stated) if stated else engine("a")
    found = located(one, endpoints, NODES)
    assert (found.spec.location.region, found.spec.location.zone) == expected
    assert found.spec.location.cluster == stated.get("cluster")


def test_what_states_everything_is_left_alone() -> None:
    one = engine("a", location={"region": "moon", "zone": "sea"})
    assert located(one, [endpoint("1", zone="us-a", node="n1")], NODES) is one
    assert located(engine("b"), None, NODES).spec.location == Location()


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({REGION_LABEL: "us", ZONE_LABEL: "us-a"}, NodePlace("us", "us-a")),
        ({ZONE_LABEL: "us-a"}, NodePlace("", "us-a")),
        ({REGION_LABEL: "", ZONE_LABEL: None}, NOWHERE),
        ({REGION_LABEL: "not a place", ZONE_LABEL: ["us-a"]}, NOWHERE),
        ({REGION_LABEL: "x" * 64}, NOWHERE),
        (None, NOWHERE),
        ("us", NOWHERE),
    ],
)
def test_labels_of_nodes(labels: Any, expected: NodePlace) -> None:
    assert node_place({"metadata": {"name": "n", "labels": labels}}) == expected
    assert node_place({}) == NOWHERE

"""EndpointSlices as they come, and as they should not."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_api.endpoint_slices import Endpoint, read_endpoints, service_of


def a_slice(*endpoints: Any, ports: Any = ({"name": "http", "port": 8000},)) -> dict[str, Any]:
    metadata = {"namespace": "inference", "labels": {"kubernetes.io/service-name": "vllm"}}
    return {"metadata": metadata, "ports": list(ports), "endpoints": list(endpoints)}


def an_endpoint(address: str, **conditions: Any) -> dict[str, Any]:
    return {
        "addresses": [address],
        "conditions": conditions,
        "zone": "z1",
        "nodeName": "n1",
        "targetRef": {"name": "p"},
    }


SERVICE = {"spec": {"ports": [{"name": "metrics", "port": 9000}, {"name": "http", "port": 80}]}}


def test_a_slice_names_its_service() -> None:
    assert service_of(a_slice()) == "inference/vllm"
    assert service_of({"metadata": {"namespace": "a"}}) == ""
    assert service_of({"metadata": {"labels": {"kubernetes.io/service-name": 3}}}) == ""


def test_what_an_endpoint_says_is_kept() -> None:
    (found,) = read_endpoints([a_slice(an_endpoint("10.0.0.1", ready=True))], 80)
    assert found == Endpoint("10.0.0.1", 8000, True, "z1", "n1", "p")
    assert found.url == "http://10.0.0.1:8000"
    assert found._replace(host="fd00::1").url == "http://[fd00::1]:8000"


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        pytest.param({}, True, id="absent means ready"),
        pytest.param({"ready": None}, True, id="null means ready"),
        pytest.param({"ready": False}, False, id="not ready"),
        pytest.param({"ready": True, "terminating": True}, False, id="terminating"),
        pytest.param({"ready": False, "serving": True, "terminating": True}, False, id="serving its last"),
    ],
)
def test_ready_is_who_takes_new_requests(conditions: dict[str, Any], ready: bool) -> None:
    (found,) = read_endpoints([a_slice(an_endpoint("10.0.0.1", **conditions))], 80)
    assert found.ready is ready


def test_the_services_port_is_found_by_its_name_by_its_number_or_alone() -> None:
    two = ({"name": "metrics", "port": 9001}, {"name": "http", "port": 8000})
    one = an_endpoint("10.0.0.1")
    assert [found.port for found in read_endpoints([a_slice(one, ports=two)], 80, SERVICE)] == [8000]
    assert [found.port for found in read_endpoints([a_slice(one, ports=two)], 8000)] == [8000]
    assert read_endpoints([a_slice(one, ports=two)], 80) == ()
    assert read_endpoints([a_slice(one)], 80, {"spec": {"ports": [{"name": "other", "port": 80}]}}) == ()
    assert [found.port for found in read_endpoints([a_slice(one)], 80, {"spec": {"ports": []}})] == [8000]


def test_a_pod_in_two_slices_counts_once_and_order_does_not_matter() -> None:
    old, new = a_slice(an_endpoint("10.0.0.2", ready=False)), a_slice(an_endpoint("10.0.0.2"), an_endpoint("10.0.0.1"))
    assert read_endpoints([old, new], 80) == read_endpoints([new, old], 80)
    assert [(found.host, found.ready) for found in read_endpoints([old, new], 80)] == [
        ("10.0.0.1", True),
        ("10.0.0.2", True),
    ]


def test_a_pod_with_addresses_of_both_families_is_one_replica() -> None:
    """A dual-stack Service has a slice of each family; counted twice, an engine would be thought twice as large."""

    def of(pod: str, address: str, **conditions: bool) -> dict[str, Any]:
        return an_endpoint(address, **conditions) | {"targetRef": {"kind": "Pod", "name": pod, "uid": f"u-{pod}"}}

    four = a_slice(of("a", "10.0.0.1"), of("b", "10.0.0.2", ready=False))
    six = a_slice(of("a", "fd00::1"), of("b", "fd00::2"), of("c", "fd00::3"), an_endpoint("fd00::4"))
    for slices in ([four, six], [six, four]):
        ready = [found for found in read_endpoints(slices, 80) if found.ready]
        assert [(one.host, one.uid) for one in ready] == [
            ("10.0.0.1", "u-a"),
            ("fd00::2", "u-b"),
            ("fd00::3", "u-c"),
            ("fd00::4", ""),
        ]


@pytest.mark.parametrize(
    "strange",
    [
        pytest.param({}, id="empty"),
        pytest.param({"ports": None, "endpoints": None}, id="nulls"),
        pytest.param({"ports": [{"port": True}, {"port": 0}, {"port": "80"}, 7], "endpoints": [3]}, id="no ports"),
        pytest.param({"ports": [{"port": 80}], "endpoints": [None, {"addresses": [None, ""]}, {}]}, id="no addresses"),
    ],
)
def test_a_strange_slice_has_no_endpoints(strange: dict[str, Any]) -> None:
    assert read_endpoints([strange], 80) == ()

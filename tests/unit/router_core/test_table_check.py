"""Tables are applied whole or not at all, and the reason is named."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from headrace_api.table import MAX_TABLE_BYTES, RoutingTable
from headrace_router.core.table_check import Rejected, Verdict, newer, parse_table
from support.router_core import encoded, engine, make_table, parsed, raw_table, route


def one_class(*routes: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    return [{"model": "m", "classes": [{"routes": list(routes)}], **fields}]


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "another-namespaces-engine": ({"policyNamespace": "tenant-b"}, "right would be tenant-b/…"),
    "another-namespaces-service": (
        {"engines": [engine(n, service={"name": "kube-dns", "namespace": "kube-system", "port": 53}) for n in "abc"]},
        "namespace is 'kube-system'; right would be the policy's, ns",
    ),
    "metadata-service": ({"engines": [engine(n, urls=["http://169.254.169.254"]) for n in "abc"]}, "link-local"),
    "version": ({"schemaVersion": 2}, "schemaVersion is 2"),
    "weight-null": ({"models": one_class(route("a", 10_000) | {"weight": None})}, "weight"),
    "weight-string": ({"models": one_class(route("a", 0) | {"weight": "0"})}, "weight"),
    "weight-missing": ({"models": one_class({"engine": "ns/a"})}, "weight"),
    "weight-negative": ({"models": one_class(route("a", -1))}, "weight"),
    "weight-float": ({"models": one_class({"engine": "ns/a", "weight": 0.5})}, "weight"),
    "weights-zero": ({"models": one_class(route("a", 0))}, "sum to 0"),
    "weights-half": ({"models": one_class(route("a", 5000))}, "sum to 5000"),
    "route-unknown": ({"models": one_class(route("z", 10_000))}, "ns/z"),
    "route-twice": ({"models": one_class(route("a", 5000), route("a", 5000))}, "stands twice"),
    "model-twice": ({"models": one_class(route("a", 10_000)) * 2}, "stands twice"),
    "no-model": ({"models": []}, "models"),
    "engine-twice": ({"engines": [engine("a"), engine("a")]}, "stands twice"),
    "engine-without-address": ({"engines": [{"id": "ns/a"}]}, "neither urls nor a service"),
    "negative-in-flight": ({"engines": [engine("a", inFlightHere=-1.0)]}, "inFlightHere"),
    "huge-number": ({"engines": [engine("a", inFlightAll=1e300)]}, "engines[0].inFlightAll"),
    "huge-int": ({"routers": 10**400}, "routers"),
    "models-of-engine-twice": (
        {"engines": [engine("a", models=[{"model": "m", "servedName": "x"}, {"model": "m", "servedName": "y"}])]},
        "stands twice",
    ),
    "url-scheme": ({"engines": [engine("a") | {"urls": ["ftp://a:1"]}]}, "scheme"),
    "url-no-host": ({"engines": [engine("a") | {"urls": ["http://:80"]}]}, "host"),
    "url-port": ({"engines": [engine("a") | {"urls": ["http://a:70000"]}]}, "port"),
    "url-path": ({"engines": [engine("a") | {"urls": ["http://a/v1"]}]}, "path"),
    "url-credentials": ({"engines": [engine("a") | {"urls": ["http://u:p@a"]}]}, "credentials"),
    "url-bare-ipv6": ({"engines": [engine("a") | {"urls": ["http://fd00::2:8000"]}]}, "brackets"),
    "url-twice": ({"engines": [engine("a") | {"urls": ["http://A:80", "http://a:80/"]}]}, "stands twice"),
    "edges-order": ({"classEdges": [600, 600]}, "classEdges"),
    "edges-zero": ({"classEdges": [0]}, "classEdges"),
    "classes-count": (
        {"classEdges": [600], "models": [{"model": "m", "classes": [{"routes": [route("a", 10_000)]}] * 3}]},
        "2",
    ),
    "priority-names": ({"priorities": [{"name": "x", "value": 1}, {"name": "x", "value": 2}]}, "stands twice"),
    "priority-values": ({"priorities": [{"name": "x", "value": 1}, {"name": "y", "value": 1}]}, "stands twice"),
    "priority-header": ({"priorityHeader": "a b"}, "priorityHeader"),
    "shed-unknown": (
        {
            "models": [
                {"model": "m", "classes": [{"routes": [route("a", 10_000)], "shed": [{"priority": "z", "share": 0.1}]}]}
            ]
        },
        "'z'",
    ),
    "shed-above-one": (
        {
            "models": [
                {
                    "model": "m",
                    "classes": [{"routes": [route("a", 10_000)], "shed": [{"priority": "default", "share": 1.1}]}],
                }
            ]
        },
        "share",
    ),
    "key-of-two-kinds": ({"affinity": {"keys": [{"header": "x", "prefix": True}]}}, "exactly one"),
    "key-of-no-kind": ({"affinity": {"keys": [{}]}}, "exactly one"),
    "key-header": ({"affinity": {"keys": [{"header": "a b"}]}}, "header"),
    "key-field": ({"affinity": {"keys": [{"field": "a.b"}]}}, "field"),
    "path": ({"paths": ["v1/rerank"]}, "starts with /"),
    "widen": ({"widenAfter": -1.0}, "widenAfter"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_tables_are_refused_with_the_reason(name: str) -> None:
    """WEI-02: weight null, a string or missing is refused, not read as something.

    https://github.com/emissary-ingress/emissary/pull/1605
    """
    fields, word = BROKEN[name]
    found = parse_table(encoded(raw_table({"a": 10_000}, **fields)))
    assert isinstance(found, Rejected)
    assert word in found.reason


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"\xff\xfe{}", b'{"schemaVersion": 1}', b"[" * 100_000, b'{"schemaVersion":"1"}'],
)
def test_what_is_no_table_is_refused(data: bytes) -> None:
    assert isinstance(parse_table(data), Rejected)


def test_numbers_beyond_floats_are_refused() -> None:
    data = encoded(raw_table({"a": 10_000})).replace(b'"weight": 10000', b'"weight": 10000, "reducedCost": 1e999')
    found = parse_table(data)
    assert isinstance(found, Rejected)
    assert "reducedCost" in found.reason


def test_size_is_bounded() -> None:
    found = parse_table(b" " * (MAX_TABLE_BYTES + 1))
    assert isinstance(found, Rejected)
    assert str(MAX_TABLE_BYTES) in found.reason


@pytest.mark.parametrize("weights", [(3300, 3300, 3300), (3400, 3400, 3400), (1, 9999, 0)], ids=str)
def test_sums_within_rounding_are_taken(weights: tuple[int, ...]) -> None:
    """WEI-01: sums of 0.99 and 1.02 are normalised, not refused.

    https://github.com/projectcontour/contour/issues/477
    """
    assert isinstance(make_table(dict(zip("abc", weights, strict=True))), RoutingTable)


def test_unknown_fields_are_ignored_and_urls_come_out_canonical() -> None:
    fields = raw_table(
        {"a": 10_000},
        engines=[engine("a", later={"x": 1}) | {"urls": ["HTTP://A.Example:80/", "http://[FD00:0::2]:8000"]}],
    )
    found = parsed(fields | {"novel": [1]})
    assert found.engines[0].urls == ("http://a.example:80", "http://[fd00::2]:8000")


def test_engines_behind_a_service_need_no_url() -> None:
    service = {"name": "vllm", "namespace": "ns", "port": 8000}
    found = parsed(raw_table({"a": 10_000}, engines=[{"id": "ns/a", "service": service}], widenAfter=30.0))
    assert found.engines[0].urls == ()


def test_a_table_with_everything_is_taken() -> None:
    classes = [{"routes": [route("a", 10_000)], "shed": [{"priority": "low", "share": 0.5}]}] * 2
    found = make_table(
        {"a": 10_000},
        classEdges=[600],
        models=[{"model": "m", "classes": classes}],
        priorities=[{"name": "low", "value": 1}, {"name": "high", "value": 2}],
        affinity={"keys": [{"header": "x-session-id"}, {"field": "user"}, {"prefix": True}]},
        paths=["/v1/rerank", "/v1/score"],
        widenAfter=0.0,
    )
    assert found.paths == ("/v1/rerank", "/v1/score")


def identity(**fields: Any) -> RoutingTable:
    return make_table({"a": 10_000}, identity={"uid": "u", "term": 2, "revision": 5, **fields})


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({}, Verdict.SAME),
        ({"revision": 6}, Verdict.APPLY),
        ({"revision": 4}, Verdict.OLDER),
        ({"term": 3, "revision": 1}, Verdict.APPLY),
        ({"term": 1, "revision": 9}, Verdict.OLDER),
        ({"uid": "new", "term": 0, "revision": 0}, Verdict.APPLY),
    ],
)
def test_order_of_publications(fields: dict[str, Any], verdict: Verdict) -> None:
    assert newer(identity(), identity(**fields)) is verdict


def test_anything_replaces_nothing_and_other_content_of_the_same_identity_is_applied() -> None:
    assert newer(None, identity()) is Verdict.APPLY
    assert newer(identity(), msgspec.structs.replace(identity(), frontend="other")) is Verdict.APPLY


def test_a_restored_table_ends_the_error_state() -> None:
    """REL-02: good, broken, the good one byte for byte, the next: never half applied, never stuck.

    https://github.com/vllm-project/production-stack/issues/659
    """
    first = raw_table({"a": 10_000})
    bad_url = raw_table({"a": 10_000}, engines=[engine("a") | {"urls": ["http://a b"]}])
    second = first | {"identity": {"uid": "u", "term": 1, "revision": 2}}
    current = parsed(first)
    assert isinstance(parse_table(json.dumps(first).encode().replace(b",", b"", 1)), Rejected)
    assert isinstance(parse_table(encoded(bad_url)), Rejected)
    assert newer(current, parsed(first)) is Verdict.SAME
    assert newer(current, parsed(second)) is Verdict.APPLY


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        (b"1e13", False),
        (b"1E+13", False),
        (b"0.1e14", False),
        (b"1000000000001", False),
        (b"1000000000001.5", False),
        (b"1000000000000", True),
        (b"999999999999.9999999999999", True),
        (b"0.33333333333333333333", True),
        (b"5e-05", True),
    ],
)
def test_numbers_out_of_range_are_found_however_they_are_written(text: bytes, fits: bool) -> None:
    data = encoded(raw_table({"a": 10_000})).replace(b'"weight": 10000', b'"weight": 10000, "reducedCost": ' + text)
    assert isinstance(parse_table(data), RoutingTable) == fits, text

"""Reading manifests: the good ones are always returned, whatever stands beside them."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace_api.rules import Rule
from headrace_api.schema import schema_of
from headrace_operator.store.faults import Origin, ResourceKey
from headrace_operator.store.manifests import KINDS, MAX_FAULTS, Manifests, read_manifests, read_path, read_paths
from headrace_operator.store.not_yet import NOT_YET
from headrace_operator.store.rules import MIRRORS
from support.resources import AGAINST, ENGINE_SPEC, POLICY_SPEC, against, engine, largest_engine, largest_policy, policy


def read(*resources: dict[str, Any], namespace: str = "default") -> Manifests:
    return read_manifests([("f.yaml", yaml.safe_dump_all(resources).encode())], namespace=namespace)


def messages(found: Manifests) -> list[str]:
    return [f"{fault.field}: {fault.message}" for fault in found.faults]


def test_good_ones_are_served_in_order_of_their_names() -> None:
    found = read(engine(name="b"), policy(), engine(name="a"), engine(name="a", namespace="aa"))

    assert [one.metadata.name for one in found.engines] == ["a", "a", "b"]
    assert [one.metadata.namespace for one in found.engines] == ["aa", "inference", "inference"]
    assert [one.metadata.name for one in found.policies] == ["p"]
    assert (found.faults, found.notices, found.refused, found.unreadable) == ((), (), (), ())
    assert found.origins[ResourceKey("InferenceEngine", "inference", "b")] == Origin("f.yaml", 1)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(ENGINE_SPEC | {"capacity": {"perReplica": {"requestsPerSecond": "ten"}}}, id="bad-1"),
        pytest.param({}, id="bad-2"),
        pytest.param(None, id="bad-3"),
        pytest.param(ENGINE_SPEC | {"url": "http://b:8000"}, id="bad-5"),
        pytest.param(ENGINE_SPEC | {"capacity": {"perReplica": {"requestsPerSecond": -1}}}, id="edited into -1"),
    ],
)
def test_a_broken_engine_stops_no_other(spec: Any) -> None:
    """CRD-01, https://github.com/rook/rook/issues/3480: one broken resource stops the operator for all the others."""
    bad = engine(name="b") | {"spec": spec}

    found = read(engine(), bad, policy())

    assert [one.metadata.name for one in found.engines] == ["a"]
    assert [one.metadata.name for one in found.policies] == ["p"]
    assert found.faults
    assert {fault.resource for fault in found.faults} == {"InferenceEngine inference/b"}
    assert found.refused == (ResourceKey("InferenceEngine", "inference", "b"),)


def test_null_means_missing() -> None:
    """CRD-02, https://github.com/kubernetes/kubernetes/pull/95423: null in a mapping is a missing field."""
    spec = POLICY_SPEC | {"protection": {"retry": None}, "timeouts": {"connect": None}, "engineSelector": None}

    found = read(engine(), policy(spec, labels={"tier": None}))

    assert found.faults == ()
    assert found.policies == read(engine(), policy()).policies


def test_null_in_a_list_is_refused() -> None:
    """CRD-02: nulls in lists stay and fail validation."""
    found = read(engine(ENGINE_SPEC | {"residency": [None]}))

    assert messages(found) == ["spec.residency[0]: null is not text; right would be text, or no entry"]


@pytest.mark.parametrize("rule", AGAINST, ids=lambda rule: rule.message[:40])
def test_each_rule_across_fields(rule: Rule) -> None:
    """CRD-04, https://github.com/openshift/api/pull/412: values valid one by one and impossible together."""
    found = read(against(rule), engine(name="beside"))

    refused = [fault for fault in found.faults if fault.severity == "refused"]
    assert refused
    for fault in refused:
        assert fault.field.startswith("spec.")
    assert [one.metadata.name for one in found.engines] == ["beside"]


def test_every_rule_but_the_names_has_an_example() -> None:
    assert {rule.message for rule in MIRRORS} - {rule.message for rule in AGAINST} == {
        "metadata.name has more than 63 characters; it becomes a label's value"
    }


def test_rules_are_judged_beside_schema_faults() -> None:
    """Every fault in one run: a wrong field doesn't hide a rule that doesn't look at it."""
    spec = ENGINE_SPEC | {
        "endpoints": {"replicas": 1, "replicasFrom": "Metrics", "urls": ["http://a"], "tls": 3},
        "profile": {"ttft": [{"utilizationPercent": 5, "latency": "1s"}] * 2, "tbot": 7},
        "capacity": {"perReplica": {"requestsPerSecond": "ten"}},
        "bogus": 1,
    }

    fields = {fault.field for fault in read(engine(spec)).faults}

    assert fields == {
        "spec.endpoints.tls",
        "spec.endpoints.replicasFrom",
        "spec.profile.ttft[1].utilizationPercent",
        "spec.profile.tbot",
        "spec.capacity.perReplica.requestsPerSecond",
        "spec.bogus",
    }


def test_a_rule_keeps_silent_when_a_field_it_needs_is_wrong() -> None:
    spec = ENGINE_SPEC | {"endpoints": {"urls": "http://a:8000"}}

    assert messages(read(engine(spec))) == [
        'spec.endpoints.urls: "http://a:8000" is not a list; right would be a list, even of one entry'
    ]


@pytest.mark.parametrize("resource", [largest_engine(), largest_policy()], ids=["engine", "policy"])
def test_a_resource_at_every_bound_is_accepted(resource: dict[str, Any]) -> None:
    data = json.dumps(resource, separators=(",", ":")).encode()

    found = read_manifests([("largest.json", data)])

    assert [fault for fault in found.faults if fault.severity == "refused"] == []
    assert len(found.engines) + len(found.policies) == 1


@pytest.mark.parametrize("resource", [engine(), policy()], ids=["engine", "policy"])
def test_a_list_longer_than_its_bound_is_told_by_its_field(resource: dict[str, Any]) -> None:
    schema = schema_of(KINDS[resource["kind"]][1])
    for name, field in schema["properties"].items():
        if field.get("type") == "array":
            most = field["maxItems"]
            found = read(resource | {"spec": resource["spec"] | {name: [f"x{n}" for n in range(most + 1)]}})
            assert f"spec.{name}: has {most + 1} entries; right would be at most {most}" in messages(found)


def test_a_dangling_policy_is_served_and_told() -> None:
    """CRD-04, h: a selector that matches nothing; an engine that appears later is picked up without an edit."""
    chosen = policy(POLICY_SPEC | {"engineSelector": {"matchLabels": {"tier": "prod"}}})

    before = read(chosen)
    after = read(chosen, engine(labels={"tier": "prod"}))

    assert [fault.severity for fault in before.faults] == ["dangling"]
    assert before.policies == after.policies
    assert (before.refused, after.faults) == ((), ())


def test_a_refused_engine_makes_no_dangling_policy_beside() -> None:
    """One slip, one fault: the model is declared, only its engine is wrong."""
    bad = engine(ENGINE_SPEC | {"state": "Actve"})

    found = read(bad, policy())
    beside = read(bad, policy(), engine(ENGINE_SPEC | {"models": [{"name": "other"}]}, name="z"))

    assert {fault.resource for fault in (*found.faults, *beside.faults)} == {"InferenceEngine inference/a"}


def test_capabilities_that_nobody_has_together() -> None:
    wanted = policy(POLICY_SPEC | {"models": [{"name": "m", "requires": ["tools", "vision"]}]})
    one = engine(ENGINE_SPEC | {"capabilities": ["tools"]})
    other = engine(ENGINE_SPEC | {"capabilities": ["vision"]}, name="b")

    assert messages(read(wanted, one, other)) == [
        'spec.models[0].requires: tools and vision are offered together by no engine that serves "m"'
    ]


def test_of_two_resources_with_one_name_the_first_stays() -> None:
    files = [(name, yaml.safe_dump(engine(labels={"from": name[0]})).encode()) for name in ("a.yaml", "b.yaml")]

    found = read_manifests(files)

    assert [one.metadata.labels for one in found.engines] == [{"from": "a"}]
    assert [str(fault) for fault in found.faults] == [
        'b.yaml:6: InferenceEngine inference/a: metadata.name: "a" stands already at a.yaml:1; '
        "right would be one resource of that name"
    ]


def test_a_resource_without_namespace_is_in_the_given_one() -> None:
    bare = engine()
    del bare["metadata"]["namespace"]

    assert read(bare, namespace="team-a").engines[0].metadata.namespace == "team-a"
    assert read(bare).engines[0].metadata.namespace == "default"


def test_faults_of_one_resource_are_capped() -> None:
    found = read(policy(POLICY_SPEC | {"paths": ["bad"] * 1000}))

    assert len(found.faults) == MAX_FAULTS + 1
    assert found.faults[-1].message.startswith("and ")


def test_status_and_managed_fields_of_a_live_resource_are_ignored() -> None:
    live = engine(managedFields=[{"time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {}}}], generation=3)

    found = read(live | {"status": {"anything": 1.5}})

    assert found.faults == ()
    assert found.engines[0].metadata.generation == 3


@pytest.mark.parametrize("row", NOT_YET, ids=lambda row: ".".join(row.path))
def test_rows_of_fields_without_effect_name_real_fields(row: Any) -> None:
    schema = schema_of(KINDS[row.kind][1])
    for part in row.path[1:]:
        schema = schema["items"] if part == "*" else schema["properties"][part]
    assert set(row.values) <= set(schema.get("enum", row.values))


class TestPaths:
    def test_a_directory_gives_its_manifests_sorted_without_its_folders(self, tmp_path: Path) -> None:
        for name in ("b.yml", "a.yaml", "c.json", "readme.txt", ".hidden.yaml"):
            resource = engine(name=name.strip(".").split(".")[0])
            (tmp_path / name).write_text(json.dumps(resource), encoding="utf-8")
        (tmp_path / "folder.yaml").mkdir()

        found = read_path(tmp_path)

        assert [one.metadata.name for one in found.engines] == ["a", "b", "c"]
        assert found.faults == ()

    def test_a_missing_path_an_empty_directory_and_a_good_file(self, tmp_path: Path) -> None:
        good = tmp_path / "good.yaml"
        good.write_text(yaml.safe_dump(engine()), encoding="utf-8")
        empty = tmp_path / "empty"
        empty.mkdir()

        found = read_paths([tmp_path / "missing", empty, good])

        assert [str(fault) for fault in found.faults] == [
            f"{tmp_path}/missing:1: no such file or directory; right would be a file or directory that can be read",
            f"{empty}:1: holds no manifests; right would be files named *.yaml, *.yml, *.json",
        ]
        assert len(found.engines) == 1

    def test_a_file_that_cannot_be_opened(self, tmp_path: Path) -> None:
        if os.geteuid() == 0:
            path = tmp_path / "loop.yaml"
            path.symlink_to(path)
        else:
            path = tmp_path / "secret.yaml"
            path.touch(mode=0o000)

        found = read_path(path)

        assert len(found.faults) == 1
        assert found.unreadable == (str(path),)

    def test_standard_input(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stdin = io.TextIOWrapper(io.BytesIO(yaml.safe_dump(engine()).encode() + b"---\n7\n"))
        monkeypatch.setattr("sys.stdin", stdin)

        found = read_path("-")

        assert len(found.engines) == 1
        assert [fault.file for fault in found.faults] == ["<stdin>"]

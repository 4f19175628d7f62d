"""``headrace discover``: the command, before objects that nobody should have made, too."""

from __future__ import annotations

import argparse
import copy
import json
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace_api.commands import EnvironmentFailed
from headrace_operator.cli import discover
from headrace_operator.cli.discover_draft import drafts
from headrace_operator.cli.discover_read import read_world
from headrace_operator.cli.discover_text import as_json, as_yaml
from headrace_operator.kube.client import KubeFault
from support.workloads import LABELS, NODE, VLLM, container, refused, service, workload

JUNK: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.sampled_from(VLLM),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, part in inner for found in paths(part, (*path, key)))]


GOOD = {
    "workload": workload(container(*VLLM, ports=[{"name": "api", "containerPort": 8000}]))[1],
    "service": service(target="api"),
    "node": {"metadata": {"name": "n1", "labels": NODE}},
    "pod": {"metadata": {"namespace": "inference", "labels": LABELS}, "spec": {"nodeName": "n1"}},
}


class Lists:
    """An API server of lists by the end of their path; None: forbidden."""

    def __init__(self, **lists: Any) -> None:
        self.lists = lists

    def list(self, path: str) -> dict[str, Any]:
        plural = path.rpartition("/")[2]
        if plural not in self.lists:
            raise KubeFault(404, "NotJson", "404 page not found")
        if self.lists[plural] is None:
            raise KubeFault(403, "Forbidden", f"cannot list {plural}")
        return {"items": self.lists[plural]}


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_odd_objects_never_make_it_fall(data: Any) -> None:
    objects = copy.deepcopy(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from([path for path in paths(objects) if len(path) > 1]))
        place: Any = objects
        for key in way:
            place = place[key]
        place[last] = data.draw(JUNK)
    client: Any = Lists(
        deployments=[objects["workload"], None],
        services=[objects["service"]],
        pods=[objects["pod"]],
        nodes=[objects["node"]],
        inferenceengines=[None, {}],
    )
    found = drafts(read_world(client, ""))
    for document in yaml.safe_load_all(as_yaml(found)):
        assert document is None or document["kind"] == "InferenceEngine"
    json.loads(as_json(found))
    known = [fault.partition(": ")[0] for fault in refused(as_yaml(found))] if found.engines else []
    told = {entry.field for draft in found.engines for entry in draft.unknown}
    assert all(any(field.startswith(name) for name in told) or field == "metadata.namespace" for field in known), known


def called(client: Any, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(discover, "cluster", lambda arguments: client)
    parser = argparse.ArgumentParser()
    discover.COMMAND.add_arguments(parser)
    return discover.COMMAND.run(parser.parse_args(words))


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    client = Lists(deployments=[GOOD["workload"]], services=[GOOD["service"]], nodes=None, pods=None)
    assert called(client, monkeypatch, "-A", "-o", "json") == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["items"][0]["kind"] == "InferenceEngine"
    assert "note: nodes can't be listed (cannot list nodes)" in told.err
    assert called(Lists(deployments=[], services=[]), monkeypatch, "-n", "inference") == 1
    assert "nothing in namespace inference looks like an engine: 0 workloads" in capsys.readouterr().err


def test_who_may_not_list_is_told_what_to_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentFailed, match=r"can-i list deployments.apps -n inference"):
        called(Lists(deployments=None, statefulsets=None), monkeypatch, "-n", "inference")

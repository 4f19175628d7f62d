"""``headrace discover``: drafts from workloads as people write them, and from objects that nobody should have made."""

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
from headrace_operator.cli.discover_draft import FILL, Drafts, drafts
from headrace_operator.cli.discover_read import World, read_world
from headrace_operator.cli.discover_runtime import serving
from headrace_operator.cli.discover_text import as_json, as_yaml
from headrace_operator.kube.client import KubeFault
from headrace_operator.store.manifests import read_manifests

LABELS = {"app": "vllm-70b"}
NODE = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "topology.kubernetes.io/region": "us-east-1",
    "topology.kubernetes.io/zone": "us-east-1a",
}
VLLM = [
    "vllm",
    "serve",
    "meta-llama/Llama-3.1-70B-Instruct",
    "--served-model-name=llama-3.1-70b",
    "--tensor-parallel-size",
    "4",
    "--max-model-len=32k",
    "--max-num-seqs",
    "256",
    "--enable-lora",
    "--lora-modules",
    "legal-lora=/adapters/legal",
    '{"name": "sql-lora", "path": "/adapters/sql"}',
    "--enable-auto-tool-choice",
    "--tool-call-parser=llama3_json",
]


def container(*command: str, image: str = "registry.example/ai/server:1", gpus: int = 4, **more: Any) -> dict[str, Any]:
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    return {"name": "server", "image": image, "command": list(command), "resources": limits} | more


def workload(one: dict[str, Any], name: str = "vllm-70b", kind: str = "Deployment", **spec: Any) -> tuple[str, Any]:
    pod = {"metadata": {"labels": LABELS}, "spec": {"containers": [one]} | spec}
    return kind, {"metadata": {"name": name, "namespace": "inference"}, "spec": {"template": pod}}


def service(name: str = "vllm", port: int = 80, target: Any = 8000, **spec: Any) -> dict[str, Any]:
    ports = [{"port": port, "targetPort": target}]
    return {
        "metadata": {"name": name, "namespace": "inference"},
        "spec": {"selector": LABELS, "ports": ports, "clusterIP": "10.0.0.1"} | spec,
    }


def world(*workloads: tuple[str, Any], services: Any = (), nodes: Any = None, **more: Any) -> World:
    pods = [
        {"metadata": {"namespace": "inference", "labels": LABELS}, "spec": {"nodeName": name}} for name in nodes or {}
    ]
    return World(tuple(workloads), tuple(services), tuple(pods), nodes or {}, more.get("engines", ()), ())


def spec_of(found: Drafts) -> Any:
    (draft,) = found.engines
    return draft.manifest["spec"]


def test_all_that_a_cluster_says_is_in_the_draft() -> None:
    found = drafts(world(workload(container(*VLLM)), services=[service()], nodes={"n1": NODE, "n2": NODE}))
    assert found.engines[0].manifest["metadata"] == {"name": "vllm-70b", "namespace": "inference"}
    assert spec_of(found) == {
        "models": [{"name": "llama-3.1-70b", "adapters": ["legal-lora", "sql-lora"]}],
        "endpoints": {"service": {"name": "vllm", "port": 80}},
        "location": {"region": "us-east-1", "zone": "us-east-1a"},
        "runtime": "vLLM",
        "hardware": {"accelerator": "NVIDIA-H100-80GB-HBM3", "count": 4},
        "capabilities": ["tools"],
        "maxModelLen": 32_000,
        "capacity": {"perReplica": {"requestsPerSecond": FILL, "maxConcurrency": 256}},
    }


def refused(text: str) -> list[str]:
    return [f"{fault.field}: {fault.message}" for fault in read_manifests([("draft", text.encode())]).faults]


def test_a_draft_is_refused_by_the_field_to_fill_and_taken_once_that_is_filled() -> None:
    text = as_yaml(drafts(world(workload(container(*VLLM)), services=[service()])))
    (fault,) = refused(text)
    assert fault.startswith("spec.capacity.perReplica.requestsPerSecond: ")
    assert refused(text.replace(FILL, "12", 2).replace("12 can't", "x")) == []


def test_every_field_that_is_to_be_filled_is_named() -> None:
    text = as_yaml(drafts(world(workload(container("./start.sh", image="acme/vllm:1")))))
    assert {fault.partition(": ")[0] for fault in refused(text)} == {
        "spec.models[0].name",
        "spec.endpoints.service.name",
        "spec.endpoints.service.port",
        "spec.capacity.perReplica.requestsPerSecond",
    }
    assert f"- name: {FILL}  # the command line does not say it: ask the engine, GET /v1/models" in text
    assert f"requestsPerSecond: {FILL}  # requests/s that one replica carries" in text
    assert "# spec.endpoints.service: " in text or "service:  # no Service selects these pods' port 8000" in text
    assert "#   spec.location.region: no node says topology.kubernetes.io/region" in text


@pytest.mark.parametrize(
    ("one", "runtime", "model", "port", "count", "length"),
    [
        (
            container("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "a/b", "-tp", "2", gpus=0),
            "vLLM",
            "a/b",
            8000,
            2,
            0,
        ),
        (
            container("sh", "-c", "pip install vllm && exec vllm serve a/b --port 9000 \\\n --max-model-len 8192"),
            "vLLM",
            "a/b",
            9000,
            4,
            8192,
        ),
        (
            container("sh", "-c", "vllm serve $MODEL --max_model_len=8K", env=[{"name": "MODEL", "value": "a/b"}]),
            "vLLM",
            "a/b",
            8000,
            4,
            8192,
        ),
        (
            container(image="vllm/vllm-openai:v0.11.0", args=["--model=$(M)"], env=[{"name": "M", "value": "a/b"}]),
            "vLLM",
            "a/b",
            8000,
            4,
            0,
        ),
        (
            container(image="vllm/vllm-openai@sha256:00", args=["a/b", "--pipeline-parallel-size=2"], gpus=0),
            "vLLM",
            "a/b",
            8000,
            2,
            0,
        ),
        (
            container(
                "python",
                "-m",
                "sglang.launch_server",
                "--model-path",
                "a/b",
                "--tp",
                "8",
                "--context-length",
                "4096",
                gpus=8,
            ),
            "SGLang",
            "a/b",
            30000,
            8,
            4096,
        ),
        (
            container(
                image="ghcr.io/huggingface/text-generation-inference:3",
                env=[
                    {"name": "MODEL_ID", "value": "a/b"},
                    {"name": "PORT", "value": "8080"},
                    {"name": "MAX_TOTAL_TOKENS", "value": "2048"},
                ],
            ),
            "TGI",
            "a/b",
            8080,
            4,
            2048,
        ),
        (
            container("trtllm-serve", "a/b", "--tp_size", "2", "--max_seq_len", "1024", gpus=2),
            "TensorRTLLM",
            "a/b",
            8000,
            2,
            1024,
        ),
        (container("trtllm-serve", "serve", "a/b", gpus=1), "TensorRTLLM", "a/b", 8000, 1, 0),
        (container("vllm", "serve", "/models/x", "--served-model-name", "x", "y", gpus=1), "vLLM", "x", 8000, 1, 0),
    ],
)
def test_runtimes_are_known_by_command_and_image(
    one: dict[str, Any], runtime: str, model: str, port: int, count: int, length: int
) -> None:
    found = drafts(world(workload(one, nodeSelector=NODE), services=[service(target=port)]))
    spec = spec_of(found)
    assert spec["runtime"] == runtime
    assert spec["models"][0]["name"] == model
    assert spec["endpoints"]["service"] == {"name": "vllm", "port": 80}
    assert spec["hardware"]["count"] == count
    assert spec.get("maxModelLen", 0) == length
    assert spec["location"] == {"region": "us-east-1", "zone": "us-east-1a"}


@pytest.mark.parametrize(
    "one",
    [
        container("nginx"),
        container(image="lmcache/vllm-router:1"),
        container("python", "-m", "vllm_router.app"),
        container(image="ghcr.io/llm-d/vllm-exporter:1"),
        {"image": None, "command": "vllm serve"},
        {},
    ],
)
def test_what_serves_nothing_is_no_engine(one: dict[str, Any]) -> None:
    assert drafts(world(workload(one), services=[service()])).engines == ()


def test_the_port_of_a_service_is_the_one_that_leads_to_the_engine() -> None:
    ports = [{"name": "metrics", "port": 9100, "targetPort": 9100}, {"name": "http", "port": 80, "targetPort": "api"}]
    named = container(*VLLM, ports=[{"name": "api", "containerPort": 8000}])
    (draft,) = drafts(world(workload(named), services=[service(ports=ports)])).engines
    assert draft.manifest["spec"]["endpoints"]["service"] == {"name": "vllm", "port": 80}


def test_a_service_with_an_address_comes_before_a_headless_or_an_outer_one() -> None:
    services = [service("a", clusterIP="None"), service("b", type="LoadBalancer"), service("c")]
    (draft,) = drafts(world(workload(container(*VLLM)), services=services)).engines
    assert draft.manifest["spec"]["endpoints"]["service"]["name"] == "c"


def test_workloads_behind_one_service_are_one_engine() -> None:
    found = drafts(world(workload(container(*VLLM)), workload(container(*VLLM), "canary"), services=[service()]))
    assert [draft.manifest["metadata"]["name"] for draft in found.engines] == ["canary"]
    assert "behind the same Service vllm as Deployment canary: one engine was drafted" in found.notes[0]


def test_what_is_declared_already_is_not_drafted_again() -> None:
    engine = {"metadata": {"namespace": "inference"}, "spec": {"endpoints": {"service": {"name": "vllm"}}}}
    found = drafts(world(workload(container(*VLLM)), services=[service()], engines=[engine]))
    assert (found.engines, len(found.notes)) == ((), 1)


def test_a_leader_worker_set_is_one_replica_a_group() -> None:
    leader = workload(container(*VLLM, gpus=8))[1]["spec"]["template"]
    group = {"leaderWorkerTemplate": {"size": 2, "leaderTemplate": leader, "workerTemplate": leader}}
    raw = {"metadata": {"name": "big", "namespace": "inference"}, "spec": group}
    selector = {"leaderworkerset.sigs.k8s.io/name": "big", "leaderworkerset.sigs.k8s.io/worker-index": "0"}
    found = drafts(world(("LeaderWorkerSet", raw), services=[service(selector=selector)], nodes={"n": NODE}))
    assert spec_of(found)["endpoints"]["service"]["name"] == "vllm"
    assert [entry.field for entry in found.engines[0].unknown if entry.field == "spec.hardware"] == ["spec.hardware"]


def test_names_are_clipped_and_never_twice() -> None:
    long = "a" * 62 + "-" + "b" * 20
    pair = [workload(container(*VLLM), long), workload(container(*VLLM), long, "StatefulSet")]
    names = [draft.manifest["metadata"]["name"] for draft in drafts(world(*pair)).engines]
    assert names == ["a" * 62, "a" * 59 + "-2"]


def test_places_are_not_guessed() -> None:
    other = NODE | {"topology.kubernetes.io/zone": "us-east-1b"}
    found = drafts(world(workload(container(*VLLM)), nodes={"n1": NODE, "n2": other}))
    assert spec_of(found)["location"] == {"region": "us-east-1"}
    terms = [
        {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]}
        for zone in ("z1", "z1")
    ]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    found = drafts(world(workload(container(*VLLM), affinity=affinity)))
    assert spec_of(found)["location"] == {"zone": "z1"}


def test_an_api_key_is_never_read_on() -> None:
    secret = {"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "vllm"}}}
    found = drafts(world(workload(container(*VLLM, env=[secret])), services=[service()]))
    assert spec_of(found)["endpoints"]["auth"] == {"secretRef": {"name": "keys", "key": "vllm"}}
    plain = {"name": "VLLM_API_KEY", "value": "sk-canary"}
    for one in (container(*VLLM, "--api-key", "sk-canary"), container(*VLLM, env=[plain])):
        found = drafts(world(workload(one), services=[service()]))
        text = as_yaml(found)
        assert "sk-canary" not in text + as_json(found)
        assert "spec.endpoints.auth.secretRef: the engine asks for an API key that stands in no Secret" in text


def test_slices_are_no_whole_accelerators() -> None:
    one = container(*VLLM, resources={"limits": {"nvidia.com/mig-3g.40gb": 1}})
    found = drafts(world(workload(one, nodeSelector=NODE)))
    assert "hardware" not in spec_of(found)
    assert "nvidia.com/mig-3g.40gb" in as_yaml(found)


def test_text_of_the_cluster_stays_in_its_comment() -> None:
    one = container(*VLLM, image="x\n---\nkind: Secret\x1b[2J")
    text = as_yaml(drafts(world(workload(one), services=[service()])))
    documents = [document for document in yaml.safe_load_all(text) if document]
    assert [document["kind"] for document in documents] == ["InferenceEngine"]
    assert "\x1b" not in text


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


def test_a_pod_without_containers_serves_nothing() -> None:
    assert serving({"spec": {"containers": "none"}}) is None

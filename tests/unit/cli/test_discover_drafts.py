"""``headrace discover``: what a draft says of a workload, and what it leaves to whoever fills it."""

from __future__ import annotations

import yaml

from headrace_operator.cli.discover_draft import FILL, drafts
from headrace_operator.cli.discover_text import as_json, as_yaml
from support.workloads import NODE, VLLM, container, refused, service, spec_of, workload, world


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

"""Workloads, Services and nodes as a cluster lists them, for tests of ``headrace discover``."""

from __future__ import annotations

from typing import Any

from headrace_operator.cli.discover_draft import Drafts
from headrace_operator.cli.discover_read import World
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


def refused(text: str) -> list[str]:
    return [f"{fault.field}: {fault.message}" for fault in read_manifests([("draft", text.encode())]).faults]

"""``headrace discover``: what serves, by which runtime, by commands and images as people write them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_operator.cli.discover_draft import drafts
from headrace_operator.cli.discover_runtime import serving
from support.workloads import NODE, container, service, spec_of, workload, world


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


def test_a_pod_without_containers_serves_nothing() -> None:
    assert serving({"spec": {"containers": "none"}}) is None

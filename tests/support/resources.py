"""Resources for tests of the API: small valid ones, largest valid ones, and one example against each rule."""

from __future__ import annotations

import copy
from typing import Any

from headrace_api import rules
from headrace_api.rules import Rule

Raw = dict[str, Any]

ENGINE_SPEC: Raw = {
    "models": [{"name": "m"}],
    "endpoints": {"urls": ["http://a:8000"]},
    "capacity": {"perReplica": {"requestsPerSecond": 10}},
}
POLICY_SPEC: Raw = {"models": [{"name": "m"}], "frontends": [{"name": "fe"}]}


def engine(spec: Raw | None = None, name: str = "a", **metadata: Any) -> Raw:
    """An InferenceEngine as plain data."""
    return _resource("InferenceEngine", ENGINE_SPEC if spec is None else spec, name, metadata)


def policy(spec: Raw | None = None, name: str = "p", **metadata: Any) -> Raw:
    """A RoutingPolicy as plain data."""
    return _resource("RoutingPolicy", POLICY_SPEC if spec is None else spec, name, metadata)


def _resource(kind: str, spec: Raw, name: str, metadata: Raw) -> Raw:
    return copy.deepcopy(
        {
            "apiVersion": "headrace.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": name, "namespace": "inference", **metadata},
            "spec": spec,
        }
    )


def _points(*percents: int) -> list[Raw]:
    return [{"utilizationPercent": percent, "latency": "1s"} for percent in percents]


def _demand(**fields: Any) -> Raw:
    return {"frontends": [{"name": "fe", "demand": {"requestsPerSecond": 1, **fields}}]}


# One example against each rule: the kind, and what it puts over the small valid spec. SHORT_NAME speaks of metadata.
AGAINST: dict[Rule, tuple[str, Raw]] = {
    rules.ONE_BASE_MODEL: ("engine", {"models": [{"name": "m"}, {"name": "n"}]}),
    rules.ADAPTER_IS_NOT_BASE: ("engine", {"models": [{"name": "m", "adapters": ["x", "m"]}]}),
    rules.REACHABLE: ("engine", {"endpoints": {}}),
    rules.REPLICAS_ONCE: ("engine", {"endpoints": {"urls": ["http://a"], "replicas": 1, "replicasFrom": "Metrics"}}),
    rules.REPLICAS_OF_URLS: ("engine", {"endpoints": {"service": {"name": "s", "port": 80}, "replicas": 1}}),
    rules.SOME_CAPACITY: ("engine", {"capacity": {"perReplica": {}}}),
    rules.TTFT_RISES: ("engine", {"profile": {"ttft": _points(0, 50, 50)}}),
    rules.TBOT_RISES: ("engine", {"profile": {"tbot": _points(50, 0)}}),
    rules.ONE_KEY: ("policy", {"affinity": {"keys": [{"header": "x", "prefix": {}}]}}),
    rules.MODELS_SUM: (
        "policy",
        {"models": [{"name": "m"}, {"name": "n"}]}
        | _demand(models=[{"name": "m", "percent": 60}, {"name": "n", "percent": 41}]),
    ),
    rules.PRIORITIES_SUM: (
        "policy",
        {"protection": {"shedding": {"priorities": [{"name": "hi", "value": 2}, {"name": "lo", "value": 1}]}}}
        | _demand(priorities=[{"name": "hi", "percent": 60}, {"name": "lo", "percent": 41}]),
    ),
    rules.BUDGET_FALLS: ("policy", {"protection": {"retry": {"budget": {"saturatedPercent": 21}}}}),
    rules.DISTINCT_PRIORITIES: (
        "policy",
        {"protection": {"shedding": {"priorities": [{"name": "hi", "value": 1}, {"name": "lo", "value": 1}]}}},
    ),
    rules.HOLD_BEFORE_DEGRADE: ("policy", {"staleness": {"hold": "121s"}}),
    rules.EJECTION_GROWS: ("policy", {"ejection": {"base": "301s"}}),
    rules.KNOWN_PRIORITIES: ("policy", _demand(priorities=[{"name": "batch", "percent": 10}])),
}


def against(rule: Rule) -> Raw:
    """A resource that only this rule forbids."""
    kind, over = AGAINST[rule]
    return engine(ENGINE_SPEC | over) if kind == "engine" else policy(POLICY_SPEC | over)


def largest_engine() -> Raw:
    """An InferenceEngine at every bound."""
    model = "m" * 128
    adapters = [f"{index:03d}{'a' * 125}" for index in range(64)]
    urls = [f"https://{f'{index:03d}' + 'h' * 200}.example:65535/" for index in range(256)]
    name253 = "n" * 253
    points = [{"utilizationPercent": 3 * index, "latency": "1h"} for index in range(32)]
    return engine(
        {
            "models": [{"name": model, "servedName": "s" * 128, "adapters": adapters}],
            "endpoints": {
                "service": {"name": "s" * 63, "port": 65535},
                "urls": urls,
                "replicas": 100_000,
                "tls": {"serverName": name253, "caFrom": {"configMap": {"name": name253, "key": "k" * 253}}},
                "auth": {"secretRef": {"name": name253, "key": "k" * 253}},
            },
            "location": {"region": "r" * 63, "zone": "z" * 63, "cluster": "c" * 63},
            "residency": [f"{index:02d}{'r' * 61}" for index in range(32)],
            "runtime": "TensorRTLLM",
            "hardware": {"accelerator": "H" * 64, "count": 4096},
            "capabilities": [f"{index:02d}{'c' * 61}" for index in range(32)],
            "capacity": {
                "perReplica": {
                    "requestsPerSecond": "1M",
                    "prefillTokensPerSecond": "1G",
                    "decodeTokensPerSecond": "1000M",
                    "maxConcurrency": 1_000_000,
                    "kvCacheTokens": 10**12 - 1,
                }
            },
            "maxModelLen": 100_000_000,
            "profile": {
                "reference": {"inputTokens": 100_000_000, "outputTokens": 100_000_000},
                "ttft": points,
                "tbot": points,
            },
            "state": "Draining",
            "rampUp": "24h",
            "metrics": {"source": "s" * 63, "selector": {f"k{index:02d}{'l' * 125}": "v" * 256 for index in range(16)}},
        },
        name="e" * 63,
    )


def largest_policy() -> Raw:
    """A RoutingPolicy at every bound."""
    models = [f"{index:02d}{'m' * 126}" for index in range(64)]
    capabilities = [f"{index:02d}{'c' * 61}" for index in range(32)]
    places = [f"{index:02d}{'r' * 61}" for index in range(64)]
    priorities = [f"{index}{'p' * 62}" for index in range(4)]
    label = "k" * 253 + "/" + "n" * 61
    return policy(
        {
            "models": [{"name": name, "requires": capabilities} for name in models],
            "engineSelector": {"matchLabels": {f"{label}{index:02d}": "v" * 63 for index in range(16)}},
            "mode": "Shadow",
            "strategy": {"type": "RoundRobin"},
            "frontends": [
                {
                    "name": f"{index:03d}{'f' * 60}",
                    "location": {"region": "r" * 63, "zone": "z" * 63, "cluster": "c" * 63},
                    "residency": [f"{place:02d}{'r' * 61}" for place in range(32)],
                    "demand": {
                        "requestsPerSecond": "10M",
                        "inputTokens": 100_000_000,
                        "outputTokens": 100_000_000,
                        "models": [{"name": name, "percent": 1} for name in models],
                        "priorities": [{"name": name, "percent": 25} for name in priorities],
                    },
                    "publish": {"configMap": f"{index:03d}{'c' * 250}", "cluster": "l" * 63, "onDelete": "Retain"},
                }
                for index in range(256)
            ],
            "network": {
                "roundTrip": [{"from": one, "to": other, "latency": "1m"} for one in places for other in places],
                "default": "60s",
                "measured": True,
            },
            "objective": {"targetUtilizationPercent": 100, "moveCost": "1h", "deadbandPermille": 1000},
            "affinity": {"keys": [{"header": "h" * 64}] * 7 + [{"field": "f" * 64}], "slack": "1h"},
            "protection": {
                "retry": {
                    "maxAttempts": 10,
                    "budget": {"idlePercent": 100, "saturatedPercent": 100, "minPerSecond": 10_000},
                },
                "shedding": {
                    "header": "h" * 64,
                    "priorities": [{"name": name, "value": 1_000_000 - index} for index, name in enumerate(priorities)],
                },
            },
            "timeouts": dict.fromkeys(("connect", "firstByte", "idle", "send", "unary"), "24h"),
            "limits": {"body": "4Gi", "retryBody": "1Gi"},
            "queue": {"max": 100_000, "deadline": "10m"},
            "ejection": {"consecutive": 1000, "base": "24h", "max": "24h", "maxPercent": 100, "minHealthy": 1000},
            "paths": [f"/{index:02d}{'p' * 125}" for index in range(32)],
            "staleness": {"hold": "24h", "degrade": "24h", "widenAfter": "24h"},
            "publication": {"maxShiftPercent": 100},
        },
        name="p" * 63,
    )

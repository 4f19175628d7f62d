"""Random instances of the routing problem as plain manifests and numbers, and the Snapshot each of them means.

An instance is a dict of what a user and the signals would say; the oracle reads the same dict with its own formulas.
Two models, two prompt classes, two priorities, differing hardware, previous weights, standing savings, soft factors,
load of others, and demand from a fifth of capacity to several times it.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec

from headrace_api.engine import InferenceEngineSpec
from headrace_api.policy import RoutingPolicySpec
from headrace_operator.snapshot.model import (
    EngineState,
    PairNetwork,
    PolicyState,
    PreviousRoute,
    SavingSince,
    Snapshot,
    SourceDemand,
)
from headrace_operator.snapshot.signals import Factor

Instance = dict[str, Any]
CLASSES = (300.0, 2400.0)
PRIORITIES = (("batch", 10), ("interactive", 100))


def random_instance(seed: int) -> Instance:
    """One seeded instance."""
    rng = random.Random(seed)
    engines = [_engine(rng, index) for index in range(rng.randint(4, 8))]
    fronts = [f"fe-{index}" for index in range(rng.randint(2, 4))]
    names = ["chat", "tools"] if rng.random() < 0.6 else ["chat"]
    policies = {name: _policy(rng, fronts) for name in names}
    models = {"chat": ["small", "large"] if len(names) == 1 else ["small"], "tools": ["large"]}
    demand = [
        _demand(rng, name, front, model, row)
        for name in names
        for front in fronts
        for model in models[name]
        for row in range(len(CLASSES))
    ]
    instance: Instance = {
        "at": 1000.0,
        "engines": engines,
        "policies": policies,
        "demand": demand,
        "round_trip": {
            (name, front, engine["name"]): rng.choice([0.001, rng.uniform(0.005, 0.15)])
            for name in names
            for front in fronts
            for engine in engines
        },
        "previous": {},
        "savings": {},
        "shedding": sorted(f"default/{name}" for name in names),
        "fixed": {f"default/{engine['name']}": rng.uniform(0.0, 0.3) * engine["ready"] for engine in engines[:2]},
    }
    _scale_demand(rng, instance)
    if rng.random() < 0.8:
        _remember(rng, instance)
    return instance


def _engine(rng: random.Random, index: int) -> dict[str, Any]:
    slow = rng.choice([1.0, 1.0, 2.0, 3.0])
    served = (
        rng.choice([["small"], ["large"], ["small", "large"], ["small", "large"]]) if index > 1 else ["small", "large"]
    )
    per_replica: dict[str, Any] = {
        "prefillTokensPerSecond": round(rng.uniform(20000, 60000) / slow),
        "decodeTokensPerSecond": round(rng.uniform(3000, 8000) / slow),
    }
    if rng.random() < 0.5:
        per_replica["maxConcurrency"] = rng.choice([64, 128, 256])
    if rng.random() < 0.3:
        per_replica["kvCacheTokens"] = 400_000
    ttft0, tbot0 = rng.uniform(40, 120) * slow, rng.uniform(8, 15) * slow
    ttft = [(0, ttft0), (60, ttft0 * 1.3), (85, ttft0 * 3), (100, ttft0 * 12)]
    tbot = [(0, tbot0), (50, tbot0 * 1.3), (100, tbot0 * 2.4)]
    return {
        "name": f"e{index}",
        "ready": rng.randint(1, 6),
        "penalty": rng.choice([1.0, 1.0, 1.0, 0.4]),
        "trim": rng.choice([1.0, rng.uniform(0.7, 1.1)]),
        "hit_share": rng.choice([0.0, 0.3]),
        "spec": {
            "models": [{"name": model} for model in served],
            "endpoints": {"service": {"name": "svc", "port": 8000}},
            "capacity": {"perReplica": per_replica},
            "profile": {
                "reference": {"inputTokens": 900, "outputTokens": 220},
                "ttft": [{"utilizationPercent": at, "latency": f"{value:.3f}ms"} for at, value in ttft],
                "tbot": [{"utilizationPercent": at, "latency": f"{value:.3f}ms"} for at, value in tbot],
            },
        },
    }


def _policy(rng: random.Random, fronts: list[str]) -> dict[str, Any]:
    objective: dict[str, Any] = {"moveCost": rng.choice(["200ms", "0ms", "1s"])}
    target = rng.choice([None, None, 85, 100])
    if target is not None:
        objective["targetUtilizationPercent"] = target
    return {
        "models": [{"name": "small"}, {"name": "large"}],
        "frontends": [{"name": front} for front in fronts],
        "objective": objective,
        "publication": {"maxShiftPercent": rng.choice([10, 30, 100])},
    }


def _demand(rng: random.Random, policy: str, front: str, model: str, row: int) -> dict[str, Any]:
    share = rng.uniform(0.2, 0.8)
    return {
        "policy": policy,
        "frontend": front,
        "model": model,
        "prompt_class": row,
        "rate": rng.uniform(0.2, 1.0),
        "input_tokens": CLASSES[row] * rng.uniform(0.7, 1.3),
        "output_tokens": rng.uniform(80, 400),
        "shares": [share, 1.0 - share],
    }


def _scale_demand(rng: random.Random, instance: Instance) -> None:
    """Demand to a share of what the engines carry, by a rough count of each model's replica-seconds."""
    total = sum(engine["ready"] for engine in instance["engines"])
    asked = 0.0
    for entry in instance["demand"]:
        able = [e for e in instance["engines"] if entry["model"] in {model["name"] for model in e["spec"]["models"]}]
        works = [
            entry["input_tokens"] / e["spec"]["capacity"]["perReplica"]["prefillTokensPerSecond"]
            + entry["output_tokens"] / e["spec"]["capacity"]["perReplica"]["decodeTokensPerSecond"]
            for e in able
        ]
        asked += entry["rate"] * sum(works) / len(works)
    level = rng.choice([0.2, 0.5, 0.7, 0.85, 0.95, 1.2, 1.5, 2.5, 4.0])
    for entry in instance["demand"]:
        entry["rate"] *= level * total / asked


def _remember(rng: random.Random, instance: Instance) -> None:
    """Previous weights over one to three engines a source, and savings that stand for some pairs."""
    for entry in instance["demand"]:
        able = [e["name"] for e in instance["engines"] if entry["model"] in {m["name"] for m in e["spec"]["models"]}]
        chosen = rng.sample(able, min(len(able), rng.randint(1, 3)))
        parts = [rng.uniform(0.2, 1.0) for _ in chosen]
        kept = rng.choice([1.0, 1.0, 0.9])
        for name, part in zip(chosen, parts, strict=True):
            key = (entry["policy"], entry["frontend"], entry["model"], entry["prompt_class"], name)
            instance["previous"][key] = kept * part / sum(parts)
        for name in able:
            if rng.random() < 0.2:
                key = (entry["policy"], entry["frontend"], entry["model"], entry["prompt_class"], name)
                instance["savings"][key] = instance["at"] - rng.uniform(0.0, 90.0)


def snapshot_of(instance: Instance) -> Snapshot:
    """The Snapshot of an instance; parts in the order the instance lists them."""
    return Snapshot(
        at=instance["at"],
        engines=tuple(
            EngineState(
                id=f"default/{engine['name']}",
                spec=msgspec.convert(engine["spec"], InferenceEngineSpec),
                ready=float(engine["ready"]),
                penalty=Factor(value=engine["penalty"]),
                trim=Factor(value=engine["trim"]),
                hit_share=engine["hit_share"],
            )
            for engine in instance["engines"]
        ),
        policies=tuple(
            PolicyState(id=f"default/{name}", uid=name, generation=1, spec=msgspec.convert(spec, RoutingPolicySpec))
            for name, spec in instance["policies"].items()
        ),
        demand=tuple(
            SourceDemand(
                policy=f"default/{entry['policy']}",
                frontend=entry["frontend"],
                model=entry["model"],
                prompt_class=entry["prompt_class"],
                requests_per_second=entry["rate"],
                deviation=0.0,
                input_tokens=entry["input_tokens"],
                output_tokens=entry["output_tokens"],
                origin="Measured",
                priorities=tuple(
                    (name, value, share) for (name, value), share in zip(PRIORITIES, entry["shares"], strict=True)
                ),
            )
            for entry in instance["demand"]
        ),
        network=tuple(
            PairNetwork(policy=f"default/{name}", frontend=front, engine=f"default/{engine}", round_trip=value)
            for (name, front, engine), value in instance["round_trip"].items()
        ),
        previous=tuple(
            PreviousRoute(
                policy=f"default/{key[0]}",
                frontend=key[1],
                model=key[2],
                prompt_class=key[3],
                engine=f"default/{key[4]}",
                weight=weight,
            )
            for key, weight in instance["previous"].items()
        ),
        savings=tuple(
            SavingSince(
                policy=f"default/{key[0]}",
                frontend=key[1],
                model=key[2],
                prompt_class=key[3],
                engine=f"default/{key[4]}",
                since=since,
            )
            for key, since in instance["savings"].items()
        ),
        shedding=tuple(instance["shedding"]),
    )


def policy_ids(instance: Instance) -> tuple[str, ...]:
    """The instance's policies; they share engines e0 and e1, so they are one component."""
    return tuple(sorted(f"default/{name}" for name in instance["policies"]))

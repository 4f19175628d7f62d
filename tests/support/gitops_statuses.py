"""Statuses of our kinds as the operator and others may leave them, and the health that a GitOps tool should show."""

from __future__ import annotations

from typing import Any


def status(*conditions: tuple[str, str, str], observed: Any = 2, generation: int = 2, **more: Any) -> dict[str, Any]:
    """A resource with conditions (type, status, message) of the generation observed."""
    entries = [
        {"type": name, "status": value, "reason": "R", "message": words, "observedGeneration": observed}
        for name, value, words in conditions
    ]
    return {
        "metadata": {"generation": generation},
        "status": {"observedGeneration": observed, "conditions": entries},
    } | more


READY = ("Ready", "True", "2 tables in force")
NOT_READY = ("Ready", "False", "no eligible engine for m")
SHEDDING = ("CapacitySufficient", "False", "20 of 120 requests/s (17 %) are refused")
CASES: dict[str, tuple[str, dict[str, Any], tuple[str, str]]] = {
    "ready": ("RoutingPolicy", status(READY), ("Healthy", "2 tables in force")),
    "shadow": (
        "RoutingPolicy",
        status(("Ready", "True", "solved and reported, nothing is published")),
        ("Healthy", "solved and reported, nothing is published"),
    ),
    "shedding": ("RoutingPolicy", status(READY, SHEDDING), ("Healthy", SHEDDING[2])),
    "unrealized": ("RoutingPolicy", status(READY, ("WeightsRealized", "False", "hot keys")), ("Healthy", "hot keys")),
    "stale-signals": ("RoutingPolicy", status(READY, ("SignalsFresh", "False", "old")), ("Healthy", READY[2])),
    "reconciling": ("RoutingPolicy", status(READY, ("Reconciling", "True", "solving")), ("Progressing", "solving")),
    "stalled": ("RoutingPolicy", status(NOT_READY, ("Stalled", "True", "older rules")), ("Degraded", "older rules")),
    "stalled-and-shedding": (
        "RoutingPolicy",
        status(NOT_READY, SHEDDING, ("Stalled", "True", "older rules")),
        ("Degraded", "older rules"),
    ),
    "not-published": ("RoutingPolicy", status(READY, ("Published", "False", "not ours")), ("Degraded", "not ours")),
    "no-engines-yet": ("RoutingPolicy", status(NOT_READY), ("Progressing", NOT_READY[2])),
    "ready-unknown": ("RoutingPolicy", status(("Ready", "Unknown", "")), ("Progressing", "R")),
    "edit-not-judged": (
        "RoutingPolicy",
        status(READY, observed=1),
        ("Progressing", "the operator has not judged this edit yet"),
    ),
    "stalled-before-the-edit": (
        "RoutingPolicy",
        status(NOT_READY, ("Stalled", "True", "older rules"), observed=1),
        ("Progressing", "the operator has not judged this edit yet"),
    ),
    "condition-behind": (
        "RoutingPolicy",
        {
            "metadata": {"generation": 2},
            "status": {
                "observedGeneration": 2,
                "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 1}],
            },
        },
        ("Progressing", "the operator has not judged this edit yet"),
    ),
    "no-observed-generation": (
        "RoutingPolicy",
        status(READY, observed=None),
        ("Progressing", "the operator has not judged this edit yet"),
    ),
    "no-status": (
        "RoutingPolicy",
        {"metadata": {"generation": 1}},
        ("Progressing", "the operator has not judged it yet"),
    ),
    "empty-status": (
        "RoutingPolicy",
        {"metadata": {}, "status": {}},
        ("Progressing", "the operator has not judged it yet"),
    ),
    "engine-ready": (
        "InferenceEngine",
        status(("Ready", "True", "the spec is accepted")),
        ("Healthy", "the spec is accepted"),
    ),
    "engine-without-replicas": (
        "InferenceEngine",
        status(("Ready", "True", "accepted"), ("Available", "False", "no replica is ready")),
        ("Healthy", "no replica is ready"),
    ),
    "engine-penalized": (
        "InferenceEngine",
        status(("Ready", "True", "accepted"), ("Penalized", "True", "x0.4: slow")),
        ("Healthy", "x0.4: slow"),
    ),
    "engine-invalid": (
        "InferenceEngine",
        status(("Ready", "False", "bad"), ("Stalled", "True", "capacity is missing")),
        ("Degraded", "capacity is missing"),
    ),
    "engine-not-judged": (
        "InferenceEngine",
        {"metadata": {"generation": 1}},
        ("Progressing", "the operator has not judged it yet"),
    ),
    "engine-behind": (
        "InferenceEngine",
        status(("Ready", "True", "accepted"), observed=1),
        ("Progressing", "the operator has not judged this edit yet"),
    ),
}

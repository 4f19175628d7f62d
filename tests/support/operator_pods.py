"""The operator's pods in a cluster of the tests: who leads, signals to their processes, what each wrote."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from signal import Signals
from typing import Any

from support.cluster import Cluster
from support.stage import SYSTEM

SELECTOR = "app.kubernetes.io/component=operator"
DEPLOYMENT = "deployment/headrace-operator"
READS = ("get", "list", "watch")


class OperatorPods:
    """Pods of the chart's Deployment headrace-operator."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._cluster.get("pods", f"--namespace={SYSTEM}", f"--selector={SELECTOR}")[
            "items"
        ]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def ready(self) -> int:
        return sum(
            any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))
            for pod in self.pods()
        )

    def restarts(self) -> dict[str, int]:
        """How often each pod's container began again."""
        return {
            pod["metadata"]["name"]: sum(one["restartCount"] for one in pod["status"].get("containerStatuses", []))
            for pod in self.pods()
        }

    def leader(self) -> str:
        """The pod that holds the Lease; empty: nobody."""
        lease = self._cluster.get("lease", "headrace-operator", f"--namespace={SYSTEM}")
        holder: str = lease["spec"].get("holderIdentity") or ""
        return holder.partition("_")[0]

    def scale(self, replicas: int) -> None:
        self._cluster.kubectl("scale", DEPLOYMENT, f"--namespace={SYSTEM}", f"--replicas={replicas}")

    def kill(self, pod: str, number: Signals) -> None:
        """Send its process a signal as the node's root does: inside its container nobody can kill process 1."""
        [found] = [one for one in self.pods() if one["metadata"]["name"] == pod]
        [pid] = processes_of(found["metadata"]["uid"])
        os.kill(pid, number)


def processes_of(uid: str) -> list[int]:
    """Operators among the machine's processes that are in a pod, by its control groups."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            groups = (place / "cgroup").read_text()
            words = (place / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if (uid in groups or uid.replace("-", "_") in groups) and b"run" in words:
            found.append(int(place.name))
    return found


def written_by(audit: Iterable[Mapping[str, Any]], pod: str, since: float) -> list[str]:
    """Writes of a pod after a time (seconds since the epoch) that were not refused, its Lease's reads apart."""
    found = []
    for event in audit:
        who = event["user"].get("extra", {}).get("authentication.kubernetes.io/pod-name", [])
        at = datetime.fromisoformat(event["requestReceivedTimestamp"].replace("Z", "+00:00")).astimezone(UTC)
        if pod in who and event["verb"] not in READS and at.timestamp() > since:
            found.append(f"{event['requestReceivedTimestamp']} {event['verb']} {event['requestURI']}")
    return found

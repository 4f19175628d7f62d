"""Which tables this installation has in other clusters: a ConfigMap a cluster, beside the operator.

On the routing-weight path, before a table is first written elsewhere. Other installations may publish to the same
cluster; only what stands in the inventory (or carries the uid of a policy of ours) is ever changed or swept there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Final

import msgspec

from headrace_operator.kube.client import KubeClient, KubeFault
from headrace_operator.publisher.cluster.objects import Spot

PREFIX: Final = "headrace-inventory-"
LABEL: Final = "headrace.dev/inventory"
KEY: Final = "tables.json"


class Inventory:
    """Entries by cluster: a ConfigMap's place, and the uid of the policy whose table it has.

    After that of a policy that was made anew stands the new one's: which of them is there, only the write shows.
    """

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._lock = Lock()
        self._entries: dict[str, dict[str, str]] = {}
        self.policies: frozenset[str] = frozenset()
        """Uids of all policies now."""

    def read_back(self) -> None:
        """Take up what stands.

        Raises:
            KubeFault: it can't be read.
        """
        path = f"/api/v1/namespaces/{self._namespace}/configmaps"
        for found in self._client.every(path, labels=LABEL):
            cluster = str(found["metadata"].get("labels", {}).get(LABEL, ""))
            text = (found.get("data") or {}).get(KEY, "{}")
            try:
                self._entries[cluster] = msgspec.json.decode(text, type=dict[str, str])
            except (msgspec.MsgspecError, UnicodeError):
                self._entries[cluster] = {}

    def has(self, cluster: str, spot: Spot, policy: str) -> bool:
        """Whether this installation wrote a ConfigMap there, or it is that of a policy of ours. policy: its uid."""
        with self._lock:
            return policy in self.policies or policy in self._entries.get(cluster, {}).get(str(spot), "").split()

    def counts(self) -> dict[str, int]:
        """Tables by cluster, where there are any."""
        with self._lock:
            return {name: len(entries) for name, entries in self._entries.items() if entries}

    def enter(self, cluster: str, spots: Mapping[Spot, str]) -> None:
        """Write down what is about to be written there; nothing when it stands already.

        Raises:
            KubeFault: it can't be written.
        """
        with self._lock:
            old = self._entries.get(cluster, {})
            new = old | {str(spot): _with(old.get(str(spot), ""), uid) for spot, uid in spots.items()}
        if new != old:
            self._write(cluster, new)

    def settle(self, cluster: str, standing: Iterable[Spot]) -> None:
        """Strike all but these, which stand there or are to; a failure leaves it for next time."""
        names = {str(spot) for spot in standing}
        with self._lock:
            old = self._entries.get(cluster, {})
            new = {spot: uid for spot, uid in old.items() if spot in names}
        if new != old:
            try:
                self._write(cluster, new)
            except KubeFault:
                return

    def _write(self, cluster: str, entries: dict[str, str]) -> None:
        name = f"{PREFIX}{cluster}"
        path = f"/api/v1/namespaces/{self._namespace}/configmaps/{name}"
        manifest = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": self._namespace, "labels": {LABEL: cluster}},
            "data": {KEY: msgspec.json.encode(entries, order="sorted").decode()},
        }
        self._client.apply(path, manifest)
        with self._lock:
            self._entries[cluster] = entries


def _with(known: str, uid: str) -> str:
    """An entry with one more uid; of earlier ones the last may still be what stands."""
    earlier = known.split()
    return known if uid in earlier[-1:] else " ".join([*earlier[-1:], uid])

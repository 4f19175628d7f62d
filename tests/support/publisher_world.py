"""Publishers of one term after the other, an API server here and one elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from headrace_api.names import LABEL_POLICY_UID
from headrace_api.policy import RoutingPolicy
from headrace_operator.publisher.cluster import ClusterPublisher, cluster_publisher
from headrace_operator.publisher.places import Place, TableKey
from support.fake_kube import FakeKube
from support.tables import key, places_of, policy_of, table_of

SOON = 20
KUBECONFIG = """
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://far:6443"}}]
users: [{name: u, user: {token: t}}]
"""


class World:
    """An API server here, one elsewhere, and publishers of one term after the other."""

    def __init__(self, here: FakeKube, there: FakeKube, folder: Path) -> None:
        self.here, self.there, self.folder = here, there, folder
        self.now = 0.0
        self.leading = True
        self.made: list[ClusterPublisher] = []
        self.file = folder / "far"
        self.file.write_text(KUBECONFIG)

    def publisher(self, term: int = 1, **more: Any) -> ClusterPublisher:
        clusters = more.pop("clusters", {"far": self.file})
        client = self.here.client(may_write=lambda: self.leading)
        found = cluster_publisher(
            client, term, namespace="ops", holder="pod", clusters=clusters, steady=lambda: self.now, **more
        )
        self.made.append(found)
        return found

    def idle(self, made: ClusterPublisher) -> None:
        """Wait until nothing is done elsewhere."""
        for one in made._clusters.tables.remotes.values():
            one.wait(SOON)
            assert one.idle()


def far(policy: RoutingPolicy) -> dict[TableKey, Place]:
    """Front-end fe-a here, fe-b in the cluster ``far``."""
    found = places_of(policy)
    b = TableKey(f"inf/{policy.metadata.name}", "fe-b")
    return found | {b: found[b]._replace(cluster="far")}


POLICY = policy_of()
FAR = far(POLICY)
CHAT = {"metadata": {"name": "chat", "namespace": "inf", "uid": "uid-chat"}}
B = key(frontend="fe-b")
TABLES = [table_of(), table_of(frontend="fe-b")]


class Stood(NamedTuple):
    name: str
    metadata_uid: str


def stood(world: World) -> list[Stood]:
    """Tables in the other cluster, and whose they are."""
    found = [world.there.get("configmaps", name) for name in world.there.names("configmaps")]
    return [Stood(one["metadata"]["name"], one["metadata"]["labels"][LABEL_POLICY_UID]) for one in found]


def reads_and_writes(world: World) -> tuple[int, int]:
    calls = [*world.here.calls, *world.there.calls]
    return sum(call.method == "GET" for call in calls), sum(call.method != "GET" for call in calls)

"""Heartbeats in a cluster: a Lease in each namespace with tables."""

from __future__ import annotations

import pytest

from headrace_operator.kube.client import KubeFault
from headrace_operator.kube.pool import Pool
from headrace_operator.publisher.cluster.claims import Claims
from headrace_operator.publisher.cluster.heartbeats import ClusterHeartbeat, NamespaceBeats
from headrace_operator.publisher.cluster.target import TableTarget
from headrace_operator.publisher.places import Place, TableKey
from support.engine_manifests import AT
from support.fake_kube import Call, FakeKube, Refuse
from support.tables import table_of


def beats(kube: FakeKube, pool: Pool, *namespaces: str) -> tuple[TableTarget, ClusterHeartbeat]:
    client = kube.client()
    target = TableTarget("local", lambda: client, pool, term=1, owned=True)
    places = {TableKey(f"{one}/chat", "fe-a"): Place("t", uid="uid-chat") for one in namespaces}
    target.publish([table_of(namespace=one) for one in namespaces], places)
    kube.calls.clear()
    claims = Claims(client, "ops", "pod", steady=lambda: 0.0, wall=lambda: AT)
    return target, ClusterHeartbeat(NamespaceBeats(target, lambda: client, pool, claims))


def test_each_namespace_with_tables_has_a_heartbeat(kube: FakeKube, pool: Pool) -> None:
    target, heart = beats(kube, pool, "a", "b")
    assert [heart.renew(steady, AT) for steady in (0.0, 5.0, 9.9, 10.0)] == [True, False, False, True]
    assert kube.names("leases") == ["a/headrace-heartbeat", "b/headrace-heartbeat"]
    spec = kube.get("leases", "a/headrace-heartbeat")["spec"]
    assert spec == {"holderIdentity": "pod", "leaseDurationSeconds": 60, "renewTime": "2026-01-01T00:00:00.000000Z"}
    target.remove([TableKey("a/chat", "fe-a")])
    heart.renew(20.0, AT)
    assert kube.names("leases") == ["b/headrace-heartbeat"]


def test_heartbeats_that_an_earlier_term_left_are_removed(kube: FakeKube, pool: Pool) -> None:
    _, heart = beats(kube, pool, "a")
    heart.renew(0.0, AT)
    kube.put("leases", {"metadata": {"name": "headrace-heartbeat", "namespace": "theirs"}})
    kube.objects.pop(("configmaps", "a", "t"))
    _, second = beats(kube, pool, "b")
    second.renew(0.0, AT)
    assert kube.names("leases") == ["b/headrace-heartbeat", "theirs/headrace-heartbeat"]
    selectors = [query.get("fieldSelector") for call, query in kube.queries if call.plural == "leases" and query]
    assert "metadata.name=headrace-heartbeat" in selectors


def test_a_heartbeat_that_fails_stops_no_other(kube: FakeKube, pool: Pool) -> None:
    _, heart = beats(kube, pool, "a", "b")

    def refuse(call: Call) -> None:
        if call.plural == "leases" and call.name.startswith("a/"):
            raise Refuse(403, "Forbidden", "being terminated")

    kube.refuse = refuse
    with pytest.raises(KubeFault, match="being terminated"):
        heart.renew(0.0, AT)
    assert kube.names("leases") == ["b/headrace-heartbeat"]

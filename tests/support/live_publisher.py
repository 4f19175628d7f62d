"""What a publisher does to a real API server: each scenario runs in the cluster's network, as a process of its own.

``python -m support.live_publisher SCENARIO [argument …]``, with KUBECONFIG of the cluster; ``FAR`` names the kubeconfig
of another one. A scenario that ends well prints one line of JSON with what it measured.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

from headrace_api.status import PolicyStatus
from headrace_operator.kube.client import KubeFault, NotLeading, connect
from headrace_operator.publisher.cluster.objects import seen_of
from headrace_operator.publisher.notes import EventNote
from headrace_operator.publisher.places import Place, TableKey
from support.described import described
from support.engine_manifests import STATUS
from support.live_elsewhere import elsewhere, far_silent
from support.live_here import (
    BEATS,
    CONFIGMAPS,
    GROUP,
    NAMESPACE,
    Here,
    Json,
    await_that,
    kubectl,
    missing,
    stamp,
    table,
)
from support.tables import key, places_of, table_of


def facts() -> Json:
    """What the publisher relies on of an API server's answers."""
    here = Here()
    manifest: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "facts", "namespace": NAMESPACE}}

    def answer(deed: Callable[[], Any]) -> int:
        try:
            deed()
        except KubeFault as fault:
            return fault.status
        return 200

    def apply(**metadata: str) -> int:
        wanted = {**manifest, "metadata": {**manifest["metadata"], **metadata}}
        return answer(lambda: here.api.apply(f"{CONFIGMAPS}/facts", wanted))

    here.api.delete(f"{CONFIGMAPS}/facts")
    assert apply(uid="0", resourceVersion="1") == 409, "apply never makes what the writer took for standing"
    made = here.api.create(CONFIGMAPS, manifest)
    assert answer(lambda: here.api.create(CONFIGMAPS, manifest)) == 409
    uid, version = made["metadata"]["uid"], made["metadata"]["resourceVersion"]
    assert apply(uid=uid, resourceVersion="1") == 409
    assert apply(uid="0", resourceVersion="1") == 409, "made anew: a conflict before it is invalid"
    assert apply(uid=uid, resourceVersion=version) == 200
    before = here.version("facts")
    assert apply(uid=uid, resourceVersion=before) == 200
    assert here.version("facts") == before
    assert answer(lambda: here.api.delete(f"{CONFIGMAPS}/facts", uid=uid, resource_version="1")) == 409
    here.api.delete(f"{CONFIGMAPS}/facts", uid=uid)
    here.api.delete(f"{CONFIGMAPS}/facts")
    homeless = {**manifest, "metadata": {"name": "facts", "namespace": "nowhere"}}
    assert answer(lambda: here.api.create("/api/v1/namespaces/nowhere/configmaps", homeless)) == 404
    return {}


def idempotent() -> Json:
    """Applied again nothing changes; touched by people it is written again; a new term changes identity alone."""
    here = Here()
    policy = here.policy()
    places = places_of(policy)
    made = here.publisher()
    first = table(policy, 1, term=here.term)
    assert made.publish([first, table(policy, frontend="fe-b", term=here.term)], places)
    made.publish([table(policy, 2, 5_000, term=here.term)], places)
    before = here.version("headrace-chat-fe-a")
    made.publish([table(policy, 2, 5_000, term=here.term)], places)
    for _ in range(5):
        here.now += 60
        made.tables.barred(places)
        assert made.publish([], places) == ()
    assert here.version("headrace-chat-fe-a") == before
    content = here.get("headrace-chat-fe-a")["data"]
    kubectl("-n", NAMESPACE, "label", "cm", "headrace-chat-fe-a", "headrace.dev/managed-by-", "team=blue")
    kubectl("-n", NAMESPACE, "patch", "cm", "headrace-chat-fe-a", "--type=merge", "-p", '{"data":{"table.json":"{}"}}')
    kubectl("-n", NAMESPACE, "delete", "cm", "headrace-chat-fe-b")
    here.now += 60
    made.publish([], places)
    mended = here.get("headrace-chat-fe-a")
    assert mended["data"] == content
    assert mended["metadata"]["labels"]["headrace.dev/managed-by"] == "headrace-operator"
    assert mended["metadata"]["labels"]["team"] == "blue"
    assert not here.gone("headrace-chat-fe-b")
    again = here.publisher()
    assert again.stamp_term({}) == 2
    standing = seen_of(here.get("headrace-chat-fe-a")).table
    assert standing is not None
    assert (standing.identity.term, standing.identity.revision, standing.hash) == (
        here.term,
        2,
        table(policy, 2, 5_000).hash,
    )
    return {}


def fencing() -> Json:
    """A paused ex-leader's late writes: to a table that stands, one that it would create, a status."""
    here = Here()
    policy, other = here.policy(), here.policy("late")
    places = places_of(policy, other)
    old = here.publisher()
    old.publish([table(policy, term=here.term)], places)
    old_term = here.term
    new = here.publisher()
    assert here.term > old_term
    assert new.stamp_term({}) >= 1
    new.publish([table(other, 3, term=here.term)], places)
    versions = [here.version(f"headrace-{name}-fe-a") for name in ("chat", "late")]
    for late in (table(policy, 9, 5_000, term=old_term), table(other, 9, 5_000, term=old_term)):
        try:
            old.publish([late], places)
        except NotLeading as lost:
            assert f"carries term {here.term}, this is term {old_term}" in str(lost)
        else:
            raise AssertionError("the late write was not noticed")
    assert [here.version(f"headrace-{name}-fe-a") for name in ("chat", "late")] == versions
    leading = [True]
    paused = connect("local", may_write=lambda: leading[0])
    leading[0] = False
    with contextlib.suppress(NotLeading):
        paused.apply(f"{CONFIGMAPS}/x", {})
        raise AssertionError("it was written")
    return {}


def ownership() -> Json:
    """The collector takes a deleted policy's tables, but not those to retain; foreign ConfigMaps are left alone."""
    here = Here()
    policy = here.policy(
        frontends=[
            {"name": "fe-a", "publish": {"configMap": "goes"}},
            {"name": "fe-b", "publish": {"configMap": "stays", "onDelete": "Retain"}},
            {"name": "fe-c", "publish": {"configMap": "foreign"}},
        ]
    )
    for name in ("goes", "stays", "foreign"):
        here.api.delete(f"{CONFIGMAPS}/{name}")
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "foreign", "namespace": NAMESPACE}}
    here.api.create(CONFIGMAPS, foreign | {"data": {"table.json": "mine"}})
    before = here.version("foreign")
    places = places_of(policy)
    made = here.publisher()
    tables = [table(policy, frontend=name, term=here.term) for name in ("fe-a", "fe-b", "fe-c")]
    assert {one.frontend for one in made.publish(tables, places)} == {"fe-a", "fe-b"}
    assert made.tables.refusals[key(frontend="fe-c")].reason == "ConfigMapNotOurs"
    toggled = places | {key(): places[key()]._replace(retain=True)}
    made.publish([], toggled)
    assert "ownerReferences" not in here.get("goes")["metadata"]
    made.publish([], places)
    assert here.get("goes")["metadata"]["ownerReferences"][0]["uid"] == policy.metadata.uid
    anew = places_of(here.policy(frontends=msgspec.to_builtins(policy.spec.frontends)))
    made.publish([], anew)
    owner = here.get("goes")["metadata"]["ownerReferences"]
    assert [one["uid"] for one in owner] == [anew[key()].uid] != [policy.metadata.uid]
    here.api.delete(f"{GROUP}/routingpolicies/chat")
    seconds = await_that(lambda: here.gone("goes"), "the collector takes the table")
    assert not here.gone("stays")
    assert here.version("foreign") == before
    assert made.remove_orphans([key(frontend="fe-b")], certain=True) == ()
    made.remove_orphans([key(frontend="fe-b")], certain=True)
    assert not here.gone("stays")
    return {"collected after s": round(seconds, 1)}


def events() -> Json:
    """Describe shows one line an Event, counted, also over a restart; heartbeats come and go."""
    here = Here()
    policy, engine = here.policy(), here.engine("a")
    kubectl("-n", NAMESPACE, "delete", "events", "--all")
    made = here.publisher()
    made.show_policies([policy], {}, stamp(-1320))
    made.show_engines([engine], {}, {}, {}, stamp(-1320))
    weights = EventNote("RoutingPolicy", "inf/chat", "Normal", "WeightsChanged", "rev 12: demand 100 %")
    fast = EventNote("InferenceEngine", "inf/a", "Warning", "EnginePenalized", "a x0.4")
    for _ in range(4):
        made.tell([weights, fast], {}, stamp(-1320))
    made.close()
    here.term += 1
    again = here.publisher()
    again.show_policies([policy], {}, stamp(0))
    refused = {("RoutingPolicy", "inf/chat"): "spec.x: bad"}
    for _ in range(4):
        again.tell([weights], refused, stamp(0))
    again.close()
    text = kubectl("-n", NAMESPACE, "describe", "rpol", "chat")
    (line,) = [line for line in text.splitlines() if "WeightsChanged" in line]
    assert "(x8 over 22m)" in line, line
    assert "rev 12: demand 100 %" in line
    (invalid,) = [line for line in text.splitlines() if "PolicyInvalid" in line]
    assert "(x" not in invalid, invalid
    assert "EnginePenalized" in kubectl("-n", NAMESPACE, "describe", "ieng", "a")
    return {"line": line.strip()}


def heartbeats() -> Json:
    """A Lease in each namespace with tables, gone with the last of them."""
    here = Here()
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{BEATS}/leases/headrace-heartbeat"
    made = here.publisher()
    mine = TableKey(f"{BEATS}/chat", "fe-a")
    made.publish([table_of(namespace=BEATS, term=here.term)], {mine: Place("table")})
    made.beat(0.0, stamp(0))
    first = here.api.get(lease)
    assert first["spec"]["renewTime"].startswith(stamp(0)[:17])
    made.beat(5.0, stamp(5))
    assert here.api.get(lease) == first
    made.tables.remove([mine])
    made.beat(10.0, stamp(10))
    assert missing(here.api, lease)
    return {}


def largest(policy: str, engine: str) -> Json:
    """Statuses at every bound are taken whole, and describe stays readable. Arguments: both statuses as JSON."""
    here = Here()
    from headrace_api.status import EngineStatus

    wanted = msgspec.json.decode(policy, type=PolicyStatus)
    wanted_engine = msgspec.json.decode(engine, type=EngineStatus)
    rpol, ieng = here.policy("largest"), here.engine("largest")
    made = here.publisher()
    made._statuses.set(rpol, 1, wanted)
    made._statuses.set(ieng, 1, wanted_engine)
    assert made.flush(0.0) == 2
    assert made.flush(100.0) == 0
    for plural, status in (("routingpolicies", wanted), ("inferenceengines", wanted_engine)):
        found = here.api.get(f"{GROUP}/{plural}/largest")["status"]
        assert found == msgspec.json.decode(msgspec.json.encode(status)), "the API server keeps all that is written"
    again = here.publisher()
    assert again.policy_statuses["inf/largest"] == wanted
    assert again.engine_statuses["inf/largest"] == wanted_engine
    text = kubectl("-n", NAMESPACE, "describe", "rpol", "largest")
    told = text[text.index("\nStatus:") :]
    shown = [line.rstrip() for line in told[: told.index("\nEvents:")].strip("\n").splitlines()]
    assert shown == described(msgspec.to_builtins(wanted)), "the rendering that unit tests measure is kubectl's"
    return {"lines": len(told.splitlines()), "bytes": len(told.encode())}


def statuses() -> Json:
    """Deleted meanwhile, edited meanwhile, refused: told or tried again, never fatal."""
    here = Here()
    policy, gone = here.policy(), here.policy("gone")
    made = here.publisher()
    here.api.delete(f"{GROUP}/routingpolicies/gone")
    for one in (policy, gone):
        made.policy_statuses[f"inf/{one.metadata.name}"] = STATUS
    made.show_policies([policy, gone], {}, stamp(0))
    assert made.flush(0.0) == 1
    kubectl("-n", NAMESPACE, "annotate", "rpol", "chat", "touched=yes", "--overwrite")
    made.policy_statuses["inf/chat"] = msgspec.structs.replace(STATUS, observed_generation=2)
    made.show_policies([policy], {}, stamp(0))
    assert made.flush(10.0) == 1
    made.policy_statuses["inf/chat"] = msgspec.structs.replace(STATUS, observed_generation=-1)
    made.show_policies([policy], {}, stamp(0))
    assert (made.flush(20.0), made.flush(30.0)) == (0, 0)
    made.policy_statuses["inf/chat"] = msgspec.structs.replace(STATUS, observed_generation=3)
    made.show_policies([policy], {}, stamp(0))
    assert made.flush(40.0) == 1
    kubectl("-n", NAMESPACE, "wait", "--for=condition=Ready", "rpol", "chat", "--timeout=10s")
    return {}


def many(number: str) -> Json:
    """Many policies at once: seconds for tables and for statuses, and nothing written when nothing changes."""
    here = Here()
    policies = [here.policy(f"many-{one}") for one in range(int(number))]
    places = places_of(*policies)
    made = here.publisher()
    made.tables.barred(places)
    tables = [table(one, frontend=name, term=here.term) for one in policies for name in ("fe-a", "fe-b")]
    begin = time.monotonic()
    assert len(made.publish(tables, places)) == len(tables)
    published = time.monotonic() - begin
    for one in policies:
        made.policy_statuses[f"inf/{one.metadata.name}"] = STATUS
    made.show_policies(policies, {}, stamp(0))
    begin = time.monotonic()
    assert made.flush(0.0) == len(policies)
    shown = time.monotonic() - begin
    for one in policies:
        here.api.delete(f"{GROUP}/routingpolicies/{one.metadata.name}")
    made.close()
    await_that(lambda: here.gone("headrace-many-0-fe-a"), "the collector takes the tables")
    return {"tables": len(tables), "tables s": round(published, 2), "statuses s": round(shown, 2)}


SCENARIOS: dict[str, Callable[..., Json]] = {
    each.__name__: each
    for each in (
        facts,
        idempotent,
        fencing,
        ownership,
        events,
        heartbeats,
        largest,
        statuses,
        many,
        elsewhere,
        far_silent,
    )
}

if __name__ == "__main__":
    done = SCENARIOS[sys.argv[1]](*sys.argv[2:])
    sys.stdout.write(json.dumps(done) + "\n")

"""What a publisher does to a real API server: each scenario runs in the cluster's network, as a process of its own.

``python -m support.live_publisher SCENARIO [argument …]``, with KUBECONFIG of the cluster; ``FAR`` names the kubeconfig
of another one. A scenario that ends well prints one line of JSON with what it measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from headrace_api.engine import InferenceEngine
from headrace_api.policy import RoutingPolicy
from headrace_api.status import PolicyStatus
from headrace_api.table import RoutingTable
from headrace_operator.kube.client import KubeClient, KubeFault, NotLeading, connect
from headrace_operator.kube.remote import read_access, remote_client
from headrace_operator.publisher.cluster import ClusterPublisher, TermBehind, cluster_publisher
from headrace_operator.publisher.cluster.objects import seen_of
from headrace_operator.publisher.notes import EventNote
from headrace_operator.publisher.places import Place, TableKey
from support.described import described
from support.engine_manifests import STATUS, engine_dict, policy_dict
from support.tables import key, places_of, table_of

OPS = "publisher-ops"
NAMESPACE = "inf"
BEATS = "publisher-beats"
NAMESPACES = (OPS, NAMESPACE, BEATS)
GROUP = "/apis/headrace.dev/v1alpha1/namespaces/inf"
CONFIGMAPS = "/api/v1/namespaces/inf/configmaps"
SECONDS = 120.0
Json = dict[str, Any]


class Here:
    """The cluster, and publishers of term after term on it."""

    def __init__(self) -> None:
        self.api = connect("local")
        for namespace in NAMESPACES:
            with contextlib.suppress(KubeFault):
                self.api.create(
                    "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
                )
        self.term = 1
        self.now = 0.0

    def publisher(
        self, term: int = 0, clusters: dict[str, Path] | None = None, may_write: Callable[[], bool] = lambda: True
    ) -> ClusterPublisher:
        """One of the next term, whatever stands."""
        client = connect("local", may_write=may_write)
        while True:
            try:
                return cluster_publisher(
                    client,
                    term or self.term,
                    namespace=OPS,
                    holder="pod",
                    watched=(NAMESPACE, BEATS),
                    clusters=clusters or {},
                    steady=lambda: self.now,
                )
            except TermBehind as behind:
                assert not term, "the term that was asked for is behind"
                self.term = behind.standing + 1

    def policy(self, name: str = "chat", **spec: Any) -> RoutingPolicy:
        """A policy, made anew."""
        return msgspec.convert(self.made("routingpolicies", policy_dict(name, **spec)), RoutingPolicy)

    def engine(self, name: str) -> InferenceEngine:
        return msgspec.convert(self.made("inferenceengines", engine_dict(name, "http://127.0.0.1:1")), InferenceEngine)

    def made(self, plural: str, manifest: Json) -> Json:
        path = f"{GROUP}/{plural}"
        self.api.delete(f"{path}/{manifest['metadata']['name']}")
        return self.api.create(path, manifest)

    def get(self, name: str) -> Json:
        return self.api.get(f"{CONFIGMAPS}/{name}")

    def version(self, name: str) -> str:
        return str(self.get(name)["metadata"]["resourceVersion"])

    def gone(self, name: str) -> bool:
        return missing(self.api, f"{CONFIGMAPS}/{name}")


def missing(api: KubeClient, path: str) -> bool:
    try:
        api.get(path)
    except KubeFault as fault:
        assert fault.missing, fault
        return True
    return False


def await_that(condition: Callable[[], object], what: str) -> float:
    """Wait until it holds; gives the seconds."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < SECONDS, f"not in {SECONDS:.0f} s: {what}"
        time.sleep(0.1)
    return time.monotonic() - begin


def kubectl(*arguments: str) -> str:
    return subprocess.run(["kubectl", *arguments], check=True, capture_output=True, text=True).stdout


def table(
    policy: RoutingPolicy, revision: int = 1, weight: int = 10_000, *, frontend: str = "fe-a", term: int = 1
) -> RoutingTable:
    return table_of(revision, weight, frontend=frontend, name=policy.metadata.name, uid=policy.metadata.uid, term=term)


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
    elsewhere = {**manifest, "metadata": {"name": "facts", "namespace": "nowhere"}}
    assert answer(lambda: here.api.create("/api/v1/namespaces/nowhere/configmaps", elsewhere)) == 404
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


def stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


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


# Another cluster


@contextlib.contextmanager
def far_file(change: Callable[[Json], None] = lambda _: None) -> Iterator[Path]:
    """A kubeconfig file of the other cluster, as an administrator would mount it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kubeconfig"
        config = yaml.safe_load(Path(os.environ["FAR"]).read_text())
        change(config)
        path.write_text(yaml.safe_dump(config))
        yield path


def far_api(path: Path) -> KubeClient:
    api = remote_client("far", read_access(path), lambda: True)
    with contextlib.suppress(KubeFault):
        api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    return api


def settle(here: Here, made: ClusterPublisher, places: dict[TableKey, Place], rounds: int = 4) -> None:
    for _ in range(rounds):
        here.now += 60
        made.tables.barred(places)
        made.publish([], places)
        for remote in made._clusters.tables.remotes.values():
            remote.wait(SECONDS)


def elsewhere() -> Json:
    """A table in a second cluster with an authority of its own: unowned, in the inventory, swept when orphaned."""
    here = Here()
    policy = here.policy()
    places = places_of(policy)
    b = key(frontend="fe-b")
    places[b] = places[b]._replace(cluster="far")
    with far_file() as path:
        far = far_api(path)
        here.publisher(clusters={"far": path})  # learns the term that stands
        made = here.publisher(clusters={"far": path})
        settle(here, made, places)
        tables = [table(policy, 4, frontend=name, term=here.term) for name in ("fe-a", "fe-b")]
        assert len(made.publish(tables, places)) == 2
        settle(here, made, places)
        found = far.get(f"{CONFIGMAPS}/headrace-chat-fe-b")
        assert "ownerReferences" not in found["metadata"]
        assert seen_of(found).table == tables[1]
        made.beat(here.now, stamp(0))
        for remote in made._clusters.tables.remotes.values():
            remote.wait(SECONDS)
        assert not missing(far, f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/headrace-heartbeat")
        foreign = {
            **found,
            "metadata": {"name": "theirs", "labels": {**found["metadata"]["labels"], "headrace.dev/policy-uid": "x"}},
        }
        with contextlib.suppress(KubeFault):
            far.create(CONFIGMAPS, foreign)
        made.close()
        here.api.delete(f"{GROUP}/routingpolicies/chat")
        here.term += 1
        second = here.publisher(clusters={"far": path})
        second.tables.barred({})
        stands = [one for one in second.tables.tables() if one.frontend == "fe-b" and one.policy == "chat"]
        assert [one.identity.term for one in stands] == [here.term], "the new term is stamped there too"
        for _ in range(2):
            second.remove_orphans([b], certain=True)
        settle(here, second, {})
        assert missing(far, f"{CONFIGMAPS}/headrace-chat-fe-b")
        assert not missing(far, f"{CONFIGMAPS}/theirs")
        far.delete(f"{CONFIGMAPS}/theirs")
        inventory = here.api.get(f"/api/v1/namespaces/{OPS}/configmaps/headrace-inventory-far")
        assert inventory["data"]["tables.json"] == "{}"
        second.close()
    wrong = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())["clusters"][0]["cluster"][
        "certificate-authority-data"
    ]
    with far_file(
        lambda config: config["clusters"][0]["cluster"].update({"certificate-authority-data": wrong})
    ) as path:
        here.term += 1
        distrusting = here.publisher(clusters={"far": path})
        assert distrusting.tables.barred(places) == {b}
        assert "TLS" in distrusting.tables.refusals[b].message, distrusting.tables.refusals
        distrusting.close()
    return {}


def far_silent(flag: str) -> Json:
    """While another cluster hangs (the test pauses its API server), publishing here takes its usual time.

    flag: a file; this makes it when the other is to be paused, and waits until the test took it away, twice.
    """
    here = Here()
    policy = here.policy()
    places = places_of(policy)
    b = key(frontend="fe-b")
    places[b] = places[b]._replace(cluster="far")
    with far_file() as path:
        far = far_api(path)
        made = here.publisher(clusters={"far": path})
        settle(here, made, places)
        made.publish([table(policy, 1, frontend=name, term=here.term) for name in ("fe-a", "fe-b")], places)
        settle(here, made, places)
        usual = [publish_once(made, policy, places, revision, here.term) for revision in range(2, 12)]
        asked(flag)
        made.publish([table(policy, 20, 5_000, frontend="fe-b", term=here.term)], places)
        begin, slow = time.monotonic(), []
        revision = 21
        while made.tables.barred(places) != {b}:
            assert time.monotonic() - begin < SECONDS
            slow.append(publish_once(made, policy, places, revision, here.term))
            revision += 1
        for _ in range(10):
            slow.append(publish_once(made, policy, places, revision, here.term))
            revision += 1
        assert made.tables.refusals[b].reason == "ClusterUnreachable"
        made.policy_statuses["inf/chat"] = STATUS
        made.show_policies([policy], {}, stamp(0))
        made.flush(0.0)
        found = here.api.get(f"{GROUP}/routingpolicies/chat")["status"]["conditions"]
        assert [one["reason"] for one in found if one["type"] == "Published"] == ["ClusterUnreachable"]
        asked(flag)

        def back() -> bool:
            settle(here, made, places, 1)
            return made.tables.barred(places) == frozenset()

        seconds = await_that(back, "the other cluster is back")
        assert made.publish([table(policy, 90, 2_500, frontend="fe-b", term=here.term)], places)
        settle(here, made, places)
        standing = seen_of(far.get(f"{CONFIGMAPS}/headrace-chat-fe-b")).table
        assert standing is not None
        assert standing.identity.revision == 90
        far.delete(f"{CONFIGMAPS}/headrace-chat-fe-b")
        made.close()
    return {"usual ms": ms(usual), "while it hangs ms": ms(slow), "back after s": round(seconds, 1)}


def publish_once(
    made: ClusterPublisher, policy: RoutingPolicy, places: dict[TableKey, Place], revision: int, term: int
) -> float:
    begin = time.monotonic()
    made.tables.barred(places)
    assert made.publish([table(policy, revision, revision, term=term)], places)
    return time.monotonic() - begin


def ms(seconds: list[float]) -> Json:
    return {"median": round(sorted(seconds)[len(seconds) // 2] * 1000), "max": round(max(seconds) * 1000)}


def asked(flag: str) -> None:
    Path(flag).touch()
    await_that(lambda: not Path(flag).exists(), "the test did what was asked")


if __name__ == "__main__":
    done = globals()[sys.argv[1]](*sys.argv[2:])
    sys.stdout.write(json.dumps(done) + "\n")

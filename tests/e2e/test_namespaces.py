"""Tenants: operators for some namespaces beside each other, two for one namespace by mistake, secrets.

The product as the chart installs it. In the shared cluster, in namespaces of their own; each test stands by itself
unless its fixture says otherwise.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import pytest

from support.cluster import Cluster, await_true
from support.tenants import (
    ENGINE,
    ROUTER,
    Installation,
    answer,
    apply,
    condition,
    for_tenants,
    lease,
    manifests,
    ready,
    record,
    secret,
    status,
    table,
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(2700)]  # with nothing cached all of Kubernetes is compiled
CANARY = "canary-3f9b5c-never-shown"
TABLE = "headrace-chat-fe-a"


@pytest.fixture(scope="module")
def cluster(bare: Cluster) -> Iterator[Cluster]:
    with for_tenants(bare):
        yield bare


def now() -> str:
    return datetime.now(UTC).isoformat()


@pytest.fixture(scope="module")
def side_by_side(cluster: Cluster) -> tuple[Installation, Installation]:
    """Two operators, each for one namespace, with policies and engines of the same names; routers in the operators'."""
    for team, frontend in (("team-a", "fe-a"), ("team-b", "fe-b")):
        apply(cluster, manifests(team, frontend=frontend))
        secret(cluster, team, "planted", token=CANARY)
    found = []
    for team, frontend in (("a", "fe-a"), ("b", "fe-b")):
        made = Installation(cluster, f"ops-{team}", "headrace")
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": made.namespace}}
        apply(cluster, [space])
        secret(cluster, made.namespace, "prometheus", token=CANARY, password=CANARY)
        here = "/var/run/secrets/headrace/prometheus"
        source = {"name": "prometheus", "url": "http://127.0.0.1:9", "auth": {"bearerTokenFile": f"{here}/token"}}
        made.install(
            wait=False,
            watchNamespaces=[f"team-{team}"],
            operator={"secrets": ["prometheus"], "extraArgs": ["--state", "/tmp/state"]},
            config={"metricSources": [source]},
            routers=[{"frontend": frontend, **ROUTER, "policies": [f"team-{team}/chat"]}],
        )
        found.append(made)
    for team, made, frontend in zip(("team-a", "team-b"), found, ("fe-a", "fe-b"), strict=True):
        ready(cluster, team)
        for deployment in ("headrace-operator", f"headrace-router-{frontend}"):
            made.rolled_out(deployment)
    return found[0], found[1]


def test_operators_of_one_namespace_each_stand_side_by_side(
    cluster: Cluster, side_by_side: tuple[Installation, Installation]
) -> None:
    """Policies of one name in two namespaces; Services outside of the watched namespaces are followed all the same."""
    for made, team, frontend in zip(side_by_side, ("team-a", "team-b"), ("fe-a", "fe-b"), strict=True):
        code, engine = answer(cluster, made.namespace, f"headrace-router-{frontend}")
        assert (code, engine) == (200, ENGINE)
        heartbeat = lease(cluster, team)
        assert heartbeat is not None
        assert heartbeat["metadata"]["labels"]["headrace.dev/installation"] == made.namespace
        read = 'headrace_operator_reads_total{outcome="Read",target="router"}'
        await_true(
            lambda made=made, read=read: read in made.page("headrace-operator", 9100),
            "routers in the operator's own namespace are read",
        )
        assert not made.can("headrace-operator", "list", "nodes")
        assert not made.can("headrace-operator", "list", "routingpolicies.headrace.dev", "--namespace=default")
        assert "can't be" not in made.logs()


def test_starts_beside_each_other_sweep_nothing_of_the_other(
    cluster: Cluster, side_by_side: tuple[Installation, Installation]
) -> None:
    """Each has seen the other's tables at the API server's mercy: neither may take them for orphans."""
    before = {
        team: table(cluster, team, f"headrace-chat-{frontend}")
        for team, frontend in (("team-a", "fe-a"), ("team-b", "fe-b"))
    }
    began = now()
    for made in side_by_side:
        made.restart(wait=False)
    for made in side_by_side:
        made.rolled_out("headrace-operator")
    for team, frontend in (("team-a", "fe-a"), ("team-b", "fe-b")):
        old = before[team]["identity"]

        def led(team: str = team, frontend: str = frontend, old: dict[str, int] = old) -> bool:
            return bool(table(cluster, team, f"headrace-chat-{frontend}")["identity"]["term"] > old["term"])

        await_true(led, f"a new term in {team}")
        assert table(cluster, team, f"headrace-chat-{frontend}")["identity"]["uid"] == old["uid"]
    for made, team in zip(side_by_side, ("team-a", "team-b"), strict=True):
        wrote = made.writes(began)
        assert {where for _, where, _, _ in wrote} == {team}
        assert [one for one in wrote if one[0] == "delete" or one[3] == 403] == []


def test_an_operator_too_many_leaves_what_others_serve_alone(
    cluster: Cluster, side_by_side: tuple[Installation, Installation]
) -> None:
    """Cluster-wide by mistake, twice: served is served; what nobody serves one of the two has, and neither thrashes."""
    apply(cluster, manifests("team-c", frontend="fe-c"))
    first, second = Installation(cluster, "ops-c", "headrace-c"), Installation(cluster, "ops-d", "headrace-d")
    stood = {team: term(cluster, team, name) for team, name in (("team-a", TABLE), ("team-b", "headrace-chat-fe-b"))}
    began = now()
    try:
        first.install(wait=False)
        second.install(wait=False)
        refused = Installation(cluster, "ops-d", "headrace-c").install(check=False)
        assert "ops-c" in refused, "of one name helm lets no second one be"
        for made in (first, second):
            made.rolled_out(f"{made.name}-operator")
        await_true(lambda: lease(cluster, "team-c"), "somebody serves team-c")
        has, waits = (first, second) if serves(cluster, "team-c") == "ops-c" else (second, first)
        for made, others in ((waits, ("team-a", "team-b", "team-c")), (has, ("team-a", "team-b"))):
            for team in others:
                word = f"namespace {team} is served by another operator, that of namespace {serves(cluster, team)}"
                await_true(lambda made=made, word=word: word in made.logs(), word)
        await_true(
            lambda: condition(cluster, "rpol", "team-c", "chat", "Ready")["status"] == "True", "team-c is served"
        )
        await_true(lambda: only_beats(cluster, "team-c", (has, *side_by_side)), "nothing but heartbeats is written")
        assert waits.writes(began) == []
        assert {where for _, where, _, _ in has.writes(began)} == {"team-c"}
        for team, name in (("team-a", TABLE), ("team-b", "headrace-chat-fe-b")):
            assert term(cluster, team, name) == stood[team]
    finally:
        for made in (first, second):
            made.uninstall()
        cluster.kubectl("delete", "namespace", "team-c", "--timeout=240s")


def term(cluster: Cluster, namespace: str, name: str) -> tuple[str, int]:
    """Whose table it is, and of which term of an operator; revisions come with what that operator learns."""
    identity = table(cluster, namespace, name)["identity"]
    return identity["uid"], identity["term"]


def only_beats(cluster: Cluster, namespace: str, operators: Iterable[Installation]) -> bool:
    """Whether these write nothing else for two looks at what stands, and two of the namespace's heartbeats."""
    since, beats = now(), serves_at(cluster, namespace)
    for _ in range(2):
        await_true(lambda beats=beats: serves_at(cluster, namespace) > beats, "its heart beats")
        beats = serves_at(cluster, namespace)
    return {what for made in operators for _, _, what, _ in made.writes(since)} <= {"leases/headrace-heartbeat"}


def serves(cluster: Cluster, namespace: str) -> str:
    found = lease(cluster, namespace)
    assert found is not None
    return str(found["metadata"]["labels"]["headrace.dev/installation"])


def serves_at(cluster: Cluster, namespace: str) -> str:
    found = lease(cluster, namespace)
    assert found is not None
    return str(found["spec"]["renewTime"])


def test_one_that_waited_goes_on_when_the_other_is_gone(
    cluster: Cluster, side_by_side: tuple[Installation, Installation]
) -> None:
    """Its tables are taken over, in a term above theirs, so that routers take what comes next."""
    first, second = side_by_side[0], Installation(cluster, "ops-e", "headrace-e")
    second.install(watchNamespaces=["team-a"])
    try:
        await_true(lambda: "is served by another operator" in second.logs(), "it waits")
        for _ in range(2):  # terms above the other's
            _, highest = term(cluster, "team-a", TABLE)
            first.restart()
            await_true(lambda highest=highest: term(cluster, "team-a", TABLE)[1] > highest, "the first leads again")
        _, highest = term(cluster, "team-a", TABLE)
        first.scale(0)
        began = time.monotonic()
        await_true(lambda: term(cluster, "team-a", TABLE)[1] > highest, "the second has it", 600)
        record("other installation followed after s", time.monotonic() - began)
        assert serves(cluster, "team-a") == "ops-e"
        first.scale(1)
        await_true(lambda: "that of namespace ops-e" in first.logs(), "the first keeps off")
        assert answer(cluster, "ops-a", "headrace-router-fe-a")[0] == 200
    finally:
        second.uninstall()
        first.scale(1)
        await_true(lambda: serves(cluster, "team-a") == "ops-a", "the first has it again", 600)
        cluster.kubectl("delete", "namespace", "ops-e", "--timeout=240s")


def odd_service(name: str, **spec: object) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "team-a"}, "spec": spec}


def test_what_tenants_name_that_is_not_theirs_or_not_there(
    cluster: Cluster, side_by_side: tuple[Installation, Installation]
) -> None:
    """A ConfigMap of somebody else, Services that don't exist or have no pods of their own: said, and nobody hurt."""
    engine, policy = manifests("team-a", frontend="fe-odd")[-2:]
    before = cluster.get("configmap", "kube-root-ca.crt", "--namespace=team-a")
    stood = term(cluster, "team-a", TABLE)
    apply(cluster, [odd_service("outside", type="ExternalName", externalName="example.invalid")])
    apply(cluster, [odd_service("bare", ports=[{"port": 8000}])])
    odd = {"nowhere": "nowhere", "outside": "outside", "bare": "bare"}
    for name, service in odd.items():
        engine["metadata"] |= {"name": name, "labels": {"tier": name}}
        engine["spec"]["endpoints"] = {"service": {"name": service, "port": 8000}}
        engine["spec"]["metrics"] = {"source": "prometheus"}  # with its token, where nobody answers
        policy["metadata"]["name"] = name
        policy["spec"]["engineSelector"] = {"matchLabels": {"tier": name}}
        policy["spec"]["frontends"][0]["name"] = f"fe-{name}"
        apply(cluster, [engine, policy])
    for name in odd:
        await_true(lambda name=name: status(cluster, "ieng", "team-a", name).get("conditions"), f"{name} has a status")
        assert condition(cluster, "ieng", "team-a", name, "Available")["status"] == "False"
        await_true(
            lambda name=name: condition(cluster, "rpol", "team-a", name, "Ready")["status"] == "False",
            f"{name}: nobody to send to",
        )
    tables = cluster.get("configmaps", "--namespace=team-a", "--selector=headrace.dev/managed-by")["items"]
    assert [one["metadata"]["name"] for one in tables] == [TABLE], "nobody was ever sent to what is not there"
    # A Service without a selector has the endpoints that somebody gives it.
    pod = cluster.get("pods", "--namespace=team-a", f"--selector=app.kubernetes.io/instance={ENGINE}")["items"][0]
    slices = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "bare-1", "namespace": "team-a", "labels": {"kubernetes.io/service-name": "bare"}},
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 8000}],
        "endpoints": [{"addresses": [pod["status"]["podIP"]], "conditions": {"ready": True}}],
    }
    apply(cluster, [slices])
    await_true(lambda: condition(cluster, "rpol", "team-a", "bare", "Ready")["status"] == "True", "bare has endpoints")
    policy["metadata"]["name"] = "grabbing"
    policy["spec"]["engineSelector"] = {"matchLabels": {"tier": "bare"}}
    policy["spec"]["frontends"][0] |= {"name": "fe-grabbing", "publish": {"configMap": "kube-root-ca.crt"}}
    apply(cluster, [policy])

    def published(name: str) -> dict[str, str]:
        return condition(cluster, "rpol", "team-a", name, "Published")

    await_true(lambda: published("grabbing")["reason"] == "ConfigMapNotOurs", "whose it is is said")
    assert "kube-root-ca.crt" in published("grabbing")["message"]
    after = cluster.get("configmap", "kube-root-ca.crt", "--namespace=team-a")
    assert after == before
    assert term(cluster, "team-a", TABLE) == stood
    cluster.kubectl("delete", "rpol,ieng", *odd, "grabbing", "--namespace=team-a", "--ignore-not-found")
    cluster.kubectl("delete", "service", "outside", "bare", "--namespace=team-a")


RECORDS = "import pathlib; [print(one.read_text()) for one in pathlib.Path('/tmp/state').rglob('*') if one.is_file()]"


def test_the_canary_appears_nowhere(cluster: Cluster, side_by_side: tuple[Installation, Installation]) -> None:
    """Group secrets: of tenants' namespaces, and of what is mounted; the planted ones are there to be found."""
    seen = {}
    kinds = ["rpol,ieng,configmaps,events,leases,endpointslices,services,deployments", "--all-namespaces"]
    seen["objects"] = cluster.kubectl("get", *kinds, "--output=yaml").stdout
    for made, team, frontend in zip(side_by_side, ("team-a", "team-b"), ("fe-a", "fe-b"), strict=True):
        seen[f"{made.namespace} operator log"] = made.logs()
        seen[f"{made.namespace} router log"] = made.logs("router")
        seen[f"{made.namespace} operator pages"] = made.page("headrace-operator", 9100) + made.page(
            "headrace-operator", 9100, "/readyz"
        )
        seen[f"{made.namespace} records"] = made.inside("headrace-operator", RECORDS)
        router = f"headrace-router-{frontend}"
        seen[f"{made.namespace} router pages"] = made.page(router, 9090) + made.page(router, 9090, "/readyz")
        for account in ("headrace-operator", router):
            for where in (made.namespace, "team-a", "team-b", "kube-system"):
                rights = made.rights(account, where)
                reads_tables = where == team or (where, account) == (made.namespace, "headrace-operator")
                assert ("configmaps" in rights) == reads_tables, (account, where)
                assert {"secrets", "*", "*.*"}.isdisjoint(rights), (account, where)
    planted = cluster.kubectl("get", "secrets", "--all-namespaces", "--output=yaml").stdout
    forms = (CANARY, base64.b64encode(CANARY.encode()).decode())
    assert any(form in planted for form in forms)
    # Routers log nothing when nothing is wrong, and what was published before a pod's start is in no record of its.
    assert [one for one, text in seen.items() if not text and one != "ops-b records" and "router log" not in one] == []
    assert [name for name, text in seen.items() for form in forms if form in text] == []
    assert 'target="source"' in seen["ops-a operator pages"], "the token was used"


def test_a_namespace_goes_with_all_that_is_in_it_and_comes_again(
    cluster: Cluster, side_by_side: tuple[Installation, Installation]
) -> None:
    """Nothing of ours holds it up, nothing is made in it while it goes; the operator stays, and serves the next one."""
    made = side_by_side[1]
    pods = cluster.get("pods", f"--namespace={made.namespace}", "--selector=app.kubernetes.io/component=operator")
    uid = cluster.get("rpol", "chat", "--namespace=team-b")["metadata"]["uid"]
    began = time.monotonic()
    cluster.kubectl("delete", "namespace", "team-b", "--timeout=240s")
    record("namespace deleted after s", time.monotonic() - began)
    made.cluster.execute("helm", "version")
    apply(cluster, manifests("team-b", frontend="fe-b"))
    # The routers' and the operator's roles went with it.
    made.uninstall()
    made.install(watchNamespaces=["team-b"], routers=[{"frontend": "fe-b", **ROUTER, "policies": ["team-b/chat"]}])
    ready(cluster, "team-b")
    assert table(cluster, "team-b", "headrace-chat-fe-b")["identity"]["uid"] != uid
    assert lease(cluster, "team-b") is not None
    assert pods["items"][0]["status"]["containerStatuses"][0]["restartCount"] == 0

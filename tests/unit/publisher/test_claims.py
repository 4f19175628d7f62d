"""Two installations of the operator over one namespace: the heartbeat Lease says whose it is; the other keeps off."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from headrace_api.engine import InferenceEngine
from headrace_api.names import LABEL_INSTALLATION, LABEL_MANAGED
from headrace_api.policy import RoutingPolicy
from headrace_operator.controller.own_namespaces import OwnNamespaces
from headrace_operator.kube.client import MANAGER, KubeFault, NotLeading
from headrace_operator.publisher.cluster import ClusterPublisher, TermBehind, cluster_publisher
from headrace_operator.publisher.cluster.claims import Claims
from headrace_operator.store.resources import ResourceName, Resources
from support.engine_manifests import AT, engine
from support.fake_kube import Call, FakeKube, Refuse
from support.tables import places_of, policy_of, table_of

LEASE = "inf/headrace-heartbeat"


class Installation:
    """One operator: its claims and its publishers, on a steady clock of its own."""

    def __init__(self, kube: FakeKube, name: str, **more: Any) -> None:
        self.kube, self.now, self.beats, self.freed = kube, 0.0, 0, 0
        self.made: list[ClusterPublisher] = []
        self.claims = Claims(
            kube.client(), name, "pod", steady=lambda: self.now, wall=self._wall, on_freed=self._note, **more
        )

    def _wall(self) -> str:
        self.beats += 1
        return f"2026-01-01T00:{self.beats // 60:02}:{self.beats % 60:02}Z"

    def _note(self) -> None:
        self.freed += 1

    def look(self, after: float = 0.0) -> frozenset[str]:
        self.now += after
        return self.claims.look()

    def hold(self, *namespaces: str) -> dict[str, str]:
        return dict(self.claims.hold(namespaces))

    def publisher(self, term: int = 1) -> ClusterPublisher:
        made = cluster_publisher(
            self.kube.client(),
            term,
            namespace=self.claims.installation,
            claims=self.claims,
            steady=lambda: self.now,
        )
        self.made.append(made)
        return made


def whose(kube: FakeKube) -> str:
    return str(kube.get("leases", LEASE)["metadata"]["labels"][LABEL_INSTALLATION])


def test_of_two_that_begin_at_once_one_has_the_namespace(kube: FakeKube) -> None:
    """Neither had seen the other: the API server lets one make the Lease."""
    one, two = Installation(kube, "ops-a"), Installation(kube, "ops-b")
    one.look()
    two.look()
    assert one.hold("inf") == {}
    assert two.hold("inf") == {"inf": "ops-a"}
    assert (one.claims.taken("inf"), two.claims.taken("inf")) == (False, True)
    assert (two.claims.wanted(), whose(kube)) == (frozenset(), "ops-a")
    for _ in range(20):
        assert one.claims.renew("inf", one._wall())
        assert one.look(10) == {"inf"}
        assert two.look(10) == frozenset()
        assert two.hold("inf") == {"inf": "ops-a"}
    assert (whose(kube), two.freed) == ("ops-a", 0)


def test_it_claims_what_has_policies_and_once(kube: FakeKube) -> None:
    one = Installation(kube, "ops-a")
    one.look()
    one.hold("inf", "lab")
    writes = len(kube.writes())
    one.hold("inf", "lab")
    assert len(kube.writes()) == writes == 2
    assert one.claims.wanted() == {"inf", "lab"}
    one.hold("lab")
    assert one.claims.wanted() == {"lab"}


def test_one_that_is_silent_for_a_minute_is_followed_and_the_term_begins_anew(kube: FakeKube) -> None:
    one, two = Installation(kube, "ops-a"), Installation(kube, "ops-b")
    one.look()
    one.hold("inf")
    two.look()
    two.hold("inf")
    for _ in range(5):
        two.look(10)
    assert two.hold("inf") == {"inf": "ops-a"}
    two.look(10)
    assert two.freed == 1
    assert two.hold("inf") == {}
    assert whose(kube) == "ops-b"
    assert not one.claims.renew("inf", AT), "it comes back: it sees whose it is, and keeps off"
    assert (one.claims.taken("inf"), whose(kube)) == (True, "ops-b")
    two.look(10)
    assert two.freed == 1


def test_a_lease_that_comes_and_goes_begins_few_terms(kube: FakeKube) -> None:
    """Whoever may write Leases in one namespace must not have everybody's measurements and memory begin anew."""
    ours = Installation(kube, "ops-a")
    ours.look()
    ours.hold("calm", "inf")
    forged = {"name": "headrace-heartbeat", "namespace": "inf", "labels": {LABEL_MANAGED: MANAGER}}
    forged["labels"] |= {LABEL_INSTALLATION: "forged"}  # type: ignore[operator]
    for number in range(90):
        kube.remove("leases", LEASE)
        kube.put("leases", {"metadata": forged, "spec": {"renewTime": str(number)}})
        ours.look(10)
        ours.hold("calm", "inf")
        kube.remove("leases", LEASE)
        ours.look(10)
        ours.hold("calm", "inf")
        if LEASE not in kube.names("leases"):
            kube.put("leases", {"metadata": forged})
    assert 1 <= ours.freed <= 5
    kube.remove("leases", LEASE)
    for _ in range(400):
        ours.look(10)
    assert ours.hold("calm", "inf") == {}
    assert whose(kube) == "ops-a"


def test_a_lease_that_is_gone_frees_at_once(kube: FakeKube) -> None:
    one, two = Installation(kube, "ops-a"), Installation(kube, "ops-b")
    one.look()
    one.hold("inf")
    two.look()
    two.hold("inf")
    kube.remove("leases", LEASE)
    two.look(10)
    assert (two.freed, two.hold("inf"), whose(kube)) == (1, {}, "ops-b")


def test_silence_counts_only_while_it_is_listened_to(kube: FakeKube) -> None:
    """After an outage of the API server everybody has been silent: nobody takes anything for that."""
    one, two = Installation(kube, "ops-a"), Installation(kube, "ops-b")
    one.look()
    one.hold("inf")
    two.look()
    two.look(100)
    assert two.hold("inf") == {"inf": "ops-a"}
    two.look(29)
    two.look(29)
    assert two.hold("inf") == {"inf": "ops-a"}
    two.look(29)
    assert two.hold("inf") == {}


def test_a_lease_that_people_edit_or_an_older_release_made_stays_ours(kube: FakeKube) -> None:
    one = Installation(kube, "ops-a")
    labels = {"headrace.dev/managed-by": "headrace-operator"}
    kube.put("leases", {"metadata": {"name": "headrace-heartbeat", "namespace": "inf", "labels": labels}})
    kube.managers["leases", "inf", "headrace-heartbeat"] = "headrace-operator"
    one.look()
    assert one.hold("inf") == {}
    assert whose(kube) == "ops-a"
    kube.managers["leases", "inf", "headrace-heartbeat"] = "kubectl-edit"
    assert one.claims.renew("inf", AT)
    assert kube.get("leases", LEASE)["spec"]["renewTime"].startswith(AT[:19])


def test_one_that_another_makes_while_it_is_written_is_seen(kube: FakeKube) -> None:
    """And one that is gone by the time it is looked at is made."""
    one, two = Installation(kube, "ops-a"), Installation(kube, "ops-b")
    two.look()
    two.hold("inf")

    def refuse(call: Call) -> None:
        if call.method == "GET":
            kube.remove("leases", LEASE)
            kube.refuse = lambda _: None

    kube.refuse = refuse
    assert one.claims.renew("inf", AT)
    assert whose(kube) == "ops-a"


def test_of_two_that_waited_one_follows(kube: FakeKube) -> None:
    """Both saw the first one's silence; the version that each read lets one of them have it."""
    one, two, three = (Installation(kube, name) for name in ("ops-a", "ops-b", "ops-c"))
    one.hold("inf")
    for waiting in (two, three):
        waiting.look()
        for _ in range(6):
            waiting.look(10)

    def refuse(call: Call) -> None:
        if call.method == "GET":
            kube.refuse = once

    def once(call: Call) -> None:
        if call.method == "PATCH":
            kube.refuse = lambda _: None
            three.hold("inf")
            assert whose(kube) == "ops-c"

    kube.refuse = refuse
    assert two.hold("inf") == {"inf": "ops-c"}
    assert (three.hold("inf"), whose(kube)) == ({}, "ops-c")


def test_one_that_is_written_over_and_over_is_a_fault(kube: FakeKube) -> None:
    one = Installation(kube, "ops-a")

    def refuse(call: Call) -> None:
        if call.method == "PATCH":
            raise Refuse(409, "Conflict", "the object has been modified")

    kube.refuse = refuse
    with pytest.raises(KubeFault, match="modified"):
        one.claims.renew("inf", AT)


def test_what_can_not_be_claimed_is_served_all_the_same(kube: FakeKube) -> None:
    """No rights to the Lease: there is no heartbeat either, and routers say so; tables must not stop for it."""
    one = Installation(kube, "ops-a")

    def refuse(call: Call) -> None:
        if call.method == "PATCH":
            raise Refuse(403, "Forbidden", "leases is forbidden")

    kube.refuse = refuse
    assert one.hold("inf") == {}
    with pytest.raises(KubeFault):
        one.claims.renew("inf", AT)
    standby = Claims(kube.client(may_write=lambda: False), "ops-b", steady=lambda: 0.0, wall=lambda: AT)
    with pytest.raises(NotLeading):
        standby.hold(["inf"])


@pytest.mark.parametrize(("status", "most"), [(403, 100), (0, 10)])
def test_what_can_not_be_claimed_is_not_tried_on_and_on(status: int, most: int) -> None:
    """Rounds may be a tenth of a second apart, and each silence of the server is ten seconds long."""
    now, asked = 0.0, 0

    class Refusing:
        def apply(self, *_: object, **__: object) -> None:
            nonlocal asked
            asked += 1
            raise KubeFault(status, "", "no")

    claims = Claims(Refusing(), "ops-a", steady=lambda: now, wall=lambda: AT)  # type: ignore[arg-type]
    for _ in range(10):
        assert claims.hold([f"team-{number}" for number in range(100)]) == {}
        now += 0.1
    assert 0 < asked <= most


def test_only_watched_namespaces_are_looked_at(kube: FakeKube) -> None:
    other = Installation(kube, "ops-b")
    other.hold("inf", "lab")
    one = Installation(kube, "ops-a", watched=["lab"])
    one.look()
    assert one.claims.others() == {"lab": "ops-b"}


Some = TypeVar("Some", InferenceEngine, RoutingPolicy)


def moved(resource: Some) -> Some:
    """The same in the namespace ``theirs``."""
    return replace(resource, metadata=replace(resource.metadata, namespace="theirs"))


class Standing:
    """A store that has this, always the same object."""

    def __init__(self, found: Resources) -> None:
        self.found = found

    def look(self, *, thorough: bool) -> Resources:
        return self.found


def test_the_store_is_without_what_another_serves(kube: FakeKube) -> None:
    """Not refused, not missing, not told in a status: it is theirs. What is ours stays the same object."""
    theirs, ours = moved(policy_of()), policy_of()
    found = Resources(
        engines=(engine("a"), moved(engine("b"))),
        policies=(ours, theirs),
        refused={ResourceName("RoutingPolicy", "theirs/x"): "bad", ResourceName("RoutingPolicy", "inf/x"): "bad"},
        rejected={ResourceName("RoutingPolicy", "theirs/x"): theirs.metadata},
        complete=True,
    )
    one, other = Installation(kube, "ops-a"), Installation(kube, "ops-b")
    store = OwnNamespaces(Standing(found), one.claims)
    assert store.look(thorough=False) is found
    other.hold("theirs")
    kube.objects.pop(("leases", "theirs", "headrace-heartbeat"))
    assert other.claims.renew("theirs", AT)
    one.look(10)
    shown = store.look(thorough=False)
    assert [one.metadata.namespace for one in shown.all()] == ["inf", "inf"]
    assert ([name.id for name in shown.refused], shown.rejected) == (["inf/x"], {})
    assert shown.complete
    assert shown.faults == (
        "namespace theirs is served by another operator, that of namespace ops-b: nothing of it is read or written"
        " here; right would be operators whose watchNamespaces don't overlap",
    )
    assert store.look(thorough=False) is shown


def test_another_installations_tables_are_not_seen_until_they_are_free(kube: FakeKube) -> None:
    """Not stamped, mended, moved or swept; then taken over, whatever term they have."""
    policy = policy_of()
    one, two = Installation(kube, "ops-a"), Installation(kube, "ops-b")
    first = one.publisher(term=7)
    one.hold("inf")
    first.publish([table_of(term=7)], places_of(policy))
    stood = kube.get("configmaps", "inf/headrace-chat-fe-a")
    second = two.publisher(term=2)
    assert second.tables.tables() == ()
    assert two.hold("inf") == {"inf": "ops-a"}
    writes = len(kube.writes())
    second.stamp_term({})
    second.publish([], {})
    second.remove_orphans([("inf/chat", "fe-a")], certain=True)
    assert second.remove_orphans([("inf/chat", "fe-a")], certain=True) == ()
    second.beat(0.0, AT)
    assert len(kube.writes()) == writes
    assert kube.get("configmaps", "inf/headrace-chat-fe-a") == stood
    kube.remove("leases", LEASE)
    two.look(10)
    with pytest.raises(TermBehind) as behind:
        two.publisher(term=2)
    assert behind.value.standing == 7
    assert len(two.publisher(term=8).tables.tables()) == 1


def test_what_another_took_is_let_go(kube: FakeKube) -> None:
    """One that was silent for a minute, and comes back in its term: its tables are another's now."""
    policy = policy_of()
    one, two = Installation(kube, "ops-a"), Installation(kube, "ops-b")
    first = one.publisher()
    one.hold("inf")
    first.publish([table_of()], places_of(policy))
    two.look()
    two.hold("inf")
    for _ in range(6):
        two.look(10)
    two.hold("inf")
    first.beat(0.0, AT)
    assert first.tables.tables() == ()
    assert first.remove_orphans([("inf/chat", "fe-a")], certain=True) == ()
    assert first.remove_orphans([("inf/chat", "fe-a")], certain=True) == ()
    assert whose(kube) == "ops-b"
    assert kube.names("configmaps") == ["inf/headrace-chat-fe-a"]

"""The client of API servers: what each call sends, and what each answer comes to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from kubernetes import client

from headrace_operator.kube.client import KubeClient, KubeFault, NotLeading, client_of
from headrace_operator.kube.pool import Pool
from support.fake_kube import Call, FakeKube, Refuse

CONFIGMAPS = "/api/v1/namespaces/a/configmaps"


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    made = FakeKube()
    try:
        yield made
    finally:
        made.close()


def configmap(name: str = "x", **metadata: object) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "a", **metadata},
        "data": {"k": "v"},
    }


def test_create_apply_replace_delete(kube: FakeKube) -> None:
    api = kube.client()
    made = api.create(CONFIGMAPS, configmap())
    assert api.get(f"{CONFIGMAPS}/x") == made
    same = api.apply(f"{CONFIGMAPS}/x", configmap())
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    put = api.replace(f"{CONFIGMAPS}/x", {**made, "data": {}})
    assert put["data"] == {}
    api.delete(f"{CONFIGMAPS}/x", uid=made["metadata"]["uid"])
    api.delete(f"{CONFIGMAPS}/x")  # gone already: no fault


def test_faults_tell_status_reason_and_message(kube: FakeKube) -> None:
    api = kube.client()
    made = api.create(CONFIGMAPS, configmap())
    with pytest.raises(KubeFault) as stale:
        api.apply(f"{CONFIGMAPS}/x", configmap(resourceVersion="1"))
    assert (stale.value.conflict, stale.value.missing, stale.value.forbidden) == (True, False, False)
    with pytest.raises(KubeFault) as gone:
        api.get(f"{CONFIGMAPS}/y")
    assert (gone.value.status, gone.value.reason, gone.value.missing) == (404, "NotFound", True)
    with pytest.raises(KubeFault) as kept:
        api.delete(f"{CONFIGMAPS}/x", uid="other", resource_version=made["metadata"]["resourceVersion"])
    assert kept.value.conflict


@pytest.mark.parametrize("status", [401, 403])
def test_forbidden(kube: FakeKube, status: int) -> None:
    def refuse(_: Call) -> None:
        raise Refuse(status, "Forbidden", "no right\nand more lines")

    kube.refuse = refuse
    with pytest.raises(KubeFault, match="no right") as fault:
        kube.client().get(f"{CONFIGMAPS}/x")
    assert fault.value.forbidden
    assert fault.value.message == "no right"


def test_every_write_asks_whether_it_may(kube: FakeKube) -> None:
    api = kube.client(may_write=lambda: False)
    writes = [
        lambda: api.create(CONFIGMAPS, configmap()),
        lambda: api.apply(f"{CONFIGMAPS}/x", configmap()),
        lambda: api.replace(f"{CONFIGMAPS}/x", configmap()),
        lambda: api.merge(f"{CONFIGMAPS}/x", {}),
        lambda: api.delete(f"{CONFIGMAPS}/x"),
    ]
    for write in writes:
        with pytest.raises(NotLeading):
            write()
    assert kube.calls == []
    assert api.list(CONFIGMAPS)["items"] == []


def test_lists_page_by_page_with_selectors(kube: FakeKube) -> None:
    api = kube.client()
    for number in range(7):
        api.create(CONFIGMAPS, configmap(f"x{number}", labels={"l": "1" if number else "2"}))
    kube.page = 2
    kube.calls.clear()
    found = list(api.every(CONFIGMAPS, labels="l=1", page=100))
    assert [one["metadata"]["name"] for one in found] == [f"x{number}" for number in range(1, 7)]
    assert len(kube.calls) == 3
    (one,) = api.every("/api/v1/configmaps", fields="metadata.name=x3", metadata_only=True)
    assert "data" not in one


def test_a_list_whose_token_expired_is_begun_anew(kube: FakeKube) -> None:
    api = kube.client()
    for number in range(4):
        api.create(CONFIGMAPS, configmap(f"x{number}"))
    kube.page = 2
    left = [True]

    def refuse(_: Call) -> None:
        if kube.queries[-1][1].get("continue") and left:
            left.clear()
            raise Refuse(410, "Expired", "the token is too old")

    kube.refuse = refuse
    names = [one["metadata"]["name"] for one in api.every(CONFIGMAPS)]
    assert sorted(set(names)) == ["x0", "x1", "x2", "x3"]
    assert len(names) == 6


# Silence


def pointed(address: str, timeout: float = 0.3) -> KubeClient:
    made = client_of(client.Configuration(host=address), "far")
    made._timeout = (timeout, timeout)
    return made


def test_silence_has_words_that_stay_the_same() -> None:
    """They stand in statuses: an address in memory, as the library's own words have it, would be news each time."""
    with closing(socket.create_server(("127.0.0.1", 0))) as full:
        port = full.getsockname()[1]
        with pytest.raises(KubeFault) as hung:
            pointed(f"http://127.0.0.1:{port}").get("/x")
    with pytest.raises(KubeFault) as refused:
        pointed(f"http://127.0.0.1:{port}").get("/x")
    assert hung.value.message == "far: no answer within its time limit"
    assert refused.value.message == "far: it can't be connected to"
    assert {hung.value.status, refused.value.status} == {0}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhey", "not a JSON object"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone", "far has no such kind of resource"),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\n[]", "answered 500"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "the connection ended before the answer"),
        (b"HTTP/1.1 307 Elsewhere\r\nLocation: http://127.0.0.1:1/steal\r\nContent-Length: 0\r\n\r\n", "nowhere else"),
    ],
)
def test_answers_that_are_none(answer: bytes, words: str) -> None:
    """Case SEC-04: a redirect is not followed, so that a token goes nowhere else.

    https://github.com/aio-libs/aiohttp/pull/12275
    """
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def once() -> None:
            taken, _ = server.accept()
            taken.recv(65536)
            taken.sendall(answer)
            taken.close()

        thread = threading.Thread(target=once)
        thread.start()
        with pytest.raises(KubeFault, match=words):
            pointed(f"http://127.0.0.1:{server.getsockname()[1]}", 5).get("/x")
        thread.join()


# Many at once


def test_a_fault_stands_in_its_own_place() -> None:
    pool = Pool(3, "test")

    def deed(number: int) -> int:
        if number == 2:
            raise KubeFault(409, "Conflict", "no")
        return number

    found = pool.each(range(5), deed)
    assert [one if isinstance(one, int) else one.status for one in found] == [0, 1, 409, 3, 4]
    assert pool.each([], deed) == []
    pool.close()


def test_what_a_pool_can_not_begin_any_more_is_not_written() -> None:
    """A cluster that the configuration names no more, while its thread still mends what stands there."""
    pool = Pool(1, "test")
    begun, go = threading.Event(), threading.Event()

    def deed(_: int) -> None:
        begun.set()
        assert go.wait(60)

    outcome: list[object] = []

    def work() -> None:
        try:
            pool.each(range(3), deed)
        except Exception as error:  # noqa: BLE001  what it is, is the question
            outcome.append(error)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    assert begun.wait(60)
    pool.close()
    go.set()
    worker.join(60)
    assert [type(one) for one in outcome] == [NotLeading]
    with pytest.raises(NotLeading, match="not published to any more"):
        pool.each(range(3), deed)


def test_who_does_not_lead_begins_nothing_more() -> None:
    pool = Pool(1, "test")
    begun = []

    def deed(number: int) -> None:
        begun.append(number)
        raise NotLeading("no")

    with pytest.raises(NotLeading):
        pool.each(range(9), deed)
    assert begun == [0]
    pool.close()

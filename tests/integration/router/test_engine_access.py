"""https engines and engines with keys: trust that is stated, keys that reach their engine alone, files that change."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from headrace_api.table import RoutingTable, TableAuth, TableTls
from headrace_router.server.access_files import AccessFiles
from headrace_router.server.server import Router
from support.certificates import Authority, Issued, MountedSecret
from support.fake_engine import FakeEngine, answers, says
from support.raw_client import ask, post
from support.router_process import in_flight, metric, reads, ready, router_in_loop, until, until_async
from support.router_table import EngineAt, routing_table

ASK = post({"model": "m"})
CA = TableTls(ca_config_map="engine-ca", ca_key="ca.crt")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.issue("localhost", "127.0.0.1")


def table(
    engines: Mapping[str, EngineAt | str],
    tls: Mapping[str, TableTls] | None = None,
    auth: Mapping[str, str] | None = None,
) -> RoutingTable:
    """A table whose engines have tls, and keys out of Secrets of these names."""
    made = routing_table(engines)
    return msgspec.structs.replace(
        made,
        engines=tuple(
            msgspec.structs.replace(
                engine,
                tls=(tls or {}).get(name),
                auth=TableAuth(secret=auth[name], key="token") if name in (auth or {}) else None,
            )
            for engine in made.engines
            for name in [engine.id.partition("/")[2]]
        ),
    )


def mounted(folder: Path, kind: str, name: str) -> MountedSecret:
    return MountedSecret(folder / "inference" / kind / name)


async def refused(router: Router) -> bool:
    """Whether a request finds no engine that it could be sent to."""
    answer = await ask(router.address, ASK)
    return (answer.status, answer.code) == (502, "engine_unreachable")


async def test_the_stated_authority_alone_is_trusted(tmp_path: Path, authority: Authority, issued: Issued) -> None:
    """Missing, of others, broken, right: one engine, no restart; nothing is ever sent to whom isn't trusted."""
    async with FakeEngine(answers, tls=issued.server()) as engine:
        tree = tmp_path / "credentials"
        given = table({"a": engine.url}, {"a": CA})
        async with router_in_loop(tmp_path / "t", given, access=AccessFiles(credentials=tree)) as router:
            assert await refused(router)
            _, detail = await ready(router.admin_address)
            (word,) = detail["access"]["engines"]
            assert "certificate authority is missing: right would be the file" in word
            assert "inference/configmaps/engine-ca/ca.crt" in word

            ca = mounted(tree, "configmaps", "engine-ca")
            ca.put(ca__crt=Authority().cert)
            await router.access.check()
            assert await refused(router)
            assert engine.requests == []

            ca.put(ca__crt=authority.cert)
            await router.access.check()
            await until_served(router)
            ca.put(ca__crt=authority.cert[:300])
            await router.access.check()
            assert (await ask(router.address, ASK)).status == 200
            await reads(1, router.admin_address, "headrace_credential_rejects_total", what="engine")


async def test_an_engines_own_certificate_is_enough(tmp_path: Path, authority: Authority, issued: Issued) -> None:
    tree = tmp_path / "credentials"
    own = issued.cert.partition(b"-----END CERTIFICATE-----")[0] + b"-----END CERTIFICATE-----\n"
    mounted(tree, "configmaps", "engine-ca").put(ca__crt=own)
    async with FakeEngine(answers, tls=issued.server()) as engine:
        given = table({"a": engine.url}, {"a": CA})
        async with router_in_loop(tmp_path / "t", given, access=AccessFiles(credentials=tree)) as router:
            assert (await ask(router.address, ASK)).status == 200


async def until_served(router: Router) -> None:
    """An engine that was found unreachable too often has its trial first."""

    async def served() -> bool:
        return (await ask(router.address, ASK)).status == 200

    await until_async(served, 60)


@pytest.mark.parametrize("case", ["expired", "wrong name", "of another authority", "wrong server name", "plain http"])
async def test_who_is_not_verified_gets_nothing(case: str, tmp_path: Path, authority: Authority) -> None:
    tls = CA
    context = authority.issue("127.0.0.1").server()
    if case == "expired":
        context = authority.issue("127.0.0.1", days=-1).server()
    elif case == "wrong name":
        context = authority.issue("other.example", "127.0.0.2").server()
    elif case == "of another authority":
        context = Authority().issue("127.0.0.1").server()
    elif case == "wrong server name":
        tls = msgspec.structs.replace(CA, server_name="other.example")
    tree = tmp_path / "credentials"
    mounted(tree, "configmaps", "engine-ca").put(ca__crt=authority.cert)
    async with FakeEngine(answers, tls=None if case == "plain http" else context) as engine, FakeEngine(answers) as b:
        secure = engine.url.replace("http://", "https://")
        given = table({"a": EngineAt((secure,), weight=9_999), "b": b.url}, {"a": tls})
        if case == "plain http":
            given = msgspec.structs.replace(given, timeouts=msgspec.structs.replace(given.timeouts, connect=0.3))
        async with router_in_loop(tmp_path / "t", given, access=AccessFiles(credentials=tree)) as router:
            for _ in range(3):
                # What no engine can have seen costs no retry: another one answers.
                assert (await ask(router.address, ASK)).status == 200
            assert engine.requests == []
            assert await metric(router.admin_address, "headrace_retries_total", kind="retry") == 0
            assert in_flight(router) == 0


async def test_server_name_and_the_systems_authorities(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that names no authority is verified by the system's; one whose own is missing never is."""
    system = tmp_path / "system.pem"
    system.write_bytes(authority.cert)
    monkeypatch.setenv("SSL_CERT_FILE", str(system))
    context = authority.issue("use1-a.gpu.example").server()
    async with FakeEngine(answers, tls=context) as a, FakeEngine(answers, tls=context) as b:
        name = TableTls(server_name="use1-a.gpu.example")
        missing = msgspec.structs.replace(CA, server_name="use1-a.gpu.example")
        async with router_in_loop(
            tmp_path / "t", table({"a": a.url, "b": EngineAt((b.url,), weight=9_999)}, {"a": name, "b": missing})
        ) as router:
            for _ in range(5):
                answer = await ask(router.address, ASK)
                assert (answer.status, answer.header("x-headrace-engine")) == (200, "a")
            assert b.connections == 0
            _, detail = await ready(router.admin_address)
            assert "right would be --credentials-dir" in detail["access"]["engines"][0]


async def test_a_rotated_authority(tmp_path: Path) -> None:
    """Old and new in one bundle, then the new alone: no request fails, and connections of the old one aren't reused."""
    old, new = Authority(), Authority()
    tree = tmp_path / "credentials"
    ca = mounted(tree, "configmaps", "engine-ca")
    ca.put(ca__crt=old.cert)
    async with FakeEngine(answers, tls=old.issue("127.0.0.1").server()) as engine:
        given = table({"a": engine.url}, {"a": CA})
        async with router_in_loop(tmp_path / "t", given, access=AccessFiles(credentials=tree)) as router:
            for _ in range(2):
                assert (await ask(router.address, ASK)).status == 200
            ca.put(ca__crt=old.cert + new.cert)
            await router.access.check()
            assert (await ask(router.address, ASK)).status == 200
            *before, after = (request.connection for request in engine.requests)
            assert after > max(before)
            port = engine.port
            await engine.stop()
            async with FakeEngine(answers, port=port, tls=new.issue("127.0.0.1").server()) as renewed:
                assert (await ask(router.address, ASK)).status == 200
                ca.put(ca__crt=new.cert)
                await router.access.check()
                assert (await ask(router.address, ASK)).status == 200
                assert len(renewed.requests) == 2


async def test_each_attempt_has_its_own_engines_key(tmp_path: Path) -> None:
    """The client's own credentials go where the engine names none, and there alone."""
    tree = tmp_path / "credentials"
    for name in ("key-a", "key-b"):
        mounted(tree, "secrets", name).put(token=f"sk-{name}\n".encode())
    own = ("Authorization: Bearer client-1", "x-api-key: client-2", "api-key: client-3", "x-trace: kept")
    busy = says("503 Service Unavailable", b"{}", "Retry-After: 0")
    async with FakeEngine(busy) as a, FakeEngine(busy) as b, FakeEngine(answers) as c:
        engines = {"a": EngineAt((a.url,), weight=9_000), "b": EngineAt((b.url,), weight=900), "c": c.url}
        given = table(engines, auth={"a": "key-a", "b": "key-b"})
        async with router_in_loop(tmp_path / "t", given, access=AccessFiles(credentials=tree)) as router:
            answer = await ask(router.address, post({"model": "m"}, "/v1/chat/completions", *own))
            assert (answer.status, answer.header("x-headrace-attempts")) == (200, "3")
        for engine, key in ((a, "sk-key-a"), (b, "sk-key-b")):
            (request,) = engine.requests
            assert request.values("Authorization") == [f"Bearer {key}"]
            assert b"client-" not in request.head
            assert request.values("x-trace") == ["kept"]
        (request,) = c.requests
        assert request.values("Authorization") == ["Bearer client-1"]
        assert request.values("x-api-key") == ["client-2"]
        assert b"sk-key" not in request.head


async def test_a_key_that_is_missing_comes_changes_and_goes(tmp_path: Path) -> None:
    tree = tmp_path / "credentials"
    async with FakeEngine(answers) as a, FakeEngine(answers) as b:
        given = table({"a": EngineAt((a.url,), weight=9_999), "b": b.url}, auth={"a": "key"})
        async with router_in_loop(tmp_path / "t", given, access=AccessFiles(credentials=tree)) as router:
            for _ in range(3):
                assert (await ask(router.address, ASK)).header("x-headrace-engine") == "b"
            # Passed over, not tried: no attempt was spent on it.
            assert await metric(router.admin_address, "headrace_requests_total", outcome="unreached") == 0
            assert await metric(router.admin_address, "headrace_endpoints", engine="inference/a") == 0
            secret = mounted(tree, "secrets", "key")
            for key in ("sk-1", "sk-2"):
                secret.put(token=key.encode())
                await router.access.check()
                assert (await ask(router.address, ASK)).header("x-headrace-engine") == "a"
                assert a.requests[-1].values("Authorization") == [f"Bearer {key}"]
            secret.put(other=b"x")
            await router.access.check()
            assert (await ask(router.address, ASK)).header("x-headrace-engine") == "b"
            assert len(a.requests) == 2


async def test_without_its_key_the_only_engine_gets_no_request(tmp_path: Path) -> None:
    """Not even with the client's key in the place of its own."""
    async with FakeEngine(answers) as a:
        given = table({"a": a.url}, auth={"a": "key"})
        async with router_in_loop(tmp_path / "t", given, access=AccessFiles(credentials=tmp_path / "none")) as router:
            answer = await ask(router.address, post({"model": "m"}, "/v1/chat/completions", "Authorization: Bearer c"))
            assert (answer.status, answer.code) == (502, "engine_unreachable")
            assert a.requests == []


async def test_a_new_table_brings_engines_whose_keys_are_there_already(tmp_path: Path) -> None:
    tree = tmp_path / "credentials"
    mounted(tree, "secrets", "key").put(token=b"sk-1")
    async with FakeEngine(answers) as a:
        path = tmp_path / "t"
        async with router_in_loop(path, table({"a": a.url}), access=AccessFiles(credentials=tree)) as router:
            assert (await ask(router.address, ASK)).status == 200
            newer = msgspec.structs.replace(table({"a": a.url}, auth={"a": "key"}), hash="h2")
            identity = msgspec.structs.replace(newer.identity, revision=2)
            path.write_bytes(msgspec.json.encode(msgspec.structs.replace(newer, identity=identity)))
            await until(lambda: router.selector.view.policies[0].table.hash == "h2")
            assert (await ask(router.address, ASK)).status == 200
            assert [request.values("Authorization") for request in a.requests] == [[], ["Bearer sk-1"]]

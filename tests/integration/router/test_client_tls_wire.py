"""TLS towards clients on real sockets: rotation under load, client certificates, handshakes that never come."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import ssl
from collections.abc import Callable
from pathlib import Path

import openai
import pytest

from headrace_router.listener import tls as client_tls
from headrace_router.listener.tls import Handshakes
from headrace_router.server.access_files import AccessFiles
from support.certificates import Authority, MountedSecret, trusted_engines
from support.fake_engine import Exchange, FakeEngine, answers, streams
from support.raw_client import RawClient, ask, post
from support.router_process import metric, reads, ready, router_in_loop, router_process, until, until_async
from support.router_table import routing_table, table_bytes

ASK = post({"model": "m"})


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def secret(tmp_path: Path, authority: Authority) -> MountedSecret:
    """The router's certificate, mounted."""
    made = MountedSecret(tmp_path / "tls")
    rotate(made, authority)
    return made


def rotate(secret: MountedSecret, authority: Authority) -> bytes:
    """A new certificate; returns it as a client sees it."""
    issued = authority.issue("localhost", "127.0.0.1")
    secret.put(tls__crt=issued.cert, tls__key=issued.key)
    return ssl.PEM_cert_to_DER_cert(issued.cert.decode().partition("-----END")[0] + "-----END CERTIFICATE-----\n")


def files(secret: MountedSecret, client_ca: Path | None = None) -> AccessFiles:
    return AccessFiles((secret.folder / "tls.crt", secret.folder / "tls.key"), client_ca)


def seen(client: RawClient) -> bytes:
    """The certificate that a connection was made with."""
    found = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    assert isinstance(found, bytes)
    return found


async def until_handshakes(page: str, **ends: int) -> None:
    """Handshakes are counted when the router's side of them has ended, which may be after the client's."""

    async def counted() -> bool:
        found = [await metric(page, "headrace_tls_handshakes_total", outcome=how) for how in ends]
        return found == list(ends.values())

    await until_async(counted)


async def failed(url: str, tls: ssl.SSLContext) -> bool:
    """Whether no answer is to be had."""
    try:
        async with RawClient(url, tls) as client:
            await client.send(ASK)
            return not await client.to_end()
    except OSError:
        return True


async def test_requests_streams_and_a_real_client(tmp_path: Path, authority: Authority, secret: MountedSecret) -> None:
    event = b'{"choices":[{"index":0,"delta":{"content":"Hel"}}]}'
    async with FakeEngine(streams(*[event] * 20)) as engine:
        table = routing_table({"a": engine.url})
        async with router_in_loop(tmp_path / "t", table, access=files(secret)) as router:
            assert router.address.startswith("https://")
            async with RawClient(router.address, authority.client()) as client:
                for _ in range(2):
                    await client.send(ASK)
                    assert (await client.answer()).body.count(event) == 20
                assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() is None
            http = openai.DefaultAsyncHttpxClient(verify=authority.client())
            async with openai.AsyncOpenAI(base_url=f"{router.address}/v1", api_key="k", http_client=http) as sdk:
                chunks = await sdk.chat.completions.create(model="m", messages=[], stream=True)
                assert [chunk.choices[0].delta.content async for chunk in chunks] == ["Hel"] * 20
            await until_handshakes(router.admin_address, ok=2)
            # Nothing is said in plain, not even that it should be otherwise.
            assert await ask_plain(router.address) == b""
            await until_handshakes(router.admin_address, failed=1)


async def ask_plain(url: str) -> bytes:
    async with RawClient(url) as client:
        await client.send(ASK)
        received = await client.to_end()
        # A TLS alert is no HTTP.
        return b"" if received[:1] == b"\x15" else received


async def test_rotation_under_load_fails_no_request(
    tmp_path: Path, authority: Authority, secret: MountedSecret
) -> None:
    """New handshakes use the new certificate within a look at the files; what is open stays."""
    stop = asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        if b"stream" not in exchange.request.body:
            await answers(exchange)
            return
        await exchange.start_sse()
        await exchange.chunk(b"data: {}\n\n")
        await stop.wait()
        await exchange.end_chunks()

    async with FakeEngine(slow) as engine:
        table = routing_table({"a": engine.url})
        async with router_in_loop(tmp_path / "t", table, access=files(secret)) as router:
            trust = authority.client()
            certificates: set[bytes] = set()
            served = [0] * 4

            async def load(number: int) -> None:
                while not stop.is_set():
                    async with RawClient(router.address, trust) as client:
                        certificates.add(seen(client))
                        for _ in range(2):
                            await client.send(ASK)
                            assert (await client.answer()).status == 200
                            served[number] += 1

            async with RawClient(router.address, trust) as kept, RawClient(router.address, trust) as stream:
                await stream.send(post({"model": "m", "stream": True}))
                await stream.until(b"data: {}")
                async with asyncio.TaskGroup() as group:
                    for number in range(4):
                        group.create_task(load(number))
                    for _ in range(8):
                        newest = rotate(secret, authority)
                        await router.access.check()
                        before = list(served)
                        await until(
                            lambda before=before: all(now > then for now, then in zip(served, before, strict=True))
                        )
                        await kept.send(ASK)
                        assert (await kept.answer()).status == 200
                    stop.set()
                await stream.until(b"0\r\n\r\n")
                assert newest in certificates
                assert len(certificates) >= 8
                async with RawClient(router.address, trust) as client:
                    assert seen(client) == newest
            assert await metric(router.admin_address, "headrace_tls_handshakes_total", outcome="failed") == 0


async def test_a_pair_of_two_rotations_is_told_and_retried(
    tmp_path: Path, authority: Authority, secret: MountedSecret
) -> None:
    async with FakeEngine(answers) as engine:
        table = routing_table({"a": engine.url})
        async with router_in_loop(tmp_path / "t", table, access=files(secret)) as router:
            first, second = authority.issue("127.0.0.1"), authority.issue("127.0.0.1")
            secret.put(tls__crt=first.cert, tls__key=second.key)
            for _ in range(2):
                await router.access.check()
            status, detail = await ready(router.admin_address)
            assert status == 200
            assert "no certificate and its key" in detail["access"]["clientTls"]["error"]
            rejects = "headrace_credential_rejects_total"
            await reads(1, router.admin_address, rejects, what="client_tls")
            assert (await ask(router.address, ASK, tls=authority.client())).status == 200
            secret.put(tls__crt=second.cert, tls__key=second.key)
            await router.access.check()
            _, detail = await ready(router.admin_address)
            assert detail["access"]["clientTls"] == {"error": None}
            async with RawClient(router.address, authority.client()) as client:
                assert ssl.DER_cert_to_PEM_cert(seen(client)).split() == second.cert.decode().split()


async def test_client_certificates(tmp_path: Path, authority: Authority, secret: MountedSecret) -> None:
    clients, others = Authority(), Authority()
    ca = tmp_path / "clients.pem"
    ca.write_bytes(clients.cert)
    async with FakeEngine(answers) as engine:
        table = routing_table({"a": engine.url})
        async with router_in_loop(tmp_path / "t", table, access=files(secret, ca)) as router:
            good = clients.issue("app.example").client(authority)
            assert (await ask(router.address, ASK, tls=good)).status == 200
            for name, context in {
                "none": authority.client(),
                "of another authority": others.issue("app.example").client(authority),
                "expired": clients.issue("app.example", days=-1).client(authority),
            }.items():
                assert await failed(router.address, context), name
            assert len(engine.requests) == 1

            # An authority that is replaced signs for nobody any more.
            ca.write_bytes(others.cert)
            await router.access.check()
            assert await failed(router.address, good)
            assert (await ask(router.address, ASK, tls=others.issue("b").client(authority))).status == 200


async def test_large_bodies_pass_through_tls_on_both_sides(
    tmp_path: Path, authority: Authority, secret: MountedSecret
) -> None:
    """A 2 MiB prompt in, 25 MiB out to a client that reads late: every byte, and no more held than a window."""
    piece = b"data: " + b"x" * 65_530 + b"\n\n"
    sent = 0

    async def script(exchange: Exchange) -> None:
        nonlocal sent
        await exchange.start_sse()
        for _ in range(400):
            await exchange.chunk(piece)
            sent += 1
        await exchange.end_chunks()

    async with FakeEngine(script, tls=authority.issue("127.0.0.1").server()) as engine:
        table = routing_table({"a": engine.url})
        table, access = trusted_engines(table, files(secret), authority, tmp_path / "credentials")
        async with (
            router_in_loop(tmp_path / "t", table, access=access) as router,
            RawClient(router.address, authority.client(), limit=2**16) as client,
        ):
            prompt = json.dumps({"model": "m", "stream": True, "prompt": "p" * 2**21}).encode()
            await client.send(post(prompt))
            await engine.until(lambda: len(engine.requests) == 1)
            await until_still(lambda: sent)
            assert 0 < sent < 400, "nobody reads, and the engine goes on sending"
            pieces = [await client.reader.read(65_536)]
            async with asyncio.timeout(60):
                while not pieces[-1].endswith(b"0\r\n\r\n"):
                    pieces.append(await client.reader.read(65_536))
                    assert pieces[-1], "the connection ended"
            assert dechunked(b"".join(pieces).partition(b"\r\n\r\n")[2]) == piece * 400
            assert engine.requests[0].body == prompt


def dechunked(framed: bytes) -> bytes:
    """The body of whole chunks."""
    body, at = [], 0
    while size := int(framed[at : (end := framed.index(b"\r\n", at))], 16):
        body.append(framed[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
    assert framed[at:] == b"0\r\n\r\n"
    return b"".join(body)


async def until_still(number: Callable[[], int]) -> None:
    """Until a number above 0 has not changed for a while."""
    last, same = -1, 0
    async with asyncio.timeout(60):
        while same < 30:
            await asyncio.sleep(0.02)
            same = same + 1 if number() == last > 0 else 0
            last = number()


async def test_old_versions_are_refused(tmp_path: Path, authority: Authority, secret: MountedSecret) -> None:
    table = routing_table({"a": "http://127.0.0.1:9"})
    async with router_in_loop(tmp_path / "t", table, access=files(secret)) as router:
        old = authority.client()
        old.set_ciphers("ALL:@SECLEVEL=0")
        old.options &= ~ssl.OP_NO_TLSv1_1
        with pytest.warns(DeprecationWarning):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        assert await failed(router.address, old)
        older = authority.client()
        older.maximum_version = ssl.TLSVersion.TLSv1_2
        assert (await ask(router.address, ASK, tls=older)).status == 502


async def test_handshakes_that_never_come_hold_nobody_up(
    tmp_path: Path, authority: Authority, secret: MountedSecret, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_tls, "PATIENCE", 0.05)
    async with FakeEngine(answers) as engine:
        table = routing_table({"a": engine.url})
        async with router_in_loop(tmp_path / "t", table, access=files(secret)) as router:
            ends: list[str] = []
            tls = router.access.tls
            assert tls is not None
            tls.handshakes = Handshakes(ends.append, at_once=2, waiting=6)
            silent = [RawClient(router.address) for _ in range(5)]
            for client in silent:
                await client.__aenter__()
            await until(lambda: len(tls.handshakes) == 5)
            assert (await ask(router.address, ASK, tls=authority.client())).status == 200
            # Where too many wait, the next are turned away at once.
            more = [RawClient(router.address) for _ in range(10)]
            for client in more:
                await client.__aenter__()
            await until(lambda: "refused" in ends)
            for client in [*silent, *more]:
                client.writer.transport.abort()
            await until(lambda: not len(tls.handshakes))
            assert (await ask(router.address, ASK, tls=authority.client())).status == 200
            await until(lambda: not [task for task in asyncio.all_tasks() if task.get_name() == "TLS handshake"])


async def test_a_handshake_has_an_end(
    tmp_path: Path, authority: Authority, secret: MountedSecret, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_tls, "HANDSHAKE", 0.2)
    table = routing_table({"a": "http://127.0.0.1:9"})
    async with (
        router_in_loop(tmp_path / "t", table, access=files(secret)) as router,
        RawClient(router.address) as silent,
    ):
        await silent.send(b"\x16\x03\x01\x02\x00\x01")
        assert await silent.to_end() == b""
        await until_handshakes(router.admin_address, timeout=1)


async def test_the_end_of_a_router_breaks_off_handshakes(
    tmp_path: Path, authority: Authority, secret: MountedSecret
) -> None:
    table = routing_table({"a": "http://127.0.0.1:9"})
    async with contextlib.AsyncExitStack() as stack:
        async with router_in_loop(tmp_path / "t", table, access=files(secret)) as router:
            tls = router.access.tls
            assert tls is not None
            silent = await stack.enter_async_context(RawClient(router.address))
            await until(lambda: len(tls.handshakes) == 1)
        assert len(tls.handshakes) == 0
        assert await silent.to_end() == b""


async def test_who_has_connected_when_the_listener_closes_is_served(
    tmp_path: Path, authority: Authority, secret: MountedSecret, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SHU-01 https://github.com/gajus/http-terminator/issues/22: a handshake under way is a request on its way."""
    monkeypatch.setattr(client_tls, "PATIENCE", 20.0)
    async with FakeEngine(answers) as engine, contextlib.AsyncExitStack() as stack:
        table = routing_table({"a": engine.url})
        async with router_in_loop(tmp_path / "t", table, access=files(secret), grace=20.0) as router:
            tls = router.access.tls
            assert tls is not None
            late = [await stack.enter_async_context(RawClient(router.address)) for _ in range(3)]
            await until(lambda: len(tls.handshakes) == 3)
            stopping = asyncio.create_task(router.stop())
            assert router._server is not None
            await until(lambda: not [each for each in router._server.sockets if each.fileno() >= 0])
            for client in late:
                await client.writer.start_tls(authority.client(), server_hostname="127.0.0.1")
                await client.send(ASK)
                answer = await client.answer()
                assert (answer.status, answer.header("Connection")) == (200, "close")
            await stopping


async def test_a_process_serves_tls_to_its_end(tmp_path: Path, authority: Authority, secret: MountedSecret) -> None:
    """SHU-01 https://github.com/mnfst/llm-gateway/pull/2326, behind TLS: exit 0, no request cut."""
    stop = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.start_sse()
        await exchange.chunk(b"data: {}\n\n")
        await stop.wait()
        await exchange.end_chunks()

    async with FakeEngine(script) as engine:
        path = tmp_path / "table.json"
        path.write_bytes(table_bytes(routing_table({"a": engine.url})))
        flags = ["--tls-cert", str(secret.folder / "tls.crt"), "--tls-key", str(secret.folder / "tls.key")]
        late = ["--drain-delay", "1", "--grace", "20", "--metrics", "127.0.0.1:0"]
        async with router_process("--table", str(path), *flags, *late) as router:
            metrics = (
                next(line for line in router.said if "metrics http" in line).split("metrics ")[1].split(",")[0].strip()
            )
            async with RawClient(router.url, authority.client()) as client:
                await client.send(post({"model": "m", "stream": True}))
                await client.until(b"data: {}")
                newest = rotate(secret, authority)
                await until(lambda: [line for line in router.said if "new TLS certificate" in line], 60)
                async with RawClient(router.url, authority.client()) as other:
                    assert seen(other) == newest
                    await other.send(b"GET /v1/models HTTP/1.1\r\nHost: r\r\n\r\n")
                    assert (await other.answer()).status == 200
                await until_handshakes(metrics, ok=2)
                router.process.send_signal(signal.SIGTERM)
                stop.set()
                await client.until(b"0\r\n\r\n")
                assert await client.to_end() == client.received
            assert await router.exit_code() == 0


async def test_no_certificate_at_the_start_is_an_end_in_words(tmp_path: Path) -> None:
    cert = tmp_path / "tls.crt"
    with pytest.raises(AssertionError, match=r"tls\.crt does not exist; right would be a PEM file"):
        async with router_process("--table", "t.json", "--tls-cert", str(cert), "--tls-key", str(cert)):
            pass

"""What is said of a request elsewhere: who asked for it, and for what, without what must not be told."""

import socket
from pathlib import Path

import pytest

from headrace_router.http1.paths import shown
from support.fake_engine import FakeEngine, answers
from support.raw_client import RawClient, post
from support.router_process import router_in_loop
from support.router_table import routing_table


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/v1/models?key=secret", "/v1/models"),
        ("http://user:secret@host/v1/models?key=secret", "/v1/models"),
        ("HTTPS://secret@host", "/"),
        ("http://host?secret", "/"),
        ("/v1/http://a:b@c", "/v1/http://a:b@c"),
    ],
)
def test_a_path_is_shown_without_authority_and_query(target: str, path: str) -> None:
    assert shown(target) == path


async def test_the_access_log_shows_no_password(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    body = b'{"model":"m"}'
    async with (
        FakeEngine(answers) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url}), access_log=True) as router,
        RawClient(router.address) as client,
    ):
        head = (
            b"POST http://user:secret@host/v1/chat/completions?secret HTTP/1.1\r\nHost: r\r\nContent-Length: %d\r\n\r\n"
        )
        await client.send(head % len(body) + body)
        await client.until(b"completion_tokens")
    logged = capfd.readouterr().out
    assert '"path":"/v1/chat/completions"' in logged
    assert "secret" not in logged


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has one family only")
async def test_an_ipv4_client_has_its_own_address_on_a_listener_of_both_families(tmp_path: Path) -> None:
    """Engines and logs know 127.0.0.1, not ::ffff:127.0.0.1: uvicorn's --forwarded-allow-ips compares the text."""
    async with (
        FakeEngine(answers) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url}), listen=("::", 0)) as router,
    ):
        port = router.address.rpartition(":")[2]
        for host, address in (("127.0.0.1", "127.0.0.1"), ("[::1]", "::1")):
            async with RawClient(f"http://{host}:{port}") as client:
                await client.send(post({"model": "m"}))
                await client.until(b"completion_tokens")
            assert engine.requests[-1].values("X-Forwarded-For") == [address]

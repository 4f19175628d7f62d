"""A token appears in no message, whatever the API server, or what stands in for it, makes of what it was sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace_router.kube.client import ApiFault, KubeApi
from headrace_router.kube.credentials import Credentials
from headrace_router.kube.watch import ObjectMeta, Reflector

# As long as real ones are: longer than what is shown of any message.
TOKEN = "eyJhbGciOiJSUzI1NiJ9." + "c2VjcmV0LXBhcnQ" * 60 + ".c2lnbmF0dXJl"


def _answer(status: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


def _says(text: str) -> bytes:
    return json.dumps({"message": text}).encode()


REPEATS: dict[str, Callable[[str], bytes]] = {
    "in a refusal": lambda sent: _answer(b"403 No", _says(f"no rights for {sent}")),
    "cut in a refusal": lambda sent: _answer(b"403 No", _says(f"no rights for ={sent[:100]}…")),
    "as its status line": lambda sent: sent.encode() + b"\r\n\r\n",
    "as a header": lambda sent: b"HTTP/1.1 200 OK\r\n\x00" + sent.encode() + b"\r\n\r\n",
    "as a length": lambda sent: b"HTTP/1.1 200 OK\r\nContent-Length: " + sent.encode() + b"\r\n\r\n",
    "as a chunk": lambda sent: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + sent.encode() + b"\r\n",
    "elsewhere": lambda sent: b"HTTP/1.1 302 X\r\nLocation: http://127.0.0.1:1/?" + sent.encode() + b"\r\n\r\n",
    "as an error event": lambda sent: _answer(
        b"200 OK", json.dumps({"type": "ERROR", "object": {"code": 500, "message": sent}}).encode() + b"\n"
    ),
}


@pytest.mark.parametrize("how", REPEATS)
async def test_a_token_that_is_repeated_is_not_told(how: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        sent += TOKEN in head
        writer.write(REPEATS[how](next(line for line in head.split("\r\n") if line.startswith("Authorization"))))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    api = KubeApi(Credentials(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", file))
    told: list[ApiFault | None] = []
    reflector = Reflector(
        api,
        "/x",
        {},
        kind=ObjectMeta,
        chance=lambda: 0.0,
        listed=lambda _: None,
        changed=lambda _, __: None,
        told=told.append,
    )
    reflector._version = "1"  # a watch is asked for, no list before
    reflector._list_due = float("inf")
    try:
        try:
            await reflector._watch()
        except ApiFault as fault:
            told.append(fault)
        faults = [fault for fault in told if fault is not None]
        assert sent >= 1
        assert len(faults) == 1
        shown = faults[0].reason
        assert not any(TOKEN[at : at + 16] in shown for at in range(len(TOKEN) - 15)), shown
    finally:
        await api.close()
        server.close()
        await server.wait_closed()

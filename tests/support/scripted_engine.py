"""An engine that answers each request by the script that its ``x-script`` header numbers, byte for byte.

It keeps what it was sent as it came. An answer is pieces, each written in a loop turn of its own, and whether the
connection is closed behind them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_SCRIPT = re.compile(rb"\r\nx-script: (\d+)\r\n", re.IGNORECASE)
_LENGTH = re.compile(rb"\r\nContent-Length: (\d+)\r\n")
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@dataclass(frozen=True)
class Says:
    """An answer on the wire."""

    pieces: tuple[bytes, ...]
    close: bool = False


@dataclass
class ScriptedEngine:
    """See the module. ``requests``: head and body of each, in the order of their arrival."""

    scripts: Sequence[Says] = ()
    requests: list[bytes] = field(default_factory=list)
    url: str = ""
    _server: asyncio.Server | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()


class _Connection(asyncio.Protocol):
    def __init__(self, engine: ScriptedEngine) -> None:
        self._engine = engine
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n") + 4) > 3:
            length = _LENGTH.search(self._data[:end])
            whole = end + (int(length[1]) if length else 0)
            if len(self._data) < whole:
                return
            request, self._data = self._data[:whole], self._data[whole:]
            self._answer(request, end)

    def _answer(self, request: bytes, end: int) -> None:
        if request.startswith(b"GET /health "):
            self._transport.write(_OK)  # type: ignore[attr-defined]
            return
        self._engine.requests.append(request)
        number = _SCRIPT.search(request[:end])
        says = self._engine.scripts[int(number[1])] if number else Says((_OK,))
        self._say(list(says.pieces), says.close)

    def _say(self, pieces: list[bytes], close: bool) -> None:
        if pieces:
            self._transport.write(pieces.pop(0))  # type: ignore[attr-defined]
            asyncio.get_running_loop().call_soon(self._say, pieces, close)
        elif close:
            self._transport.close()

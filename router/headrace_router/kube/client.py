"""Asks the API server: a GET whose answer is bounded, and a watch line by line. Nothing more is ever needed here.

Beside the routing-weight path. aiohttp, which the router has anyway, instead of a Kubernetes client. Every wait has an
end and every answer a size; redirects are not followed (they would carry the token elsewhere). Faults come as one
exception whose text never holds a token, whatever the server answers.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from enum import Enum
from http import HTTPStatus
from typing import Final

import aiohttp
import msgspec

from headrace_router.kube.credentials import Credentials, NoCredentials

CONNECT: Final = 5.0
# Until an answer's head, and for the whole of a plain answer.
HEAD: Final = 10.0
WHOLE: Final = 60.0
# etcd takes 1.5 MB an object; escaped in JSON, with its bookkeeping, some more.
MAX_LINE: Final = 8 * 2**20
_MAX_FAULT: Final = 4_096
_SHOWN: Final = 240
# So many signs of a token in a row give part of it away: a server may repeat one cut.
_PART: Final = 16
_SIGNS: Final = re.compile(rf"[A-Za-z0-9._~+/=-]{{{_PART},}}")


class FaultKind(Enum):
    """What a fault means. REFUSED: asking again changes nothing until somebody grants it."""

    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    GONE = "gone"
    BROKEN = "broken"


class ApiFault(Exception):
    """The API server didn't give what was asked for; the text is one line."""

    def __init__(self, kind: FaultKind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


class _Status(msgspec.Struct):
    message: str = ""


class KubeApi:
    """One API server. To be used inside a running loop."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._session: aiohttp.ClientSession | None = None
        self._ca = b""
        self._token = ""
        self._lock = asyncio.Lock()

    async def get(self, path: str, query: Mapping[str, str], most: int) -> bytes:
        """The whole answer, at most ``most`` bytes.

        Raises:
            ApiFault: there is none.
        """
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(WHOLE), aclosing(self._pieces(path, query)) as answer:
                async for piece in answer:
                    pieces.append(piece)
                    if (size := size + len(piece)) > most:
                        raise ApiFault(FaultKind.BROKEN, f"{path} has over {most} bytes")
        except TimeoutError as error:
            raise ApiFault(FaultKind.UNREACHABLE, f"{path} did not come whole within {WHOLE:.0f} s") from error
        return b"".join(pieces)

    async def lines(self, path: str, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """An empty line once the server begins to answer, then lines that aren't empty as they come.

        A line that the connection's end cuts off is dropped. Close it after use.

        Raises:
            ApiFault: the answer is none, breaks off, or has a line of over MAX_LINE bytes.
        """
        begun: list[bytes] = []
        size = 0
        async with aclosing(self._pieces(path, query)) as answer:
            async for piece in answer:
                if not piece:
                    yield b""
                    continue
                *ended, rest = piece.split(b"\n")
                for part in ended:
                    line = b"".join((*begun, part))
                    begun, size = [], 0
                    if line.strip():
                        yield line
                if rest:
                    begun.append(rest)
                    if (size := size + len(rest)) > MAX_LINE:
                        raise ApiFault(FaultKind.BROKEN, f"{path} has a line of over {MAX_LINE} bytes")

    def shown(self, text: str) -> str:
        """Text from this server for a message: one line, without the token or parts of it."""
        token, text = self._token, text[:_MAX_FAULT]
        if not token:
            return one_line(text)

        def without(found: re.Match[str]) -> str:
            signs = found[0]
            told = any(signs[at : at + _PART] in token for at in range(len(signs) - _PART + 1))
            return "[token]" if told else signs

        return one_line(_SIGNS.sub(without, text.replace(token, "[token]")))

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _pieces(self, path: str, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        response = await self._answer(path, query)
        try:
            yield b""
            while piece := await response.content.readany():
                yield piece
        except (aiohttp.ClientError, OSError) as error:
            raise ApiFault(FaultKind.UNREACHABLE, f"{path} broke off: {self._text(error)}") from error
        finally:
            response.close()

    async def _answer(self, path: str, query: Mapping[str, str]) -> aiohttp.ClientResponse:
        try:
            response = await self._ask(path, query)
            if response.status == HTTPStatus.UNAUTHORIZED:
                response.close()
                # The token may have been replaced between the read and the answer.
                response = await self._ask(path, query)
        except NoCredentials as error:
            raise ApiFault(FaultKind.REFUSED, str(error)) from error
        if response.status != HTTPStatus.OK:
            try:
                raise await self._refusal(path, response)
            finally:
                response.close()
        return response

    async def _ask(self, path: str, query: Mapping[str, str]) -> aiohttp.ClientResponse:
        self._token = token = await asyncio.to_thread(self._credentials.read_token)
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "headrace-router"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        session = await self._connected()
        try:
            async with asyncio.timeout(HEAD):
                return await session.get(
                    self._credentials.url + path, params=query, headers=headers, allow_redirects=False
                )
        except TimeoutError as error:
            raise ApiFault(FaultKind.UNREACHABLE, f"the API server did not answer within {HEAD:.0f} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ApiFault(FaultKind.UNREACHABLE, f"the API server can't be reached: {self._text(error)}") from error

    async def _connected(self) -> aiohttp.ClientSession:
        """A session that trusts what the authority's file holds now."""
        async with self._lock:
            ca = await asyncio.to_thread(self._credentials.read_ca)
            if self._session is None or ca != self._ca:
                context = await asyncio.to_thread(self._credentials.context, ca)
                await self.close()
                self._ca = ca
                self._session = aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(limit=0, ssl=context if context is not None else True),
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT),
                    cookie_jar=aiohttp.DummyCookieJar(),
                    auto_decompress=False,
                )
            return self._session

    async def _refusal(self, path: str, response: aiohttp.ClientResponse) -> ApiFault:
        """The fault that an answer other than 200 is, in the server's words where it has any."""
        said = ""
        try:
            async with asyncio.timeout(HEAD):
                body = await response.content.read(_MAX_FAULT)
            said = msgspec.json.decode(body, type=_Status).message
        except (TimeoutError, aiohttp.ClientError, OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # the status alone says enough
        text = f"{path}: {response.status}{' ' if said else ''}{self.shown(said)}"
        if response.status == HTTPStatus.GONE:
            return ApiFault(FaultKind.GONE, text)
        if response.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
            return ApiFault(FaultKind.REFUSED, text)
        return ApiFault(FaultKind.UNREACHABLE, text)

    def _text(self, error: Exception) -> str:
        """What went wrong: aiohttp's words on broken HTTP repeat bytes of the answer."""
        return self.shown(str(error)) or type(error).__name__


def one_line(text: str) -> str:
    """Text from a server, for a message."""
    return "".join(sign if sign.isprintable() else " " for sign in " ".join(text.split()))[:_SHOWN]

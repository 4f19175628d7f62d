"""TLS towards clients: a certificate that changes while the router runs, and handshakes that hold nothing up.

On the path of new connections, not of requests. Every handshake uses the newest certificate; connections that are open
keep theirs. A pair that can't be used (half written, of two rotations) leaves the last good one in force. Handshakes
are bounded in time and number: who makes none has his place taken by who waits. Must never accept a plain connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Final

from headrace_router.listener.accepting import Accepting
from headrace_router.mounted import Reread, Unusable, read_file
from headrace_router.upstream.trust import add_authorities, reason_of

log = logging.getLogger("headrace.router")

MAX_FILE: Final = 2**20
# Seconds from a connection's acceptance to the end of its handshake.
HANDSHAKE: Final = 10.0
# Seconds that a client has to answer our end of a connection.
SHUTDOWN: Final = 5.0
# Handshakes at once, and connections that wait for one.
AT_ONCE: Final = 512
WAITING: Final = 8192
# Seconds after which a handshake loses its place to one that waits: two round trips around the world.
PATIENCE: Final = 1.0

Factory = Callable[[], asyncio.BaseProtocol]


class Handshakes:
    """Which connections may shake hands now. To be used inside a running loop. counted: told how each one ended."""

    def __init__(self, counted: Callable[[str], None], *, at_once: int = AT_ONCE, waiting: int = WAITING) -> None:
        self._counted = counted
        self._at_once = at_once
        self._most = waiting
        self._running: dict[_Handshake, float] = {}
        self._waiting: deque[_Handshake] = deque()
        self._look: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._running) + len(self._waiting)

    def protocols(self) -> Iterator[object]:
        """Of those that have one by now."""
        return (handshake.protocol for handshake in self._running if handshake.protocol is not None)

    def hopeful(self) -> bool:
        """Whether one goes on that nobody would take its place from yet."""
        now = asyncio.get_running_loop().time()
        return any(now - since < PATIENCE for since in self._running.values())

    def arrived(self, handshake: _Handshake) -> None:
        """A connection was accepted."""
        if len(self._running) < self._at_once:
            self._begin(handshake)
        elif len(self._waiting) < self._most:
            self._waiting.append(handshake)
            if self._look is None:
                self._displace()
        else:
            self._turn_away(handshake, "refused")

    def ended(self, handshake: _Handshake, how: str) -> None:
        """A handshake ended: ok, failed, timeout or gone."""
        del self._running[handshake]
        self._counted(how)
        while self._waiting and len(self._running) < self._at_once:
            self._begin(self._waiting.popleft())

    async def close(self) -> None:
        """End all."""
        if self._look is not None:
            self._look.cancel()
        while self._waiting:
            self._turn_away(self._waiting.popleft(), "refused")
        tasks = [handshake.task for handshake in self._running]
        for handshake in self._running:
            handshake.break_off()
        await asyncio.gather(*tasks)

    def _begin(self, handshake: _Handshake) -> None:
        now = asyncio.get_running_loop().time()
        left = handshake.accepted + HANDSHAKE - now
        if left <= 0:
            self._turn_away(handshake, "timeout")
            return
        self._running[handshake] = now
        handshake.begin(self, left)

    def _turn_away(self, handshake: _Handshake, how: str) -> None:
        handshake.socket.close()
        self._counted(how)

    def _displace(self) -> None:
        """While somebody waits, the slowest lose their places."""
        loop = asyncio.get_running_loop()
        self._look = None
        slow = [handshake for handshake, since in self._running.items() if loop.time() - since >= PATIENCE]
        for handshake in slow[: len(self._waiting)]:
            handshake.break_off()
        if self._waiting:
            self._look = loop.call_later(PATIENCE / 4, self._displace)


class _Handshake:
    """One connection until TLS is agreed on."""

    def __init__(self, made: socket.socket, context: Callable[[], ssl.SSLContext], factory: Factory) -> None:
        self.socket = made
        self.accepted = asyncio.get_running_loop().time()
        self.task: asyncio.Task[None]
        self.protocol: asyncio.BaseProtocol | None = None
        self._context = context
        self._factory = factory

    def begin(self, handshakes: Handshakes, seconds: float) -> None:
        """Shake hands, for so long at most."""
        self.task = asyncio.get_running_loop().create_task(self._run(handshakes, seconds), name="TLS handshake")

    def _protocol(self) -> asyncio.BaseProtocol:
        self.protocol = self._factory()
        return self.protocol

    def break_off(self) -> None:
        """End it now; to the task it looks as if the client had left."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    async def _run(self, handshakes: Handshakes, seconds: float) -> None:
        how = "failed"
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol,
                self.socket,
                ssl=self._context(),
                ssl_handshake_timeout=seconds,
                ssl_shutdown_timeout=SHUTDOWN,
            )
            how = "ok"
        except ssl.SSLError as error:
            log.debug("TLS handshake: %s", reason_of(error))
        except ConnectionAbortedError:
            how = "timeout"
        except OSError:
            how = "gone"
        finally:
            handshakes.ended(self, how)


class TlsServer(Accepting):
    """Accepts connections and hands those that agree on TLS to the listener's protocols.

    asyncio's own server keeps one context for as long as it listens; every connection here gets the newest. leave:
    as Accepting's ``_leaves``: whether one is left to other processes for a moment.
    """

    at_once: ClassVar[int] = 128

    def __init__(
        self,
        tls: ClientTls,
        factory: Factory,
        sockets: Sequence[socket.socket],
        leave: Callable[[float | None, bool], bool] = lambda *_: False,
    ) -> None:
        super().__init__(sockets)
        self._leave = leave
        self._tls = tls
        self._factory = factory

    def close(self) -> None:
        """Stop listening; what has connected by now goes on."""
        if not self._closed:
            for each in self.sockets:
                self._accept(each, leave=False)
        super().close()

    def _leaves(self, since: float | None, *, able: bool = True) -> bool:
        return self._leave(since, able)

    def _arrived(self, made: socket.socket) -> None:
        self._tls.handshakes.arrived(_Handshake(made, self._tls.newest, self._factory))


class ClientTls(Reread[tuple[bytes, ...]]):
    """Certificate, key and perhaps the authority of clients' certificates, as their files have them.

    ``check`` runs in a thread, one at a time, once before anything else. counted: told how handshakes end.
    """

    def __init__(self, cert: Path, key: Path, client_ca: Path | None, counted: Callable[[str], None]) -> None:
        super().__init__()
        self._files = [cert, key, *([client_ca] if client_ca is not None else [])]
        self._used: tuple[bytes, ...] | None = None
        self.handshakes = Handshakes(counted)
        self.context: ssl.SSLContext

    def newest(self) -> ssl.SSLContext:
        """What a handshake that begins now uses."""
        return self.context

    def _take(self, raw: tuple[bytes, ...]) -> bool:
        context = self._context(*raw)
        if raw == self._used:
            return False
        self.context, self._used = context, raw
        return True

    def _read(self) -> tuple[bytes, ...]:
        found = []
        for file in self._files:
            content = read_file(file, MAX_FILE)
            if content is None:
                raise Unusable(f"{file} does not exist; right would be a PEM file")
            found.append(content)
        return tuple(found)

    def _context(self, cert: bytes, key: bytes, client_ca: bytes | None = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        context.set_alpn_protocols(["http/1.1"])
        try:
            # What was read, not what may stand in the files by now.
            with _as_file(cert) as certificate, _as_file(key) as private:
                context.load_cert_chain(certificate, private, password=lambda: "")
        except (ssl.SSLError, ValueError, OSError) as error:
            why = reason_of(error)
            raise Unusable(
                f"{self._files[0]} and {self._files[1]} are no certificate and its key: {why}; "
                "right would be a PEM chain, the server's certificate first, and its key without a passphrase"
            ) from None
        if client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                add_authorities(context, client_ca)
            except ValueError as error:
                raise Unusable(f"{self._files[2]} {error}") from None
        return context


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A path under which OpenSSL finds these bytes; nothing is written to a disk."""
    made = os.memfd_create("headrace", os.MFD_CLOEXEC)
    try:
        os.write(made, content)
        yield f"/proc/self/fd/{made}"
    finally:
        os.close(made)

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
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from headrace_router.mounted import Unusable, read_file, settled
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
        self._running: dict[_Gate, float] = {}
        self._waiting: deque[_Gate] = deque()
        self._look: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._running) + len(self._waiting)

    def arrived(self, gate: _Gate) -> None:
        """A connection was accepted."""
        if len(self._running) < self._at_once:
            self._begin(gate)
        elif len(self._waiting) < self._most:
            self._waiting.append(gate)
            if self._look is None:
                self._displace()
        else:
            gate.abort()
            self._counted("refused")

    def ended(self, gate: _Gate, how: str) -> None:
        """A handshake ended."""
        del self._running[gate]
        self._counted(how)
        while self._waiting and len(self._running) < self._at_once:
            self._begin(self._waiting.popleft())

    def close(self) -> None:
        """End all."""
        if self._look is not None:
            self._look.cancel()
        while self._waiting:
            self._waiting.popleft().abort()
        for gate in list(self._running):
            gate.abort()

    def _begin(self, gate: _Gate) -> None:
        now = asyncio.get_running_loop().time()
        left = gate.accepted + HANDSHAKE - now
        if left <= 0:
            gate.abort()
            self._counted("timeout")
            return
        self._running[gate] = now
        gate.begin(left)

    def _displace(self) -> None:
        """While somebody waits, the slowest lose their places."""
        loop = asyncio.get_running_loop()
        self._look = None
        slow = [gate for gate, since in self._running.items() if loop.time() - since >= PATIENCE]
        for gate in slow[: len(self._waiting)]:
            gate.abort()
        if self._waiting:
            self._look = loop.call_later(PATIENCE / 4, self._displace)


class _Gate(asyncio.Protocol):
    """One connection until its handshake has ended; then the listener's protocol takes its place."""

    def __init__(self, tls: ClientTls, factory: Factory) -> None:
        self._tls = tls
        self._factory = factory
        self._early: list[bytes] = []
        self._transport: asyncio.Transport
        self._task: asyncio.Task[None] | None = None
        self._over = False
        self.accepted = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.accepted = asyncio.get_running_loop().time()
        # Nothing is read but by TLS.
        transport.pause_reading()
        self._tls.handshakes.arrived(self)

    def begin(self, seconds: float) -> None:
        """Shake hands, for so long at most."""
        self._task = asyncio.get_running_loop().create_task(self._shake(seconds), name="TLS handshake")

    def abort(self) -> None:
        """Close the connection now."""
        self._transport.abort()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        """What came with the last bytes of the handshake."""
        self._early.append(data)

    def eof_received(self) -> None:
        self._over = True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._over = True

    async def _shake(self, seconds: float) -> None:
        how = "failed"
        try:
            transport = await asyncio.get_running_loop().start_tls(
                self._transport,
                self,
                self._tls.context,
                server_side=True,
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
            self._tls.handshakes.ended(self, how)
            if how != "ok":
                self._transport.abort()
        if how == "ok" and transport is not None:
            self._hand_over(transport)

    def _hand_over(self, transport: asyncio.Transport) -> None:
        if self._over:
            transport.abort()
            return
        protocol = self._factory()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._early and isinstance(protocol, asyncio.Protocol):
            protocol.data_received(b"".join(self._early))


class ClientTls:
    """Certificate, key and perhaps the authority of clients' certificates, as their files have them.

    ``check`` runs in a thread, one at a time, once before anything else. counted: told how handshakes end.
    """

    def __init__(self, cert: Path, key: Path, client_ca: Path | None, counted: Callable[[str], None]) -> None:
        self._files = (cert, key) if client_ca is None else (cert, key, client_ca)
        self._raw: tuple[bytes, ...] | None = None
        self._used: tuple[bytes, ...] | None = None
        self.handshakes = Handshakes(counted)
        self.error: str | None = None
        self.context: ssl.SSLContext

    def in_front_of(self, factory: Factory) -> Factory:
        """A protocol factory whose connections are ``factory``'s once TLS is agreed on."""
        return lambda: _Gate(self, factory)

    def check(self) -> bool:
        """Read the files; blocks. Returns whether another certificate is in use than before.

        Raises:
            Unusable: what stands there now is no use, and this is new; the last good pair stays.
        """
        try:
            raw = settled(self._read)
            if raw == self._raw and self.error is None:
                return False
            context = self._context(*raw)
        except Unusable as error:
            self._raw = None
            if self.error == str(error):
                return False
            self.error = str(error)
            raise
        self.error = None
        self._raw = raw
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

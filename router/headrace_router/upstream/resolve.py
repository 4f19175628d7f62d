"""Names to addresses, by the system's resolver, in threads that nothing waits for at the end.

Beside the request path. A resolver that hangs holds one of a few places, not the loop, not the executor that tables
are read in, and not the end of the process. Must not keep answers: whoever asks decides how long one is good for.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from headrace_api.urls import is_anybodys

RESOLV_CONF: Final = Path("/etc/resolv.conf")
AT_ONCE: Final = 8
LIMIT: Final = 5.0

Found = list[str]
LookUp = Callable[[str], Found]


class NotFound(Exception):
    """The resolver says that there is no such name, or that it has no address."""


class Unresolved(Exception):
    """The resolver said nothing that could be believed."""


def look_up(host: str) -> Found:
    """Addresses of a name, sorted; blocks.

    Raises:
        NotFound, Unresolved: see there.
    """
    try:
        found = socket.getaddrinfo(_whole(host), None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        none = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}
        kind = NotFound if error.errno in none else Unresolved
        raise kind(f"{host}: {error.strerror or error}") from error
    except OSError as error:
        raise Unresolved(f"{host}: {error}") from error
    except UnicodeError as error:
        raise Unresolved(f"{host} is no name that can be looked up") from error
    return usable(host, {str(each[4][0]) for each in found})


def usable(host: str, addresses: Iterable[str]) -> Found:
    """Sorted, without those that no engine has: a name may be made to say anything, and it never leads to what is
    link-local (see is_anybodys).

    Raises:
        Unresolved: none is left.
    """
    kept = sorted(address for address in addresses if not is_anybodys(address))
    if not kept:
        raise Unresolved(f"{host}: has no address that an engine can have")
    return kept


def _whole(host: str) -> str:
    """A Service's name with the cluster's domain, where the machine's search list tells it: once the Service is gone,
    a relative name would be looked up in the list's other domains, too, and one may answer for every name."""
    if not host.endswith(".svc"):
        return host
    try:
        lines = RESOLV_CONF.read_text(errors="replace").splitlines()
    except OSError:
        return host
    search = next((words[1:] for line in reversed(lines) if (words := line.split()) and words[0] == "search"), [])
    domain = next((each.removeprefix("svc.").rstrip(".") for each in search if each.startswith("svc.")), "")
    return f"{host}.{domain}." if domain else host


class Resolver:
    """Looks names up, few at once. To be made inside a running loop."""

    def __init__(self, look: LookUp = look_up) -> None:
        self._look = look
        self._places = asyncio.Semaphore(AT_ONCE)

    async def addresses(self, host: str) -> Found:
        """Addresses of a name.

        Raises:
            NotFound, Unresolved: see there; a resolver that takes over LIMIT seconds is Unresolved.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Found | Exception] = loop.create_future()

        def give(found: Found | Exception) -> None:
            self._places.release()
            if not answer.done():
                answer.set_result(found)

        def work() -> None:
            found: Found | Exception
            try:
                found = self._look(host)
            except (NotFound, Unresolved) as error:
                found = error
            # The loop may have ended meanwhile.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(give, found)

        await self._places.acquire()
        try:
            threading.Thread(target=work, name="resolver", daemon=True).start()
        except RuntimeError as error:
            self._places.release()
            raise Unresolved(f"{host}: {error}") from error
        try:
            async with asyncio.timeout(LIMIT):
                found = await answer
        except TimeoutError as error:
            raise Unresolved(f"{host}: no answer within {LIMIT:.0f} s") from error
        if isinstance(found, Exception):
            raise found
        return found

"""Who is believed, on both sides: clients' TLS and keys, engines' keys and authorities, followed as their files change.

Beside every path. Reads all files in a thread, before the first request and every few seconds from then on; what is
wrong stands in readiness detail, in the log once, and is counted. Must not log a key, nor let requests wait for files.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from headrace_api.commands import EnvironmentFailed
from headrace_router.core.view import TableView
from headrace_router.listener.keys import ClientKeys
from headrace_router.listener.tls import ClientTls
from headrace_router.mounted import Unusable
from headrace_router.server.access_files import AccessFiles
from headrace_router.upstream.credentials import EngineCredentials, Reference, ca_of

log = logging.getLogger("headrace.router")

# The kubelet is up to a minute behind; people who edit a file look at once.
EVERY: Final = 2.0


class Access:
    """See above.

    Args:
        files: what to read.
        handshake: told how each of clients' handshakes ended.
        rejected: told of each content that was refused: client_tls, client_keys or engine.
        usable: told of engines that can't be used, with each table, and of those that can be again.
        renewed: told of engines whose connections were made with another authority's word.
    """

    def __init__(
        self,
        files: AccessFiles,
        *,
        handshake: Callable[[str], None],
        rejected: Callable[[str], None],
        usable: Callable[[str, bool], None],
        renewed: Callable[[str], None],
    ) -> None:
        self.tls = ClientTls(*files.tls, files.client_ca, handshake) if files.tls is not None else None
        self.keys = ClientKeys(files.keys) if files.keys is not None else None
        self.engines = EngineCredentials(files.credentials)
        self._rejected = rejected
        self._usable = usable
        self._renewed = renewed
        self._view: TableView | None = None
        self._told: dict[str, str] = {}

    async def start(self) -> None:
        """Read everything once.

        Raises:
            EnvironmentFailed: there is no certificate to begin with. Without keys the router starts and refuses.
        """
        if self.tls is not None:
            try:
                await asyncio.to_thread(self.tls.check)
            except Unusable as error:
                raise EnvironmentFailed(str(error)) from error
        await self.check()

    async def follow(self) -> None:
        """Read again and again, until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            await self.check()

    async def check(self) -> None:
        """Read everything now."""
        if self.tls is not None:
            await self._read("client_tls", self.tls.check, "a new TLS certificate is in use for clients")
        if self.keys is not None:
            await self._read("client_keys", self.keys.check, f"API keys of {self.keys.path} are in use")
        if self.engines.folder is not None:
            checked = await asyncio.to_thread(self.engines.check)
            for error in checked.refused:
                self._refused("engine", error)
            self._changed(checked.changed)

    def follow_engines(self, view: TableView) -> None:
        """Called with each new view, in the loop."""
        self._view = view
        self.engines.follow(engine.config for engine in view.engines.values())
        self._look(view.engines)

    def endpoints_changed(self) -> None:
        """Called when engines' addresses changed without a table: new ones count as ready."""
        for name in self._told:
            self._usable(name, False)

    def connecting(self) -> bool:
        """Whether a client has just connected and will be heard when TLS is agreed on."""
        return self.tls is not None and self.tls.handshakes.hopeful()

    def detail(self) -> dict[str, object]:
        """For readiness detail."""
        return {
            "clientTls": None if self.tls is None else {"error": self.tls.error},
            "clientKeys": None if self.keys is None else {"keys": len(self.keys), "error": self.keys.error},
            "engines": self.engines.errors()[:20],
        }

    async def _read(self, what: str, check: Callable[[], bool], news: str) -> None:
        try:
            if await asyncio.to_thread(check):
                log.info("%s", news)
        except Unusable as error:
            self._refused(what, str(error))

    def _refused(self, what: str, error: str) -> None:
        self._rejected(what)
        log.warning("%s; what was in use before stays", error)

    def _changed(self, changed: frozenset[Reference]) -> None:
        if not changed or self._view is None:
            return
        engines = self._view.engines
        for name, engine in engines.items():
            # Those that are open were made with another one's word.
            if ca_of(engine.config) in changed:
                self._renewed(name)
        self._look(engines)

    def _look(self, engines: Iterable[str]) -> None:
        """Tell of engines that lack something, and say it once in the log."""
        assert self._view is not None
        found: dict[str, str] = {}
        if not self.engines.complete():
            known = self._view.engines
            found = {name: why for name in engines if (why := self.engines.lacking(known[name].config)) is not None}
        for name, why in found.items():
            self._usable(name, False)
            if self._told.get(name) != why:
                log.warning("engine %s can't be used: %s", name, why)
        for name in self._told.keys() - found.keys():
            log.info("engine %s: what it names is there", name)
            self._usable(name, True)
        self._told = found

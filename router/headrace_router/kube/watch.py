"""List and watch: everything of one kind that a selector names, as it is and as it changes.

Beside the routing-weight path. A watch resumes at the last version it saw; what the server no longer knows (410, also
as an ERROR event within a 200), a broken event, or five minutes' time lead to a new list, because a watch can go
silent without an error. Each watch has an end that the server is told, and a little later one of our own, so that a
hung one is noticed. Must not ask in bursts: every repetition waits, longer each time and by chance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Final, Generic, TypeVar

import msgspec

from headrace_router.kube.client import ApiFault, FaultKind, KubeApi

T = TypeVar("T")

# Seconds. A right that is taken away is only noticed when a watch begins anew.
WATCH: Final = 60.0
OVERDUE: Final = 10.0
RELIST: Final = 300.0
FIRST_WAIT: Final = 0.1
LONGEST_WAIT: Final = 10.0
# A watch that ended sooner than this says nothing good of the server.
BRIEF: Final = 1.0
# So many of them in a row, and lists must do: what is between can't hold a watch.
RELIST_AFTER: Final = 3
PAGE: Final = 500
MAX_PAGE: Final = 32 * 2**20
MAX_PAGES: Final = 100


class ObjectMeta(msgspec.Struct):
    """What every object has."""

    name: str = ""
    namespace: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _ListMeta(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion")
    more: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Versioned(msgspec.Struct):
    metadata: ObjectMeta


class _Error(msgspec.Struct):
    code: int = 0
    message: str = ""


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_PAGE: Final = msgspec.json.Decoder(_Page)
_EVENT: Final = msgspec.json.Decoder(_Event)
_VERSIONED: Final = msgspec.json.Decoder(_Versioned)
_ERROR: Final = msgspec.json.Decoder(_Error)


class Reflector(Generic[T]):
    """Follows one selection until cancelled.

    Args:
        api: the server.
        path: of the collection.
        query: the selector.
        kind: objects are decoded as this.
        chance: numbers from 0 to 1.
        listed: called with all objects there are, first and now and then.
        changed: called with ADDED, MODIFIED or DELETED and the object.
        told: called with each fault that matters, and with None whenever a watch begins.
    """

    def __init__(
        self,
        api: KubeApi,
        path: str,
        query: Mapping[str, str],
        *,
        kind: type[T],
        chance: Callable[[], float],
        listed: Callable[[list[T]], None],
        changed: Callable[[str, T], None],
        told: Callable[[ApiFault | None], None],
    ) -> None:
        self._api = api
        self._path = path
        self._query = dict(query)
        self._decoder = msgspec.json.Decoder(kind)
        self._chance = chance
        self._listed = listed
        self._changed = changed
        self._told = told
        self._version = ""
        self._list_due = 0.0
        self._failures = 0

    async def run(self) -> None:
        """Follow until cancelled; never raises for what a server does."""
        loop = asyncio.get_running_loop()
        brief = 0
        while True:
            began = loop.time()
            try:
                if not self._version or began >= self._list_due:
                    await self._list()
                    self._list_due = loop.time() + RELIST * self._spread(0.8)
                await self._watch()
            except ApiFault as fault:
                self._failed(fault)
            brief = brief + 1 if loop.time() - began < BRIEF else 0
            if brief >= RELIST_AFTER:
                self._version = ""
            await asyncio.sleep(min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(brief, 30)) * self._spread(0.5))

    def _failed(self, fault: ApiFault) -> None:
        self._failures += 1
        # That a connection breaks off, or a version is too old, is daily life; that it does so again is not.
        daily = fault.kind is FaultKind.GONE or (fault.kind is FaultKind.UNREACHABLE and self._version)
        if not daily or self._failures > 1:
            self._told(fault)
        if fault.kind is not FaultKind.UNREACHABLE:
            self._version = ""

    def _accepted(self) -> None:
        self._failures = 0
        self._told(None)

    def _spread(self, least: float) -> float:
        return least + (1.0 - least) * self._chance()

    async def _list(self) -> None:
        found: list[T] = []
        query = self._query | {"limit": str(PAGE)}
        for _ in range(MAX_PAGES):
            raw = await self._api.get(self._path, query, MAX_PAGE)
            page, items = await asyncio.to_thread(self._page, raw)
            found += items
            if not page.metadata.more:
                if not page.metadata.resource_version:
                    raise ApiFault(FaultKind.BROKEN, f"{self._path} states no resourceVersion")
                self._version = page.metadata.resource_version
                self._listed(found)
                return
            query["continue"] = page.metadata.more
        raise ApiFault(FaultKind.BROKEN, f"{self._path} has over {MAX_PAGES} pages of {PAGE}")

    def _page(self, raw: bytes) -> tuple[_Page, list[T]]:
        try:
            page = _PAGE.decode(raw)
            return page, [self._decoder.decode(item) for item in page.items or ()]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ApiFault(FaultKind.BROKEN, f"{self._path} can't be read: {self._api.shown(str(error))}") from error

    async def _watch(self) -> None:
        """Until the server ends it."""
        seconds = round(WATCH * self._spread(0.8))
        query = self._query | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(seconds),
        }
        try:
            async with (
                asyncio.timeout(seconds + OVERDUE),
                aclosing(self._api.lines(self._path, query)) as lines,
            ):
                async for line in lines:
                    if line:
                        self._take(line)
                    else:
                        self._accepted()
        except TimeoutError as error:
            raise ApiFault(FaultKind.UNREACHABLE, f"a watch of {self._path} hung") from error

    def _take(self, line: bytes) -> None:
        try:
            event = _EVENT.decode(line)
            if event.type == "ERROR":
                raise self._fault(_ERROR.decode(event.object))
            version = _VERSIONED.decode(event.object).metadata.resource_version
            if event.type in ("ADDED", "MODIFIED", "DELETED"):
                self._changed(event.type, self._decoder.decode(event.object))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            reason = f"an event of {self._path} can't be read: {self._api.shown(str(error))}"
            raise ApiFault(FaultKind.BROKEN, reason) from error
        if version:
            self._version = version

    def _fault(self, error: _Error) -> ApiFault:
        kind = FaultKind.GONE if error.code == HTTPStatus.GONE else FaultKind.BROKEN
        return ApiFault(kind, f"{self._path}: {error.code} {self._api.shown(error.message)}")

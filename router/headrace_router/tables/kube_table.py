"""A table's ConfigMap, watched through the API server; while that can't be had, the same one as a mounted file.

On the routing-weight path. What was read stays whatever happens to the ConfigMap or the API server. The mounted file
is up to a minute behind: what stood there when the watch was lost says nothing new, only what comes after does; without
any table yet, whatever stands there does. Must not judge tables: tables.py does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from headrace_api.table import TABLE_KEY
from headrace_router.kube.client import ApiFault, KubeApi
from headrace_router.kube.watch import ObjectMeta, Reflector
from headrace_router.tables.table_file import FileSource
from headrace_router.tables.table_source import Content, Missing, Read, Same, Unreadable

log = logging.getLogger("headrace.router")


class ConfigMap(msgspec.Struct):
    """What of a ConfigMap matters here."""

    metadata: ObjectMeta
    data: dict[str, str] | None = None


class ConfigMapSource:
    """One ConfigMap as a TableSource.

    Args:
        api: the server; None: there is none to ask, and ``trouble`` says why.
        namespace, name: the ConfigMap's.
        fallback: the mounted file, if there is one.
        trouble: what is wrong from the beginning.
        chance: numbers from 0 to 1.
    """

    whole = True

    def __init__(
        self,
        api: KubeApi | None,
        namespace: str,
        name: str,
        fallback: FileSource | None,
        *,
        chance: Callable[[], float],
        trouble: str | None = None,
    ) -> None:
        self.name = self.label = f"{namespace}/{name}"
        self.way = "watch" if api is not None else "file"
        self.trouble = trouble
        self.folders = fallback.folders if fallback is not None and api is None else ()
        self.namespace = namespace
        self._object = (namespace, name)
        self._fallback = fallback
        self._news: Read | None = None
        self._seen: Read | None = None
        self._changed: Callable[[], None] = _nobody
        self._reflector = (
            None
            if api is None
            else Reflector(
                api,
                f"/api/v1/namespaces/{namespace}/configmaps",
                {"fieldSelector": f"metadata.name={name}"},
                kind=ConfigMap,
                chance=chance,
                listed=self._listed,
                changed=self._event,
                told=self._told,
            )
        )

    async def read(self) -> Read:
        """See TableSource."""
        if self._news is not None:
            news, self._news = self._news, None
            self.way = "watch"
            return news
        if self.trouble is None or self._fallback is None:
            return Same()
        found = await self._fallback.read()
        if not isinstance(found, Same | Missing):
            self.way = "file"
        return found

    async def follow(self, changed: Callable[[], None]) -> None:
        """See TableSource."""
        self._changed = changed
        if self._reflector is not None:
            await self._reflector.run()
        else:
            log.warning("ConfigMap %s can't be watched, %s: %s", self.name, self._instead(), self.trouble)
            await asyncio.Event().wait()

    def _listed(self, found: list[ConfigMap]) -> None:
        ours = [each for each in found if self._is_ours(each)]
        self._take(_table_of(ours[0], self.name) if ours else self._gone())

    def _event(self, kind: str, found: ConfigMap) -> None:
        if self._is_ours(found):
            self._take(self._gone() if kind == "DELETED" else _table_of(found, self.name))

    def _is_ours(self, found: ConfigMap) -> bool:
        return (found.metadata.namespace, found.metadata.name) == self._object

    def _gone(self) -> Missing:
        return Missing(f"ConfigMap {self.name} does not exist")

    def _take(self, read: Read) -> None:
        if read != self._seen:
            self._seen = self._news = read
            self._changed()

    def _told(self, fault: ApiFault | None) -> None:
        if fault is not None:
            if self.trouble is None:
                log.warning("ConfigMap %s can't be watched, %s: %s", self.name, self._instead(), fault.reason)
                if self._seen is not None and self._fallback is not None:
                    self._fallback.pass_over()
            self.trouble = fault.reason
        elif self.trouble is not None:
            log.info("ConfigMap %s is watched", self.name)
            self.trouble = None
            # What was said of the file meanwhile holds no more.
            self._news = self._seen
            self._changed()

    def _instead(self) -> str:
        if self._fallback is not None:
            return f"{self._fallback.name} is read instead"
        return "there is no table yet" if self._seen is None else "its last table stays"


def _nobody() -> None:
    """Before anybody follows."""


def _table_of(found: ConfigMap, name: str) -> Read:
    text = (found.data or {}).get(TABLE_KEY)
    if text is None:
        return Unreadable(f"ConfigMap {name} has no key {TABLE_KEY}; right would be a routing table's")
    return Content(text.encode("utf-8", "surrogatepass"))

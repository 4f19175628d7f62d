"""Which engines can be used follows what is mounted, whatever changes first: the files, the table, the addresses."""

from __future__ import annotations

from pathlib import Path

import msgspec

from headrace_api.table import TableAuth
from headrace_router.core.build_view import build_view
from headrace_router.server.access import Access
from headrace_router.server.access_files import AccessFiles
from support.router_table import routing_table


class Told:
    """An Access before one engine with a key and one without, and what it said of them."""

    def __init__(self, folder: Path) -> None:
        self.usable: list[tuple[str, bool]] = []
        self.renewed: list[str] = []
        self.rejected: list[str] = []
        self.access = Access(
            AccessFiles(credentials=folder),
            handshake=lambda _: None,
            rejected=self.rejected.append,
            usable=lambda engine, ready: self.usable.append((engine, ready)),
            renewed=self.renewed.append,
        )
        table = routing_table({"a": "http://a:1", "b": "http://b:1"})
        keyed = msgspec.structs.replace(table.engines[0], auth=TableAuth(secret="key", key="token"))
        self.view = build_view([msgspec.structs.replace(table, engines=(keyed, table.engines[1]))])

    def said(self) -> list[tuple[str, bool]]:
        """Since the last time."""
        found, self.usable = self.usable, []
        return found


def key(folder: Path) -> Path:
    path = folder / "inference" / "secrets" / "key" / "token"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


async def test_a_key_that_comes_and_goes(tmp_path: Path) -> None:
    told = Told(tmp_path)
    await told.access.start()
    told.access.follow_engines(told.view)
    assert told.said() == [("inference/a", False)]
    # A Service's new pods count as ready, and aren't.
    told.access.endpoints_changed()
    assert told.said() == [("inference/a", False)]

    key(tmp_path).write_bytes(b"sk-1")
    await told.access.check()
    assert told.said() == [("inference/a", True)]
    told.access.endpoints_changed()
    told.access.follow_engines(told.view)
    assert told.said() == []

    key(tmp_path).write_bytes(b"two words")
    await told.access.check()
    await told.access.check()
    assert (told.said(), told.rejected) == ([], ["engine"]), "the last key stays"
    key(tmp_path).unlink()
    await told.access.check()
    assert told.said() == [("inference/a", False)]
    assert told.renewed == []


async def test_a_key_that_was_there_before_the_table(tmp_path: Path) -> None:
    key(tmp_path).write_bytes(b"sk-1")
    told = Told(tmp_path)
    await told.access.start()
    told.access.follow_engines(told.view)
    assert told.said() == []
    assert told.access.detail()["engines"] == []

"""Tables from ConfigMaps while no watch holds: without rights, without an API server, and how routers get by."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_router.server.server import Router
from headrace_router.tables.kube_table import ConfigMapSource
from support.fake_api import CONFIGMAPS, TOKEN, FakeApi
from support.router_pod import watching
from support.router_process import ready, until
from support.router_table import routing_table, table_bytes
from support.watched_tables import AT, detail, of, revision, watched


def write(path: Path, text: str) -> None:
    path.write_text(text)


async def test_without_rights_the_mounted_file_is_read_until_they_are_back(
    api: FakeApi, token: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Item 7 of the cluster's issue: falling back to the mounted file when RBAC or the API is missing; the token is
    told nowhere, although the server repeats it."""
    mounted = tmp_path / "inference" / "headrace-chat-fe-a" / "table.json"
    mounted.parent.mkdir(parents=True)
    mounted.write_bytes(table_bytes(routing_table(AT, revision=3, uid="an old policy's")))
    api.put(CONFIGMAPS, of(5))
    async with watching(api, token, fallback=tmp_path) as router:
        await until(lambda: revision(router) == 5)
        with api.away(api.forbidden, CONFIGMAPS):
            await until(lambda: router.tables.followed[0].source.trouble is not None)
            told = await detail(router)
            assert "configmaps: 403 configmaps is forbidden: Bearer [token] [31m no rights" in told["api"]
            assert await watched(router) == 0
            # What stands there is a minute behind: it says nothing new, though it is another policy's uid.
            await router.tables.check()
            reads = router.tables.followed[0]
            assert revision(router) == 5
            mounted.write_bytes(table_bytes(routing_table(AT, revision=6)))
            await until(lambda: revision(router) == 6)
            assert (await detail(router))["from"] == "file"
            mounted.write_bytes(b"{")
            await until(lambda: reads.error is not None)
            api.put(CONFIGMAPS, of(7))
        await until(lambda: revision(router) == 7 and reads.source.trouble is None)
        told = await detail(router)
        assert (told["from"], told["api"], told["error"]) == ("watch", None, None)
        assert await watched(router) == 1
        page = await _everything(router)
    assert f"{mounted} is read instead" in caplog.text
    assert TOKEN not in caplog.text + page


async def test_a_file_that_changes_right_after_the_watch_is_lost_is_read(
    api: FakeApi, token: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands in the file when the watch is lost is old; what comes a moment later is not, whenever it is read."""
    mounted = tmp_path / "inference" / "headrace-chat-fe-a" / "table.json"
    mounted.parent.mkdir(parents=True)
    api.put(CONFIGMAPS, of(5))
    async with watching(api, token, fallback=tmp_path) as router:
        await until(lambda: revision(router) == 5)
        source = router.tables.followed[0].source
        assert isinstance(source, ConfigMapSource)
        assert source._fallback is not None
        look_once = source._fallback.pass_over

        def then_it_changes() -> None:
            look_once()
            mounted.write_bytes(table_bytes(routing_table(AT, revision=6)))

        monkeypatch.setattr(source._fallback, "pass_over", then_it_changes)
        with api.away(api.forbidden, CONFIGMAPS):
            await until(lambda: revision(router) == 6)


async def _everything(router: Router) -> str:
    from support.raw_client import get

    pages = [await get(router.admin_address, path) for path in ("/metrics", "/readyz", "/debug/explain?model=m")]
    return "".join(page.body.decode() for page in pages)


async def test_a_router_starts_by_the_mounted_file_when_there_is_no_api_server(tmp_path: Path, token: Path) -> None:
    mounted = tmp_path / "inference" / "headrace-chat-fe-a" / "table.json"
    mounted.parent.mkdir(parents=True)
    mounted.write_bytes(table_bytes(routing_table(AT, revision=3)))
    nowhere = FakeApi()
    nowhere.url = "http://127.0.0.1:1"
    async with watching(nowhere, token, fallback=tmp_path) as router:
        await until(lambda: revision(router) == 3)
        assert (await ready(router.admin_address))[0] == 200
        assert "can't be reached" in (await detail(router))["api"]
    async with watching(None, token, no_api="this is no pod", fallback=tmp_path) as router:
        await until(lambda: revision(router) == 3)
        assert (await detail(router))["api"] == "this is no pod"
        assert (await ready(router.admin_address))[1]["operator"]["why"] == "this is no pod"


async def test_an_api_server_that_goes_and_comes_back(api: FakeApi, token: Path) -> None:
    """Routers go on with the last table; the watch is there again without a restart."""
    api.put(CONFIGMAPS, of(1))
    async with watching(api, token) as router:
        source = router.tables.followed[0].source
        await until(lambda: revision(router) == 1 and api.watching(CONFIGMAPS) == 1)
        await api.stop()
        await until(lambda: source.trouble is not None)
        assert (await ready(router.admin_address))[0] == 200
        api.put(CONFIGMAPS, of(2))
        await api.start()
        await until(lambda: revision(router) == 2 and source.trouble is None, 60)


async def test_tokens_rotate(api: FakeApi, token: Path) -> None:
    """The kubelet replaces the file; 401 means: read it again."""
    api.put(CONFIGMAPS, of(1))
    async with watching(api, token) as router:
        source = router.tables.followed[0].source
        await until(lambda: revision(router) == 1)
        api.tokens = {"the-next-one"}
        api.cut()
        await until(lambda: source.trouble is not None)
        assert "401" in str(source.trouble)
        write(token, "not a token\n at all")
        await until(lambda: "holds no token" in str(source.trouble))
        assert "not a token" not in str(source.trouble)
        write(token, "the-next-one\n")
        await until(lambda: source.trouble is None)
        api.put(CONFIGMAPS, of(2))
        await until(lambda: revision(router) == 2)


async def test_where_no_watch_holds_lists_must_do(api: FakeApi, token: Path) -> None:
    """A proxy between may end every watch at once; the table is only seconds late then."""
    api.put(CONFIGMAPS, of(1))
    api.before[CONFIGMAPS] = [b"<html>no watches here</html>\n"]
    async with watching(api, token) as router:
        await until(lambda: revision(router) == 1)
        api.put(CONFIGMAPS, of(2))
        await until(lambda: revision(router) == 2, 60)

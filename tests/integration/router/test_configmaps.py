"""Tables from ConfigMaps, watched through an API server that works, is slow, lies or refuses."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace_router import background as tasks
from headrace_router.kube import watch as kube_watch
from headrace_router.server.server import Router
from headrace_router.tables import tables
from support.fake_api import CONFIGMAPS, LEASES, FakeApi, config_map, lease
from support.fake_engine import FakeEngine
from support.raw_client import ask, post
from support.router_pod import CONFIGMAP as NAME
from support.router_pod import watching
from support.router_process import metric, reads, ready, until, until_async
from support.router_table import routing_table, table_bytes
from support.watched_tables import AT, detail, of, revision, watched

ASK = {"model": "m"}


async def test_a_publication_is_applied_by_the_watch(api: FakeApi, token: Path) -> None:
    """router.md, Hot reload: by name with a field selector, with bookmarks and a time-out that the server is told."""
    async with watching(api, token) as router:
        assert (await ready(router.admin_address))[0] == 503
        api.put(CONFIGMAPS, of(1))
        await until(lambda: revision(router) == 1)
        assert (await ready(router.admin_address))[0] == 200
        await until(lambda: api.watching(CONFIGMAPS) == 1)
        for number in range(2, 20):
            api.put(CONFIGMAPS, of(number))
        api.put(CONFIGMAPS, config_map("not ours", name="another"))
        api.put(CONFIGMAPS, config_map("not ours", namespace="elsewhere"))
        await until(lambda: revision(router) == 19)
        assert len(api.queries(CONFIGMAPS, watch=False)) == 1
        (query,) = api.queries(CONFIGMAPS, watch=True)
        assert query["fieldSelector"] == "metadata.name=headrace-chat-fe-a"
        assert query["allowWatchBookmarks"] == "true"
        assert 0 < int(query["timeoutSeconds"]) <= 60
        told = await detail(router)
        assert (told["source"], told["from"], told["api"]) == ("inference/headrace-chat-fe-a", "watch", None)
        applied = await metric(router.admin_address, "headrace_table_applied_timestamp_seconds", policy="chat")
        assert applied == pytest.approx(told["appliedAt"], abs=0.01)
        assert await watched(router) == 1


async def test_it_resumes_where_it_was_and_lists_anew_when_that_is_too_old(api: FakeApi, token: Path) -> None:
    """kubernetes.md: a bookmark moves on what is resumed; 410 arrives as an ERROR event in a 200: relist."""
    api.put(CONFIGMAPS, of(1))
    async with watching(api, token) as router:
        await until(lambda: api.watching(CONFIGMAPS) == 1)
        api.put("secrets", config_map("x"))
        api.bookmark()
        api.cut(CONFIGMAPS)
        await until(lambda: len(api.queries(CONFIGMAPS, watch=True)) == 2)
        assert api.queries(CONFIGMAPS, watch=True)[1]["resourceVersion"] == str(api.version)
        assert len(api.queries(CONFIGMAPS, watch=False)) == 1
        with api.away(api.hung, CONFIGMAPS):
            await until(lambda: api.watching(CONFIGMAPS) == 0)
            api.put(CONFIGMAPS, of(2))
            api.forget()
        await until(lambda: revision(router) == 2)
        assert len(api.queries(CONFIGMAPS, watch=False)) == 2


async def test_it_lists_now_and_then_whatever_the_watch_says(
    api: FakeApi, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STA-05 (https://github.com/nolar/kopf/issues/1180): a watch that lives and says nothing is no proof of life."""
    monkeypatch.setattr(kube_watch, "RELIST", 0.0)
    monkeypatch.setattr(kube_watch, "WATCH", 1.0)
    api.put(CONFIGMAPS, of(1))
    async with watching(api, token) as router:
        await until(lambda: revision(router) == 1)
        stored = of(2)
        stored["metadata"] = stored["metadata"] | {"resourceVersion": str(api.version)}
        api.objects[CONFIGMAPS, *NAME] = stored  # changed, and no watch is told
        await until(lambda: revision(router) == 2)


async def test_a_hung_server_is_noticed_and_left(api: FakeApi, token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that does not end when it should have is ended here, and the next one goes on."""
    monkeypatch.setattr(kube_watch, "WATCH", 1.0)
    monkeypatch.setattr(kube_watch, "OVERDUE", -0.9)
    api.put(CONFIGMAPS, of(1))
    async with watching(api, token) as router:
        await until(lambda: len(api.queries(CONFIGMAPS, watch=True)) >= 3)
        api.put(CONFIGMAPS, of(2))
        await until(lambda: revision(router) == 2)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b'{"type":"MODIFIED","object":{"meta', id="half a line"),
        pytest.param(b"no json at all\n", id="no JSON"),
        pytest.param(b'{"type":"MODIFIED","object":{"metadata":[]}}\n', id="another shape"),
        pytest.param(b'{"type":"MODIFIED"}\n', id="no object"),
        pytest.param(b'{"type":"ERROR","object":{"code":500,"message":"etcd"}}\n', id="an error"),
        pytest.param(b"\xff\xfe\n", id="no text"),
        pytest.param(b"[" * 200_000 + b"\n", id="nested"),
        pytest.param(b"\n\n\n", id="empty lines"),
        pytest.param(b'{"type":"SOMETHING","object":{"metadata":{}}}\n', id="an unknown event"),
        pytest.param(b"x" * (9 * 2**20), id="a line without end"),
    ],
)
async def test_what_a_server_says_wrong_changes_nothing(api: FakeApi, token: Path, raw: bytes) -> None:
    api.put(CONFIGMAPS, of(1))
    async with watching(api, token) as router:
        await until(lambda: revision(router) == 1 and api.watching(CONFIGMAPS) == 1)
        api.say(CONFIGMAPS, raw)
        api.cut(CONFIGMAPS)
        await until(lambda: api.watching(CONFIGMAPS) == 1)
        assert revision(router) == 1
        api.put(CONFIGMAPS, of(2))
        await until(lambda: revision(router) == 2)
        assert (await detail(router))["error"] is None


async def test_a_bad_table_is_refused_and_the_restore_clears_it(api: FakeApi, token: Path) -> None:
    """REL-02 (https://github.com/vllm-project/production-stack/issues/659), by the rules of files; older ones and
    another front-end's too."""
    api.put(CONFIGMAPS, of(5))
    async with watching(api, token) as router:
        entry = router.tables.followed[0]
        await until(lambda: revision(router) == 5)
        for bad in (config_map("{"), {"metadata": config_map("")["metadata"]}, {**of(6), "data": {"table.json": 7}}):
            api.put(CONFIGMAPS, bad)
            await until(lambda: entry.error is not None or entry.source.trouble is not None)
            assert (await ready(router.admin_address))[0] == 200
            api.put(CONFIGMAPS, of(5))
            await until(lambda: entry.error is None and entry.source.trouble is None)
        await reads(2, router.admin_address, "headrace_table_rejects_total")
        api.put(CONFIGMAPS, of(4))
        await until(lambda: "older" in (entry.note or ""))
        other = table_bytes(routing_table(AT, revision=9)).replace(b'"fe-a"', b'"fe-b"').decode()
        api.put(CONFIGMAPS, config_map(other))
        await until(lambda: "fe-b" in (entry.error or ""))
        assert revision(router) == 5
        api.put(CONFIGMAPS, of(1, uid="another"))
        await until(lambda: revision(router) == 1)


async def test_a_configmap_holds_tables_of_its_own_namespace_alone(api: FakeApi, token: Path) -> None:
    """Who can write ConfigMaps there is no ruler of other namespaces' policies: their engines' addresses, retry budget
    and counted demand stay theirs. An engine is one by its id, in whichever table it stands."""
    at = "inference"
    mine = table_bytes(routing_table(AT)).decode()
    api.put(CONFIGMAPS, config_map(mine))
    api.put(CONFIGMAPS, config_map("", "evil", "tenant-b"))
    configmaps = ((at, NAME[1]), ("tenant-b", "evil"))
    async with watching(api, token, configmaps=configmaps) as router:
        await until(lambda: revision(router) == 1)
        evil = router.tables.followed[1]
        stolen = table_bytes(routing_table({"a": "http://127.0.0.1:6"}, model="other", policy="evil", uid="e")).decode()
        younger = stolen.replace("2026-01-01", "2027-01-01")
        api.put(CONFIGMAPS, config_map(younger, "evil", "tenant-b"))
        await until(lambda: "'tenant-b'" in (evil.error or ""))
        api.put(CONFIGMAPS, config_map(younger.replace(f'"{at}"', '"tenant-b"'), "evil", "tenant-b"))
        await until(lambda: "inference/a is not in the policy's namespace" in (evil.error or ""))
        assert [each.url for each in router.selector.view.engines["inference/a"].endpoints] == [AT["a"]]
        api.put(CONFIGMAPS, config_map(younger.replace(at, "tenant-b"), "evil", "tenant-b"))
        await until(lambda: evil.table is not None)
        assert sorted(router.selector.view.engines) == ["inference/a", "tenant-b/a"]


async def test_readiness_waits_for_a_word_on_every_table_but_not_for_long(
    api: FakeApi, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a new pod would answer 404 for models of a table that comes a moment later."""
    api.put(CONFIGMAPS, of(1))
    configmaps = (NAME, ("inference", "missing"), ("late", "late"))

    async def is_ready(router: Router) -> bool:
        return (await ready(router.admin_address))[0] == 200

    async with watching(api, token, configmaps=configmaps[:2]) as router:
        await until_async(lambda: is_ready(router))
    api.hung_namespaces.add("late")
    async with watching(api, token, configmaps=configmaps) as router:
        await until(lambda: revision(router) == 1 and "not exist" in (router.tables.followed[1].note or ""))
        assert not await is_ready(router)
        monkeypatch.setattr(tables, "SETTLED_AFTER", 0.0)
        assert await is_ready(router)
        monkeypatch.setattr(tables, "SETTLED_AFTER", 600.0)
        assert await is_ready(router), "once and for all"


async def test_a_table_is_not_lost_when_putting_it_in_force_fails(
    api: FakeApi, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source tells its news once; what failed for want of memory, say, is tried again."""
    build, failed = tables.build_view, 0

    def fails_twice(*arguments: Any, **named: Any) -> Any:
        nonlocal failed
        if failed < 2:
            failed += 1
            raise MemoryError
        return build(*arguments, **named)

    monkeypatch.setattr(tasks, "PAUSE", 0.01)
    async with watching(api, token) as router:
        monkeypatch.setattr(tables, "build_view", fails_twice)
        api.put(CONFIGMAPS, of(1))
        await until(lambda: revision(router) == 1)
        assert failed == 2
        assert router.selector.view.policies


async def test_a_deleted_configmap_leaves_the_last_table_and_says_so(api: FakeApi, token: Path) -> None:
    """REL-05 (https://github.com/jaegertracing/jaeger-operator/pull/1467): it disappears now and then; by a watch or
    by a list, the last good table is kept."""
    async with FakeEngine(_answers) as engine:
        table = routing_table({"a": engine.url})
        api.put(CONFIGMAPS, config_map(table_bytes(table).decode()))
        async with watching(api, token) as router:
            entry = router.tables.followed[0]
            await until(lambda: revision(router) == 1 and api.watching(CONFIGMAPS) == 1)
            api.remove(CONFIGMAPS, *NAME)
            await until(lambda: "does not exist" in (entry.note or ""))
            assert (await ready(router.admin_address))[0] == 200
            assert (await ask(router.address, post(ASK))).status == 200
            api.forget()
            api.cut(CONFIGMAPS)
            await until(lambda: len(api.queries(CONFIGMAPS, watch=False)) == 2)
            assert (await ask(router.address, post(ASK))).status == 200
            api.put(CONFIGMAPS, config_map(table_bytes(table).decode()))
            await until(lambda: entry.note is None)


async def test_the_operators_lease_is_its_heartbeat(api: FakeApi, token: Path) -> None:
    """api.md, Life: judged by the Lease alone; unknown when it can't be read."""
    api.forbidden.add(LEASES)
    api.put(CONFIGMAPS, of(1))
    async with watching(api, token) as router:

        async def state(wanted: str) -> bool:
            told = (await ready(router.admin_address))[1]["operator"]
            return bool(told["state"] == wanted and (told["why"] is None) is (wanted != "unknown"))

        beat = router.around.leases[0]
        await until(lambda: "403" in str(beat.why))
        assert await state("unknown")
        beat.take("2020-01-01T00:00:00.000000Z")
        assert await state("stale")
        beat.take("2020-01-01T00:00:10.000000Z")
        assert await state("alive"), "it was renewed, by a clock that is years behind"
        assert await metric(router.admin_address, "headrace_operator_heartbeat_age_seconds") < 60
        api.forbidden.clear()
        api.put(LEASES, lease("2020-01-01T00:00:20Z"))
        await until_async(lambda: state("alive"))


async def test_two_policies_one_front_end(api: FakeApi, token: Path) -> None:
    second = routing_table(AT, model="m2", policy="other", uid="u2")
    api.put(CONFIGMAPS, of(1))
    api.put(CONFIGMAPS, config_map(table_bytes(second).decode(), name="headrace-other-fe-a"))
    async with watching(api, token, configmaps=(NAME, ("inference", "headrace-other-fe-a"))) as router:
        await until(lambda: sorted(router.selector.view.models) == ["m", "m2"])


async def _answers(exchange: Any) -> None:
    await exchange.answer()


async def test_nothing_stays_behind(api: FakeApi, token: Path) -> None:
    """REL-04 (https://github.com/vllm-project/production-stack/issues/680): no watch, task or socket outlives it."""
    api.put(CONFIGMAPS, of(1))
    before = len(asyncio.all_tasks())
    async with watching(api, token) as router:
        await until(lambda: api.watching(CONFIGMAPS) == 1)
        assert router.tables.applied
    await until(lambda: api.watching(CONFIGMAPS) == 0)
    await until(lambda: len(asyncio.all_tasks()) <= before)

"""Table files: swapped, broken, half written, vanishing, while streams run."""

import asyncio
import json
import os
import shutil
import time
from pathlib import Path

import msgspec

from headrace_api.names import HEARTBEAT_FILE
from headrace_router.server.server import Router
from support.fake_engine import Exchange, FakeEngine, answers
from support.raw_client import ask, post
from support.router_process import in_flight, metric, reads, ready, router_in_loop, until
from support.router_table import MODEL, SESSION, EngineAt, manifest, routing_table, table_bytes

ASK = {"model": "m"}
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'


def revision(router: Router) -> int:
    policies = router.selector.view.policies
    return policies[0].table.identity.revision if policies else -1


async def test_kubelets_link_swaps_are_followed(tmp_path: Path) -> None:
    """REL-01 (https://github.com/jimmidyson/configmap-reload/issues/190): ..data swaps, the old folder removed at once,
    versions 2 to 20, then a plain in-place write; equal size and time are still noticed."""
    folder = tmp_path / "w"

    def version(number: int) -> None:
        home = folder / f"..{number}"
        home.mkdir(parents=True)
        (home / "table.yaml").write_text(manifest(routing_table({"a": "http://127.0.0.1:9"}, revision=number)))
        os.utime(home / "table.yaml", ns=(10**18, 10**18))
        (folder / "..tmp").symlink_to(f"..{number}")
        (folder / "..tmp").replace(folder / "..data")
        if number > 1:
            shutil.rmtree(folder / f"..{number - 1}")

    version(1)
    (folder / "table.yaml").symlink_to("..data/table.yaml")
    async with router_in_loop(folder / "table.yaml") as router:
        assert revision(router) == 1
        for number in range(2, 21):
            await asyncio.to_thread(version, number)
            if number in (2, 11):
                await until(lambda at=number: revision(router) == at)
        await until(lambda: revision(router) == 20)
        target = folder / "..20" / "table.yaml"
        await asyncio.to_thread(target.write_text, manifest(routing_table({"a": "http://127.0.0.1:9"}, revision=21)))
        await until(lambda: revision(router) == 21)
        assert await metric(router.admin_address, "headrace_table_rejects_total") == 0
        await reads(21, router.admin_address, "headrace_table_revision")


async def test_a_broken_table_changes_nothing_and_the_restore_clears_it(tmp_path: Path) -> None:
    """REL-02 (https://github.com/vllm-project/production-stack/issues/659): good, broken, bad url, restored byte for
    byte, next; no half-applied state, +1 a reject, still ready."""
    path = tmp_path / "t.json"
    good = table_bytes(routing_table({"a": "http://127.0.0.1:9"}))
    async with router_in_loop(path, routing_table({"a": "http://127.0.0.1:9"})) as router:

        async def write(data: bytes) -> None:
            await asyncio.to_thread(path.write_bytes, data)

        async def error_is(there: bool) -> None:
            await until(lambda: (router.tables.followed[0].error is not None) is there)
            status, detail = await ready(router.admin_address)
            assert status == 200
            assert (detail["tables"][0]["error"] is not None) is there
            assert detail["tables"][0]["revision"] == 1

        await write(good.replace(b",", b"", 1))
        await error_is(True)
        await reads(1, router.admin_address, "headrace_table_rejects_total")
        await write(good)
        await error_is(False)
        bad = routing_table({"a": "http://127.0.0.1:9", "b": "ftp://x"}, revision=2, model="m2")
        await write(table_bytes(bad))
        await error_is(True)
        await reads(2, router.admin_address, "headrace_table_rejects_total")
        assert list(router.selector.view.models) == ["m"]
        await write(good)
        await error_is(False)
        await write(table_bytes(routing_table({"a": "http://127.0.0.1:9"}, revision=2)))
        await until(lambda: revision(router) == 2)


async def test_older_revisions_another_front_end_and_a_vanished_file(tmp_path: Path) -> None:
    """router.md, Hot reload: order by (term, revision) within a uid; the last good table is kept."""
    path = tmp_path / "t.json"
    table = routing_table({"a": "http://127.0.0.1:9"}, revision=5)
    async with router_in_loop(path, table) as router:
        entry = router.tables.followed[0]
        path.write_bytes(table_bytes(routing_table({"a": "http://127.0.0.1:9"}, revision=4)))
        await until(lambda: "older" in (entry.note or ""))
        assert revision(router) == 5
        path.write_bytes(table_bytes(table).replace(b"fe-a", b"fe-b"))
        await until(lambda: "fe-b" in (entry.error or ""))
        path.unlink()
        await until(lambda: "does not exist" in (entry.note or ""))
        assert (await ready(router.admin_address))[0] == 200
        assert revision(router) == 5
        path.write_bytes(table_bytes(routing_table({"a": "http://127.0.0.1:9"}, revision=1, uid="another")))
        await until(lambda: revision(router) == 1)


async def test_it_starts_without_a_table_and_is_ready_when_one_was_applied(tmp_path: Path) -> None:
    """api.md, Life; the folder itself comes later too. Several tables are merged by model."""
    path = tmp_path / "later" / "t.json"
    async with FakeEngine(answers) as engine, router_in_loop(path) as router:
        assert (await ready(router.admin_address))[0] == 503
        refused = await ask(router.address, post(ASK))
        assert (refused.status, refused.code) == (503, "no_table")
        path.parent.mkdir()
        path.write_bytes(table_bytes(routing_table({"a": engine.url})))
        await until(lambda: router.tables.applied)
        assert (await ready(router.admin_address))[0] == 200
        assert (await ask(router.address, post(ASK))).status == 200


async def test_the_operators_heartbeat_is_said_and_changes_nothing(tmp_path: Path) -> None:
    """api.md, Life: stale after 60 s: keep the last weights for ever and say so."""
    path = tmp_path / "t.json"
    beat = tmp_path / "heartbeat"
    async with router_in_loop(path, routing_table({"a": "http://127.0.0.1:9"})) as router:
        assert (await ready(router.admin_address))[1]["operator"]["state"] == "unknown"
        beat.write_text("x")
        assert (await ready(router.admin_address))[1]["operator"]["state"] == "alive"
        os.utime(beat, (1, 1))
        status, detail = await ready(router.admin_address)
        assert (status, detail["operator"]["state"]) == (200, "stale")
        assert await metric(router.admin_address, "headrace_operator_heartbeat_age_seconds") > 60


async def test_streams_survive_reloads_and_what_left_is_left_alone(tmp_path: Path) -> None:
    """REL-04 (https://github.com/vllm-project/production-stack/issues/680): 20 streams over 50 reloads end normally; a
    removed engine gets neither requests nor probes; tasks and sockets are as many as before."""
    path = tmp_path / "t.json"
    release = asyncio.Event()

    async def stream(exchange: Exchange) -> None:
        if b"stream" not in exchange.request.body:
            await answers(exchange)
            return
        await exchange.start_sse()
        await exchange.chunk(EVENT)
        await release.wait()
        await exchange.end_chunks()

    async with FakeEngine(stream) as a, FakeEngine(stream) as b, FakeEngine(stream) as c:
        both = {"a": EngineAt((a.url,)), "b": EngineAt((b.url,))}
        without_b = {"a": EngineAt((a.url,), weight=3), "c": EngineAt((c.url,))}
        async with router_in_loop(path, routing_table(both)) as router:
            # Connections that are kept and idle when their engine leaves.
            await asyncio.gather(*(ask(router.address, post(ASK)) for _ in range(60)))
            streaming = [
                asyncio.create_task(ask(router.address, post({"model": "m", "stream": True}), 60)) for _ in range(20)
            ]
            await until(lambda: len(a.requests) + len(b.requests) == 80)
            on_a, on_b = (router.selector.view.engines[f"inference/{name}"].state.in_flight for name in "ab")
            tasks = len(asyncio.all_tasks())
            before = b.probes, len(b.requests)

            async def apply(number: int, engines: dict[str, EngineAt]) -> None:
                data = table_bytes(routing_table(engines, revision=number))
                await asyncio.to_thread(path.write_bytes, data)
                await until(lambda: revision(router) == number)

            await apply(2, without_b)
            a_in_flight = router.selector.view.engines["inference/a"].state.in_flight
            assert a_in_flight == on_a
            assert "inference/b" not in router.upstream._of_engine
            await b.until(lambda: b.open_connections == on_b)  # idle ones are closed, streams go on
            for _ in range(8):
                assert (await ask(router.address, post(ASK))).status == 200
            assert (b.probes, len(b.requests)) == before
            for number in range(3, 53):
                await apply(number, both if number % 2 else without_b)
            assert sum(len(engine.requests) for engine in (a, b, c)) == 88
            release.set()
            answers_ = await asyncio.gather(*streaming)
            assert all(answer.complete and answer.body == EVENT for answer in answers_)
            assert "inference/b" not in router.upstream._of_engine
            await until(lambda: len(asyncio.all_tasks()) <= tasks + 12)
            assert in_flight(router) == 0


async def test_two_policies_are_merged_by_model(tmp_path: Path) -> None:
    """api.md, Life: one front-end, any number of policies, merged by model; explain shows what would happen."""
    import jsonschema

    from headrace_router.cli.reference import schema_text
    from headrace_router.server.server import Settings
    from headrace_router.tables.tables_from import TablesFrom
    from support.raw_client import get

    first, second = tmp_path / "1.json", tmp_path / "2.yaml"
    async with FakeEngine(answers) as engine:
        first.write_bytes(table_bytes(routing_table({"a": engine.url}, affinity=SESSION)))
        second.write_text(manifest(routing_table({"b": engine.url}, model="m2", policy="other")))
        router = Router(
            Settings(TablesFrom((first, second)), listen=("127.0.0.1", 0), admin=("127.0.0.1", 0), drain_delay=0)
        )
        await router.start()
        try:
            for model, name in (("m", "a"), ("m2", "b")):
                answer = await ask(router.address, post({"model": model}))
                assert answer.header("x-headrace-engine") == name
            told = await get(router.admin_address, "/debug/explain?model=m&key=s1&bytes=100")
            assert told.status == 200
            assert b"inference/a" in told.body
            jsonschema.validate(told.json(), json.loads(schema_text()), jsonschema.Draft202012Validator)
            assert (await get(router.admin_address, "/debug/explain?model=zz")).status == 404
            assert (await get(router.admin_address, "/debug/explain?model=m&bytes=x")).status == 400
        finally:
            await router.stop()


async def test_weights_drift_to_capacity_when_the_operator_is_silent_for_long(tmp_path: Path) -> None:
    """api.md, Routing table, Life: staleness.widenAfter; the heartbeat alone judges, and its return ends it."""
    table = routing_table({"a": EngineAt(("http://127.0.0.1:9",), 1), "b": EngineAt(("http://127.0.0.1:10",), 0)})
    engines = tuple(
        msgspec.structs.replace(engine, capacity_share=share)
        for engine, share in zip(table.engines, (0.2, 0.8), strict=True)
    )
    table = msgspec.structs.replace(table, engines=engines, widen_after=600.0)
    beat = tmp_path / HEARTBEAT_FILE
    beat.touch()

    def weights(router: Router) -> dict[str, int]:
        found = router.selector.view.models[MODEL].classes[0].candidates
        return {route.engine.name: route.weight for route in found}

    async with router_in_loop(tmp_path / "t.json", table) as router:
        assert weights(router) == {"a": 10_000, "b": 0}
        os.utime(beat, (time.time() - 750, time.time() - 750))
        await until(lambda: weights(router)["b"] == 4000)
        os.utime(beat, (time.time() - 2000, time.time() - 2000))
        await until(lambda: weights(router) == {"a": 2000, "b": 8000})
        beat.touch()
        await until(lambda: weights(router) == {"a": 10_000, "b": 0})

"""The open-loop client against a real server on loopback: what it records, and that it always stops by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from headrace_lab.replay.client import Replay, ReplayLimits, ReplayTarget
from headrace_lab.replay.outcome import Outcome, Result
from headrace_lab.workload.requests import Request

CONTENT = b'data: {"choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
HEADERS = {
    "x-headrace-engine": "a",
    "x-headrace-reason": "affinity",
    "x-headrace-table": "7",
    "x-headrace-attempts": "2",
}


class Server:
    """Answers by the conversation's name; remembers what it was sent."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, object]] = []
        self.heads: list[dict[str, str]] = []
        self.hold = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.heads.append({name.lower(): value for name, value in request.headers.items()})
        session = request.headers["x-session-id"]
        if session == "shed":
            return web.json_response({"error": {"code": "shed", "message": "too much"}}, status=429, headers=HEADERS)
        if session == "broken":
            return web.Response(status=500, text="<html>")
        if session == "hangs":
            await self.hold.wait()
        response = web.StreamResponse(headers={**HEADERS, "content-type": "text/event-stream"})
        await response.prepare(request)
        if session == "silent":
            await self.hold.wait()
        await response.write(CONTENT)
        if session == "stalls":
            await self.hold.wait()
        if session == "cut":
            assert request.transport is not None
            request.transport.abort()
        elif session == "error":
            await response.write(b'data: {"error":{"message":"engine gone"}}\n\n')
        else:
            await response.write(DONE)
        return response


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, str]]:
    server = Server()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    yield server, f"http://127.0.0.1:{port}"
    server.hold.set()
    await runner.cleanup()


def request(session: str, at: float = 0.0) -> Request:
    return Request(at, "fe", session, (0, 5), 40, 9, "batch")


async def replay(url: str, requests: list[Request], limits: ReplayLimits) -> dict[str, Outcome]:
    outcomes: list[Outcome] = []
    client = Replay(requests, ReplayTarget({"fe": url}, "m", 32), outcomes.append, limits)
    async with asyncio.timeout(30):
        await client.run(asyncio.get_running_loop().time())
    assert client.in_flight == 0
    assert len(outcomes) == len(requests)
    return {outcome.session: outcome for outcome in outcomes}


QUICK = ReplayLimits(in_flight=100, first_byte=0.5, request=1.0, drain=5.0)


async def test_each_way_to_end_is_recorded_as_what_it_is(server: tuple[Server, str]) -> None:
    names = ["good", "shed", "broken", "cut", "error", "silent", "hangs", "stalls"]
    ends = await replay(server[1], [request(name) for name in names], QUICK)
    assert {name: str(end.result) for name, end in ends.items()} == {
        "good": "done",
        "shed": "shed",
        "broken": "failed",
        "cut": "cut",
        "error": "cut",
        "silent": "timed out",
        "hangs": "timed out",
        "stalls": "cut",
    }
    good = ends["good"]
    assert (good.engine, good.reason, good.revision, good.attempts, good.status) == ("a", "affinity", 7, 2, 200)
    assert good.ttft is not None
    assert 0 <= good.ttft <= good.duration
    assert ends["shed"].code == "shed"
    assert ends["error"].detail == "engine gone"
    assert ends["silent"].ttft is None


async def test_the_request_is_a_streaming_chat_completion_with_its_conversation_priority_and_origin(
    server: tuple[Server, str],
) -> None:
    await replay(server[1], [request("good")], QUICK)
    (body,), (head,) = server[0].bodies, server[0].heads
    assert body["model"] == "m"
    assert body["stream"] is True
    assert body["max_tokens"] == 9
    messages = body["messages"]
    assert isinstance(messages, list)
    assert len(messages[0]["content"]) == 160
    assert (head["x-session-id"], head["x-headrace-priority"], head["x-lab-frontend"]) == ("good", "batch", "fe")


async def test_arrivals_never_wait_for_answers(server: tuple[Server, str]) -> None:
    names = [f"{k}" for k in range(20)]
    requests = [request("hangs"), *(request(name, at=0.01) for name in names)]
    ends = await replay(server[1], requests, QUICK)
    assert all(ends[name].result is Result.DONE for name in names)


async def test_a_router_that_is_not_there_is_recorded(unused_tcp_port: int) -> None:
    ends = await replay(f"http://127.0.0.1:{unused_tcp_port}", [request("good")], QUICK)
    assert ends["good"].result is Result.UNREACHABLE
    assert ends["good"].lost_needlessly


async def test_what_exceeds_the_bound_in_flight_is_not_sent_and_said(server: tuple[Server, str]) -> None:
    requests = [request("hangs"), request("stalls"), request("good")]
    ends = await replay(server[1], requests, QUICK._replace(in_flight=2))
    assert ends["good"].result is Result.NOT_SENT
    assert not ends["good"].lost_needlessly


async def test_it_ends_when_answers_do_not(server: tuple[Server, str]) -> None:
    ends = await replay(server[1], [request("hangs")], ReplayLimits(10, first_byte=60, request=60, drain=0.2))
    assert ends["hangs"].result is Result.TIMED_OUT
    assert "unfinished" in ends["hangs"].detail

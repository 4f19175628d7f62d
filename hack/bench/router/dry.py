"""The router's own code without sockets and without the loop: how many us and bytecodes a request or an event takes.

The parts are the real ones, from the client connection's data_received to the last write; only transports are stand-ins
that take bytes and do nothing, and engines' connections that are made at once. Best times of many short runs are hardly
touched by what else the machine does, and bytecodes not at all: to see what a change brings, on any machine. What the
kernel, the loop and cold caches cost is not in it.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import uvloop

from bench.router import ours
from bench.router.load import Engines
from bench.router.processes import BenchFailed
from bench.router.profile import FEATURES, by_feature, module_of
from compile.rehearsal.stage import Client, Stage, Unexpected, staged

RUN, RUNS, COUNTED = 10, 400, 20  # requests a run, runs, requests whose bytecodes are counted
EVENTS = 100  # of a stream, one a read
SESSIONS = 64
# What is asked and answered on the wire too (options.h, engine.c), and not what the compiler looked on at
# (compile/rehearsal/usual.py): code that was made for the very bytes it is measured by would flatter itself.
HEADERS = (
    "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAccept-Encoding: gzip, deflate\r\n"
    "Connection: keep-alive\r\nAccept: application/json\r\nContent-Type: application/json\r\n"
    "User-Agent: OpenAI/Python 2.9.0\r\nX-Stainless-Lang: python\r\nX-Stainless-Package-Version: 2.9.0\r\n"
    "X-Stainless-OS: Linux\r\nX-Stainless-Arch: x64\r\nX-Stainless-Runtime: CPython\r\n"
    "X-Stainless-Runtime-Version: 3.11.7\r\nAuthorization: Bearer sk-none\r\nX-Stainless-Async: false\r\n"
    "x-stainless-retry-count: 0\r\nx-stainless-read-timeout: 600\r\nx-model: {model}\r\n{key}"
    "Content-Length: {length}\r\n\r\n"
)
ENGINE_HEAD = b"HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\nserver: uvicorn\r\n"
ANSWER = (
    b'{"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion","created":1767225600,'
    b'"model":"model-a","choices":[{"index":0,"message":{"role":"assistant","content":"%b"},"logprobs":null,'
    b'"finish_reason":"stop"}],"usage":{"prompt_tokens":512,"completion_tokens":128,"total_tokens":640}}'
) % (b"a quick answer of words " * 29)
EVENT = (
    b'data: {"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion.chunk","created":1767225600,'
    b'"model":"model-a","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}]}\n\n'
)


def requests(body: int, stream: bool, key: str) -> list[bytes]:
    """As those of make_request in options.h."""
    made = []
    for session in range(2 * SESSIONS):
        model, name = ours.MODELS[session % 2], f"session-{session:08}"
        user = f',"user":"{name}"' if key == "field" else ""
        before = '{"messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"'
        last = ',"stream":true,"stream_options":{"include_usage":true}}' if stream else ',"stream":false}'
        after = f'"}}],"model":"{model}","max_tokens":128,"temperature":0.7{user}{last}'
        text = before + ("river gate weir " * (body // 16 + 1))[: body - len(before) - len(after)] + after
        steering = f"x-session-id: {name}\r\n" if key == "header" else ""
        made.append((HEADERS.format(model=model, key=steering, length=len(text)) + text).encode())
    return made


async def warm(stage: Stage, client: Client, sent: list[bytes], answers: list[bytes]) -> None:
    """Make the connections to engines, and what is made once."""
    for request in sent * 2:
        stage.ask(client, [request])
        await stage.connected()
        stage.answer(client, answers)
        await asyncio.sleep(0)
    client.got()


async def dry(body: int, stream: bool, key: str) -> list[str]:
    """Lines on one case."""
    with tempfile.TemporaryDirectory(prefix="headrace-dry-") as folder:
        place = Path(folder) / "table.json"
        place.write_bytes(ours.table(Engines(None, 4, 9), key="field" if key == "field" else "header"))  # type: ignore[arg-type]
        async with staged(place) as stage:
            client = stage.client()
            sent, answers = requests(body, stream, key), _answers(stream)
            await warm(stage, client, sent, answers)
            times = await _times(stage, client, sent, answers)
            counts, calls = _bytecodes(stage, client, sent, answers)
    return _lines(f"{body} bytes, {'stream' if stream else 'unary'}, key: {key}", stream, times, counts, calls)


def _answers(stream: bool) -> list[bytes]:
    if not stream:
        return [ENGINE_HEAD + b"content-length: %d\r\ncontent-type: application/json\r\n\r\n%b" % (len(ANSWER), ANSWER)]
    head = ENGINE_HEAD + b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    return [head, *[b"%x\r\n%b\r\n" % (len(EVENT), EVENT)] * EVENTS, b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"]


async def _times(stage: Stage, client: Client, sent: list[bytes], answers: list[bytes]) -> list[tuple[float, float]]:
    """Seconds of asking and answering a request, by run."""
    found = []
    clock, at = time.perf_counter, 0
    gc.collect()
    for _ in range(RUNS if len(answers) == 1 else RUNS // 10):
        asking = answering = 0.0
        for _ in range(RUN):
            start = clock()
            stage.ask(client, [sent[at % len(sent)]])
            middle = clock()
            stage.answer(client, answers)
            answering += clock() - middle
            asking += middle - start
            at += 1
        done(client)
        found.append((asking / RUN, answering / RUN))
        await asyncio.sleep(0)
    return found


def done(client: Client) -> None:
    """Look at what the client got, and forget it."""
    got = client.got()
    if got.count(b"HTTP/1.1 200 OK") != RUN:
        raise BenchFailed(f"dry: not {RUN} good answers: {got[:300]!r}")


def _bytecodes(stage: Stage, client: Client, sent: list[bytes], answers: list[bytes]) -> tuple[Counter[CodeType], int]:
    """Bytecodes of COUNTED requests by function, and Python calls."""
    counts: Counter[CodeType] = Counter()
    calls = 0

    def step(frame: FrameType, event: str, _: object) -> Any:
        if event == "opcode":
            counts[frame.f_code] += 1
        return step

    def enter(frame: FrameType, _event: str, _: object) -> Any:
        nonlocal calls
        calls += 1
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return step

    for request in sent[:COUNTED]:
        sys.settrace(enter)
        client.connection.data_received(request)
        stage.outbox.flush()
        sys.settrace(None)
        asked = stage.asked.pop().protocol
        sys.settrace(enter)
        for data in answers:
            asked.data_received(data)
        stage.outbox.flush()
        sys.settrace(None)
    return counts, calls


def _lines(
    title: str, stream: bool, times: list[tuple[float, float]], counts: Counter[CodeType], calls: int
) -> list[str]:
    each, what = (EVENTS, "an event, its share of the request with it") if stream else (1, "a request")
    whole = [asking + answering for asking, answering in times]
    best, middle = min(whole) / each * 1e6, statistics.median(whole) / each * 1e6
    asking, answering = (min(one) * 1e6 for one in zip(*times, strict=True))
    total = sum(counts.values()) / COUNTED / each
    lines = [
        f"{title}: {best:.2f} us {what} at best, {middle:.2f} in the middle; asking {asking:.1f} us, answering "
        f"{answering:.1f} us a request; {total:.0f} bytecodes, {calls / COUNTED / each:.1f} Python calls"
    ]
    modules: Counter[str] = Counter()
    for code, count in counts.items():
        modules[module_of(code.co_filename)] += count
    by = by_feature(modules)
    lines += [f"{by[name] / COUNTED / each:9.1f}  bytecodes: {name}" for name, _ in FEATURES if by[name]]
    lines += [f"{count / COUNTED / each:9.1f}  {name}" for name, count in modules.most_common(14)]
    lines += [
        f"{count / COUNTED / each:9.1f}  {module_of(code.co_filename)}:{code.co_firstlineno} {code.co_qualname}"
        for code, count in counts.most_common(24)
    ]
    return [*lines, ""]


CASES: dict[str, tuple[int, bool]] = {"unary2k": (2048, False), "unary16k": (16384, False), "sse-paced": (2048, True)}


def run(rows: list[str], key: str) -> str:
    """The cases that were asked for, all by default."""
    lines = []
    try:
        for name, (body, stream) in CASES.items():
            if not rows or name in rows:
                lines += uvloop.run(dry(body, stream, key))
    except Unexpected as error:
        raise BenchFailed(f"dry: {error}") from None
    return "\n".join(lines)

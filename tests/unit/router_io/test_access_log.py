"""The access log: one line a request that nobody can forge; a reader that is slow or gone costs no request."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Iterator

import pytest

from headrace_router.telemetry import access_log
from headrace_router.telemetry.access_log import AccessLog, Entry, line_of
from headrace_router.telemetry.accumulators import Counter
from support.router_process import until


def entry(identity: str = "r1", target: str = "/v1/chat/completions?key=secret", method: str = "POST") -> Entry:
    made = Entry(identity, method, target, "10.0.0.1", 5.0)
    made.ended(404, complete=True, at=5.25)
    made.code = "model_not_found"
    return made


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    for end in (read, write):
        try:
            os.close(end)
        except OSError:
            assert end == read, "the test closed the reader itself"


def test_a_line_says_who_asked_what_and_what_came_of_it() -> None:
    told = json.loads(line_of(entry(), 1000.12345))
    assert told == {
        "time": 1000.123,
        "requestId": "r1",
        "remote": "10.0.0.1",
        "key": None,
        "method": "POST",
        "path": "/v1/chat/completions",
        "status": 404,
        "complete": True,
        "seconds": 0.25,
        "code": "model_not_found",
        "model": None,
        "priority": None,
        "engine": None,
        "attempts": 0,
        "outcome": None,
    }


@pytest.mark.parametrize(
    "text", ['/a\nINFO "fake"', "/a\r\n\x1b[2J", "/\u2028\u0085x", "/\udc80", "/é", "/" + "x" * 10_000, "\x00\x7f"]
)
def test_nothing_that_a_client_sends_forges_a_line(text: str) -> None:
    """SEC-05 (https://github.com/MemPalace/mempalace/issues/2556): no raw newline in logs, in whosever eyes."""
    line = line_of(entry(identity=text[:100], target=text, method=text[:9]), 0.0)
    assert line.isascii()
    assert len(line.decode().splitlines()) == 1
    assert line.endswith(b"}\n")
    assert b"\x1b" not in line
    assert json.loads(line)["path"] == text.partition("?")[0][:256]
    assert len(line) < 3_000


async def test_lines_are_written_in_time_and_the_last_at_the_end(pipe: tuple[int, int]) -> None:
    read, write = pipe
    dropped = Counter()
    log = AccessLog(write, dropped)
    log.write(entry("first"))
    log.write(entry("second"))
    os.set_blocking(read, False)
    got: list[bytes] = []

    def come() -> bool:
        try:
            got.append(os.read(read, 65_536))
        except BlockingIOError:
            return False
        return True

    await until(come)
    assert [json.loads(line)["requestId"] for line in b"".join(got).splitlines()] == ["first", "second"]
    log.write(entry("last"))
    await log.close()
    assert json.loads(os.read(read, 65_536))["requestId"] == "last"
    assert dropped.value == 0


async def test_a_pipe_that_nobody_empties_never_holds_up_a_request(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits is bounded; what went beyond is counted, and said in the log when it goes on."""
    read, write = pipe
    monkeypatch.setattr(access_log, "MAX_WAITING", 200_000)
    monkeypatch.setattr(access_log, "LAST_LINES_S", 20.0)
    dropped = Counter()
    log = AccessLog(write, dropped)
    for number in range(2_000):
        log.write(entry(str(number)))
        if number % 100 == 0:
            await asyncio.sleep(0)
    lost = int(dropped.value)
    assert 0 < lost < 2_000
    assert log._size + log._given - log._done <= 200_000

    def drained() -> list[bytes]:
        parts = []
        while not parts or not parts[-1].endswith(b"\n") or b'"end"' not in parts[-1]:
            parts.append(os.read(read, 65_536))
        return b"".join(parts).splitlines()

    reading = asyncio.create_task(asyncio.to_thread(drained))
    await until(lambda: log._given == log._done and not log._lines)
    log.write(entry("end"))
    await log.close()
    told = [json.loads(line) for line in await reading]
    assert [line.get("dropped") for line in told[-2:]] == [lost, None]
    assert len(told) == 2_000 - lost + 2
    assert [line["requestId"] for line in told[:-2]] == [str(number) for number in range(2_000 - lost)]


async def test_a_reader_that_is_gone_is_counted(pipe: tuple[int, int]) -> None:
    read, write = pipe
    os.close(read)
    dropped = Counter()
    log = AccessLog(write, dropped)
    for _ in range(3):
        log.write(entry())
    await log.close()
    assert dropped.value == 3


async def test_the_end_does_not_wait_for_a_reader_that_never_comes(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = pipe
    monkeypatch.setattr(access_log, "LAST_LINES_S", 0.05)
    log = AccessLog(write, Counter())
    for _ in range(1_000):
        log.write(entry())
    async with asyncio.timeout(20):
        await log.close()
    assert log._done < log._given
    os.set_blocking(read, False)

    def written() -> bool:
        with contextlib.suppress(BlockingIOError):
            os.read(read, 65_536)
        return log._done == log._given

    await until(written)  # the writing thread must not outlive the pipe

"""Values from strangers that once raised, grew without bound, or were believed."""

import json
import logging
import os
import time
from pathlib import Path

import msgspec
import pytest

from headrace_api.table import TableTls
from headrace_router.core.build_view import build_view
from headrace_router.core.selection import Selector
from headrace_router.endpoints import prober
from headrace_router.http1.numbers import whole
from headrace_router.tables.heartbeat import Heartbeat
from headrace_router.telemetry.accounting import Ledger
from headrace_router.telemetry.calm_log import LINES, Calm
from headrace_router.telemetry.metrics import KEEP_S, Metrics
from headrace_router.telemetry.sse import StreamObserver
from headrace_router.telemetry.unary import UnaryObserver
from headrace_router.upstream.port import Address, NotSent
from support.router_table import EngineAt, routing_table


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("12", 12),
        ("007", 7),
        ("100", 100),
        *((text, None) for text in ("101", "", "-1", "1.5", "²", "٣", "9" * 5000, "1_0", " 1")),
    ],
)
def test_whole_numbers(text: str, number: int | None) -> None:
    assert whole(text, 100) == number


@pytest.mark.parametrize("tokens", [-1, 10**8 + 1, 10**30, 10**400])
def test_absurd_usage_says_nothing(tokens: int) -> None:
    """One such answer would stand in the operator's demand for ever, or (10**400) fail a complete answer."""
    stream, unary = StreamObserver(), UnaryObserver()
    event = json.dumps({"usage": {"prompt_tokens": tokens, "completion_tokens": 5}}).encode()
    stream.feed(b"data: " + event + b"\n\n")
    unary.feed(event)
    for usage in (stream.usage, unary.usage()):
        assert usage.input_tokens is None
        assert usage.output_tokens in (5, None)


def test_absurd_usage_at_the_end_of_a_long_answer_says_nothing() -> None:
    unary = UnaryObserver()
    unary.feed(b'{"x":"' + b"a" * 300_000 + b'","usage":{"prompt_tokens":999999999999,"completion_tokens":5}}')
    assert (unary.usage().input_tokens, unary.usage().output_tokens) == (None, 5)


def test_a_heartbeat_from_the_future_ages_from_when_it_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that was set back must not make a dead operator look alive until that future has come."""
    file = tmp_path / "heartbeat"
    file.write_text("x")
    os.utime(file, (time.time() + 3_600, time.time() + 3_600))
    heartbeat = Heartbeat([tmp_path / "t.yaml"])
    assert heartbeat.age() == 0.0
    started = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: started + 100.0)
    age = heartbeat.age()
    assert age is not None
    assert age >= 100.0
    os.utime(file, (time.time() + 7_200, time.time() + 7_200))
    assert heartbeat.age() == 0.0, "it was renewed"


def line(message: str, *arguments: object, at: float = 0.0) -> logging.LogRecord:
    record = logging.LogRecord("headrace.router", logging.ERROR, "f.py", 1, message, arguments, None)
    record.created = at
    return record


def test_one_fault_a_thousand_times_a_second_is_a_few_lines() -> None:
    calm = Calm()
    passed = [calm.filter(line("request %s failed", number, at=0.5)) for number in range(1_000)]
    assert sum(passed) == LINES
    assert passed[0]
    assert calm.filter(line("another thing", at=0.5))
    later = line("request %s failed", "z", at=1.6)
    assert calm.filter(later)
    assert later.getMessage() == f"request z failed (and {1_000 - LINES} more like it before)"
    again = line("request %s failed", "y", at=1.7)
    assert calm.filter(again)
    assert again.getMessage() == "request y failed"
    assert calm.filter(line("request %s failed", "x", at=-50.0)), "a clock that was set back silences nothing"


def test_kinds_of_lines_are_bounded() -> None:
    calm = Calm()
    assert all(calm.filter(line(f"message {number}")) for number in range(5_000))
    assert len(calm._kinds) <= 1_001


def test_series_of_what_left_the_tables_go_after_a_while() -> None:
    """Engines are replaced for months under one router; each left its series behind."""
    metrics = Metrics()
    model = ("ns", "p", "fe", "m")

    def engines() -> set[str]:
        return {values[4] for values in metrics.requests.known()}

    for number in range(100):
        metrics.retain([model, (f"ns/e{number}",)], number * 60.0)
        metrics.requests[(*model, f"ns/e{number}", "ok")].inc()
        metrics.engine_ttft[(f"ns/e{number}",)].observe(1.0)
    kept = int(KEEP_S / 60.0) + 1
    assert engines() == {f"ns/e{number}" for number in range(100 - kept, 100)}
    assert len(metrics.engine_ttft.known()) == kept
    metrics.retain([model, ("ns/e99",), ("ns/e98",)], 6_000.0)
    metrics.retain([model, ("ns/e98",)], 6_060.0)
    metrics.retain([model, ("ns/e98",), ("ns/new",)], 99_000.0)
    assert engines() == {"ns/e98"}, "who came back stays"
    metrics.retain([("ns/e98",)], 99_001.0)
    metrics.retain([], 199_000.0)
    assert engines() == set()


def test_ratios_of_models_that_left_are_forgotten() -> None:
    ledger = Ledger(Metrics())
    table = routing_table({"a": "http://127.0.0.1:9"})
    kept = ledger.learned("m", "0")
    ledger.learned("gone", "0")
    ledger.prepare(build_view([table]))
    assert ledger.learned("m", "0") is kept
    assert len(ledger._learned) == 1


class Engines:
    """Answers probes as told, one after the other."""

    def __init__(self, *results: Exception) -> None:
        self.results = list(results)
        self.asked: list[Address] = []

    async def fetch(self, address: Address, target: str, timeout: float) -> int:  # noqa: ASYNC109
        self.asked.append(address)
        raise self.results.pop(0)


async def probed(*results: Exception) -> tuple[list[Address], bool]:
    table = routing_table({"a": EngineAt(("https://127.0.0.1:9",))})
    tls = TableTls(server_name="use1-a.gpu.example")
    table = msgspec.structs.replace(table, engines=(msgspec.structs.replace(table.engines[0], tls=tls),))
    selector = Selector(build_view([table]), rng=lambda: 0.5)
    upstream = Engines(*results)
    await prober._ask(
        selector,
        upstream,  # type: ignore[arg-type]
        "inference/a",
        "https://127.0.0.1:9",
        lambda: None,
        lambda _: None,
    )
    (endpoint,) = selector.view.engines["inference/a"].endpoints
    return upstream.asked, endpoint.ready


async def test_probes_verify_an_engine_as_requests_do() -> None:
    """Asked by its address alone, an engine whose certificate has a name of its own would never be ready."""
    asked, ready = await probed(NotSent("refused"))
    assert [address.server_name for address in asked] == ["use1-a.gpu.example"]
    assert not ready


async def test_a_single_silence_of_a_probe_is_not_believed() -> None:
    """A loop that was busy for two seconds would else find the whole fleet not ready in one moment."""
    asked, ready = await probed(TimeoutError(), TimeoutError())
    assert len(asked) == 2
    assert not ready


async def test_probes_without_sockets_of_our_own_say_nothing() -> None:
    asked, ready = await probed(NotSent("no descriptors", own=True))
    assert len(asked) == 1
    assert ready

"""The load generator against the fake engines and against a server that answers wrongly: it counts what came."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bench.router import install
from bench.router.load import Bench, Engines
from bench.router.measurements import ANSWER_BYTES
from bench.router.processes import BenchFailed, Children


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    install.system_programs("gcc")
    folder = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        tools = install.tools()
    with Children(folder) as children:
        yield Bench(tools, children, {0}, {0})


@pytest.fixture(scope="module")
def engines(bench: Bench) -> Engines:
    return bench.engines(4)


def test_unary_answers_have_the_length_that_proxies_are_held_to(bench: Bench, engines: Engines) -> None:
    done = bench.load(
        "unary", engines.addresses, [engines.child.process.pid], seconds=0.3, length=ANSWER_BYTES, body=16384
    )
    done.refuse_errors("direct")
    assert done.requests > 0
    assert done.latency_us["p50"] <= done.latency_us["p99"] <= done.latency_us["max"]
    assert str(engines.child.process.pid) in done.cpu


def test_a_paced_stream_has_its_events_at_its_pace(bench: Bench, engines: Engines) -> None:
    """10 streams of 5 events, one each 20 ms, and 2 at the end: no more can come in 0.5 s than the pace allows."""
    done = bench.load("stream", engines.addresses, [], connections=10, chunks=5, pace=20, seconds=0.5, warmup=0.1)
    done.refuse_errors("direct")
    assert 0 < done.events <= 10 * (0.5 / 0.080 + 2) * 7


def test_a_window_bounds_what_is_under_way_and_nothing_stalls(bench: Bench, engines: Engines) -> None:
    window = {"window": 2, "counts": bench.counts}
    done = bench.load("stream", engines.addresses, [], connections=20, chunks=500, seconds=0.5, **window)
    done.refuse_errors("direct")
    assert done.events > 0


def test_bursts_are_timed_to_the_first_event(bench: Bench, engines: Engines) -> None:
    done = bench.load(
        "burst", engines.addresses, [], connections=10, chunks=1, first=20, pace=1, seconds=0.5, warmup=0.2
    )
    done.refuse_errors("direct")
    assert done.latency_us["p50"] >= 20_000


def test_held_streams_are_all_open(bench: Bench, engines: Engines) -> None:
    done = bench.load("hold", engines.addresses, [], connections=100, chunks=1000, pace=100, seconds=0.2)
    assert done.open == 100


def test_load_goes_nowhere_but_to_loopback(bench: Bench) -> None:
    with pytest.raises(BenchFailed, match=r"127\.0\.0\.0/8 and nowhere else"):
        bench.load("unary", ["192.0.2.1:80"], [], seconds=0.2)


class Wrong(BaseHTTPRequestHandler):
    """Answers as its server's ``lie`` says."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        lie: str = self.server.lie  # type: ignore[attr-defined]
        if lie == "cut":
            self.close_connection = True
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Request-Id: 1\r\nContent-Length: 50\r\n\r\nshort")
            return
        self.send_response(503 if lie == "status" else 200)
        self.send_header("Content-Length", "2")
        if lie != "id":
            self.send_header("X-Request-Id", "1")
        self.end_headers()
        self.wfile.write(b"no" if lie == "body" else b"{}")

    def log_message(self, *_: object) -> None:
        return


@pytest.mark.parametrize("lie", ["status", "length", "id", "body", "cut", "none"])
def test_every_kind_of_wrong_answer_is_seen(bench: Bench, lie: str) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Wrong)
    server.daemon_threads = True
    server.lie = lie  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        length = 3 if lie == "length" else 2
        to = [f"127.0.0.1:{server.server_address[1]}"]
        done = bench.load(
            "unary", to, [], connections=2, seconds=0.3, warmup=0, length=length, id_header="x-request-id"
        )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    seen = {kind for kind, count in done.errors.items() if count}
    assert seen == (set() if lie == "none" else {lie})


def test_engines_take_chunked_bodies_and_answer_what_routers_ask(engines: Engines, tmp_path: Path) -> None:
    url = f"http://{engines.addresses[0]}"
    body = tmp_path / "body"
    body.write_text('{"model":"model-a","stream":true,"max_completion_tokens":3}')
    chunked = ["curl", "-sS", "-H", "Transfer-Encoding: chunked", "-H", "Expect:", "--data-binary", f"@{body}"]
    said = subprocess.run([*chunked, f"{url}/v1/chat/completions"], capture_output=True, check=True, timeout=30).stdout
    assert said.count(b"data: ") == 3 + 2
    assert said.endswith(b"data: [DONE]\n\n")
    assert b'"total_tokens":640' in said
    models = subprocess.run(["curl", "-sS", f"{url}/v1/models"], capture_output=True, check=True, timeout=30).stdout
    assert b"model-b" in models

"""The wrapped Prometheus client against servers that are slow, hostile, wrong, or right."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from headrace_operator.loader.config_places import BasicAuth, MetricSource, SourceAuth, Tenant
from headrace_operator.loader.prometheus_http import (
    Credentials,
    PrometheusClient,
    RangeSeries,
    SourceFault,
    read_credentials,
)

CANARY = "canary-7d1f"  # a secret that must be seen nowhere
SERIES = {"metric": {"__name__": "up", "job": "a"}, "values": [[100.5, "1"]]}


def body(**parts: Any) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [SERIES]}} | parts).encode()


class Server:
    """Answers every POST by ``answer(handler)``; keeps what it was asked."""

    def __init__(self, answer: Callable[[BaseHTTPRequestHandler], None]) -> None:
        self.asked: list[tuple[str, Mapping[str, str], dict[str, list[str]]]] = []
        kept = self.asked

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                kept.append((self.path, dict(self.headers), parse_qs(form)))
                answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@contextmanager
def serving(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[Server]:
    made = Server(answer)
    made.server.daemon_threads = True
    made.server.block_on_close = False
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()
        thread.join()


def says(content: bytes, status: int = 200, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def ask(
    url: str, credentials: Credentials | None = None, **described: Any
) -> tuple[list[RangeSeries], tuple[str, ...]]:
    source = MetricSource(name="s", url=url, **({"timeout": "2s"} | described))
    client = PrometheusClient(source, credentials or Credentials())
    try:
        return client.series('{__name__="up"}[15000ms]')
    finally:
        client.close()


def test_a_query_is_posted_and_its_samples_come_back() -> None:
    """The library by itself puts the query into the URL, where a long one is refused."""
    with serving(says(body(infos=["a hint"]))) as server:
        series, warnings = ask(f"{server.url}/prefix/", tenant=Tenant(value="llm"))
    path, headers, form = server.asked[0]
    assert (path, form["query"]) == ("/prefix/api/v1/query", ['{__name__="up"}[15000ms]'])
    assert headers["X-Scope-OrgID"] == "llm"
    assert (series[0].metric["job"], series[0].values, warnings) == ("a", [(100.5, "1")], ())


def test_the_servers_clock() -> None:
    with serving(says(body(data={"resultType": "scalar", "result": [100.5, "100.5"]}))) as server:
        client = PrometheusClient(MetricSource(name="s", url=server.url), Credentials())
        assert client.clock() == 100.5
        client.close()


def test_warnings_are_not_lost() -> None:
    """Case PRM-04 e: warnings may come with data, and the library drops them.

    https://github.com/4n4nd/prometheus-api-client-python/issues/207
    """
    with serving(says(body(warnings=["store 10.0.0.1 unreachable"]))) as server:
        assert ask(server.url)[1] == ("store 10.0.0.1 unreachable",)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        pytest.param(
            says(b'{"status":"error","errorType":"execution","error":"x"}'),
            "it answered an error: execution: x",
            id="a",
        ),
        pytest.param(
            says(b'{"status":"error","errorType":"execution","error":"x"}', 503),
            "it answered 503: execution: x",
            id="b",
        ),
        pytest.param(says(b"<html>Log in</html>"), "not the answer of a Prometheus", id="c"),
        pytest.param(says(b"", 302, Location="/login"), "it answered 302, a redirect", id="d"),
        pytest.param(says(body()[:-20]), "not the answer of a Prometheus", id="g"),
        pytest.param(
            says(b'{"status":"error","errorType":"execution","error":"found duplicate series"}', 422),
            "it answered 422: execution: found duplicate series",
            id="PRM-05: a match group",
        ),
        pytest.param(says(body(data={"resultType": "vector", "result": []})), "right would be a matrix", id="vector"),
        pytest.param(says(body(data=None)), "it answered an error", id="no data"),
        pytest.param(says(b"[" * 5000), "not the answer of a Prometheus", id="deep"),
        pytest.param(says(b"\xff\xfe"), "not the answer of a Prometheus", id="no text"),
    ],
)
def test_errors_are_not_empty_answers(answer: Callable[[BaseHTTPRequestHandler], None], fault: str) -> None:
    """Case PRM-04: errors and partial answers must not look like "nothing is running".

    https://github.com/ray-project/ray/pull/56851
    """
    with serving(answer) as server, pytest.raises(SourceFault, match=fault):
        ask(server.url)


def test_a_server_that_hangs_is_left_in_time() -> None:
    """The library waits for ever by default, and tries a GET three times more on top of a time-out."""
    done = threading.Event()
    with serving(lambda _: done.wait(30) and None) as server:
        with pytest.raises(SourceFault, match=r"no answer within 0\.3 s"):
            ask(server.url, timeout="300ms")
        done.set()
    assert len(server.asked) == 1


def test_a_server_that_drips_is_left_in_time() -> None:
    """Each byte is in time, the answer never is: a time-out of each read would never end it."""
    stop = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        while not stop.wait(0.02):
            try:
                handler.wfile.write(b" ")
                handler.wfile.flush()
            except OSError:
                return

    with serving(drip) as server:
        with pytest.raises(SourceFault, match="no answer within"):
            ask(server.url, timeout="300ms")
        stop.set()


def test_a_large_answer_is_refused_however_small_it_was_packed() -> None:
    packed = gzip.compress(b" " * 10_000_000)
    with serving(says(packed, Content_Encoding="gzip")) as server, pytest.raises(SourceFault, match="maxAnswer"):
        ask(server.url, max_answer="1Mi")


def test_one_retry_of_a_connection_that_broke() -> None:
    tries: list[float] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        tries.append(time.monotonic())
        if len(tries) == 1:
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        says(body())(handler)

    with serving(answer) as server:
        assert ask(server.url)[0][0].metric["job"] == "a"
    assert len(tries) == 2


def test_nothing_listens() -> None:
    with pytest.raises(SourceFault, match="Connection refused"):
        ask("http://127.0.0.1:9")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_credentials_do_not_follow_a_redirect(status: int) -> None:
    """Case SEC-04: a redirect of the metrics source is an error, its token is not sent on.

    https://github.com/aio-libs/aiohttp/pull/12275
    """
    with serving(says(body())) as thief, serving(says(b"", status, Location=f"{thief.url}/api/v1/query")) as server:
        with pytest.raises(SourceFault, match="a redirect"):
            ask(server.url, Credentials(headers=(("Authorization", f"Bearer {CANARY}"),)))
        assert server.asked[0][1]["Authorization"] == f"Bearer {CANARY}"
        assert thief.asked == []


def test_the_environment_sends_nothing_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """~/.netrc would replace the token, a proxy would be shown it."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login else password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with serving(says(b"", 500)) as proxy, serving(says(body())) as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        ask(server.url, Credentials(headers=(("Authorization", f"Bearer {CANARY}"),)))
        assert server.asked[0][1]["Authorization"] == f"Bearer {CANARY}"
        assert proxy.asked == []


def secret_file(tmp_path: Path, text: str) -> str:
    place = tmp_path / "secret"
    place.write_text(text)
    return str(place)


def test_secrets_are_files(tmp_path: Path) -> None:
    place = secret_file(tmp_path, f"{CANARY}\n")
    bearer = MetricSource(name="s", url="http://a", auth=SourceAuth(bearer_token_file=place))
    basic = MetricSource(name="s", url="http://a", auth=SourceAuth(basic=BasicAuth(username="u", password_file=place)))
    assert read_credentials(bearer).headers == (("Authorization", f"Bearer {CANARY}"),)
    assert read_credentials(MetricSource(name="s", url="http://a")) == Credentials()
    with serving(says(body())) as server:
        ask(server.url, read_credentials(basic))
    packed = base64.b64encode(f"u:{CANARY}".encode()).decode()
    assert server.asked[0][1]["Authorization"] == f"Basic {packed}"
    for credentials in (read_credentials(bearer), read_credentials(basic)):
        assert CANARY not in repr(credentials)


@pytest.mark.parametrize(
    ("text", "right"),
    [("", "right would be the secret alone"), (f"{CANARY}\nHost: x", "right would be the secret alone")],
)
def test_a_secret_that_is_none(tmp_path: Path, text: str, right: str) -> None:
    described = MetricSource(name="s", url="http://a", auth=SourceAuth(bearer_token_file=secret_file(tmp_path, text)))
    with pytest.raises(SourceFault, match=right) as fault:
        read_credentials(described)
    assert CANARY not in str(fault.value)


def test_a_secret_that_is_not_there(tmp_path: Path) -> None:
    described = MetricSource(name="s", url="http://a", auth=SourceAuth(bearer_token_file=str(tmp_path / "none")))
    with pytest.raises(SourceFault, match="No such file or directory; right would be a readable file"):
        read_credentials(described)


@pytest.mark.parametrize("where", ["error", "warning", "html"])
def test_a_server_that_repeats_the_secret(where: str) -> None:
    basic = Credentials(basic=("u", CANARY))
    packed = base64.b64encode(f"u:{CANARY}".encode()).decode()
    if where == "warning":
        with serving(says(body(warnings=[f"seen {CANARY} and {packed}"]))) as server:
            assert ask(server.url, basic)[1] == ("seen … and …",)
        return
    error = json.dumps({"status": "error", "errorType": "bad", "error": f"{CANARY} {packed}"}).encode()
    content = error if where == "error" else f"<p>{CANARY} {packed}</p>".encode()
    with serving(says(content, 401)) as server, pytest.raises(SourceFault, match="it answered 401") as fault:
        ask(server.url, basic)
    assert CANARY not in str(fault.value)
    assert packed not in str(fault.value)

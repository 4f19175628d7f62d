"""One replica of a simulated engine as a real HTTP server: the OpenAI API, vLLM's metrics page, a switch for faults.

On the request path of the demo and of tests. Its behaviour under load is the step loop's; here are only sockets,
clients that vanish (their work stops within one turn of the event loop) and death: the listener closes and every
connection is cut, while the port stays reserved, so that connecting is refused until the replica lives again.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections import Counter
from collections.abc import Mapping
from time import time
from typing import Annotated, Any, Final

import msgspec
from aiohttp import web
from msgspec import Meta

from headrace_lab.engine.contract import Admission, EngineConfig, Stats
from headrace_lab.engine.driver import Driver, Mailbox
from headrace_lab.engine.metrics import CONTENT_TYPE
from headrace_lab.engine.protocol import ApiError, Ask, Writer, bad_request, parse

FRONTEND_HEADER: Final = "x-lab-frontend"
DEFAULT_OUTPUT_MEAN: Final = 128  # tokens of an answer whose request sets no limit; geometric
DEFAULT_OUTPUT_MAX: Final = 1024
MAX_BODY: Final = 64 << 20
MAX_FRONTENDS: Final = 256  # whose requests are counted apart; as many as a policy can have


class StateChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to become of a replica; None leaves as it is. ``restore`` comes first, then the others."""

    slow: Annotated[float, Meta(gt=0, le=1000)] | None = None
    fail: Annotated[float, Meta(ge=0, le=1)] | None = None
    dead: bool | None = None
    draining: bool | None = None
    paused: bool | None = None
    restore: bool = False


_SWITCHES: Final = ("slow", "fail", "dead", "draining", "paused")
RESTORED: Final = StateChange(slow=1.0, fail=0.0, dead=False, draining=False, paused=False)


class ReplicaState(msgspec.Struct, frozen=True, kw_only=True):
    """A replica at this moment; counts are over all its lives. ``asked``: requests by the front-end that they name."""

    url: str
    slow: float
    fail: float
    dead: bool
    draining: bool
    paused: bool
    running: int
    waiting: int
    served: int
    aborted: int
    failed: int
    refused: int
    asked: dict[str, int] = {}


class Replica:
    """One server on one port. ``half_trips``: front-end to seconds that each way of its requests takes."""

    def __init__(
        self,
        config: EngineConfig,
        model: str,
        *,
        seed: int = 0,
        stream_interval: int = 1,
        half_trips: Mapping[str, float] | None = None,
    ) -> None:
        self._config = config
        self._model = model
        self._seed = seed
        self._rng = random.Random(seed)  # noqa: S311 - lengths of simulated answers
        self._interval = stream_interval
        self._half_trips = half_trips or {}
        self._created = int(time())
        self._answers = 0
        self._asked: Counter[str] = Counter()
        self._wanted = RESTORED
        self._past = Stats()
        self._driver: Driver | None = None
        self._runner: web.AppRunner | None = None
        self._reserved: socket.socket | None = None
        self._listener: asyncio.Server | None = None
        self._address = ("", 0)
        self._changing = asyncio.Lock()

    @property
    def url(self) -> str:
        """``http://host:port``."""
        host, port = self._address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def state(self) -> ReplicaState:
        """How it is now, dead or alive."""
        core = self._driver.core if self._driver else None
        now = core.stats if core else Stats()
        return ReplicaState(
            url=self.url,
            slow=self._wanted.slow or 1.0,
            fail=self._wanted.fail or 0.0,
            dead=core is None,
            draining=bool(self._wanted.draining),
            paused=bool(self._wanted.paused),
            running=core.running if core else 0,
            waiting=core.waiting if core else 0,
            served=self._past.finished + now.finished,
            aborted=self._past.aborted + now.aborted,
            failed=self._past.failed + now.failed,
            refused=self._past.refused + now.refused,
            asked=dict(self._asked),
        )

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen. Raises OSError if the port is taken."""
        if port:
            _bound(host, port, shared=False).close()  # sharing a port must not hide that another fleet holds it
        self._reserved = _bound(host, port)
        self._address = (host, self._reserved.getsockname()[1])
        app = web.Application(client_max_size=MAX_BODY)
        app.add_routes(
            [
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/completions", self._completion),
                web.get("/v1/models", self._models),
                web.get("/health", self._health),
                web.get("/metrics", self._metrics),
                web.get("/lab/state", self._show_state),
                web.post("/lab/state", self._lab_state),
            ]
        )
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await self._live()

    async def stop(self) -> None:
        """Cut everything and free the port."""
        self._die()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._reserved is not None:
            self._reserved.close()

    async def set_state(self, change: StateChange, spare: asyncio.BaseTransport | None = None) -> None:
        """Change what ``change`` names, now. Death spares the connection ``spare``."""
        async with self._changing:
            await self._set_state(change, spare)

    async def _set_state(self, change: StateChange, spare: asyncio.BaseTransport | None) -> None:
        if change.restore:
            self._wanted = RESTORED
        named = {field: getattr(change, field) for field in _SWITCHES if getattr(change, field) is not None}
        self._wanted = msgspec.structs.replace(self._wanted, **named)
        if self._wanted.dead:
            self._die(spare)
        elif self._driver is None:
            await self._live()
        else:
            self._apply(self._driver)

    def _apply(self, driver: Driver) -> None:
        wanted = self._wanted
        driver.core.draining = bool(wanted.draining)
        driver.core.set_fail(wanted.fail or 0.0)
        driver.change(lambda core, now: core.set_slow(wanted.slow or 1.0, now))
        driver.change(lambda core, now: core.pause(now) if wanted.paused else core.resume(now))

    async def _live(self) -> None:
        """Begin a life: an empty engine, and a listener on the reserved port."""
        if self._runner is None or self._runner.server is None:
            raise RuntimeError("a replica lives only between start and stop")
        self._driver = Driver(self._config, self._model, self._seed)
        self._apply(self._driver)
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._runner.server, sock=_bound(*self._address), backlog=1024)

    def _die(self, spare: asyncio.BaseTransport | None = None) -> None:
        if self._driver is None or self._listener is None or self._runner is None or self._runner.server is None:
            return
        self._listener.close()
        for connection in self._runner.server.connections:
            if connection.transport is not None and connection.transport is not spare:
                connection.transport.abort()
        self._driver.close()
        core = self._driver.core
        ended = core.stats
        past = self._past
        self._past = Stats(
            finished=past.finished + ended.finished,
            aborted=past.aborted + ended.aborted + core.running + core.waiting,
            failed=past.failed + ended.failed,
            refused=past.refused + ended.refused,
        )
        self._driver = None

    def _alive(self) -> Driver:
        if self._driver is None:
            raise ApiError(503, "ServiceUnavailableError", "the engine is dead")
        return self._driver

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        return await self._answer(http, chat=True)

    async def _completion(self, http: web.Request) -> web.StreamResponse:
        return await self._answer(http, chat=False)

    async def _answer(self, http: web.Request, *, chat: bool) -> web.StreamResponse:
        frontend = http.headers.get(FRONTEND_HEADER, "")
        half = self._half_trips.get(frontend, 0.0)
        if len(self._asked) < MAX_FRONTENDS or frontend in self._asked:
            self._asked[frontend] += 1
        body = await http.read()
        if half:
            await asyncio.sleep(half)
        try:
            ask = parse(body, chat=chat, prefix_block_tokens=self._config.prefix_block_tokens)
            return await self._generate(http, ask, half)
        except ApiError as error:
            if half:
                await asyncio.sleep(half)
            return web.Response(status=error.status, body=error.body, content_type="application/json")

    async def _generate(self, http: web.Request, ask: Ask, half: float) -> web.StreamResponse:
        if ask.model not in {None, self._model}:
            raise ApiError(404, "NotFoundError", f"The model `{ask.model}` does not exist.", "model")
        driver = self._alive()
        reason = "length" if ask.output_tokens else "stop"
        output = ask.output_tokens or self._output_tokens()
        mailbox = Mailbox(half)
        every = self._interval if ask.stream else 0
        number = driver.submit((ask.prompt_tokens, output), ask.prefix, reason, mailbox, every)
        if isinstance(number, Admission):
            raise self._refusal(number, ask.prompt_tokens, output)
        self._answers += 1
        name = f"{'chatcmpl' if ask.chat else 'cmpl'}-{self._seed:x}-{self._answers:x}"
        writer = Writer(ask, name, self._model, int(time()))
        try:
            if ask.stream:
                return await self._stream(http, writer, mailbox, reason, half)
            last = (await mailbox.take())[-1]
            return web.Response(body=writer.whole(reason, last.generated), content_type="application/json")
        finally:
            driver.abort(number)

    async def _stream(
        self, http: web.Request, writer: Writer, mailbox: Mailbox, reason: str, half: float
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        )
        if half:
            await asyncio.sleep(half)
        await response.prepare(http)
        sent = 0
        finished = False
        while not finished:
            events = [] if sent else [writer.opening()]
            for progress in await mailbox.take():
                count, sent = progress.generated - sent, progress.generated
                finished = progress.finished
                events.append(writer.closing(count, reason, sent) if finished else writer.tokens(count))
            await response.write(b"".join(events))
        await response.write_eof()
        return response

    def _output_tokens(self) -> int:
        return min(DEFAULT_OUTPUT_MAX, 1 + int(self._rng.expovariate(1 / DEFAULT_OUTPUT_MEAN)))

    def _refusal(self, admission: Admission, prompt_tokens: int, output_tokens: int) -> ApiError:
        if admission is Admission.FAILED:
            return ApiError(500, "InternalServerError", "the engine fails: lab state `fail`")
        if admission is Admission.DRAINING:
            return ApiError(503, "ServiceUnavailableError", "the engine drains")
        most = min(self._config.max_model_len, self._config.kv_cache_tokens)
        return bad_request(
            f"This model's maximum context length is {most} tokens; {prompt_tokens} in the prompt and {output_tokens} "
            "in the answer are too many.",
            "max_tokens",
        )

    async def _models(self, _: web.Request) -> web.Response:
        model = {
            "id": self._model,
            "object": "model",
            "created": self._created,
            "owned_by": "headrace-lab",
            "max_model_len": self._config.max_model_len,
        }
        return json_response({"object": "list", "data": [model]})

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self._alive().core.draining else 200)

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._alive().metrics.page(), headers={"Content-Type": CONTENT_TYPE})

    async def _show_state(self, _: web.Request) -> web.Response:
        return json_response(self.state)

    async def _lab_state(self, http: web.Request) -> web.StreamResponse:
        try:
            change = msgspec.json.decode(await http.read(), type=StateChange)
        except msgspec.DecodeError as error:
            return json_response({"error": str(error)}, status=400)
        await self.set_state(change, spare=http.transport)
        response = json_response(self.state)
        response.force_close()
        return response


def json_response(value: Any, status: int = 200) -> web.Response:
    """A value as JSON."""
    return web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")


def _bound(host: str, port: int, *, shared: bool = True) -> socket.socket:
    """A TCP socket bound to the address; ``shared``: beside others of this user that share the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shared))
        bound.bind((host, port))
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return bound

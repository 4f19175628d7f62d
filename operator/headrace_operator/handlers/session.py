"""kopf, and nothing else: watches of what the operator follows, each event handed on as it comes.

On the routing-weight path. Only ``on.event`` handlers: they leave no finalizer and no annotation on anybody's objects,
and need no peering (docs/adr/0010-kopf-only-watches.md). kopf runs in a thread with an event loop of its own, because
it takes signals for itself and cancels, when it ends, every task that was made after its start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import kopf
from kubernetes import client

log = logging.getLogger(__name__)

SERVER_SECONDS: Final = 240  # whole seconds: a fraction is refused by the API server
CONNECT_SECONDS: Final = 5.0
BACKOFFS: Final = (1, 2, 4)  # of one call that fails; then the session ends, and whoever follows begins another
END_SECONDS: Final = 8.0
Json = Mapping[str, Any]


class Watched(NamedTuple):
    """A kind to watch: its name here, and as the API server knows it."""

    kind: str
    group: str
    version: str
    plural: str


class Session:
    """One run of kopf. ``start`` it once; it ends by itself when kopf gives up, or by ``end``."""

    def __init__(
        self,
        watched: Sequence[Watched],
        namespaces: Sequence[str],
        settings: Callable[[], client.Configuration],
        tell: Callable[[str, str | None, Json], None],
    ) -> None:
        """namespaces: none means all. settings: address and credentials, asked again when they are refused.

        tell: called with kind, type (None: listed; else ADDED, MODIFIED, DELETED) and object, from kopf's thread.
        """
        self._watched = watched
        self._namespaces = namespaces
        self._settings = settings
        self._tell = tell
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)
        self.ended_by = ""

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it watches."""
        return self._thread.is_alive()

    def end(self) -> None:
        """Stop watching, in bounded time."""
        self._ending.set()
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended by itself meanwhile
                loop.call_soon_threadsafe(stop.set)
        if self._thread.ident is not None:
            self._thread.join(END_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._watch())
        except Exception as error:  # noqa: BLE001  told by whoever begins the next session
            # An answer of the API server as kopf's exception carries it is more than a line.
            self.ended_by = f"{type(error).__name__}: {str(error)[:200]}"

    async def _watch(self) -> None:
        self._stop, self._loop = asyncio.Event(), asyncio.get_running_loop()
        # A stream that ends as its pause is cancelled trips over itself in kopf (clients/api.py), without harm.
        self._loop.set_exception_handler(lambda _, context: log.debug("kopf: %s", context.get("message")))
        if self._ending.is_set():
            return
        await kopf.operator(
            registry=self._registry(),
            settings=_quiet_settings(),
            standalone=True,
            clusterwide=not self._namespaces,
            namespaces=list(self._namespaces),
            stop_flag=self._stop,
            identity=cast(Any, "headrace"),  # else kopf asks for this user's name, which a container's may not have
        )

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        def login(**_: Any) -> kopf.ConnectionInfo:
            return connection_of(self._settings())

        for one in self._watched:
            self._follow(registry, one)
        return registry

    def _follow(self, registry: kopf.OperatorRegistry, one: Watched) -> None:
        @kopf.on.event(one.group, one.version, one.plural, id=one.plural, registry=registry)
        async def told(event: Any, **_: Any) -> None:
            try:
                self._tell(one.kind, event["type"], event["object"])
            except Exception:
                log.exception("an event of a %s could not be taken; the next list shows what it was", one.kind)


def connection_of(settings: client.Configuration) -> kopf.ConnectionInfo:
    """Address and credentials as kopf takes them."""
    header = settings.get_api_key_with_prefix("BearerToken") or settings.get_api_key_with_prefix("authorization") or ""
    scheme, _, token = header.rpartition(" ")
    return kopf.ConnectionInfo(
        server=settings.host,
        ca_path=settings.ssl_ca_cert,
        insecure=not settings.verify_ssl,
        username=settings.username or None,
        password=settings.password or None,
        scheme=scheme or None,
        token=token or None,
        certificate_path=settings.cert_file,
        private_key_path=settings.key_file,
    )


def _quiet_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.posting.loggers = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = SERVER_SECONDS
    settings.watching.connect_timeout = CONNECT_SECONDS
    settings.watching.initial_streaming = False
    settings.networking.error_backoffs = BACKOFFS
    settings.networking.request_timeout = 30.0
    # It would be kopf's own thread that it kills, and with it the process.
    settings.process.ultimate_exiting_timeout = None
    return settings

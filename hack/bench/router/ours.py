"""Our router with everything on: two models, prices, affinity, limits, retries, ejection, ids and headers.

Compiled, as in images, where nothing else is said; the source is measured beside it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from bench.router.interpreter import interpreter, path, said
from bench.router.load import Engines
from bench.router.processes import LOOPBACK, BenchFailed, free_port
from headrace_api.table import (
    WEIGHT_TOTAL,
    ClassRoutes,
    Guard,
    Identity,
    ModelRoutes,
    Route,
    RoutingTable,
    TableAffinity,
    TableAffinityKey,
    TableEngine,
)
from headrace_api.version import __version__

MODELS = ("model-a", "model-b")
KEYS: Mapping[str, TableAffinityKey] = {
    "header": TableAffinityKey(header="x-session-id"),
    "field": TableAffinityKey(field="user"),
}
Key = Literal["header", "field"]
Form = Literal["compiled", "source"]
ROOT = Path(__file__).resolve().parents[3]
COMPILE = Path("hack") / "compile" / "compiled.py"
SOURCES = ("crds", "router", "operator", "hack")


def table(engines: Engines, *, key: Key = "header", revision: int = 1, turn: int = 0) -> bytes:
    """The table: the engines halved between two models. turn: moves the weights round, as a new decision does."""
    halves = [[f"bench/e{i}" for i in range(engines.count) if i % 2 == half] for half in (0, 1)]
    made = RoutingTable(
        schema_version=1,
        identity=Identity(uid="bench", term=1, revision=revision),
        policy="bench",
        policy_namespace="bench",
        frontend="bench",
        issued="2026-01-01T00:00:00Z",
        hash=f"h{revision}",
        models=tuple(
            ModelRoutes(model=model, classes=(ClassRoutes(routes=_routes(half, turn)),))
            for model, half in zip(MODELS, halves, strict=True)
        ),
        engines=tuple(
            TableEngine(id=f"bench/e{i}", urls=(f"http://{at}",), in_flight_here=5.0, concurrency_limit=2000)
            for i, at in enumerate(engines.addresses)
        ),
        guard=Guard(x=1.0, z=1.0, nu=0.0),
        affinity=TableAffinity(keys=(KEYS[key],)),
    )
    return msgspec.json.encode(made)


def _routes(names: Sequence[str], turn: int) -> tuple[Route, ...]:
    shares = [2 + (i + turn) % 3 for i in range(len(names))]
    weights = [share * WEIGHT_TOTAL // sum(shares) for share in shares]
    weights[turn % len(names)] += WEIGHT_TOTAL - sum(weights)
    pairs = zip(names, weights, strict=True)
    return tuple(Route(engine=name, weight=weight, work_share=0.01) for name, weight in sorted(pairs))


def command(
    *, key: Key = "header", more: Sequence[str] = (), inside: Sequence[str] = ()
) -> Callable[[Path, int, Engines], list[str]]:
    """How the router is started. inside: arguments of inside.py, which then runs it."""

    def made(folder: Path, port: int, engines: Engines) -> list[str]:
        place = folder / f"table-{port}.json"
        place.write_bytes(table(engines, key=key))
        way = ["-m", "bench.router.inside", *inside, "--"] if inside else ["-m", "headrace_cli.main"]
        admin = f"{LOOPBACK}:{free_port()}"
        admin_place(folder, port).write_text(admin)
        listen = ["--listen", f"{LOOPBACK}:{port}", "--admin", admin]
        ending = ["--drain-delay", "0", "--grace", "0"]
        return [interpreter(), *way, "router", "--table", str(place), *listen, *ending, *more]

    return made


def table_place(folder: Path, port: int) -> Path:
    """Where the router at ``port`` reads its table."""
    return folder / f"table-{port}.json"


def admin_place(folder: Path, port: int) -> Path:
    """Where the admin address of the router at ``port`` is written down."""
    return folder / f"admin-{port}.txt"


def revision_in_force(folder: Path, port: int) -> int:
    """The revision of the table that the router at ``port`` serves by, as its metrics page says; -1: none."""
    with urllib.request.urlopen(f"http://{admin_place(folder, port).read_text()}/metrics", timeout=10) as page:
        found = re.search(rb"^headrace_table_revision\{[^}]*\} ([0-9.e+]+)$", page.read(), re.M)
    return int(float(found[1])) if found else -1


def swap(place: Path, data: bytes) -> None:
    """Put another table there, as a publisher does: whole, by rename."""
    beside = place.with_suffix(".new")
    beside.write_bytes(data)
    beside.rename(place)


@cache
def environment(form: Form, checkout: Path = ROOT) -> Mapping[str, str]:
    """Environment in which a checkout's router runs in a form. A checkout that has no other runs as source.

    Raises:
        BenchFailed: it could not be compiled.
    """
    folders = [str(checkout.resolve() / source) for source in SOURCES]
    if form == "compiled" and (script := checkout.resolve() / COMPILE).exists():
        made = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, text=True, check=False)
        if made.returncode:
            raise BenchFailed("the router could not be compiled, see above")
        folders.insert(0, made.stdout.strip())
    return {"PYTHONPATH": path(*folders)}


def form_that_runs(folder: Path, port: int) -> str | None:
    """The form of the router at ``port``, as it says itself; None: it doesn't say."""
    with urllib.request.urlopen(f"http://{admin_place(folder, port).read_text()}/metrics", timeout=10) as page:
        found = re.search(rb'^headrace_build_info\{[^}]*form="(\w+)"', page.read(), re.M)
    return found[1].decode() if found else None


def version() -> str:
    """Version of the package that runs here, and of what runs it."""
    return f"{__version__} on {said()}"

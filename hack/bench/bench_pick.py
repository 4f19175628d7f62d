"""Microseconds of one selection, warm and first, at several numbers of engines, with peers beside it.

`python hack/bench/bench_pick.py`. Peers, in the same run: plain weighted rendezvous over all engines (what a keyed pick
would cost without slots) and smooth weighted round robin as nginx does it (a keyless one). Prints a table; judges
nothing (the machine may be shared). It measures the form that it finds (docs/adr/0021): compiled by
`PYTHONPATH=$(make --silent compile) make bench-pick`. Targets: warm pick 5 us, first pick of a slot 100 us at 5,000
engines.
"""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable
from math import log
from zlib import crc32

from headrace_api.table import RoutingTable
from headrace_router.core.build_view import build_view
from headrace_router.core.facts import RequestFacts
from headrace_router.core.selection import Pick, Selector
from headrace_router.core.slots import SLOTS, slot_of
from headrace_router.core.table_check import parse_table
from headrace_router.telemetry.form import IN_WORDS

SIZES = (3, 64, 256, 1000, 5000)


def table_bytes(engines: int, priced: bool) -> bytes:
    """A table of ``engines`` engines with weights that differ."""
    weights = [2 + (i * 7 % 3 if engines < 4000 else 0) for i in range(engines)]
    scale = 10_000 / sum(weights)
    weights = [max(1, round(weight * scale)) for weight in weights]
    weights[0] += 10_000 - sum(weights)
    routes = [
        {"engine": f"ns/e{i}", "weight": weight, "workShare": 0.01, "reducedCost": 0.0}
        for i, weight in enumerate(weights)
    ]
    table = {
        "schemaVersion": 1,
        "identity": {"uid": "u", "term": 1, "revision": 1},
        "policy": "p",
        "policyNamespace": "ns",
        "frontend": "f",
        "issued": "2026-01-01T00:00:00Z",
        "hash": "h",
        "models": [{"model": "m", "classes": [{"routes": routes}]}],
        "engines": [
            {"id": f"ns/e{i}", "urls": [f"http://10.0.{i // 250}.{i % 250}:8000"], "inFlightHere": 5.0}
            for i in range(engines)
        ],
    }
    if priced:
        table["guard"] = {"x": 1.0, "z": 1.0, "nu": 0.0}
    return json.dumps(table, separators=(",", ":")).encode()


def measured(action: Callable[[], None], count: int, repeats: int = 5) -> float:
    """Median over repeats, microseconds per action."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(count):
            action()
        times.append((time.perf_counter() - start) / count * 1e6)
    return statistics.median(times)


def picker(selector: Selector, keys: list[bytes | None]) -> Callable[[], None]:
    """One pick and its release, over the keys in turn."""
    requests = [RequestFacts("m", key, 2000) for key in keys]
    at = 0

    def action() -> None:
        nonlocal at
        pick = selector.pick(requests[at % len(requests)], 1.0)
        assert isinstance(pick, Pick)
        pick.release()
        at += 1

    return action


def rendezvous(names: list[bytes], weights: list[float], keys: list[bytes]) -> Callable[[], None]:
    """Peer: each engine draws an arrival by one checksum of key and name; the earliest serves."""
    at = 0

    def action() -> None:
        nonlocal at
        key = keys[at % len(keys)]
        at += 1
        min(-log((crc32(name, crc32(key)) + 0.5) / 2**32) / weight for name, weight in zip(names, weights, strict=True))

    return action


def smooth_round_robin(weights: list[float]) -> Callable[[], None]:
    """Peer: every engine's credit grows by its weight, the largest serves and pays the sum."""
    credit = [0.0] * len(weights)
    total = sum(weights)

    def action() -> None:
        for index, weight in enumerate(weights):
            credit[index] += weight
        credit[credit.index(max(credit))] -= total

    return action


def row(engines: int, priced: bool) -> str:
    """One line of the report."""
    data = table_bytes(engines, priced)
    start = time.perf_counter()
    table = parse_table(data)
    parsed = time.perf_counter()
    assert isinstance(table, RoutingTable), table
    view = build_view([table])
    built = time.perf_counter()
    selector = Selector(view, rng=lambda: 0.5)
    installed = time.perf_counter()
    seen: set[int] = set()
    keys: list[bytes | None] = []
    for number in range(20_000):
        key = b"session-%d" % number
        if len(keys) < 2_000 and slot_of(key) not in seen:
            seen.add(slot_of(key))
            keys.append(key)
    first = measured(picker(selector, keys), len(keys), 1)
    warm = measured(picker(selector, keys), 5_000)
    keyless = measured(picker(selector, [None]), 5_000)
    routes = table.models[0].classes[0].routes
    weights = [float(route.weight) for route in routes]
    given = [key for key in keys if key is not None]
    plain = measured(rendezvous([route.engine.encode() for route in routes], weights, given), 20_000 // engines + 10)
    robin = measured(smooth_round_robin(weights), 20_000 // engines + 10)
    start_swap = time.perf_counter()
    selector.install(build_view([table], selector.view))
    swap = time.perf_counter() - start_swap
    return (
        f"{engines:>7} {'yes' if priced else 'no':>6} {first:>10.1f} {warm:>9.1f} {plain:>11.1f} {plain / warm:>6.1f}x"
        f" {keyless:>9.1f} {robin:>7.1f} {robin / keyless:>6.1f}x  {(parsed - start) * 1e3:>9.1f}"
        f" {(built - parsed) * 1e3:>7.1f} {(installed - built) * 1e3:>8.1f} {swap * 1e3:>7.1f}"
    )


def main() -> None:
    """Print the report."""
    gc.disable()
    print(
        f"{SLOTS} slots, {IN_WORDS}. Pick and release in us; table in ms. Ratios: the peer's time over the warm pick's."
    )
    print(f"{'':14} {'keyed':^40} {'keyless':^26}  {'table':^34}")
    print(
        f"{'engines':>7} {'priced':>6} {'first':>10} {'warm':>9} {'rendezvous':>11} {'ratio':>7}"
        f" {'warm':>9} {'swrr':>7} {'ratio':>7}  {'parse':>9} {'build':>7} {'install':>8} {'swap':>7}"
    )
    for engines in SIZES:
        for priced in (True, False):
            print(row(engines, priced))


if __name__ == "__main__":
    main()

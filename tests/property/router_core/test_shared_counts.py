"""Several processes' selections over shared cells, in any order of picks, ends, deaths and swaps: limits hold, nothing
is lost, and nobody is shut out for good."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace_router.core.build_view import build_view
from headrace_router.core.facts import Refusal
from headrace_router.core.selection import Pick
from headrace_router.core.shared import FIELDS, IN_FLIGHT, RETURNED, WANTED_AT, WANTS_SINCE, SharedStates
from headrace_router.core.shared_selection import SharedSelector
from support.examples import examples
from support.router_core import engine, facts, make_table

ENGINES = ("a", "b")
LIMITS = {"a": 1, "b": 3}


@dataclass
class Memory:
    """What processes share, in one process: rows by name."""

    processes: int
    process: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    numbers: memoryview = field(default_factory=lambda: memoryview(bytearray(8 * 4096)).cast("q"))

    def of(self, process: int) -> Memory:
        return Memory(self.processes, process, self.rows, self.numbers)

    def claim(self, key: str) -> int:
        return self.rows.setdefault(key, len(self.rows) * FIELDS * self.processes)

    def release(self, row: int) -> None:
        """Rows aren't scarce here."""

    def clear(self, process: int) -> None:
        for row in self.rows.values():
            for each in (IN_FLIGHT, WANTS_SINCE, WANTED_AT):
                self.numbers[row + each * self.processes + process] = 0
            self.numbers[row + RETURNED * self.processes + process] += 1

    def in_flight(self, key: str) -> int:
        row = self.rows.get(key)
        return 0 if row is None else sum(self.numbers[row : row + self.processes])


class Processes:
    """A pod: selectors over one memory, and what each holds."""

    def __init__(self, count: int) -> None:
        self.memory = Memory(count)
        self.now = 1000.0
        self.selectors = [self._selector(number) for number in range(count)]
        self.held: list[list[Pick]] = [[] for _ in range(count)]
        self.revision = 1

    def _selector(self, number: int) -> SharedSelector:
        states = SharedStates(self.memory.of(number))
        return SharedSelector(build_view((table(),), phase=number / 7, states=states), rng=lambda: 0.5)

    def pick(self, number: int, key: bytes | None = None) -> Pick | Refusal:
        picked = self.selectors[number].pick(facts(key), self.now)
        if isinstance(picked, Pick):
            self.held[number].append(picked)
        return picked

    def release(self, number: int, index: int) -> None:
        if self.held[number]:
            self.held[number].pop(index % len(self.held[number])).release()

    def die(self, number: int) -> None:
        self.held[number] = []
        self.memory.clear(number)
        self.selectors[number] = self._selector(number)

    def swap(self, number: int, engines: tuple[str, ...]) -> None:
        selector = self.selectors[number]
        self.revision += 1
        selector.install(build_view((table(engines, self.revision),), selector.view))

    def check(self) -> None:
        """Cells say what is held; no engine is over its limit by what runs on it since it last came back."""
        for name in ENGINES:
            held = sum(pick.engine == f"ns/{name}" for picks in self.held for pick in picks)
            assert self.memory.in_flight(f"engine ns/{name}") == held
            present = sum(self._present(number, name) for number in range(len(self.held)))
            assert present <= LIMITS[name]

    def _present(self, number: int, name: str) -> int:
        """What a process holds on the engine that its table has now: one that left and came back is another."""
        known = self.selectors[number].view.engines.get(f"ns/{name}")
        return sum(known is not None and pick.state is known.state for pick in self.held[number])


def table(engines: tuple[str, ...] = ENGINES, revision: int = 1) -> Any:
    weights = {"a": 10_000} if engines == ("a",) else {"a": 5000, "b": 5000}
    return make_table(
        weights,
        engines=[engine(name, concurrencyLimit=LIMITS[name]) for name in engines],
        identity={"uid": "u", "term": 1, "revision": revision},
    )


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["pick", "pick", "pick", "keyed", "release", "release", "die", "swap", "back", "wait"]),
        st.integers(0, 7),
        st.integers(0, 5),
    ),
    max_size=40,
)


@given(st.integers(2, 3), STEPS)
@example(2, [("pick", 0, 0)] * 4 + [("swap", 0, 0), ("back", 0, 0), ("pick", 0, 0)])
@settings(max_examples=examples(100), deadline=None)
def test_cells_say_what_is_held_and_limits_hold(count: int, steps: list[tuple[str, int, int]]) -> None:
    pod = Processes(count)
    for what, who, index in steps:
        number = who % count
        if what in ("pick", "keyed"):
            pod.pick(number, b"k%d" % index if what == "keyed" else None)
        elif what == "release":
            pod.release(number, index)
        elif what == "die":
            pod.die(number)
        elif what == "wait":
            pod.now += 0.05 * index
        else:
            pod.swap(number, ("a",) if what == "swap" else ENGINES)
        pod.check()
    for number in range(count):
        while pod.held[number]:
            pod.release(number, 0)
    # Whatever was: with nothing in flight and nobody else asking, one process gets all there is.
    pod.now += 10.0
    pod.swap(0, ENGINES)
    assert all(isinstance(pod.pick(0), Pick) for _ in range(sum(LIMITS.values())))
    assert isinstance(pod.pick(0), Refusal)
    pod.check()


@given(st.integers(2, 4), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6))
@settings(max_examples=examples(60), deadline=None)
def test_whoever_keeps_asking_is_served(count: int, ends: list[tuple[int, int]]) -> None:
    """All want more all the time, and the first asks first: no place stays empty for longer than a round of asking, and
    who holds nothing has a place after a few ends, whosever they are."""
    pod = Processes(count)
    without = [0] * count
    for turn in range(40):
        pod.now += 0.01
        who, index = ends[turn % len(ends)]
        holders = [number for number in range(count) if pod.held[number]]
        if holders:
            pod.release(holders[who % len(holders)], index)
        for _ in range(2):
            for number in range(count):
                pod.pick(number)
                pod.check()
        assert sum(len(picks) for picks in pod.held) == sum(LIMITS.values())
        for number in range(count):
            without[number] = 0 if pod.held[number] else without[number] + 1
        assert max(without) <= count

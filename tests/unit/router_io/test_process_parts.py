"""Parts of a router of several processes: shared rows, the supervisor's judgement, counters beyond an end."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from headrace_api.commands import EnvironmentFailed
from headrace_router.cli.router import COMMAND
from headrace_router.core.shared import FIELDS, IN_FLIGHT, RETURNED, Cells, SharedConnections, SharedStates
from headrace_router.listener.inherited import Inherited
from headrace_router.processes import supervisor as supervising
from headrace_router.processes.kept import Kept
from headrace_router.processes.memory import LogTurn, SharedMemory
from headrace_router.processes.peers import counted
from headrace_router.processes.supervisor import Supervisor, _Child
from headrace_router.server.server import Settings
from headrace_router.tables.tables_from import TablesFrom
from headrace_router.telemetry.snapshot import Part


def in_a_fork(memory: SharedMemory, process: int, key: str, add: int) -> int:
    """Another process claims a row, counts, and is killed; returns the row that it had."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        memory.become(process)
        cells = Cells(memory, key)
        cells.add(add)
        os.write(writing, b"%d" % cells.row)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    row = int(os.read(reading, 64))
    os.close(reading)
    os.close(writing)
    return row


def test_processes_agree_on_rows_by_name_and_see_each_others_counts() -> None:
    memory = SharedMemory(3)
    mine = Cells(memory, "engine ns/a")
    mine.add(2)
    assert in_a_fork(memory, 1, "engine ns/a", 3) == mine.row
    assert in_a_fork(memory, 2, "engine ns/b", 5) != mine.row
    assert (mine.others(), mine.of(IN_FLIGHT)) == (3, (2, 3, 0))
    returned = mine.of(RETURNED)
    memory.clear(1)
    assert (mine.others(), mine.of(IN_FLIGHT)) == (0, (2, 0, 0))
    # Others may have been refused for what it held.
    assert mine.of(RETURNED) == (returned[0], returned[1] + 1, returned[2])


def test_a_lock_dies_with_its_holder() -> None:
    memory = SharedMemory(2)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        with memory._lock(0, 1.0):
            os.write(writing, b"x")
            signal.pause()
    assert os.read(reading, 1) == b"x"
    with memory._lock(0, 0.0) as locked:
        assert not locked
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with memory._lock(0, 5.0) as locked:
        assert locked
    for end in (reading, writing):
        os.close(end)


def test_rows_that_nobody_claims_are_used_again_and_without_one_a_process_counts_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    memory = SharedMemory(2, rows=8)
    held = [Cells(memory, f"engine {number}") for number in range(8)]
    assert len({cells.row for cells in held}) == 8
    alone = [Cells(memory, f"engine {number}") for number in (8, 9)]
    assert [cells.row for cells in alone] == [-1, -1]
    assert caplog.text.count("counts it alone") == 1
    alone[0].add(2)
    assert (alone[0].mine(IN_FLIGHT), alone[0].others(), alone[1].mine(IN_FLIGHT)) == (2, 0, 0)
    freed = held.pop().row
    # What a name had is another's now; the same name twice in one process is one row.
    assert Cells(memory, "engine new").row == freed
    again = Cells(memory, "engine 0")
    assert again.row == held[0].row
    held[0].add(1)
    again.add(1)
    assert held[0].mine(IN_FLIGHT) == 2


def test_an_engine_that_comes_back_is_new_here_and_the_sum_for_others() -> None:
    """HAS-04's kind: no count is carried over, none is lost, whichever object it began on."""
    memory = SharedMemory(2)
    states = SharedStates(memory)
    before = states.engine("ns/a")
    endpoint = before.endpoint("http://a")
    before.take(endpoint)
    after = states.engine("ns/a")
    assert (before.in_flight, after.in_flight, endpoint.in_flight) == (1, 0, 1)
    assert memory.numbers[after.cells.at] == 1  # type: ignore[attr-defined]
    before.give_back(endpoint)
    assert (before.in_flight, after.in_flight, memory.numbers[after.cells.at]) == (0, 0, 0)  # type: ignore[attr-defined]


def test_the_log_s_turn_can_be_taken_again_and_again() -> None:
    turn = LogTurn(SharedMemory(2))
    for _ in range(2):
        with turn:
            pass


def part(name: str, kind: str, *rows: tuple[tuple[str, ...], tuple[float, ...]]) -> Part:
    return Part(name, kind, "text", ("engine",), "max" if kind == "gauge" else "sum", (), list(rows))  # type: ignore[arg-type]


def test_of_what_has_ended_only_counts_are_kept_and_add_up() -> None:
    first = [part("c", "counter", (("a",), (2.0,))), part("g", "gauge", (("a",), (7.0,)))]
    kept = list(counted(([], first)))
    kept = list(counted((kept, first)))
    assert [(each.name, each.rows) for each in kept] == [("c", [(("a",), (4.0,))])]


def test_what_is_kept_is_what_was_saved_last_whole() -> None:
    kept = Kept()
    assert kept.load() == []
    for rows in (1, 500, 2, 40, 3000, 1):
        parts = [part("c", "counter", *(((f"e{number}",), (float(number),)) for number in range(rows)))]
        kept.save(parts)
        assert kept.load() == parts
        assert kept.load() == parts


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    """One whose children exist on paper only."""
    pids = iter(range(10_000_000, 10_001_000))

    def fork(self: Supervisor, number: int | None, now: float) -> _Child:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.close()
        return _Child(number, next(pids), ours, now, serving=True)

    monkeypatch.setattr(Supervisor, "_fork", fork)
    settings = Settings(TablesFrom((Path("none"),)), listen=("127.0.0.1", 0), admin=("127.0.0.1", 0))
    made = Supervisor(settings, 2, lambda _: None)
    made._places[None].due = made._places[0].due = 0.0
    made._start_due(1.0)
    made._hear()
    made._first_serves()
    made._start_due(1e9)
    made._first_serves()
    yield made
    for each in (*made._clients, *made._admin, made._woken, made._waking, *(c.control for c in made._children())):
        each.close()


def dies(supervisor: Supervisor, number: int | None, code: int, monkeypatch: pytest.MonkeyPatch, lived: float) -> None:
    """A child ends after ``lived`` seconds, and is started again when that is due."""
    place = supervisor._places[number]
    assert place.child is not None
    child, place.child = place.child, None
    monkeypatch.setattr(supervising.time, "monotonic", lambda: child.started + lived)
    supervisor._lost(place, child, code)


def test_a_worker_that_dies_is_started_again_later_each_time(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = []
    for lived in (100.0, 1.0, 1.0, 1.0, 100.0, 1.0):
        dies(supervisor, 1, -9, monkeypatch, lived)
        place = supervisor._places[1]
        assert place.due is not None
        pauses.append(place.due - supervising.time.monotonic())
        supervisor._start_due(place.due)
        assert place.child is not None
    assert pauses == pytest.approx([0.0, 0.5, 1.0, 2.0, 0.0, 0.5])
    assert supervisor._places[1].starts == 7
    assert supervisor._deadline is None


@pytest.mark.parametrize("who", [1, None], ids=["worker", "pages"])
def test_one_that_dies_at_once_again_and_again_ends_the_router(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, who: int | None
) -> None:
    for turn in range(supervising.MOST_AT_ONCE):
        assert supervisor._deadline is None, turn
        dies(supervisor, who, 1, monkeypatch, 1.0)
        supervisor._start_due(supervisor._places[who].due or 0.0)
    assert supervisor._deadline is not None
    assert supervisor._code != 0


def test_it_waits_for_what_is_to_be_done_next(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    assert supervisor._patience(0.0) is None
    for _ in range(2):
        dies(supervisor, 1, -9, monkeypatch, 1.0)
        due = supervisor._places[1].due
        assert due is not None
        assert supervisor._patience(due - 0.25) == 0.25
        supervisor._start_due(due)
    dies(supervisor, 1, -9, monkeypatch, 1.0)
    supervisor._came.append(signal.SIGTERM)
    supervisor._obey()
    # What would have been started isn't waited for any more: only the end is.
    assert supervisor._deadline is not None
    assert supervisor._patience(supervisor._deadline - 3.0) == 3.0


def test_a_death_after_sigterm_starts_nothing(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor._came.append(signal.SIGTERM)
    supervisor._obey()
    dies(supervisor, 1, -9, monkeypatch, 1.0)
    supervisor._start_due(1e12)
    assert supervisor._places[1].child is None
    assert supervisor._code == 0


def test_a_taken_address_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = Settings(TablesFrom((Path("none"),)), listen=taken.getsockname())
        with pytest.raises(EnvironmentFailed, match=r"can't listen on 127\.0\.0\.1"):
            Supervisor(settings, 2, lambda _: None)


@pytest.mark.parametrize("given", ["0", "-1", "65", "two"])
def test_a_wrong_number_of_processes_is_named(given: str) -> None:
    parser = argparse.ArgumentParser()
    COMMAND.add_arguments(parser)
    with pytest.raises(Exception, match=f"--processes {given}: not a number of processes from 1 to 64"):
        COMMAND.run(parser.parse_args(["--table", "x", f"--processes={given}"]))


def test_who_has_more_connections_than_another_that_is_there_leaves_new_ones() -> None:
    memory = SharedMemory(3)
    first = SharedConnections(memory)
    assert not first.more(0)
    assert not first.more(50)  # the others aren't there
    memory.become(1)
    second = SharedConnections(memory)
    assert not second.more(0)
    memory.become(0)
    assert first.more(1)
    assert not first.more(0)
    memory.become(1)
    assert second.more(1)
    assert not second.more(0)
    # An eighth of many is no difference.
    memory.become(0)
    first.more(80)
    memory.become(1)
    assert not second.more(90)
    assert second.more(91)
    memory.clear(0)
    assert not second.more(1000)


def test_who_has_no_room_leaves_new_ones_to_who_may_have_some() -> None:
    """For as long as that one looks at them, or may be about to: one that hangs keeps nobody waiting."""
    memory = SharedMemory(3)
    ones = []
    for number in range(3):
        memory.become(number)
        ones.append(SharedConnections(memory))
    first, second, _ = ones
    # Nobody else is there.
    assert not first.leaves(9, False, 1.0, None)
    assert not second.leaves(0, True, 1.0, None)
    # One that had room long ago, and hasn't looked yet. It is waited for once.
    assert first.leaves(9, False, 50.0, None)
    assert first.leaves(9, False, 50.49, 50.0)
    assert not first.leaves(9, False, 50.51, 50.0)
    assert first.leaves(9, False, 50.6, None)
    assert not first.leaves(9, False, 50.602, 50.6)
    # One that looks and has room takes it sooner or later; one that looks and has none doesn't.
    assert not second.leaves(9, True, 51.0, None)
    assert first.leaves(9, False, 51.49, 50.7)
    assert not first.leaves(9, False, 51.51, 50.7)
    assert second.leaves(9, False, 60.001, None)
    assert first.leaves(9, False, 60.002, 60.0), "what that one has may end in this very moment"
    second.leaves(9, False, 60.003, 60.001)
    assert not first.leaves(9, False, 60.004, 60.0)
    assert first.leaves(9, False, 60.005, None), "that was another connection"
    # Who has room takes what it has left once, as before.
    assert first.leaves(50, True, 70.0, None)
    assert not first.leaves(50, True, 70.002, 70.0)
    # Who has ended takes none.
    memory.clear(1)
    assert not first.leaves(9, False, 80.0, None)


async def test_a_connection_that_others_leave_is_taken_after_a_moment() -> None:
    """Nobody waits for a process that hangs."""
    made: list[object] = []
    asked = []

    class Here:
        connections = made

        def room(self, arriving: int, protocols: Iterable[object]) -> bool:
            return arriving == len(list(protocols)) == 0

        def __call__(self) -> asyncio.Protocol:
            class Closes(asyncio.Protocol):
                def connection_made(self, transport: asyncio.BaseTransport) -> None:
                    made.append(self)
                    transport.close()

            return Closes()

    def leaves(own: int, room: bool, _now: float, since: float | None) -> bool:
        asked.append((own, room))
        return since is None

    listening = socket.create_server(("127.0.0.1", 0))
    address = listening.getsockname()
    accepting = Inherited(Here(), [listening], leaves)  # type: ignore[arg-type]
    for _ in range(2):
        reader, writer = await asyncio.open_connection(*address)
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
        await writer.wait_closed()
    await accepting.made()
    assert asked[:2] == [(0, True), (0, True)]
    assert len(made) == 2
    accepting.close()
    accepting.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address)


def test_a_row_has_a_cell_for_each_process_and_field() -> None:
    memory = SharedMemory(2)
    cells = Cells(memory, "a")
    for each in range(FIELDS):
        cells.put(each, each + 1)
    assert [cells.of(each) for each in range(FIELDS)] == [(1, 0), (2, 0), (3, 0), (4, 0)]

"""What proxies are started with, what is read of them, and that they end."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from bench.router import ours, processes
from bench.router.__main__ import read_arguments
from bench.router.install import HERE
from bench.router.load import Engines
from bench.router.peers import filled, known_peers
from bench.router.processes import BenchFailed, Child, Children, free_port, stopped, tree, wait_for_port
from bench.router.profile import module_of, profile_lines, read_stacks
from headrace_api.table import WEIGHT_TOTAL
from headrace_router.core.table_check import parse_table
from support.router_process import until


@pytest.fixture
def engines(tmp_path: Path) -> Engines:
    nobody = Child("engine", subprocess.Popen(["true"]), tmp_path / "log")
    nobody.process.wait()
    return Engines(nobody, 1000, 4000)


def test_every_engine_has_an_address_of_its_own_on_loopback(engines: Engines) -> None:
    assert len(set(engines.hosts)) == 1000
    assert all(host.startswith("127.9.") for host in engines.hosts)
    assert engines.addresses[250] == "127.9.1.1:4000"


@pytest.mark.parametrize("turn", [0, 1, 7])
def test_our_table_is_one_that_the_router_takes(engines: Engines, turn: int) -> None:
    table = parse_table(ours.table(engines, key="field", revision=3, turn=turn))
    assert [model.model for model in table.models] == ["model-a", "model-b"]
    for model in table.models:
        assert sum(route.weight for route in model.classes[0].routes) == WEIGHT_TOTAL
    assert table.affinity.keys[0].field == "user"
    assert table.guard is not None


def test_configurations_have_all_their_names_filled(engines: Engines, tmp_path: Path) -> None:
    for file in sorted((HERE / "configs").iterdir()):
        text = filled(file.read_text(), tmp_path, 8080, engines)
        assert "@engine" not in text and "@port@" not in text, file.name
        assert "127.9.0.4" in text, file.name
    with pytest.raises(BenchFailed, match="@nobody@ is not known"):
        filled("x @nobody@", tmp_path, 8080, engines)


def test_versions_come_from_the_locked_files() -> None:
    assert known_peers()["envoy"].version().startswith("1.")
    assert known_peers()["sglang"].version() == known_peers()["sglang-rr"].version()


def test_all_of_ours_are_compiled_but_the_one_that_says_source() -> None:
    forms = {name: peer.form for name, peer in known_peers(HERE).items()}
    assert forms.pop("ours-source") == "source"
    ours = {"ours", *(f"ours-{kind}" for kind in ("field", "log", "1000", "2"))}
    assert {name for name, form in forms.items() if form} == {*ours, "other"}
    assert {form for form in forms.values() if form} == {"compiled"}


def test_a_checkout_without_the_compiler_runs_as_source(tmp_path: Path) -> None:
    """An older one, by --also."""
    assert ours.environment("compiled", tmp_path) == ours.environment("source", tmp_path)
    assert str(tmp_path / "router") in ours.environment("source", tmp_path)["PYTHONPATH"].split(":")


def test_children_end_with_all_that_they_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "END_WITHIN", 0.3)
    with Children(tmp_path) as children:
        script = "trap '' TERM; sleep 600 & echo ready; wait; sleep 600"
        child = children.start("stubborn", ["bash", "-c", script], {0}, out=True)
        assert child.process.stdout is not None
        assert child.process.stdout.readline() == b"ready\n"
        pids = child.pids
        assert len(pids) == 2
    assert child.process.returncode == -signal.SIGKILL
    until = time.monotonic() + 10
    while any(tree(pid) for pid in pids):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_child_that_ends_says_its_last_words(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start("short", ["bash", "-c", "echo no such option >&2; exit 4"], {0})
        child.process.wait()
        with pytest.raises(BenchFailed, match=r"short ended with 4: no such option"):
            wait_for_port(child, free_port(), 5.0)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--rows", "unary3k"], "--rows unary3k: right would be some of unary2k"),
        (["--only", "apache"], "--only apache: right would be some of envoy"),
        (["--rounds", "0"], "--rounds 0: right would be 1 to 50"),
        (["--seconds", "nan"], "--seconds"),
    ],
)
def test_wrong_options_are_named(words: list[str], fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_arguments(words)
    assert ended.value.code == 2
    assert fault in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("/x/router/headrace_router/core/selection.py", "headrace_router.core.selection"),
        ("/x/lib/python3.11/site-packages/aiohttp/web.py", "aiohttp"),
        ("/usr/lib/python3.11/asyncio/events.py", "asyncio"),
        ("/usr/lib/python3.11/json/decoder.py", "decoder"),
    ],
)
def test_time_is_booked_on_modules(file: str, module: str) -> None:
    assert module_of(file) == module


def test_samples_become_microseconds() -> None:
    """A function that is on the stack twice (recursion) is counted once in the time with what it calls."""
    pick, begin = ["/x/headrace_router/core/selection.py", 3, "pick"], ["/x/headrace_router/proxy/proxy.py", 9, "begin"]
    text = "\n".join(json.dumps(line) for line in ([3, [pick, begin]], [1, [begin, begin]]))
    lines = profile_lines(read_stacks(text), 40.0)
    assert "    30.00  headrace_router.core.selection" in lines
    assert "    30.00  pick, affinity, guard, limits, ejection, retry budget" in lines
    assert "     0.00  else" in lines
    assert "    30.00     30.00  headrace_router.core.selection:3 pick" in lines
    assert "    10.00     40.00  headrace_router.proxy.proxy:9 begin" in lines


async def test_others_are_stopped_meanwhile_and_go_on_afterwards(tmp_path: Path) -> None:
    """One that has ended is left out, and a measurement that fails leaves none stopped."""
    with Children(tmp_path) as children:
        child = children.start("idle", ["sleep", "600"], {0})

        def state() -> str:
            return Path(f"/proc/{child.process.pid}/stat").read_text().rpartition(")")[2].split()[0]

        ended = 2**22 + 1  # above what the kernel gives
        with pytest.raises(BenchFailed), stopped([ended, child.process.pid]):
            await until(lambda: state() == "T")
            raise BenchFailed("the measurement failed")
        await until(lambda: state() == "S")

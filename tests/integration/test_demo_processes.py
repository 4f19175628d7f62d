"""No process outlives the demo: not when it ends well, not when it is killed (-9)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from headrace_api.commands import EnvironmentFailed
from headrace_lab.demo.processes import Children

SLEEPER = "import sys, time; print('ready', flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPER}"
PARENT = """
import asyncio, sys
from pathlib import Path
from headrace_lab.demo.processes import Children

async def main():
    child = await Children(Path(sys.argv[1])).start("sleeper", (sys.executable, "-c", sys.argv[2]))
    await child.ready("^ready$")
    print(child.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def gone(pid: int) -> bool:
    for _ in range(400):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if is_zombie(Path(f"/proc/{pid}/stat")):
            return True
        await asyncio.sleep(0.05)
    return False


def is_zombie(stat: Path) -> bool:
    """Dead, but whoever inherited it has not asked yet."""
    return stat.exists() and ") Z " in stat.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
async def test_children_die_with_a_demo_that_is_killed(tmp_path: Path) -> None:
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PARENT, str(tmp_path), SLEEPER), stdout=asyncio.subprocess.PIPE
    )
    assert demo.stdout is not None
    pid = int(await demo.stdout.readline())
    os.kill(pid, 0)
    demo.kill()
    await demo.wait()
    assert await gone(pid)


async def test_stop_ends_all_even_those_that_will_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace_lab.demo.processes.STOP_WITHIN", 0.5)
    children = Children(tmp_path)
    for name, program in (("willing", SLEEPER), ("stubborn", STUBBORN)):
        child = await children.start(name, (sys.executable, "-c", program))
        await child.ready("^ready$")
    assert children.ended_by_themselves() == []
    await children.stop()
    assert [child.exit_code for child in children] == [-signal.SIGTERM, -signal.SIGKILL]
    assert children.ended_by_themselves() == []


async def test_a_child_that_fails_shows_its_log(tmp_path: Path) -> None:
    children = Children(tmp_path)
    child = await children.start("broken", (sys.executable, "-c", "raise SystemExit('no such manifest')"))
    with pytest.raises(EnvironmentFailed, match=r"broken ended with 1 before it was ready(.|\n)*no such manifest"):
        await child.ready("^ready$")
    assert children.ended_by_themselves() == [child]
    await children.stop()


async def test_a_killed_child_can_be_started_again(tmp_path: Path) -> None:
    children = Children(tmp_path)
    child = await children.start("operator", (sys.executable, "-c", SLEEPER))
    await child.ready("^ready$")
    first = child.pid
    child.send(signal.SIGKILL)
    await child.wait()
    assert not child.ended_by_itself
    await child.start()
    await child.ready("(?s)ready.*ready")
    assert child.pid != first
    assert child.exit_code is None
    await children.stop()

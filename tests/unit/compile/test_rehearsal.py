"""What gcc looks on at before it compiles the router (docs/adr/0021)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from compile.rehearsal.__main__ import ROUNDS
from compile.rehearsal.usual import CLIENTS, EVENTS, SIZES, exchanges
from support.checkout import ROOT
from support.compile_modules import compile_module

build = compile_module("build")
PATHS = [str(ROOT / name) for name in ("crds", "router", "hack")]


def test_it_goes_through() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)}
    done = subprocess.run(
        [sys.executable, "-m", "compile.rehearsal"], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    _, count, _ = done.stderr.split()
    assert int(count) >= ROUNDS * 100 * len(CLIENTS)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_same_each_time_and_every_kind_in_it(client: str) -> None:
    made = list(exchanges(client, 60))
    assert made == list(exchanges(client, 60))
    answers = [b"".join(each.answer) for each in made]
    framings = (b"content-length: ", b"application/json\r\ntransfer-encoding: chunked", b"text/event-stream")
    assert all(any(framing in answer for answer in answers) for framing in framings)
    bodies = [json.loads(b"".join(each.request).partition(b"\r\n\r\n")[2]) for each in made]
    assert {len(str(body["messages"])) // 1000 for body in bodies} >= {size // 1000 for size in SIZES[:3]}
    assert any("tools" in body for body in bodies)
    assert {body.get("stream", False) for body in bodies} == {True, False}
    assert max(answer.count(b"\n\n") for answer in answers) >= EVENTS


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        (["gcc (Debian 12.2.0-14) 12.2.0", "Copyright (C) 2022 Free Software Foundation, Inc."], True),
        (["Apple clang version 15.0.0", "Target: arm64-apple-darwin"], False),
    ],
)
def test_only_gcc_is_asked_to_count(says: Sequence[str], expected: bool, tmp_path: Path) -> None:
    """By what it says: on some systems `gcc` is a name of clang."""
    compiler = tmp_path / "gcc"
    compiler.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in says))
    compiler.chmod(0o755)
    assert build.is_gcc(str(compiler)) is expected


def test_a_rehearsal_that_counts_nothing_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source runs, say, in place of what was compiled: the result would follow no counts, and nobody knew."""
    ran: list[Sequence[str]] = []
    monkeypatch.setattr(build.subprocess, "run", lambda command, **_: ran.append(command))
    with pytest.raises(build.Uncounted, match="left no counts"):
        build.rehearse(tmp_path)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "one.gcda").touch()
    build.rehearse(tmp_path)
    assert [command[1:] for command in ran] == [["-m", "compile.rehearsal"]] * 2

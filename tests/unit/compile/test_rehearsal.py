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
    ("says", "refuses", "expected"),
    [
        pytest.param("gcc (Debian 12.2.0-14) 12.2.0, Free Software Foundation, Inc.", "-no-such", True, id="gcc"),
        pytest.param("gcc (GCC) 8.5.0, Free Software Foundation, Inc.", "-fprofile-partial-training", False, id="old"),
        pytest.param("Apple clang version 15.0.0, arm64-apple-darwin", "-no-such", False, id="clang called gcc"),
    ],
)
def test_only_a_compiler_that_counts_is_asked_to(says: str, refuses: str, expected: bool, tmp_path: Path) -> None:
    compiler = tmp_path / "gcc"
    compiler.write_text(f"#!/bin/sh\ncase \"$*\" in --version) echo '{says}' ;; *{refuses}*) exit 1 ;; esac\n")
    compiler.chmod(0o755)
    assert build.counts(str(compiler)) is expected


def test_a_rehearsal_that_fails_says_what_would_be_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where what was compiled can't be loaded."""
    (tmp_path / "headrace_router.py").write_text("raise ImportError('failed to map segment from shared object')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(build.Unrehearsed, match=r"doesn't run in .* right would be a temporary folder"):
        build.rehearse("compile.rehearsal")


def test_where_counts_go_is_not_told_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, str]] = []

    def run(_command: Sequence[str], env: dict[str, str], **_: object) -> subprocess.CompletedProcess[str]:
        given.append(env)
        return subprocess.CompletedProcess([], 0)

    monkeypatch.setenv("GCOV_PREFIX", "/elsewhere")
    monkeypatch.setattr(build.subprocess, "run", run)
    build.rehearse("compile.rehearsal")
    assert [name for env in given for name in env if name.startswith("GCOV_")] == []

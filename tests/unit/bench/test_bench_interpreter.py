"""Which Python the measured router runs on."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pytest

from bench.router import interpreter

NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"


@pytest.mark.parametrize(
    ("script", "taken"),
    [
        pytest.param(None, False, id="there is none"),
        pytest.param(f"echo 3.11.2 {sysconfig.get_config_var('SOABI')}", True, id="one like the environment's"),
        pytest.param("echo 3.11.2 cpython-311d-other", False, id="its extension modules are others"),
        pytest.param("exit 1", False, id="it doesn't run"),
        pytest.param("true", False, id="it says nothing"),
    ],
)
def test_the_distributions_python_if_it_takes_the_packages(
    script: str | None, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter, "DISTRIBUTIONS", tmp_path)
    there = tmp_path / NAME
    if script is not None:
        there.write_text(f"#!/bin/sh\n{script}\n")
        there.chmod(0o755)
    assert interpreter.interpreter.__wrapped__() == (str(there) if taken else sys.executable)


def test_it_finds_the_environments_packages() -> None:
    first, second, *_ = interpreter.path("a", "b").split(":")
    assert (first, second) == ("a", "b")
    assert sysconfig.get_path("purelib") in interpreter.path().split(":")
    assert interpreter.said().startswith(f"CPython 3.{sys.version_info.minor}.")

"""Every command in the README and the guides works from a fresh copy of the checkout, as a reader would type it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.checkout import ROOT, copy_checkout
from support.docs_commands import DocCommand, commands_of, matches

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# The command that runs this test, and what tests/e2e/test_fresh_demo.py types in a folder of its own.
NOT_HERE = {"make test", "make demo"}
COMMANDS = [c for page in PAGES for c in commands_of(page, ROOT) if c.command.strip() not in NOT_HERE]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield copy_checkout(tmp_path_factory.mktemp("readme"))


@pytest.mark.parametrize("documented", COMMANDS, ids=lambda c: f"{c.page}:{c.line}")
def test_command(documented: DocCommand, checkout: Path) -> None:
    environment = dict(
        os.environ, PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}", NO_COLOR="1", COLUMNS="120"
    )
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", documented.command],
        cwd=checkout,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
    )
    if documented.expected is None:
        assert done.returncode == 0, f"{documented}\n{done.stdout}\n{done.stderr}"
    else:
        assert matches(documented.expected, done.stdout + done.stderr), f"{documented}\n{done.stdout}{done.stderr}"

"""``make demo-cluster``: the story on a real Kubernetes, on a machine that may have no Docker, and nothing stays."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.checkout import ROOT


@pytest.mark.long
@pytest.mark.timeout(2700)  # with nothing cached all of Kubernetes is compiled
def test_the_demo_tells_its_story_and_leaves_nothing() -> None:
    done = subprocess.run(
        [ROOT / "hack" / "cluster" / "demo.sh"],
        env={name: value for name, value in os.environ.items() if name != "HEADRACE_E2E_NAME"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2600,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    assert ", 0 refused, 0 failed" in done.stdout
    assert "capacity" in done.stdout.partition("History:")[2]
    assert [path.name for path in Path("/run/headrace-cluster").glob("demo-*")] == []

"""A newcomer's first command: ``make demo`` in a fresh copy of the checkout, its own environment and all."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from support.checkout import copy_checkout


@pytest.mark.timeout(900)
def test_make_demo_from_a_fresh_copy(tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "headrace")
    report = tmp_path / "report.json"
    environment = {name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "PYTHONPATH"}}
    done = subprocess.run(
        ["make", "demo", f"DEMO_ARGS=--report {report}"],
        cwd=checkout,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=850,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    facts = json.loads(report.read_text())
    assert facts["counts"]["done"] > 1000
    assert facts["counts"]["lostNeedlessly"] == 0
    assert {fault["kind"] for fault in facts["faults"] if fault["correctedAfter"] is not None} >= {"killed", "restored"}

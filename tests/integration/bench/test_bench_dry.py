"""The look at the router's own code stands on its parts as they are: this notices when they change."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from bench.router import dry
from headrace_router.telemetry.form import FORM


@pytest.mark.skipif(FORM == "compiled", reason="compiled functions have no bytecodes to count")
@pytest.mark.parametrize(("row", "key"), [("unary2k", "field"), ("unary2k", "none"), ("sse-paced", "header")])
def test_a_dry_run_counts_a_request_whole(row: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry, "RUNS", 20)
    monkeypatch.setattr(dry, "COUNTED", 2)
    text = dry.run([row], key)
    found = re.search(r"; (\d+) bytecodes, ([0-9.]+) Python calls", text)
    assert found is not None
    assert int(found[1]) > 100
    assert "bytecodes: heads, header rules, chunks" in text


@pytest.mark.parametrize("form", ["source", "compiled"])
def test_it_says_which_form_it_measures(form: str) -> None:
    command = [sys.executable, "-m", "bench.router", "--dry", "--rows", "unary2k", "--form", form]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"form: {form}\n\n2048 bytes, unary, key: header: ")

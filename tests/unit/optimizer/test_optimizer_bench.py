"""The benchmark runs, and its contenders solve the same problem; how fast is for the benchmark itself to say."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    path = Path(__file__).resolve().parents[3] / "hack" / "bench" / "bench_lp.py"
    spec = importlib.util.spec_from_file_location("bench_lp", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_lp"] = module
    spec.loader.exec_module(module)
    return module


def test_contenders_agree_and_are_shown_beside_each_other(bench: ModuleType) -> None:
    result = bench.measure(3, 6, 3)
    assert set(result["milliseconds"]) == {"warm", "scipy", "pulp", "pulp, same columns"}
    assert result["ratioToWarm"]["warm"] == 1.0
    text = bench.table([result])
    assert "3x6" in text
    assert "pulp, same columns" in text


def test_contenders_that_disagree_stop_the_benchmark(bench: ModuleType) -> None:
    with pytest.raises(SystemExit, match="disagree"):
        bench.agree({"warm": 1.0, "scipy": 1.001, "pulp": 1.0}, exact=("warm", "scipy", "pulp"))

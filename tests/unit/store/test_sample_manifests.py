"""The samples that ship are faultless, and say nothing about fields without effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_operator.store.manifests import KINDS, read_paths

SAMPLES = Path(__file__).parents[3] / "manifests" / "samples"
FOLDERS = sorted({path.parent for path in SAMPLES.rglob("*.yaml")})


def test_there_are_samples() -> None:
    assert FOLDERS


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_sample_is_faultless(folder: Path) -> None:
    # A sample for a cluster has other files beside them: pods, values of the chart.
    ours = [
        path for path in sorted(folder.glob("*.yaml")) if any(f"kind: {kind}" in path.read_text() for kind in KINDS)
    ]
    found = read_paths(ours)

    assert [str(fault) for fault in (*found.faults, *found.notices)] == []
    assert found.engines
    assert found.policies

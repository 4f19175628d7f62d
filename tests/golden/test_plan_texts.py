"""Plans as people review them: manifests and signals in, text and tables out.

Cases LP-02a (demand above capacity: https://github.com/llm-d/llm-d-autoscaling/pull/102; we shed openly, where the case
says proportional), STA-01 (an engine nobody read is unknown, never idle: https://github.com/llm-d/llm-d-router/pull/2848)
and LP-04 (a NaN costs one value: https://github.com/coin-or/pulp/issues/855).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from headrace_operator.cli.inputs import read_inputs
from headrace_operator.cli.output import Style
from headrace_operator.cli.plan_text import plan_lines
from headrace_operator.cli.planning import make_plan
from headrace_operator.decision.status.changes import weight_lines

HERE = Path(__file__).parent / "plan"
CLASSIC = Path(__file__).parents[2] / "manifests" / "samples" / "classic"
CASES = ["classic", *sorted(path.name for path in HERE.iterdir() if path.is_dir())]
AT = 1_795_953_600.0  # 2026-11-29T12:00:00Z


def planned(name: str) -> str:
    place = HERE / name
    files = [path for path in (place / "fleet.yaml",) if path.exists()] or [CLASSIC]
    signals = place / "signals.yaml"
    options = place / "options.txt"
    changes = [line.removeprefix("--set ") for line in options.read_text().splitlines()] if options.exists() else []
    measured = str(signals) if signals.exists() else None
    inputs = read_inputs([str(path) for path in files], "inference", measured, changes)
    plan = make_plan(inputs._replace(at=AT), ())
    lines = [f"fault: {fault}" for fault in inputs.faults]
    lines += plan_lines(plan.report, Style(colour=False), compared=False)
    if plan.report.notes:
        lines += ["", "notes", *(f"  {note}" for note in plan.report.notes)]
    lines += ["", "tables"]
    for config_map, table in plan.tables:
        lines += [f"  {config_map}  {line}" for line in weight_lines([table])]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", CASES)
def test_plan_text(name: str, golden: Callable[[Path, str], None]) -> None:
    golden(HERE / f"{name}.txt", planned(name))


def test_classic_table(golden: Callable[[Path, str], None]) -> None:
    """The whole table of the front-end that needs help, as routers get it."""
    plan = make_plan(read_inputs([str(CLASSIC)], "inference", None, ())._replace(at=AT), ())
    table = next(table for _, table in plan.tables if table.frontend == "fe-b")
    golden(HERE / "classic-table.json", msgspec.json.format(msgspec.json.encode(table), indent=2).decode() + "\n")

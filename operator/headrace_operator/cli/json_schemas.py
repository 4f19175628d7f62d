"""JSON schemas of what commands print with -o json, from the types that are printed.

``python -m headrace_operator.cli.json_schemas`` writes docs/reference/*.schema.json; a test fails when one is stale.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec

from headrace_operator.cli.break_glass import BreakGlassReport
from headrace_operator.cli.explaining import Explanation
from headrace_operator.decision.why.report import PlanReport

FOLDER: Final = Path("docs/reference")
PRINTED: Final[dict[str, type[msgspec.Struct]]] = {
    "plan.schema.json": PlanReport,
    "explain.schema.json": Explanation,
    "break-glass.schema.json": BreakGlassReport,
}


def schema_of(name: str) -> dict[str, Any]:
    """The schema with that file name, draft 2020-12."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(PRINTED[name])}


def schema_text(name: str) -> str:
    """The file's content."""
    return json.dumps(schema_of(name), indent=2) + "\n"


if __name__ == "__main__":
    for file_name in PRINTED:
        (FOLDER / file_name).write_text(schema_text(file_name), encoding="utf-8")

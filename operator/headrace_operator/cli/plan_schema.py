"""The JSON schema of ``headrace plan -o json``, from the types that are printed.

``python -m headrace_operator.cli.plan_schema`` writes docs/reference/plan.schema.json; a test fails when it is stale.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec

from headrace_operator.decision.report import PlanReport

SCHEMA_FILE: Final = Path("docs/reference/plan.schema.json")


def plan_schema() -> dict[str, Any]:
    """The schema, draft 2020-12."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(PlanReport)}


if __name__ == "__main__":
    SCHEMA_FILE.write_text(json.dumps(plan_schema(), indent=2) + "\n", encoding="utf-8")

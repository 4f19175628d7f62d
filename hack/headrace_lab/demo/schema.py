"""Writes docs/reference/demo-report.schema.json from the report's types: ``python -m headrace_lab.demo.schema``.

Off every path; run by a maintainer after a change of the report. A test fails while the file is stale.
"""

from __future__ import annotations

import json
from pathlib import Path

from headrace_lab.demo.report import schema

TARGET = Path(__file__).resolve().parents[3] / "docs" / "reference" / "demo-report.schema.json"


def main() -> None:
    """Write it."""
    TARGET.write_text(json.dumps(schema(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

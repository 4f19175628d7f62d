"""What machines read of a router, written from the code that makes it: the schema of ``/debug/explain``, the metrics.

``python -m headrace_router.cli.reference`` writes docs/reference/router-explain.schema.json and the metrics table in
docs/router.md anew; a test fails when one is stale. Beside every path. Must not start a router.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import msgspec

from headrace_router.core.explain import Explanation
from headrace_router.processes.families import RESTARTS, UP
from headrace_router.telemetry.metrics import LIVE, Metrics

SCHEMA: Final = Path("docs/reference/router-explain.schema.json")
PAGE: Final = Path("docs/router.md")
_START: Final = "<!-- metrics: generated -->\n"
_END: Final = "<!-- end of metrics -->"


def schema_text() -> str:
    """JSON schema (draft 2020-12) of an answer of ``/debug/explain``."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Explanation)}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def metrics_table() -> str:
    """A Markdown table of every family on ``/metrics``."""
    rows = [(family.name, family.kind, family.labels, family.text) for family in Metrics().families]
    rows += [(family.name, family.kind, family.labels, family.text) for family in (UP, RESTARTS)]
    rows += [(name, "gauge", family.labels, family.text) for name, family in LIVE.items()]
    lines = ["| metric | type | labels | what |", "|---|---|---|---|"]
    lines += [f"| `{name}` | {kind} | {', '.join(labels)} | {text} |" for name, kind, labels, text in sorted(rows)]
    return "\n".join(lines) + "\n"


def with_metrics(page: str) -> str:
    """The page with its metrics table written anew."""
    before, _, rest = page.partition(_START)
    return before + _START + metrics_table() + _END + rest.partition(_END)[2]


if __name__ == "__main__":
    SCHEMA.write_text(schema_text())
    PAGE.write_text(with_metrics(PAGE.read_text()))

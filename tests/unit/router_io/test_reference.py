"""docs/router.md and the schema of /debug/explain say what the code does."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import msgspec

from headrace_api import names
from headrace_router.cli.reference import PAGE, SCHEMA, schema_text, with_metrics
from headrace_router.core.explain import explain
from headrace_router.core.facts import Refusal, RefusalKind
from headrace_router.proxy import relay
from support.router_core import GUARD, facts, make_selector, make_table

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "router" / "headrace_router"
# Made from the kind of a timer, or by BadBody's default.
COMPUTED = {(504, "first_byte_timeout"), (504, "unary_timeout")}


def stated_in_source() -> Iterator[tuple[int, str]]:
    """(status, code) of every refusal that is written out."""
    for file in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            # http1's own say it behind the message.
            said = {
                "Refusal": node.args[:2],
                "Refused": node.args[:2],
                "BadHead": node.args[:2],
                "_Refused": node.args[1:],
            }
            values = [arg.value for arg in said.get(node.func.id, ()) if isinstance(arg, ast.Constant)]
            if len(values) == 2:
                yield int(str(values[0])), str(values[1])


def test_every_refusal_is_documented_and_no_other() -> None:
    selection = {(Refusal(kind, "").status, kind.value) for kind in RefusalKind if kind is not RefusalKind.NONE_LEFT}
    page = (ROOT / PAGE).read_text()
    lines = re.findall(r"^\| (\d{3}) \| (`\w+`(?:, `\w+`)*) \|", page, re.MULTILINE)
    rows = [(int(status), code) for status, codes in lines for code in re.findall(r"\w+", codes)]
    below = {(int(status), code) for status, code in re.findall(r"\b([45]\d\d) `(\w+)`", page)}
    assert {*rows, *below} == {*stated_in_source(), *selection, *COMPUTED}
    assert len(rows) == len(set(rows))


def test_every_end_of_a_cut_stream_is_documented() -> None:
    codes = {code for code, _ in (*relay._EXPIRED.values(), relay._CUT, relay._OWN_FAULT)}
    page = (ROOT / PAGE).read_text()
    paragraph = page[page.index("A stream that breaks off") : page.index("## Timeouts")]
    told = set(re.findall(r"`(\w+)`", paragraph))
    assert told == codes


def test_response_headers_are_documented() -> None:
    page = (ROOT / PAGE).read_text()
    said = {value for name, value in vars(names).items() if name.startswith("HEADER_")} - {names.HEADER_CLIENT_RETRY}
    assert set(re.findall(r"^\| `(x-[a-z-]+)", page, re.MULTILINE)) == said


def test_what_is_generated_is_not_stale() -> None:
    """Stale: python -m headrace_router.cli.reference"""
    assert (ROOT / PAGE).read_text() == with_metrics((ROOT / PAGE).read_text())
    assert (ROOT / SCHEMA).read_text() == schema_text()


def test_explanations_match_their_schema() -> None:
    schema = msgspec.json.decode(schema_text())
    for guard in ({"guard": GUARD}, {}):
        selector = make_selector(make_table(**guard))  # type: ignore[arg-type]
        for request in (facts(), facts(b"k"), facts(needs=frozenset({"vision"}))):
            told = msgspec.json.decode(msgspec.json.encode(explain(selector, request, 0.0)))
            jsonschema.validate(told, schema, jsonschema.Draft202012Validator)
            assert told.get("guard", {}).get("rule") in ("prices", "load bound", None)

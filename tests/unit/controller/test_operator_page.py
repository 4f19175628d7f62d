"""docs/operator.md says what the code does: every key with its default, metric, condition, reason, Event and file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from headrace_api import names
from headrace_operator.cli.run import COMMAND
from headrace_operator.controller.metrics import OperatorMetrics
from headrace_operator.loader.config import ConfigStruct, OperatorConfig
from headrace_operator.publisher import records, state

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "operator.md").read_text()
# CamelCase words of these packages that are no reasons: values of fields and kinds.
OTHER_WORDS = {
    *("Active", "ConfigMap", "Enforce", "Event", "Failed", "False", "Feedback", "InferenceEngine", "List", "Measured"),
    *("Nearest", "Optimized", "Retain", "RoundRobin", "RoutingPolicy", "Rule", "StateIdentity", "Static"),
    *("StoredStatus", "True", "Warning"),
    # Names of Kubernetes' and of our own that are no reasons, and faults of calls that become one.
    *(
        "ClusterPublisher",
        "Delete",
        "EventNote",
        "EventsFile",
        "Kind",
        "KubeconfigRefused",
        "Lease",
        "RecordFiles",
        "Replaced",
    ),
    *("StandalonePublisher", "TermBehind"),
}


def rows(title: str) -> list[list[str]]:
    """Cells of the tables under a heading, without their head."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    found = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in section.splitlines()
        if line.startswith("|")
    ]
    return [row for row in found if row[0].startswith("`")]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def keys(kind: type[ConfigStruct], at: str = "") -> Iterator[tuple[str, str]]:
    """Every key of the configuration with its default as the page writes it."""
    hints = get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        path = f"{at}{field.encode_name}"
        nested = _struct(hints[field.name])
        if nested is not None and not _is_list(hints[field.name]):
            if nested in get_args(hints[field.name]):  # a part that may be left out
                yield path, _default(field)
            yield from keys(nested, f"{path}.")
            continue
        yield path, _default(field)
        if nested is not None:
            yield from keys(nested, f"{path}[].")


def _struct(hint: Any) -> type[ConfigStruct] | None:
    parts = [hint, *get_args(hint), *(inner for part in get_args(hint) for inner in get_args(part))]
    return next((part for part in parts if isinstance(part, type) and issubclass(part, ConfigStruct)), None)


def _is_list(hint: Any) -> bool:
    return not isinstance(hint, type) and _struct(hint) not in get_args(hint)


def _default(field: Any) -> str:
    if field.required:
        return "required"
    if field.default in ((), None) or field.default_factory is dict:
        return "none"
    if isinstance(field.default, tuple):
        return f"`{', '.join(field.default)}`"
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def test_every_key_of_the_configuration() -> None:
    assert [(quoted(row[0])[0], row[1]) for row in rows("Configuration file")] == [
        (key, default) for key, default in _in_the_pages_order(dict(keys(OperatorConfig)))
    ]
    assert all(len(row[2]) > 10 for row in rows("Configuration file"))


def _in_the_pages_order(known: dict[str, str]) -> list[tuple[str, str]]:
    order = [quoted(row[0])[0] for row in rows("Configuration file")]
    return sorted(known.items(), key=lambda pair: order.index(pair[0]) if pair[0] in order else len(order))


def test_every_metric() -> None:
    made = OperatorMetrics()
    made.ticks.labels("done")
    known = {}
    for collector in (
        *(made.ticks, made.tick_seconds, made.solve_seconds, made.loop_age, made.reads, made.signal_age),
        *(made.weights, made.published, made.faults, made.leading, made.term, made.watch_age),
    ):
        (family,) = collector.describe()
        name = f"{family.name}_total" if family.type == "counter" else family.name
        known[name] = list(collector._labelnames)
    assert len(known) == len(list(made.registry.collect()))
    assert {quoted(row[0])[0]: quoted(row[1]) for row in rows("Metrics")} == known


def words() -> set[str]:
    """CamelCase strings in the modules that judge and tell."""
    found: set[str] = set()
    for folder in ("decision", "publisher"):
        for path in sorted((ROOT / "operator" / "headrace_operator" / folder).rglob("*.py")):
            found |= {
                node.value
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and re.fullmatch(r"[A-Z][a-z]+([A-Z][a-z]+)*", node.value)
            }
    return found


def test_every_reason_and_event() -> None:
    # Of engines' states and of the ladder of ages: told as reasons by the names they have elsewhere.
    passed_on = {"Draining", "Disabled", "Widened"}
    types = {row[0].strip("`") for row in rows("Conditions")}
    documented = {word for row in rows("Conditions") for word in quoted(row[1])}
    documented |= {word for row in rows("Events") for word in quoted(row[0])}
    reasons = {word for word in documented if re.fullmatch(r"[A-Z][a-z]+([A-Z][a-z]+)*", word)}
    assert reasons - types - passed_on <= words()
    assert words() - OTHER_WORDS - types <= reasons


def test_every_condition_type() -> None:
    known = {names.READY, names.STALLED, names.PUBLISHED, names.SOLVED, names.CAPACITY_SUFFICIENT, names.SIGNALS_FRESH}
    known |= {names.PROFILE_DRIFT, names.AVAILABLE, names.PENALIZED}
    assert {row[0].strip("`") for row in rows("Conditions")} == known


@pytest.mark.parametrize(
    "file",
    [
        state.IDENTITY_FILE,
        state.EVENTS_FILE,
        f"{state.STATUS}/<kind>-<namespace>-<name>.yaml",
        "<namespace>/<configMap>.yaml",
        f"{records.RECORDS}/<revision>.json",
        records.MEMORY_FILE,
        names.HEARTBEAT_FILE,
    ],
)
def test_every_file_of_the_state(file: str) -> None:
    assert [row[0] for row in rows("State directory")].count(f"`{file}`") == 1
    assert len(rows("State directory")) == 7


def test_the_command_line() -> None:
    import argparse

    parser = argparse.ArgumentParser()
    COMMAND.add_arguments(parser)
    options = {option for action in parser._actions for option in action.option_strings if option.startswith("--")}
    usage = PAGE.partition("```\n")[2].partition("```")[0]
    assert set(re.findall(r"--[a-z-]+", usage)) == options - {"--help"}

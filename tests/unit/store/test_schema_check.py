"""The checker's words: every pattern has some, and every kind of wrong value has its own message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace_api.base import Metadata
from headrace_api.engine import InferenceEngineSpec
from headrace_api.policy import RoutingPolicySpec
from headrace_api.schema import KEYS, schema_of
from headrace_api.urls import URL_PATTERN
from headrace_operator.store.faults import Odd, shown
from headrace_operator.store.schema_check import WORDS, check, suggestion

ENGINE = schema_of(InferenceEngineSpec)["properties"]
POLICY = schema_of(RoutingPolicySpec)["properties"]
LABELS = POLICY["engineSelector"]["properties"]["matchLabels"]
MEASURED = POLICY["network"]["properties"]["measured"]
PER_REPLICA = ENGINE["capacity"]["properties"]["perReplica"]["properties"]


def patterns(schema: dict[str, Any]) -> Iterator[str]:
    if "pattern" in schema:
        yield schema["pattern"]
    inner = [
        *schema.get("properties", {}).values(),
        *(schema[key] for key in ("items", "additionalProperties", KEYS) if key in schema),
    ]
    for field in inner:
        yield from patterns(field)


@pytest.mark.parametrize("kind", [InferenceEngineSpec, RoutingPolicySpec, Metadata], ids=lambda kind: kind.__name__)
def test_every_pattern_has_words(kind: type[Any]) -> None:
    assert set(patterns(schema_of(kind))) - {URL_PATTERN} <= set(WORDS)


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        (PER_REPLICA["requestsPerSecond"], "ten", '"ten" is not a quantity; right would be 12 or 500m'),
        (PER_REPLICA["requestsPerSecond"], "1" * 40, None),
        (PER_REPLICA["requestsPerSecond"], True, "true is not a quantity; right would be 12 or 500m"),
        (PER_REPLICA["requestsPerSecond"], [], "[] is not a quantity; right would be 12 or 500m"),
        (PER_REPLICA["requestsPerSecond"], -1, "-1 is below 1m; right would be 1m to 1M"),
        (PER_REPLICA["requestsPerSecond"], 10**15, "1000000000000000 is above 1M; right would be 1m to 1M"),
        (PER_REPLICA["requestsPerSecond"], "0.001m", '"0.001m" is below 1m; right would be 1m to 1M'),
        (PER_REPLICA["requestsPerSecond"], "2M", '"2M" is above 1M; right would be 1m to 1M'),
        (
            PER_REPLICA["requestsPerSecond"],
            Odd("1.5", "fraction"),
            '1.5 is a number with a fraction; right would be "1.5" in quotes, or thousandths such as 1500m',
        ),
        (PER_REPLICA["maxConcurrency"], "8", '"8" is text; right would be 8 without quotes'),
        (PER_REPLICA["maxConcurrency"], "many", '"many" is not a whole number; right would be 1 to 1000000'),
        (PER_REPLICA["maxConcurrency"], False, "false is not a whole number; right would be 1 to 1000000"),
        (
            PER_REPLICA["maxConcurrency"],
            Odd("0x8", "notation"),
            "0x8 is not a plain decimal number; right would be a whole number, 1 to 1000000",
        ),
        (PER_REPLICA["maxConcurrency"], Odd("9" * 90, "huge"), None),
        (ENGINE["rampUp"], "1d", '"1d" is not a duration; right would be 200ms, 2s or 1m30s'),
        (ENGINE["rampUp"], 5, "5 has no unit; right would be 200ms, 2s or 1m30s"),
        (ENGINE["rampUp"], "24h1ms", '"24h1ms" is above 24h; right would be 0s to 24h'),
        (ENGINE["rampUp"], "1s\n", '"1s\\n" is not a duration; right would be 200ms, 2s or 1m30s'),
        (ENGINE["state"], "Drainig", '"Drainig" is not known; right would be Draining'),
        (ENGINE["state"], None, "null is not text; right would be text, or no entry"),
        (MEASURED, 1, "1 is not a truth value; right would be true or false, without quotes"),
        (POLICY["queue"], [1], "[…] is not a mapping; right would be a mapping of max, deadline"),
        (LABELS, "x", '"x" is not a mapping; right would be a mapping of keys and texts'),
        (LABELS, {f"k{n}": "v" for n in range(17)}, "has 17 entries; right would be at most 16"),
    ],
    ids=lambda value: shown(value)[:24] if not isinstance(value, dict) else "",
)
def test_words(schema: dict[str, Any], value: Any, message: str | None) -> None:
    (finding,) = check(schema, value, ("field",))

    assert finding.path == ("field",)
    assert "right would be" in finding.message
    assert len(finding.message) < 200
    if message is not None:
        assert finding.message == message


def test_a_missing_int_or_string_is_told() -> None:
    """The schema of an int-or-string has no type to name."""
    demand = POLICY["frontends"]["items"]["properties"]["demand"]

    assert [finding.message for finding in check(demand, {})] == [
        "is missing; right would be: offered requests per second, all models together"
    ]


@pytest.mark.parametrize("entry", [{}, [], None, 7])
def test_an_entry_of_the_wrong_kind_in_a_set(entry: Any) -> None:
    (finding,) = check(ENGINE["endpoints"]["properties"]["urls"], [entry])

    assert finding.path == (0,)


def test_a_long_address_keeps_its_password() -> None:
    (finding,) = check(ENGINE["endpoints"]["properties"]["urls"], ["https://u:hunter2@" + "a" * 600])

    assert "hunter2" not in finding.message + finding.value
    assert "right would be at most 512" in finding.message


def test_one_address_written_twice() -> None:
    (finding,) = check(ENGINE["endpoints"]["properties"]["urls"], ["http://a:80", "http://A:80/"])

    assert finding.message == '"http://a:80" stands already at [0]; right would be once'


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("zzz", "right would be one of bar, foot"),
        ("foot ", "right would be foot"),
        ("x" * 10_000, "right would be one of bar, foot"),
    ],
)
def test_suggestion(name: str, words: str) -> None:
    assert suggestion(name, ["foot", "bar"]) == words

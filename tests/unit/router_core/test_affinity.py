"""Affinity keys: what says that requests belong together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace_api.table import TableAffinity, TableAffinityKey
from headrace_router.core.affinity import AffinityRules, affinity_key, key_of, lower_names
from headrace_router.core.body import Body, read_body
from headrace_router.core.json_shapes import BodyFacts

SYSTEM = {"role": "system", "content": "You are a helpful assistant. " * 200}


def rules(*kinds: str) -> AffinityRules:
    """``header:x``, ``field:x`` or ``prefix``."""
    keys = []
    for kind in kinds:
        name, _, value = kind.partition(":")
        keys.append(TableAffinityKey(prefix=True) if name == "prefix" else TableAffinityKey(**{name: value}))
    return AffinityRules(TableAffinity(keys=tuple(keys)))


def body(fields: frozenset[str] = frozenset(), **values: Any) -> BodyFacts:
    found = read_body(json.dumps({"model": "m", **values}).encode(), fields)
    assert isinstance(found, Body), found
    return found.facts


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def prefix(**values: Any) -> bytes | None:
    return affinity_key(rules("prefix"), {}, body(**values))


def test_header_names_know_no_case() -> None:
    """HAS-05: X-SESSION-ID is x-session-id. https://github.com/ray-project/ray/pull/62906"""
    for name in ("x-session-id", "X-SESSION-ID", "X-Session-Id"):
        headers = lower_names([("host", "a"), (name, "s1")])
        assert affinity_key(rules("header:X-Session-ID"), headers, None) == b"s1"


@pytest.mark.parametrize("headers", [{}, {"x-session-id": ""}, {"x-session-id": "  "}], ids=["none", "empty", "blank"])
def test_a_missing_and_an_empty_header_are_the_same(headers: dict[str, str]) -> None:
    """HAS-05: the next rule is asked; with none left there is no key. https://github.com/sgl-project/sglang/issues/32983"""
    asked = rules("header:x-session-id", "field:user")
    assert affinity_key(asked, headers, body(user="u1")) == b"u1"
    assert affinity_key(asked, headers, body()) is None
    assert affinity_key(asked, headers, None) is None
    assert affinity_key(rules(), headers, body(user="u1")) is None


def test_of_a_repeated_header_the_first_that_says_something_counts() -> None:
    assert lower_names([("X-A", ""), ("x-a", "1"), ("x-a", "2")]) == {"x-a": "1"}


def test_rules_are_asked_in_order() -> None:
    asked = rules("header:x-session-id", "field:prompt_cache_key", "field:user", "prefix")
    full = body(prompt_cache_key="p", user="u", messages=[user("hello")])
    assert affinity_key(asked, {"x-session-id": "s"}, full) == b"s"
    assert affinity_key(asked, {}, full) == b"p"
    assert affinity_key(asked, {}, body(user="u", messages=[user("hello")])) == b"u"
    opening = affinity_key(asked, {}, body(messages=[user("hello")]))
    assert opening == prefix(messages=[user("hello")])


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("abc", b"abc"),
        (" abc ", b"abc"),
        ("ünï", "ünï".encode()),
        ("a\nb", b"a\nb"),
        (7, b"7"),
        ({"id": 1}, b'{"id": 1}'),
        ("", None),
        (None, None),
        ({}, None),
        ([], None),
    ],
)
def test_values_of_fields(value: object, key: bytes | None) -> None:
    assert affinity_key(rules("field:user"), {}, body(user=value)) == key


def test_any_top_level_field_can_be_a_key() -> None:
    asked = rules("field:session", "field:class", "field:__init__", "field:model", "field:stream")
    assert asked.fields == {"session", "class", "__init__", "model", "stream"}
    assert affinity_key(asked, {}, body(asked.fields, session="s")) == b"s"
    assert affinity_key(asked, {}, body(asked.fields, **{"class": "c"})) == b"c"
    assert affinity_key(asked, {}, body(asked.fields, __init__="i")) == b"i"
    assert affinity_key(asked, {}, body(asked.fields)) == b"m"
    assert affinity_key(rules("field:stream"), {}, body(stream=True)) == b"True"
    assert affinity_key(rules("field:session"), {}, body()) is None


def test_header_bytes_that_are_no_text_are_kept() -> None:
    assert affinity_key(rules("header:x"), {"x": "a\udcff"}, None) == b"a\xff"


@pytest.mark.parametrize("value", ["s1", " s1\t", "\u00a0s\u00fc\u2003", "a\udcff\u00a0", "\u3000"])
def test_space_around_a_key_is_none_of_it_in_any_script(value: str) -> None:
    key = value.strip().encode("utf-8", "surrogateescape") or None
    assert affinity_key(rules("header:x"), {"x": value}, None) == key
    assert key_of(rules("header:X"), {b"x": value.encode("utf-8", "surrogateescape")}, None) == key


def test_every_turn_of_a_conversation_has_one_key() -> None:
    first = [SYSTEM, user("What is rain?")]
    later = [*first, answer("Water."), user("And snow?")]
    assert prefix(messages=first) == prefix(messages=later)
    assert prefix(messages=[SYSTEM, user("What is snow?")]) != prefix(messages=first)
    assert prefix(messages=[user("What is rain?")]) != prefix(messages=first)


def test_a_shared_system_prompt_does_not_make_one_key() -> None:
    """HAS-05: bodies that differ only after 2,000 characters. https://github.com/sgl-project/sglang/pull/15473"""
    keys = {prefix(messages=[SYSTEM, user(f"question {number}")]) for number in range(300)}
    assert len(keys) == 300
    plain = {prefix(prompt="a" * 2000 + str(number)) for number in range(300)}
    assert len(plain) == 300


def test_long_openings_are_told_apart_by_their_ends() -> None:
    long = "x" * 100_000
    assert prefix(messages=[user(long + "1")]) != prefix(messages=[user(long + "2")])
    assert prefix(messages=[user("1" + long)]) != prefix(messages=[user("2" + long)])
    assert prefix(messages=[user(long)]) != prefix(messages=[user(long + "x")])
    assert prefix(prompt=long + "1") == prefix(prompt=long + "2")


def test_openings_in_other_clothes() -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert prefix(messages=parts) == prefix(messages=[*parts, answer("ho")])
    assert prefix(input=[user("hi")]) == prefix(messages=[user("hi")])
    assert prefix(system="be brief", messages=[user("hi")]) != prefix(messages=[user("hi")])
    assert prefix(instructions="be brief", input="hi") != prefix(input="hi")
    assert prefix(prompt=[1, 2, 3]) is not None
    assert prefix(prompt="") is None


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"messages": []},
        {"messages": [SYSTEM]},
        {"messages": ["not a turn"]},
        {"prompt": None},
        {"messages": [{"role": 5}]},
    ],
    ids=["nothing", "empty", "no user", "text", "null", "role"],
)
def test_without_an_opening_there_is_no_key(values: dict[str, Any]) -> None:
    assert prefix(**values) is None


def test_an_opening_is_read_up_to_a_bound_and_stays_one_key() -> None:
    """A first turn of many parts costs a bounded number of steps, and later turns still have its key."""
    first = [user([{"type": "text", "text": str(number)} for number in range(3_000)])]
    key = prefix(messages=first)
    assert key is not None
    assert prefix(messages=[*first, answer("ho"), user("more")]) == key
    assert prefix(messages=[user([{"type": "text", "text": str(-number)} for number in range(3_000)])]) != key


def test_long_keys_are_known_by_their_digest() -> None:
    """A key is kept for as long as its request and hashed at each pick: a field of 32 MiB must not be."""
    long = "k" * 1_000
    found = affinity_key(rules("header:x"), {"x": long}, None)
    assert found is not None
    assert len(found) == 32
    assert affinity_key(rules("header:x"), {"x": long}, None) == found
    assert affinity_key(rules("header:x"), {"x": long + "k"}, None) != found

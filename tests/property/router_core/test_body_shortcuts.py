"""The cheap proof that a body is harmless never says so of one that the full checks refuse."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_router.core import body
from headrace_router.core.body import Body, needs, read_body
from headrace_router.core.json_shapes import BadBody
from support.examples import examples

KEYS = st.sampled_from(["model", "messages", "input", "prompt", "tools", "x", 'a"model"', "content"])
TEXTS = st.sampled_from(
    ["", "model", '"model"', '"messages"', "[[[{", "x" * 300, "[{" * 200, "9" * 1100, "\\u006d", "é"]
)
VALUES = st.recursive(
    st.none() | st.integers(-5, 5) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """JSON objects with a model, maybe two, in any order, some with what the checks are for."""
    pairs: list[str] = ['"model":"m"']
    for _ in range(draw(st.integers(0, 4))):
        key = draw(st.one_of(KEYS.map(json.dumps), st.just('"mod\\u0065l"')))
        raw = draw(st.sampled_from(["", "deep", "digits"]))
        value = nested(draw(st.sampled_from([120, 127, 128, 140]))) if raw == "deep" else "1" * 1100 if raw else ""
        colon = draw(st.sampled_from([":", ": ", ":  ", " : ", ":\n"]))
        pairs.append(f"{key}{colon}{value or json.dumps(draw(VALUES))}")
    return ("{" + ",".join(draw(st.permutations(pairs))) + "}").encode()


@given(texts())
@settings(max_examples=examples(300), deadline=None)
def test_the_proof_agrees_with_the_checks(data: bytes) -> None:
    read = read_body(data)
    try:
        facts = body._decoder(frozenset()).decode(data)
    except Exception:  # noqa: BLE001 - whatever the decoder says
        assert isinstance(read, BadBody)
        return
    refused = body._suspicious(data, facts)
    found = Body(facts)
    if body._plain(data, found):
        assert refused is None
    if found.flat:
        assert b"[" not in (bytes(facts.messages) or bytes(facts.input))[1:]
    if facts.model == "m":
        assert isinstance(read, BadBody) is (refused is not None)


PARTS = st.sampled_from(["text", "image_url", "image", "input_image", "input_audio"])
TURNS = st.lists(
    st.one_of(
        st.builds(lambda text: {"role": "user", "content": text}, TEXTS),
        st.builds(lambda kinds: {"role": "user", "content": [{"type": kind} for kind in kinds]}, st.lists(PARTS)),
    ),
    max_size=4,
)


@given(TURNS, st.booleans(), st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " : ")]))
@settings(max_examples=examples(200), deadline=None)
def test_needs_are_what_the_parts_are(turns: list[dict[str, Any]], tools: bool, separators: tuple[str, str]) -> None:
    asked: dict[str, Any] = {"model": "m", "messages": turns} | ({"tools": [{"type": "function"}]} if tools else {})
    read = read_body(json.dumps(asked, separators=separators).encode())
    assert isinstance(read, Body)
    kinds = {part["type"] for turn in turns if isinstance(turn["content"], list) for part in turn["content"]}
    shown = {"vision"} if kinds & {"image_url", "image", "input_image"} else set()
    shown |= {"audio"} if "input_audio" in kinds else set()
    assert needs(read) == needs(Body(read.facts)) == shown | ({"tools"} if tools else set())

"""Reading a hostile body, and changing nothing but its model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace_router.core.body import MAX_DEPTH, MAX_DIGITS, Body, field, needs, read_body, replace_model
from headrace_router.core.json_shapes import BadBody, BodyFacts
from headrace_router.core.json_text import MAX_PARTS

LONG_TALK = [{"role": "user", "content": 'say "model" and \\u006dodel ' * 40}] * 3


def read(data: bytes, fields: frozenset[str] = frozenset()) -> Body:
    found = read_body(data, fields)
    assert isinstance(found, Body), found
    return found


def good(data: bytes, fields: frozenset[str] = frozenset()) -> BodyFacts:
    return read(data, fields).facts


def bad(data: bytes) -> BadBody:
    found = read_body(data)
    assert isinstance(found, BadBody), found
    return found


def dumped(**values: Any) -> bytes:
    return json.dumps({"model": "m", **values}).encode()


def test_the_wanted_fields() -> None:
    found = good(
        dumped(stream=True, messages=[1, 2], temperature=0.5, session="s", store=False), frozenset({"session"})
    )
    assert (found.model, found.stream) == ("m", True)
    assert bytes(found.messages) == b"[1, 2]"
    assert bytes(found.prompt) == b""
    assert bytes(found.store) == b"false"
    session = field(found, "session")
    assert not isinstance(session, str | bool | None)
    assert bytes(session) == b'"s"'
    assert field(found, "model") == "m"
    assert field(found, "unasked") is None


HOSTILE = {
    "deep": (b'{"model":"m","x":' + b"[" * 1500 + b"]" * 1500 + b"}", "deep"),
    "deep in objects": (b'{"model":"m","x":' + b'{"a":' * 300 + b"1" + b"}" * 300 + b"}", "deep"),
    "deeper than any stack": (b'{"model":"m","x":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "deep"),
    "huge number": (b'{"model":"m","seed":' + b"9" * 5000 + b"}", "digits"),
    "huge fraction": (b'{"model":"m","seed":0.' + b"9" * 5000 + b"}", "digits"),
    "two models": (b'{"model":"m","model":"z"}', "once"),
    "two models, one escaped": (b'{"model":"m","mod\\u0065l":"z"}', "once"),
    "two models around a talk": (
        b'{"model":"m","messages":' + json.dumps(LONG_TALK).encode() + b',"model":"z"}',
        "once",
    ),
    "nan": (b'{"model":"m","temperature":NaN}', "JSON"),
    "infinity": (b'{"model":"m","temperature":-Infinity}', "JSON"),
    "not utf-8": (b"\xff\xfe{{", "UTF-8"),
    "not utf-8 inside": (b'{"model":"m","x":"\xc3("}', "UTF-8"),
    "utf-16": ('{"model":"m"}'.encode("utf-16"), "UTF-8"),
    "empty": (b"", "JSON"),
    "cut": (b'{"model":"m"', "JSON"),
    "list": (b"[]", "object"),
    "text": (b'"m"', "object"),
    "trailing": (b'{"model":"m"} {}', "JSON"),
    "lone surrogate": (b'{"model":"\\ud800"}', "JSON"),
    "comments": (b'{"model":"m"/* */}', "JSON"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bodies_are_the_clients_error(name: str) -> None:
    """SEC-05: 400 for each, never an exception. https://github.com/flop-labs/technocore-chat/issues/130"""
    data, word = HOSTILE[name]
    assert word in bad(data).message


@pytest.mark.parametrize(
    ("data", "param"),
    [
        (b"{}", "model"),
        (b'{"model":null}', "model"),
        (b'{"model":5}', "model"),
        (b'{"model":""}', "model"),
        (b'{"model":"' + b"m" * 300 + b'"}', "model"),
        (b'{"model":"m","stream":"yes"}', "stream"),
        (b'{"model":"m","stream":1}', "stream"),
    ],
)
def test_the_wrong_field_is_named(data: bytes, param: str) -> None:
    found = bad(data)
    assert found.param == param
    assert found.code == "bad_request"


def test_a_model_name_is_data() -> None:
    """SEC-05: a line break in a name stays in the value; whoever logs it must escape it."""
    assert good(b'{"model":"m\\nINFO fake line","messages":[]}').model == "m\nINFO fake line"


@pytest.mark.parametrize(
    "data",
    [
        b'{"model":"m","x":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}",
        dumped(x=[[[]]] * 500),
        dumped(x="[" * 5000),
        dumped(x="9" * 5000),
        dumped(x='\\"[{' * 500),
        dumped(x="[" * 500 + "9" * 5000),
        b'{"model":"m","x":' + b"9" * (MAX_DIGITS - 1) + b"}",
        dumped(stream=None),
        dumped(tools=[{"model": "z", "deep": {"model": "y"}}]),
        dumped(x="model"),
        dumped(messages=LONG_TALK),
        dumped(messages=[{"role": "user", "content": "[{" * 5000}]),
        dumped(messages=LONG_TALK, x={"model": 1}),
        dumped(metadata={"messages": [1]}, messages=LONG_TALK),
        dumped(messages=LONG_TALK, x="messages").replace(b'"messages"', b'"mess\\u0061ges"', 1),
        b'\n {\t"x" : {"model": 1} , "model"\n:\t"m" , "y":-1.5e3,"z":[null ,true]}\n',
        b'{"mod\\u0065l":"m"}',
        '{"model":"m","x":"grün 模型"}'.encode(),
    ],
)
def test_harmless_bodies_that_look_odd(data: bytes) -> None:
    assert good(data).model == "m"


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ({}, set()),
        ({"tools": []}, set()),
        ({"tools": None, "functions": []}, set()),
        ({"tools": [{"type": "function"}]}, {"tools"}),
        ({"functions": [{"name": "f"}]}, {"tools"}),
        ({"messages": [{"role": "user", "content": 'an "image_url" in text'}]}, set()),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, {"vision"}),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, {"vision"}),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, {"vision"}),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": '"imagery"'}]}]}, set()),
        ({"messages": [{"role": "user", "content": [{"type": "imagery"}]}]}, set()),
        ({"messages": [{"content": [{"type": "input_audio"}]}], "tools": [1]}, {"audio", "tools"}),
    ],
)
def test_needs(values: dict[str, Any], shown: set[str]) -> None:
    assert needs(read(dumped(**values))) == shown


@pytest.mark.parametrize(
    ("data", "after"),
    [
        (b'{"model":"m"}', b'{"model":"org/M"}'),
        (
            b' { "stream":true , "model" : "m\\n\\u0041" , "x":[ ] } ',
            b' { "stream":true , "model" : "org/M" , "x":[ ] } ',
        ),
        (
            b'{"x":{"model":"m"},"y":["model","m"],"model":"m"}',
            b'{"x":{"model":"m"},"y":["model","m"],"model":"org/M"}',
        ),
        (b'{"a\\"model":"m","mod\\u0065l":"m"}', b'{"a\\"model":"m","mod\\u0065l":"org/M"}'),
        (b'{"z":"]}\\\\","model":"m"}', b'{"z":"]}\\\\","model":"org/M"}'),
        (b'{"n":-1.5e3,"t":true,"model":"m"}', b'{"n":-1.5e3,"t":true,"model":"org/M"}'),
    ],
)
def test_only_the_models_value_changes(data: bytes, after: bytes) -> None:
    assert replace_model(data, "org/M") == after


def test_names_are_written_as_json() -> None:
    changed = replace_model(b'{"model":"m"}', 'a"b\\c ü')
    assert json.loads(changed) == {"model": 'a"b\\c ü'}


@pytest.mark.parametrize("data", [b"{}", b'{"model":"a","model":"b"}', b'{"x":[1', b'{"x":{"model":"m"}}'])
def test_bodies_that_were_never_accepted_are_a_bug(data: bytes) -> None:
    with pytest.raises(ValueError):
        replace_model(data, "z")


def talk(turns: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "text", "text": "some words [{"}]}] * turns


@pytest.mark.parametrize(
    "values",
    [
        {"messages": talk(3)},
        {"messages": talk(300)},
        {"messages": talk(300), "tools": [{"function": {"parameters": {"a": {"b": {}}}}}] * 80},
        {"prompt": "a [{ b " * 500},
        {"input": talk(300), "messages": talk(20)},
        {"tools": talk(40), "x": {"tools": 1}},
        {"x": {"messages": talk(40)}, "messages": talk(40)},
        {"x": {"messages": talk(30)}, "messages": talk(40)},
    ],
    ids=["short", "long", "tools", "text", "input", "name twice", "value twice", "other value first"],
)
@pytest.mark.parametrize("model_first", [True, False])
def test_long_bodies_are_read_and_rewritten_like_short_ones(values: dict[str, Any], model_first: bool) -> None:
    model = {"model": "m"}
    body = model | values if model_first else values | model | {"stream": True}
    data = json.dumps(body).encode()
    assert good(data).model == "m"
    assert json.loads(replace_model(data, "org/M")) == body | {"model": "org/M"}


def nested(levels: int) -> Any:
    inner: Any = "x" * 300
    for _ in range(levels):
        inner = [inner]
    return inner


@pytest.mark.parametrize(
    ("values", "accepted"),
    [
        ({"messages": [{"content": nested(MAX_DEPTH - 3)}]}, True),
        ({"messages": [{"content": nested(MAX_DEPTH - 2)}]}, False),
        ({"messages": nested(MAX_DEPTH - 1)}, True),
        ({"messages": nested(MAX_DEPTH)}, False),
        ({"input": {"a": [[]] * 200, "b": nested(MAX_DEPTH)}}, False),
        ({"input": {"a": [[]] * 200, "b": nested(20)}}, True),
        ({"messages": [*talk(200), {"content": [[]] * 200}]}, True),
    ],
)
def test_depth_inside_long_values(values: dict[str, Any], accepted: bool) -> None:
    assert isinstance(read_body(dumped(**values)), Body) is accepted


def filled(front: bytes, part: bytes, end: bytes) -> bytes:
    """More parts than are looked at."""
    return front + part * (MAX_PARTS + 1) + end


MANY = {
    "arrays": filled(b'{"model":"m","x":[', b"[],", b"[]]}"),
    "strings": filled(b'{"model":"m","y":[' + b"[]," * 200 + b'[]],"x":[', b'"",', b'""]}'),
    "keys beside a second model": filled(b'{"model":"m","z":"model",', b'"a":1,', b'"b":1}'),
    "strings beside a second model": filled(b'{"model":"m","x":["model",', b'"",', b'""]}'),
    "messages of objects": filled(b'{"model":"m","messages":[', b"{},", b"{}]}"),
}


@pytest.mark.parametrize("name", MANY)
def test_bodies_of_a_million_parts_cost_neither_seconds_nor_memory(name: str) -> None:
    """SEC-05: 32 MiB of these held the loop for 9 s and took a gigabyte; parts are counted and refused instead."""
    assert "too many parts" in bad(MANY[name]).message


def test_many_numbers_are_no_parts() -> None:
    """A batch of token ids is long and harmless."""
    assert good(filled(b'{"model":"m","input":[' + b"[]," * 200, b"1,", b"1]}")).model == "m"


@pytest.mark.parametrize("before", [0, 1, 300, 511, 1022, 1023, 1024, 2047])
def test_a_long_number_is_found_wherever_it_stands(before: int) -> None:
    talk = '{"model":"m","messages":[{"role":"user","content":"%s"},%s]}'
    assert "digits" in bad((talk % ("x" * before, "9" * MAX_DIGITS)).encode()).message
    assert "digits" in bad((talk % ("x" * before, "-0." + "9" * MAX_DIGITS)).encode()).message
    good((talk % ("x" * before, "9" * (MAX_DIGITS - 1))).encode())


@pytest.mark.parametrize("around", [1, 60, 100, 127])
def test_depth_counts_what_is_around_a_long_value_and_in_it(around: int) -> None:
    text = '{"model":"m","x":%s,"messages":[{"content":"' + "y" * 300 + '","z":%s}]}'
    inside = MAX_DEPTH - 3
    good((text % ("[" * around + "]" * around, "[" * inside + "]" * inside)).encode())
    assert (
        "deep" in bad((text % ("[" * around + "]" * around, "[" * (inside + 1) + "]" * (inside + 1))).encode()).message
    )

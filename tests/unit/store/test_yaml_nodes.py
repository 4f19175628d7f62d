"""YAML to plain data: what kubectl reads alike, what is refused, and the line of each thing."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from headrace_operator.store import yaml_nodes
from headrace_operator.store.faults import Odd
from headrace_operator.store.yaml_nodes import MAX_DEPTH, MAX_NODES, read_documents


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": 1}),
        ("a: -1", {"a": -1}),
        ("a: +1", {"a": 1}),
        ("a: text", {"a": "text"}),
        ("a: 'yes'", {"a": "yes"}),
        ("a: yes", {"a": True}),
        ("a: Off", {"a": False}),
        ("a: ~", {"a": None}),
        ("a:", {"a": None}),
        ("a: 2026-11-29", {"a": "2026-11-29"}),
        ("1: x\ntrue: y", {"1": "x", "true": "y"}),
        ("a: !!str 12", {"a": "12"}),
        ("a: ! 12", {"a": "12"}),
        ("a: 1.5", {"a": Odd("1.5", "fraction")}),
        ("a: .inf", {"a": Odd(".inf", "infinite")}),
        ("a: -.INF", {"a": Odd("-.INF", "infinite")}),
        ("a: .nan", {"a": Odd(".nan", "infinite")}),
        ("a: 1.0e+999", {"a": Odd("1.0e+999", "infinite")}),
        ("a: 1:30.5", {"a": Odd("1:30.5", "fraction")}),
        ("a: 0x1F", {"a": Odd("0x1F", "notation")}),
        ("a: 010", {"a": Odd("010", "notation")}),
        ("a: 1_000", {"a": Odd("1_000", "notation")}),
        ("a: 1:30", {"a": Odd("1:30", "notation")}),
        ("a: " + "9" * 5000, {"a": Odd("9" * 5000, "huge")}),
        ("a: 1e400", {"a": "1e400"}),
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
        ("a: &x 1\nb: &x 2\nc: *x", {"a": 1, "b": 2, "c": 2}),
        ("base: &b {x: 1, y: 2}\nz:\n  <<: *b\n  y: 3", {"base": {"x": 1, "y": 2}, "z": {"y": 3, "x": 1}}),
        (
            "p: &p {x: 1}\nq: &q {x: 2, y: 2}\nz: {<<: [*p, *q]}",
            {"p": {"x": 1}, "q": {"x": 2, "y": 2}, "z": {"x": 1, "y": 2}},
        ),
        ("'<<': 1", {"<<": 1}),
        ('{"a": [1, "b", null, false]}', {"a": [1, "b", None, False]}),
        ("\ufeffa: 1", {"a": 1}),
        ("a: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
        ("%YAML 1.2\n---\na: 1\n...\n", {"a": 1}),
    ],
)
def test_values(text: str, value: Any) -> None:
    (document,) = read_documents(text.encode())

    assert document.broken is None
    assert document.faults == []
    assert document.value == value


@pytest.mark.parametrize("text", ["", "\n\n", "# only\n", "---\n", "---\n---\n# x\n---", "%YAML 1.2\n---\n", "...\n"])
def test_nothing_is_in_it(text: str) -> None:
    assert read_documents(text.encode()) == []


def test_lines_are_those_of_the_file() -> None:
    text = "# head\na: 1\n---\n# more\nb:\n- c: 2\n  d:\n    e: 3\n- 4\n"

    first, second = read_documents(text.encode())

    assert first.line(("a",)) == 2
    assert [second.line(path) for path in ((), ("b",), ("b", 0, "c"), ("b", 0, "d", "e"), ("b", 1))] == [5, 5, 6, 8, 9]
    assert second.line(("b", 0, "missing", "deeper")) == 6, "the nearest thing around it"


def test_lines_of_a_merged_field_are_where_it_stands() -> None:
    (document,) = read_documents(b"base: &b\n  x: {y: 1}\nz:\n  <<: *b\n")

    assert document.line(("z", "x", "y")) == 2


@pytest.mark.parametrize(
    ("text", "path", "line", "message"),
    [
        ("a: 1\nb: 2\na: 3", ("a",), 3, "stands twice, first at line 1; right would be once"),
        ("x: {a: 1, a: 2}", ("x", "a"), 1, "stands twice, first at line 1; right would be once"),
        ("? [a]\n: 1", (), 1, "a key is a sequence; right would be text"),
        ("? {a: 1}\n: 1", (), 1, "a key is a mapping; right would be text"),
        ("<<: 1\na: 2", (), 1, "<< merges no mapping; right would be one"),
        ("z:\n  <<: [{a: 1, a: 2}]", ("z", "a"), 2, "stands twice, first at line 2; right would be once"),
    ],
)
def test_faults_in_a_readable_document(text: str, path: tuple[str, ...], line: int, message: str) -> None:
    (document,) = read_documents(text.encode())

    assert document.faults == [(path, line, message)]


BOMB = "a0: &a0 x\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 60))


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a:\n\tb: 1", 2, "a tab indents this line; right would be spaces"),
        ("a:\n - b: 1\n\t - c", 3, "a tab indents this line"),
        ("a: |\n  x\n\ty", 3, "a tab indents this line"),
        ("a: b: c", 1, "this is not YAML"),
        ("a: 'b", 1, "right would be a closing quote"),
        ("a: [b", 1, "closed brackets"),
        ("a: @b", 1, "right would be quotes round the value"),
        ("a: 1\n...\nb: 2", 3, "right would be --- between two documents"),
        ("a: *b", 1, "*b names nothing that ends before it"),
        ("a: &b [*b]", 1, "*b names nothing that ends before it"),
        ("a: 1\n---\nb: *c", 3, "*c names nothing"),
        ("a: &b 1\n---\nb: *b", 3, "*b names nothing"),
        (
            "a: !!python/object:os.system x",
            1,
            "the tag !!python/object:os.system is not plain data; right would be no tag",
        ),
        ("a: !custom {}", 1, "the tag !custom is not plain data"),
        ("a: !!set {b}", 1, "the tag !!set is not plain data"),
        ("a: !!binary aGk=", 1, "the tag !!binary is not plain data"),
        ("[" * 100_000, 1, "right would be at most 64 levels"),
        ("[" * (MAX_DEPTH + 1), 1, f"nested deeper than {MAX_DEPTH} levels"),
        ("a: &a " + "[" * 40 + "]" * 40 + "\nb: " + "[" * 40 + "*a" + "]" * 40, 2, "nested deeper than"),
        (BOMB, 7, f"the file holds over {MAX_NODES:,} values, aliases expanded"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_document_that_cannot_be_read(text: str, line: int, words: str) -> None:
    broken = read_documents(text.encode())[-1].broken

    assert broken is not None
    assert broken[0] == line
    assert words in broken[1]


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        (b"a: 1\nb: \x00", 2, "the control character U+0000"),
        (b"a: \x1b[31m", 1, "the control character U+001B"),
        (b"a: 1\nb: \xff", 2, "byte 9 is not UTF-8"),
        ("a: 1".encode("utf-16"), 1, "byte 1 is not UTF-8"),
        (b"#" * (4 * 2**20 + 1), 1, "right would be at most 4 MiB"),
    ],
)
def test_a_file_that_is_no_text(data: bytes, line: int, words: str) -> None:
    (document,) = read_documents(data)

    assert document.broken is not None
    assert document.broken[0] == line
    assert words in document.broken[1]


def test_a_file_at_the_limit_of_size_is_read() -> None:
    head = b"a: 1\n"
    assert read_documents(head + b"#" * (4 * 2**20 - len(head)))[0].value == {"a": 1}


def test_a_broken_document_hides_no_other() -> None:
    documents = read_documents(b"a: 1\n---\nb: [\n---\nc: 3\n")

    assert [document.value for document in documents] == [{"a": 1}, None, {"c": 3}]


def test_once_the_file_is_too_large_nothing_more_of_it_is_read() -> None:
    documents = read_documents((BOMB + "---\n" + "a: 1\n---\n" * 100).encode())

    assert [document.broken is not None for document in documents] == [True]


def test_without_libyaml_the_values_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"a: &x {b: [1, 'c', ~, yes]}\nd: *x\n---\n<<: {e: 1.5}\n"
    fast = [(document.value, document.lines) for document in read_documents(text)]
    monkeypatch.setattr(yaml_nodes, "_LOADER", yaml.SafeLoader)

    assert [(document.value, document.lines) for document in read_documents(text)] == fast

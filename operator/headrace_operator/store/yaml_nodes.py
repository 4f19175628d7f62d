"""YAML to plain data with the line of every field, refusing what a manifest must not hold.

Built from libyaml's event stream, without recursion: depth, size and alias expansion are bounded while reading, so a
bomb costs no more than its own bytes. Each document between ``---`` lines is read by itself, so that one broken
document doesn't hide the others. Never raises for content; what is wrong is told per document.

Scalars follow kubectl: dates stay text. Stricter: no fractions, no other notations of integers (``0x10``, ``1_000``,
``010``, ``1:30``), keys are text, a key stands once, tags other than the plain ones are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from headrace_operator.store.faults import Odd, Path

MAX_FILE_BYTES: Final = 4 * 2**20
MAX_NODES: Final = 400_000  # the largest policy has 40,000; a file of 4 MiB full of engines some 300,000
MAX_DEPTH: Final = 64  # a spec has 8; a resource's managedFields up to 20
MAX_DIGITS: Final = 18

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SEPARATOR: Final = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_BLANK: Final = re.compile(r"(?:[ \t]*(?:#[^\n]*)?|---[ \t]*(?:#[^\n]*)?|%[^\n]*|\.\.\.[ \t]*)")
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")
_DECIMAL: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_TAG: Final = "tag:yaml.org,2002:"
_PLAIN_TAGS: Final = frozenset(_TAG + name for name in ("str", "int", "bool", "null", "float", "timestamp"))
_HINTS: Final = (
    (
        "mapping values are not allowed",
        'keys of one mapping in one column, and quotes round a value that has ": " in it',
    ),
    ("cannot start any token", "quotes round the value"),
    ("unexpected end of stream", "a closing quote"),
    ("<document start>", "--- between two documents"),
    ("nesting depth", f"at most {MAX_DEPTH} levels"),
)
_OTHER_HINT: Final = "closed brackets and quotes, and entries of one list or mapping in one column"


class _Broken(Exception):
    """A document that can't be read."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


@dataclass
class Document:
    """One document: plain data (dict, list, str, int, bool, None, Odd) or why it can't be read.

    lines: of each field by its path. faults: (path, line, message) of what is wrong in a readable document, such as a
    key that stands twice. broken: (line, message), with value None.
    """

    value: Any
    lines: dict[Path, int] = field(default_factory=dict)
    faults: list[tuple[Path, int, str]] = field(default_factory=list)
    broken: tuple[int, str] | None = None

    def line(self, path: Path) -> int:
        """The line of a field, or of the nearest thing around it that stands in the file."""
        while path not in self.lines and path:
            path = path[:-1]
        return self.lines.get(path, 1)


@dataclass(slots=True)
class _Node:
    line: int
    children: list[Any] = field(default_factory=list)  # of a sequence: nodes; of a mapping: key, value, key, …
    text: str = ""
    tag: str = ""
    kind: str = "scalar"
    size: int = 1
    height: int = 1
    anchor: str | None = None


def read_documents(data: bytes) -> list[Document]:
    """All documents of a file, in order. An empty file has none; a file that can't be text has one broken document."""
    if len(data) > MAX_FILE_BYTES:
        size = len(data) / 2**20
        return [
            _broken(1, f"the file is over {size:.1f} MiB long; right would be at most 4 MiB, split over several files")
        ]
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return [_broken(line, f"byte {error.start + 1} is not UTF-8; right would be UTF-8 text")]
    control = _CONTROL.search(text)
    if control is not None:
        line = text.count("\n", 0, control.start()) + 1
        return [_broken(line, f"the control character U+{ord(control[0]):04X} stands in it; right would be plain text")]
    budget = _Budget()
    documents: list[Document] = []
    for first_line, chunk in _chunks(text):
        documents += _read_chunk(chunk, first_line, budget)
        if budget.nodes > MAX_NODES:
            break
    return documents


def _broken(line: int, message: str) -> Document:
    return Document(None, broken=(line, message))


def _chunks(text: str) -> Iterator[tuple[int, str]]:
    """The text cut at its ``---`` lines, with the number of each part's first line; empty parts are left out."""
    cuts = [match.start() for match in _SEPARATOR.finditer(text)]
    line = 1
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        chunk = text[start:end]
        if not all(_BLANK.fullmatch(part) for part in chunk.splitlines()):
            yield line, chunk
        line += chunk.count("\n")


@dataclass
class _Budget:
    """Nodes read so far in the whole file, aliases counted as what they expand to."""

    nodes: int = 0

    def spend(self, count: int, line: int) -> None:
        self.nodes += count
        if self.nodes > MAX_NODES:
            raise _Broken(
                line,
                f"the file holds over {MAX_NODES:,} values, aliases expanded; right would be several smaller files",
            )


def _read_chunk(chunk: str, first_line: int, budget: _Budget) -> list[Document]:
    documents: list[Document] = []
    try:
        documents.extend(_Builder(first_line).document(root) for root in _compose(chunk, budget))
    except _Broken as error:
        documents.append(_broken(first_line + error.line, error.message))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = min(mark.line if mark is not None else 0, chunk.count("\n"))
        documents.append(_broken(first_line + line, _syntax(chunk, line, str(getattr(error, "problem", "") or error))))
    return documents


def _syntax(chunk: str, line: int, problem: str) -> str:
    lines = chunk.splitlines()
    culprit = lines[line] if line < len(lines) else ""
    if "tab character" in problem or re.match(r"[ -]*\t", culprit):
        return "a tab indents this line; right would be spaces"
    hint = next((right for words, right in _HINTS if words in problem), _OTHER_HINT)
    return f"this is not YAML: {problem}; right would be {hint}"


def _compose(chunk: str, budget: _Budget) -> Iterator[_Node]:
    """Roots of the documents in a chunk, as nodes in which aliases are shared."""
    loader = _LOADER(chunk)
    try:
        anchors: dict[str, _Node] = {}
        stack: list[_Node] = []
        while loader.check_event():
            event = loader.get_event()
            if isinstance(event, yaml.DocumentStartEvent):
                anchors, stack = {}, []
            elif isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
                node = _step(loader, event, stack, anchors, budget)
                if node is not None and not stack:
                    yield node
    finally:
        loader.dispose()


def _step(loader: Any, event: Any, stack: list[_Node], anchors: dict[str, _Node], budget: _Budget) -> _Node | None:
    """Take one event; the node that it completes, if any, is already in its parent."""
    line = event.start_mark.line
    if isinstance(event, yaml.CollectionStartEvent):
        if len(stack) >= MAX_DEPTH:
            raise _Broken(line, f"nested deeper than {MAX_DEPTH} levels; right would be a manifest's few levels")
        kind = "sequence" if isinstance(event, yaml.SequenceStartEvent) else "mapping"
        _check_tag(event.tag, (_TAG + "seq", _TAG + "map", "!"), line)
        stack.append(_Node(line, kind=kind, anchor=event.anchor))
        budget.spend(1, line)
        return None
    if isinstance(event, yaml.CollectionEndEvent):
        node = stack.pop()
    elif isinstance(event, yaml.AliasEvent):
        if event.anchor not in anchors:
            raise _Broken(line, f"*{event.anchor} names nothing that ends before it; right would be the value itself")
        node = anchors[event.anchor]
        if len(stack) + node.height > MAX_DEPTH:
            raise _Broken(line, f"nested deeper than {MAX_DEPTH} levels; right would be a manifest's few levels")
        budget.spend(node.size, line)
    else:
        _check_tag(event.tag, _PLAIN_TAGS | {"!"}, line)
        tag = event.tag or loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        node = _Node(line, text=event.value, tag=tag, anchor=event.anchor)
        budget.spend(1, line)
    if node.anchor is not None and not isinstance(event, yaml.AliasEvent):
        anchors[node.anchor] = node
    if stack:
        parent = stack[-1]
        parent.children.append(node)
        parent.size += node.size
        parent.height = max(parent.height, node.height + 1)
    return node


def _check_tag(tag: str | None, allowed: Any, line: int) -> None:
    if tag is not None and tag not in allowed:
        short = tag.replace(_TAG, "!!")
        raise _Broken(line, f"the tag {short} is not plain data; right would be no tag")


class _Builder:
    """Expands nodes into plain data, noting lines and faults; the budget has bounded its size already."""

    def __init__(self, first_line: int) -> None:
        self._first = first_line
        self._document = Document(None)

    def document(self, root: _Node) -> Document:
        self._document.value = self._value(root, ())
        self._document.lines[()] = self._first + root.line
        return self._document

    def _value(self, node: _Node, path: Path) -> Any:
        if node.kind == "scalar":
            return scalar(node.text, node.tag)
        if node.kind == "sequence":
            items = []
            for index, child in enumerate(node.children):
                self._document.lines[(*path, index)] = self._first + child.line
                items.append(self._value(child, (*path, index)))
            return items
        return self._mapping(node, path)

    def _mapping(self, node: _Node, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: list[_Node] = []
        for key, child in zip(node.children[::2], node.children[1::2], strict=True):
            line = self._first + key.line
            if key.kind != "scalar":
                self._document.faults.append((path, line, f"a key is a {key.kind}; right would be text"))
            elif key.tag == _TAG + "merge":
                merged += child.children if child.kind == "sequence" else [child]
            elif key.text in result:
                first = self._document.lines[(*path, key.text)]
                message = f"stands twice, first at line {first}; right would be once"
                self._document.faults.append(((*path, key.text), line, message))
            else:
                self._document.lines[(*path, key.text)] = line
                result[key.text] = self._value(child, (*path, key.text))
        for base in merged:
            self._merge(base, path, result)
        return result

    def _merge(self, base: _Node, path: Path, result: dict[str, Any]) -> None:
        """``<<: *base``: what stands in the mapping itself wins, then the earlier base."""
        if base.kind != "mapping":
            self._document.faults.append((path, self._first + base.line, "<< merges no mapping; right would be one"))
            return
        beside = _Builder(self._first)
        added = {key: value for key, value in beside._mapping(base, path).items() if key not in result}
        result |= added
        for at, line in beside._document.lines.items():
            if at[len(path)] in added:
                self._document.lines[at] = line
        self._document.faults += beside._document.faults


def scalar(text: str, tag: str) -> Any:
    """The plain value of a resolved scalar: text, int, bool, None, or Odd for what has no place in a spec."""
    kind = tag.removeprefix(_TAG)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in ("true", "yes", "on")
    if kind == "int":
        if not _DECIMAL.fullmatch(text):
            return Odd(text, "notation")
        return int(text) if len(text) <= MAX_DIGITS else Odd(text, "huge")
    if kind == "float":
        infinite = text.lower().lstrip("+-") in (".inf", ".nan") or not _finite(text)
        return Odd(text, "infinite" if infinite else "fraction")
    return text


def _finite(text: str) -> bool:
    """Whether a float's text is a finite number; sexagesimal ones (``1:30.5``) count as finite."""
    try:
        return abs(float(text.replace("_", ""))) < float("inf")
    except ValueError:
        return True

"""Drafted engines as YAML with a word at each field that is to be filled in, or as a JSON List without words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from headrace_operator.cli.discover_draft import FILL, Draft, Drafts
from headrace_operator.cli.output import plain_text
from headrace_operator.publisher.configmap import dump

WIDTH: Final = 200  # of a word; images and model names can be of any length
_INTRO: Final = f"""\
# Drafted by `headrace discover`; nothing was written to the cluster. What says {FILL} can't be known from there and is
# refused until it has a value: `headrace plan -f FILE` names those that are left.
"""


def as_yaml(found: Drafts) -> str:
    """A manifest a draft, with comments."""
    return _INTRO + "".join("---\n" + "".join(f"{line}\n" for line in _lines(draft)) for draft in found.engines)


def as_json(found: Drafts) -> str:
    """A List, as ``kubectl get -o json`` gives one."""
    manifests = [draft.manifest for draft in found.engines]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}, indent=2) + "\n"


def _lines(draft: Draft) -> Iterator[str]:
    for line in draft.about:
        yield _comment(line)
    needed = {entry.field: entry.word for entry in draft.unknown if entry.needed}
    path: list[tuple[int, str]] = []
    for line in dump(draft.manifest).decode().splitlines():
        path = _path(path, line)
        where = ".".join(name for _, name in path)
        word = next((needed.pop(field) for field in list(needed) if _plain(field) == where), "")
        yield line + (f"  {_comment(word)}" if word else "")
    for field, word in needed.items():
        yield _comment(f"{field}: {word}")
    maybe = [entry for entry in draft.unknown if not entry.needed]
    if maybe:
        yield "# Not known here; set what you know:"
        for entry in maybe:
            yield _comment(f"  {entry.field}: {entry.word}")


def _plain(field: str) -> str:
    """A path without the numbers of list items."""
    return field.replace("[0]", "")


def _path(before: list[tuple[int, str]], line: str) -> list[tuple[int, str]]:
    """Keys that lead to a line of block YAML, each with its indentation."""
    bare = line.lstrip(" ")
    depth = len(line) - len(bare)
    while bare.startswith("- "):
        bare, depth = bare[2:], depth + 2
    name = bare.partition(":")[0]
    return [*[entry for entry in before if entry[0] < depth], (depth, name)]


def _comment(text: str) -> str:
    """Text of a cluster's objects as a comment: on one line, whatever it holds."""
    line = " ".join(plain_text(text).splitlines())
    return f"# {line if len(line) <= WIDTH else line[: WIDTH - 1] + '…'}"

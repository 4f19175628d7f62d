"""Manifests to typed resources, with every fault of every file in one run; a bad resource never stops the good ones.

On the routing-weight path: what ``plan`` reads, and what a directory store reads again at each edit. Takes the bytes
of files, or reads them (``read_path``); neither raises for what a person may have written. kubectl's habits: several
documents a file, List, JSON as well, other kinds are left alone, null means missing (case CRD-02).

A resource with a fault of its own is left out (its key stands in ``refused``, so that a store may keep the last good
one); one whose references dangle stays in. Of two resources with one name the first in reading order stays.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path as FilePath
from typing import Any, Final

import msgspec

from headrace_api.base import API_VERSION, GROUP, Metadata
from headrace_api.engine import InferenceEngine, InferenceEngineSpec
from headrace_api.policy import RoutingPolicy, RoutingPolicySpec
from headrace_api.schema import OPEN, Schema, schema_of
from headrace_operator.store.faults import Fault, Origin, Path, ResourceKey, Severity, field_name, shown
from headrace_operator.store.not_yet import without_effect
from headrace_operator.store.references import (
    Claim,
    dangling,
    owner_words,
    strange_places,
    table_names,
    table_taken,
)
from headrace_operator.store.rules import check_rules
from headrace_operator.store.schema_check import Finding, check, suggestion
from headrace_operator.store.yaml_nodes import MAX_FILE_BYTES, Document, read_documents

KINDS: Final[dict[str, tuple[type[Any], type[msgspec.Struct]]]] = {
    "InferenceEngine": (InferenceEngine, InferenceEngineSpec),
    "RoutingPolicy": (RoutingPolicy, RoutingPolicySpec),
}
SUFFIXES: Final = (".yaml", ".yml", ".json")
MAX_FAULTS: Final = 50  # of one resource; a hostile list could give thousands


@dataclass(frozen=True)
class Manifests:
    """What was read. engines, policies: by namespace and name. faults: by file and line; notices break nothing.

    refused: recognised but left out. unreadable: files that could not be read whole, so that a resource missing from
    them is unknown, not deleted. origins: of every recognised resource.
    """

    engines: tuple[InferenceEngine, ...] = ()
    policies: tuple[RoutingPolicy, ...] = ()
    faults: tuple[Fault, ...] = ()
    notices: tuple[Fault, ...] = ()
    refused: tuple[ResourceKey, ...] = ()
    unreadable: tuple[str, ...] = ()
    origins: dict[ResourceKey, Origin] = field(default_factory=dict)


def read_manifests(files: Iterable[tuple[str, bytes]], *, namespace: str = "default") -> Manifests:
    """The resources of files given as (name, content). ``namespace``: of resources that name none."""
    reader = _Reader(namespace)
    for name, data in files:
        reader.file(name, data)
    return reader.result()


def read_path(path: str | FilePath, *, namespace: str = "default") -> Manifests:
    """The resources of a file, of a directory's manifests (not of its folders), or of standard input ("-")."""
    return read_paths([path], namespace=namespace)


def read_paths(paths: Iterable[str | FilePath], *, namespace: str = "default") -> Manifests:
    """As ``read_path``, of several; what can't be read is a fault."""
    reader = _Reader(namespace)
    for path in paths:
        if str(path) == "-":
            reader.file("<stdin>", sys.stdin.buffer.read(MAX_FILE_BYTES + 1))
            continue
        try:
            found = _files(FilePath(path))
            if not found:
                reader.whole_file(
                    str(path), 1, f"holds no manifests; right would be files named *{', *'.join(SUFFIXES)}"
                )
        except OSError as error:
            reader.whole_file(str(path), 1, f"{_reason(error)}; right would be a file or directory that can be read")
            continue
        for file in found:
            _read_file(reader, file)
    return reader.result()


def _files(path: FilePath) -> list[FilePath]:
    if not path.is_dir():
        path.stat()
        return [path]
    return sorted(
        one
        for one in path.iterdir()
        if one.suffix.lower() in SUFFIXES and not one.name.startswith(".") and one.is_file()
    )


def _read_file(reader: _Reader, path: FilePath) -> None:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        reader.whole_file(str(path), 1, f"{_reason(error)}; right would be a file that can be read")
    else:
        reader.file(str(path), data)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


@dataclass
class _Resource:
    """A recognised resource: where it stands (``prefix``: its path in the document), and its data without nulls."""

    key: ResourceKey
    file: str
    document: Document
    prefix: Path
    raw: dict[str, Any]
    faulty: bool = False
    typed: InferenceEngine | RoutingPolicy | None = None

    def line(self, path: Path = ()) -> int:
        return self.document.line(self.prefix + path)


class _Reader:
    """Collects resources and faults over all files, then judges what only all of them together can tell."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._order: dict[str, int] = {}
        self._faults: list[Fault] = []
        self._notices: list[Fault] = []
        self._unreadable: dict[str, None] = {}
        self._resources: list[_Resource] = []
        self._first: dict[ResourceKey, _Resource] = {}

    def whole_file(self, file: str, line: int, message: str) -> None:
        """A fault of a file, or of one document of it."""
        self._order.setdefault(file, len(self._order))
        self._unreadable[file] = None
        self._faults.append(Fault(file, line, "", "", "", message))

    def file(self, name: str, data: bytes) -> None:
        """Read one file's content."""
        self._order.setdefault(name, len(self._order))
        documents = read_documents(data)
        if not documents:
            self.whole_file(name, 1, "the file is empty; right would be an InferenceEngine or a RoutingPolicy")
        for document in documents:
            if document.broken is not None:
                self.whole_file(name, *document.broken)
            else:
                self._object(name, document, document.value, ())

    def _object(self, file: str, document: Document, value: Any, prefix: Path) -> None:
        line = document.line(prefix)
        at = f"{field_name(prefix)}: " if prefix else ""
        if not isinstance(value, dict):
            message = (
                f"{at}{shown(value)} is no resource; right would be a mapping with apiVersion, kind, metadata and spec"
            )
            self._say(file, line, "", "", shown(value), message)
            return
        kind, version = value.get("kind"), value.get("apiVersion")
        for name, given in (("apiVersion", version), ("kind", kind)):
            if not isinstance(given, str) or not given:
                right = API_VERSION if name == "apiVersion" else " or ".join(KINDS)
                is_what = "is missing" if given is None else f"{shown(given)} is not text"
                self._say(file, line, "", field_name((*prefix, name)), "", f"{is_what}; right would be {right}")
        if not isinstance(kind, str) or not isinstance(version, str) or not kind or not version:
            return
        if kind in KINDS:
            self._resource(file, document, value, prefix)
        elif kind.endswith("List") and isinstance(value.get("items"), list) and not prefix:
            self._document_faults(file, document, prefix, items=False)
            for index, item in enumerate(value["items"]):
                self._object(file, document, item, ("items", index))
        elif version.partition("/")[0] == GROUP:
            field_at = (*prefix, "kind")
            message = f"{shown(kind)} is no kind of {GROUP}; {suggestion(kind, KINDS)}"
            self._say(file, document.line(field_at), "", field_name(field_at), shown(kind), message)
        else:
            message = f"{kind} is left alone: only {' and '.join(KINDS)} are read"
            self._notices.append(Fault(file, line, "", "", "", message, "notice"))

    def _document_faults(self, file: str, document: Document, prefix: Path, *, items: bool) -> None:
        """Faults of a List itself; those of its items are told with them."""
        for path, line, message in document.faults:
            if (path[: len(prefix)] == prefix) if items else path[:1] != ("items",):
                self._say(file, line, "", field_name(path), "", message)

    def _resource(self, file: str, document: Document, value: dict[str, Any], prefix: Path) -> None:
        key = self._key(value)
        resource = _Resource(key, file, document, prefix, without_nulls(value))
        self._resources.append(resource)
        findings = list(own_faults(key.kind, value, resource.raw))
        for path, line, message in document.faults:
            if path[: len(prefix)] == prefix:
                self._blame(resource, Finding(path[len(prefix) :], "", message), line=line)
        for finding in findings[:MAX_FAULTS]:
            self._blame(resource, finding)
        if len(findings) > MAX_FAULTS:
            more = f"and {len(findings) - MAX_FAULTS} more faults"
            self._blame(resource, Finding((), "", more), line=resource.line(findings[MAX_FAULTS].path))
        if not resource.faulty:
            self._convert(resource)
        for finding in without_effect(key.kind, resource.raw):
            self._blame(resource, finding, severity="notice")
        self._check_unique(resource)

    def _key(self, value: dict[str, Any]) -> ResourceKey:
        metadata = value.get("metadata")
        given = metadata if isinstance(metadata, dict) else {}
        name, namespace = given.get("name"), given.get("namespace")
        return ResourceKey(
            value["kind"],
            namespace if isinstance(namespace, str) and namespace else self._namespace,
            name if isinstance(name, str) and name else "?",
        )

    def _convert(self, resource: _Resource) -> None:
        kind, _ = KINDS[resource.key.kind]
        metadata = {"namespace": self._namespace, **resource.raw["metadata"]}
        try:
            resource.typed = msgspec.convert({**resource.raw, "metadata": metadata}, kind)
        except msgspec.ValidationError as error:  # the schema and the types disagree: never silently
            self._blame(resource, Finding((), "", f"does not fit its type: {error}"))

    def _check_unique(self, resource: _Resource) -> None:
        if resource.key.name == "?":
            return
        first = self._first.setdefault(resource.key, resource)
        if first is not resource:
            where = f"{first.file}:{first.line()}"
            message = f"{shown(resource.key.name)} stands already at {where}; right would be one resource of that name"
            self._blame(resource, Finding(("metadata", "name"), resource.key.name, message))

    def _blame(
        self, resource: _Resource, finding: Finding, *, severity: Severity = "refused", line: int | None = None
    ) -> None:
        resource.faulty = resource.faulty or severity == "refused"
        if line is None:
            line = resource.line(finding.path)
        name = str(resource.key)
        fault = Fault(resource.file, line, name, field_name(finding.path), finding.value, finding.message, severity)
        (self._notices if severity == "notice" else self._faults).append(fault)

    def _say(self, file: str, line: int, resource: str, at: str, value: str, message: str) -> None:
        self._unreadable[file] = None
        self._faults.append(Fault(file, line, resource, at, value, message))

    def result(self) -> Manifests:
        """Judge references between resources, and give everything in order."""
        self._check_tables()
        good = [resource for resource in self._resources if not resource.faulty]
        engines = [one.typed for one in good if isinstance(one.typed, InferenceEngine)]
        policies = [one.typed for one in good if isinstance(one.typed, RoutingPolicy)]
        claims = frozenset(claim for one in self._resources if one.faulty for claim in _claims(one))
        for resource in good:
            if isinstance(resource.typed, RoutingPolicy):
                for finding in dangling(resource.typed, engines, claims):
                    self._blame(resource, finding, severity="dangling")
                for finding in strange_places(resource.typed, engines):
                    self._blame(resource, finding, severity="notice")
        named = [one for one in self._resources if one.key.name != "?"]
        kept = {one.key for one in good}
        return Manifests(
            engines=tuple(sorted(engines, key=_by_name)),
            policies=tuple(sorted(policies, key=_by_name)),
            faults=self._sorted(self._faults),
            notices=self._sorted(self._notices),
            refused=tuple(sorted({one.key for one in named} - kept)),
            unreadable=tuple(self._unreadable),
            origins={one.key: Origin(one.file, one.line()) for one in reversed(named)},
        )

    def _check_tables(self) -> None:
        """Refuse a policy whose table would overwrite another's; the first in reading order keeps the name."""
        taken: dict[tuple[str, str], str] = {}
        for resource in self._resources:
            if resource.faulty or not isinstance(resource.typed, RoutingPolicy):
                continue
            for name, path in table_names(resource.typed):
                table = (resource.key.namespace, name)
                if table in taken:
                    self._blame(resource, table_taken(name, path, taken[table]))
                else:
                    taken[table] = owner_words(resource.file, resource.line(path), str(resource.key), path)

    def _sorted(self, faults: list[Fault]) -> tuple[Fault, ...]:
        return tuple(sorted(faults, key=lambda fault: (self._order[fault.file], fault.line)))


def own_faults(kind: str, value: dict[str, Any], raw: dict[str, Any]) -> Iterator[Finding]:
    """Schema faults, then those across fields that no schema fault already stands for. raw: value without nulls."""
    found = list(check(_schema(kind), value))
    yield from found
    blamed = {finding.path for finding in found}
    _, spec = KINDS[kind]
    for finding in check_rules(spec, raw.get("spec"), ("spec",)):
        if finding.path not in blamed:
            yield finding


@cache
def _schema(kind: str) -> Schema:
    """The schema of a whole manifest: the CRD's spec, the metadata that is read, a status that is ignored."""
    _, spec = KINDS[kind]
    return {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string", "enum": [API_VERSION]},
            "kind": {"type": "string", "enum": [kind]},
            "metadata": schema_of(Metadata),
            "spec": schema_of(spec),
            "status": {"type": "object", "properties": {}, OPEN: True},
        },
        "required": ["metadata", "spec"],
    }


def without_nulls(value: Any) -> Any:
    """Null in a mapping is a missing field, as on the API server; in a list it stays, and is refused."""
    if isinstance(value, dict):
        return {name: without_nulls(field) for name, field in value.items() if field is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def _claims(resource: _Resource) -> Iterator[Claim]:
    """Models that a refused engine would serve, as far as they can be read."""
    spec = resource.raw.get("spec")
    models = spec.get("models") if isinstance(spec, dict) and resource.key.kind == "InferenceEngine" else None
    for model in models if isinstance(models, list) else ():
        if isinstance(model, dict):
            adapters = model.get("adapters")
            for name in (model.get("name"), *(adapters if isinstance(adapters, list) else ())):
                if isinstance(name, str):
                    yield Claim(resource.key.namespace, name)


def _by_name(resource: InferenceEngine | RoutingPolicy) -> tuple[str, str]:
    return resource.metadata.namespace, resource.metadata.name

"""Bytes to a RoutingTable that may be applied whole, or the reason why not.

On the routing-weight path. Everything that selection relies on is checked here once, so that no pick has to check
it again: a table is applied as it is or not at all, and the last good one stays. Shape, types and bounds stand in
headrace_api.table; what only several fields together can say stands here. Reads no file and keeps no state.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import lru_cache
from itertools import pairwise
from typing import Final

import msgspec

from headrace_api.table import (
    MAX_TABLE_BYTES,
    SCHEMA_VERSION,
    WEIGHT_TOTAL,
    ClassRoutes,
    ModelRoutes,
    RoutingTable,
    TableAffinityKey,
    TableEngine,
)
from headrace_api.urls import normal_url

# Rounding may cost each weight half a unit in a table written by hand with two decimals: 0.99 to 1.02 is normal.
SUM_TOLERANCE: Final = WEIGHT_TOTAL // 20
# Above any count, rate or time that means something; keeps every product of two fields finite.
MAX_NUMBER: Final = 10**12
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
# A DNS label: it becomes part of a path at the API server and of a name in DNS.
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_FIELD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class Rejected(msgspec.Struct, frozen=True):
    """The table can't be applied; ``reason`` names the field, the value and what would be right."""

    reason: str


class Verdict(Enum):
    """What a valid table is, compared with the one in use."""

    APPLY = "apply"
    SAME = "same"
    OLDER = "older"


class _Version(msgspec.Struct):
    schema_version: int = msgspec.field(name="schemaVersion")


class _Fault(Exception):
    """One broken rule; becomes Rejected at the edge of this module."""


_ZEROS: Final = bytes.maketrans(b"123456789E", b"000000000e")
_LARGE_DIGITS: Final = len(str(MAX_NUMBER))  # a number with fewer in front of its point is below it
_LARGE: Final = re.compile(rb"(?<![0-9.])[0-9]{%d}" % _LARGE_DIGITS)
# Addresses in canonical form; a new table has nearly all of them from the one before.
_known_url: Final = lru_cache(maxsize=16_384)(normal_url)
_DECODER: Final = msgspec.json.Decoder(RoutingTable)
_VERSION: Final = msgspec.json.Decoder(_Version)


def parse_table(data: bytes) -> RoutingTable | Rejected:
    """The table in ``data``, checked whole; URLs come out in canonical form. Never raises on content."""
    if len(data) > MAX_TABLE_BYTES:
        return Rejected(f"the table has {len(data)} bytes; right would be at most {MAX_TABLE_BYTES}")
    try:
        version = _VERSION.decode(data).schema_version
        if version != SCHEMA_VERSION:
            return Rejected(f"schemaVersion is {version}; this router reads {SCHEMA_VERSION}")
        table = _DECODER.decode(data)
        if _may_be_large(data):
            _check_numbers(table, "")
        _check_lists(table)
        _check_places(table)
        for model in table.models:
            _check_model(table, model)
        return _with_normal_urls(table)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Rejected(f"the table can't be read: {error}")
    except _Fault as fault:
        return Rejected(str(fault))


def newer(current: RoutingTable | None, candidate: RoutingTable) -> Verdict:
    """Whether ``candidate`` replaces ``current``.

    Within a policy's uid the larger (term, revision) wins; another uid always does. The same identity with other
    content is applied (plans and tables written by hand keep revision 0); with equal content it is SAME: the good
    table was restored, and an error state ends.
    """
    if current is None or current.identity.uid != candidate.identity.uid:
        return Verdict.APPLY
    ours = (current.identity.term, current.identity.revision)
    theirs = (candidate.identity.term, candidate.identity.revision)
    if theirs < ours:
        return Verdict.OLDER
    return Verdict.SAME if theirs == ours and candidate == current else Verdict.APPLY


def _may_be_large(data: bytes) -> bool:
    """Whether a number may be above MAX_NUMBER: it has an exponent, or more digits in a row, but for a fraction's.

    Looking at every number costs a large table as much as all else together.
    """
    zeros = data.translate(_ZEROS)
    return b"0e" in zeros or (b"0" * _LARGE_DIGITS in zeros and _LARGE.search(data) is not None)


def _check_numbers(value: object, path: str) -> None:
    if isinstance(value, msgspec.Struct):
        for name, encoded in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
            _check_numbers(getattr(value, name), f"{path}.{encoded}" if path else encoded)
    elif isinstance(value, tuple):
        for index, part in enumerate(value):
            _check_numbers(part, f"{path}[{index}]")
    elif isinstance(value, (int, float)) and abs(value) > MAX_NUMBER:
        raise _Fault(f"{path} is out of any range; right would be at most {MAX_NUMBER}")


def _check_lists(table: RoutingTable) -> None:
    _unique("engines: id", (engine.id for engine in table.engines))
    _unique("models: model", (model.model for model in table.models))
    _unique("priorities: name", (priority.name for priority in table.priorities))
    _unique("priorities: value", (str(priority.value) for priority in table.priorities))
    edges = table.class_edges
    if any(edge < 1 for edge in edges) or any(high <= low for low, high in pairwise(edges)):
        raise _Fault(f"classEdges are {list(edges)}; right would be growing token counts from 1 on")
    for rule in table.affinity.keys:
        _check_key_rule(rule)
    if not _HEADER.fullmatch(table.priority_header):
        raise _Fault(f"priorityHeader is {table.priority_header!r}; right would be a header's name")
    for path in table.paths:
        if not path.startswith("/"):
            raise _Fault(f"paths: {path!r}; right would be a path that starts with /")
    if table.widen_after is not None and table.widen_after < 0:
        raise _Fault(f"widenAfter is {table.widen_after}; right would be seconds, 0 or more")
    for engine in table.engines:
        _check_engine(engine)


def _check_engine(engine: TableEngine) -> None:
    _unique(f"engine {engine.id}: models", (served.model for served in engine.models))
    if not engine.urls and engine.service is None:
        raise _Fault(f"engine {engine.id} has neither urls nor a service; right would be one of them")
    for name in (engine.service.name, engine.service.namespace) if engine.service is not None else ():
        if not _LABEL.fullmatch(name):
            raise _Fault(f"engine {engine.id}: service: {name!r} is no name; right would be such as vllm-70b")


def _check_places(table: RoutingTable) -> None:
    """A policy has the engines of its own namespace. A router serves tables of several, and engines are one by their
    id: a table that names another's would move that one's requests wherever it likes."""
    for engine in table.engines:
        namespace, slash, _ = engine.id.rpartition("/")
        if slash and namespace != table.policy_namespace:
            raise _Fault(
                f"engine {engine.id} is not in the policy's namespace; right would be {table.policy_namespace}/…"
            )
        if engine.service is not None and engine.service.namespace != table.policy_namespace:
            raise _Fault(
                f"engine {engine.id}: service: namespace is {engine.service.namespace!r}; right would be the policy's, "
                f"{table.policy_namespace}"
            )


def _check_key_rule(rule: TableAffinityKey) -> None:
    if (rule.header is not None) + (rule.field is not None) + rule.prefix != 1:
        raise _Fault(f"affinity: {rule}; right would be exactly one of header, field and prefix")
    if rule.header is not None and not _HEADER.fullmatch(rule.header):
        raise _Fault(f"affinity: header {rule.header!r}; right would be a header's name")
    if rule.field is not None and not _FIELD.fullmatch(rule.field):
        raise _Fault(f"affinity: field {rule.field!r}; right would be the name of a top-level field")


def _check_model(table: RoutingTable, model: ModelRoutes) -> None:
    classes = len(model.classes)
    if classes not in (1, len(table.class_edges) + 1):
        raise _Fault(
            f"model {model.model} has {classes} prompt classes; right would be 1 or {len(table.class_edges) + 1}, "
            f"one more than classEdges"
        )
    engines = {engine.id for engine in table.engines}
    priorities = {priority.name for priority in table.priorities}
    for index, routes in enumerate(model.classes):
        _check_routes(f"model {model.model}, class {index}", routes, engines, priorities)


def _check_routes(where: str, routes: ClassRoutes, engines: set[str], priorities: set[str]) -> None:
    _unique(f"{where}: engine", (route.engine for route in routes.routes))
    for route in routes.routes:
        if route.engine not in engines:
            raise _Fault(f"{where} names engine {route.engine!r}, which the table does not hold")
    total = sum(route.weight for route in routes.routes)
    if abs(total - WEIGHT_TOTAL) > SUM_TOLERANCE:
        raise _Fault(f"{where}: weights sum to {total}; right would be {WEIGHT_TOTAL}, give or take rounding")
    _unique(f"{where}: shed priority", (shed.priority for shed in routes.shed))
    for shed in routes.shed:
        if shed.priority not in priorities:
            raise _Fault(f"{where} sheds priority {shed.priority!r}; right would be one of {sorted(priorities)}")


def _unique(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise _Fault(f"{what} {name!r} stands twice; right would be once")
        seen.add(name)


def _with_normal_urls(table: RoutingTable) -> RoutingTable:
    engines = tuple(
        engine if not engine.urls else msgspec.structs.replace(engine, urls=tuple(_normal_urls(engine.id, engine.urls)))
        for engine in table.engines
    )
    return msgspec.structs.replace(table, engines=engines)


def _normal_urls(engine: str, urls: tuple[str, ...]) -> Iterator[str]:
    seen: set[str] = set()
    for url in urls:
        try:
            normal = _known_url(url)
        except ValueError as error:
            raise _Fault(f"engine {engine}: urls: {error}") from error
        if normal in seen:
            raise _Fault(f"engine {engine}: url {normal!r} stands twice; right would be once")
        seen.add(normal)
        yield normal

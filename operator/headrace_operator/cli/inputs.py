"""What ``plan`` and ``explain`` read: manifests, a signals file, earlier tables, and what-if changes.

Faults are gathered, never thrown one by one: a bad file stops nothing beside it, and the user sees all of them in one
run. Reads files; decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from headrace_api.engine import InferenceEngine
from headrace_api.policy import RoutingPolicy
from headrace_api.table import TABLE_KEY, RoutingTable
from headrace_operator.cli.what_if import changed
from headrace_operator.publisher.configmap import load, read_configmap
from headrace_operator.publisher.state import read_tables
from headrace_operator.snapshot.clock import epoch_seconds
from headrace_operator.snapshot.read_signals import load_signals
from headrace_operator.snapshot.signals import Signals
from headrace_operator.store.faults import Odd
from headrace_operator.store.manifests import Manifests, read_paths
from headrace_operator.store.yaml_nodes import read_documents


class Inputs(NamedTuple):
    """Resources and measurements of one question, and the faults found on the way, one line each."""

    engines: tuple[InferenceEngine, ...]
    policies: tuple[RoutingPolicy, ...]
    signals: Signals
    at: float
    faults: tuple[str, ...]
    notices: tuple[str, ...]


def read_inputs(files: Sequence[str], namespace: str, signals: str | None, changes: Sequence[str]) -> Inputs:
    """Read and check everything; ``changes``: ``[NAME:]path=value`` of --set."""
    manifests = read_paths(files, namespace=namespace)
    return inputs_of(manifests, namespace, signals, changes)


def inputs_of(manifests: Manifests, namespace: str, signals: str | None, changes: Sequence[str]) -> Inputs:
    """The same for manifests that were read already."""
    faults = [str(fault) for fault in manifests.faults]
    notices = [str(notice) for notice in manifests.notices]
    if changes:
        altered = changed(manifests, changes, namespace)
        faults += altered.faults
        manifests = altered.manifests
    measured = Signals()
    if signals is not None:
        found = read_signals(signals)
        if isinstance(found, Signals):
            measured = found
        else:
            faults += found
    at = epoch_seconds(measured.at) if measured.at else None
    if measured.at and at is None:
        faults.append(f"{signals}: at: {measured.at!r} is not RFC 3339; right would be 2026-01-31T12:00:00Z")
    return Inputs(
        manifests.engines,
        manifests.policies,
        measured,
        time.time() if at is None else at,
        tuple(dict.fromkeys(faults)),
        tuple(dict.fromkeys(notices)),
    )


def read_signals(path: str) -> Signals | tuple[str, ...]:
    """A signals file, YAML or JSON, or its faults."""
    try:
        documents = read_documents(Path(path).read_bytes())
    except OSError as error:
        return (f"{path}: {(error.strerror or str(error)).lower()}; right would be a signals file that can be read",)
    if len(documents) > 1:
        return (f"{path}: holds {len(documents)} documents; right would be one",)
    if not documents:
        return Signals()
    document = documents[0]
    if document.broken is not None:
        line, message = document.broken
        return (f"{path}:{line}: {message}",)
    if document.faults:
        return tuple(f"{path}:{line}: {message}" for _, line, message in document.faults)
    found = load_signals(_measured(document.value))
    return found if isinstance(found, Signals) else tuple(f"{path}: {fault}" for fault in found)


def _measured(value: object) -> object:
    """Plain data with the fractions that manifests have no place for and measurements do."""
    if isinstance(value, Odd):
        try:
            return float(value.text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            return value.text
    if isinstance(value, dict):
        return {key: _measured(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_measured(part) for part in value]
    return value


def read_previous(path: Path) -> tuple[tuple[RoutingTable, ...], tuple[str, ...]]:
    """Tables of a state directory, or of one file (a ConfigMap manifest or a bare table.json), and faults."""
    if path.is_dir():
        return read_tables(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        return (), (f"{path}: {(error.strerror or str(error)).lower()}; right would be a table or a directory of them",)
    found = _read_table(data, str(path))
    return ((found,), ()) if isinstance(found, RoutingTable) else ((), (found,))


def _read_table(data: bytes, path: str) -> RoutingTable | str:
    try:
        content = load(data)
    except ValueError as error:
        return f"{path}: {error}"
    if isinstance(content, dict) and "schemaVersion" in content:
        try:
            return msgspec.json.decode(data, type=RoutingTable)
        except msgspec.MsgspecError as error:
            return f"{path}: {error}; right would be a {TABLE_KEY}"
    return read_configmap(data, path)

"""The state directory: identity, tables, statuses and Events of a standalone operator, read back after a restart.

On the routing-weight path. One operator at a time holds it (a lock that ends with the process). What can't be read is
named and left alone; nothing here is ever guessed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from headrace_api.base import API_VERSION
from headrace_api.commands import EnvironmentFailed
from headrace_api.engine import InferenceEngine
from headrace_api.names import HEARTBEAT_FILE
from headrace_api.policy import RoutingPolicy
from headrace_api.status import EngineStatus, PolicyStatus
from headrace_api.table import RoutingTable
from headrace_operator.publisher.configmap import dump, load, read_configmap
from headrace_operator.publisher.files import sweep_temporaries, write_atomically
from headrace_operator.publisher.records import RECORDS, recorded_revisions

IDENTITY_FILE: Final = "identity.json"
EVENTS_FILE: Final = "events.yaml"
STATUS: Final = "status"
LOCK_FILE: Final = ".lock"
RESERVED: Final = frozenset({STATUS, RECORDS})
"""Namespaces whose tables would stand in a folder of another meaning."""


class StateIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """uid: random, made once. term: starts so far."""

    uid: str
    term: int


@contextlib.contextmanager
def locked(state: Path) -> Iterator[None]:
    """Hold the state directory for this process, also against an operator started twice.

    Raises:
        EnvironmentFailed: it can't be written, or another operator runs on it.
    """
    try:
        state.mkdir(parents=True, exist_ok=True)
        handle = os.open(state / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise EnvironmentFailed(f"--state {state}: {error.strerror}; right would be a directory to write in") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise EnvironmentFailed(f"--state {state}: another operator runs on it; give this one its own") from error
        yield
    finally:
        os.close(handle)


def start_term(state: Path) -> StateIdentity:
    """The identity of this start: the uid made at the first one, and one term more than the last.

    Raises:
        EnvironmentFailed: it can't be read or written. It is never made anew: routers would take an old table for new.
    """
    path = state / IDENTITY_FILE
    try:
        for folder in (state, *(path for path in state.iterdir() if path.is_dir())):
            sweep_temporaries(folder)
        if path.exists():
            old = msgspec.json.decode(path.read_bytes(), type=StateIdentity)
            identity = StateIdentity(uid=old.uid, term=old.term + 1)
        else:
            identity = StateIdentity(uid=secrets.token_hex(16), term=1)
        write_atomically(path, msgspec.json.encode(identity) + b"\n")
    except (OSError, msgspec.MsgspecError, UnicodeError) as error:
        raise EnvironmentFailed(f"{path}: {error}; mend it, or start with an empty --state") from error
    return identity


def table_files(state: Path) -> list[Path]:
    """Files at tables' places: ``<namespace>/<configMap>.yaml``."""
    return sorted(
        path
        for path in state.glob("*/*.yaml")
        if path.parent.name not in RESERVED and not path.name.startswith(".") and not path.parent.name.startswith(".")
    )


def read_tables(state: Path) -> tuple[tuple[RoutingTable, ...], tuple[str, ...]]:
    """All tables that stand, sorted by policy and front-end, and what is wrong with the other files."""
    tables: list[RoutingTable] = []
    faults: list[str] = []
    for path in table_files(state):
        try:
            found = read_configmap(path.read_bytes(), str(path))
        except OSError as error:
            found = f"{path}: {error.strerror}"
        if isinstance(found, str):
            faults.append(found)
        else:
            tables.append(found)
    tables.sort(key=lambda table: (table.policy_namespace, table.policy, table.frontend))
    return tuple(tables), tuple(faults)


def status_path(state: Path, kind: str, name: str) -> Path:
    """Where the status of a resource (``namespace/name``) stands."""
    namespace, _, bare = name.partition("/")
    return state / STATUS / f"{kind.lower()}-{namespace}-{bare}.yaml"


def status_document(
    resource: RoutingPolicy | InferenceEngine, generation: int, status: PolicyStatus | EngineStatus
) -> bytes:
    """The resource with its status, as YAML."""
    metadata: dict[str, Any] = {
        "name": resource.metadata.name,
        "namespace": resource.metadata.namespace,
        "generation": generation,
    }
    return dump(
        {
            "apiVersion": API_VERSION,
            "kind": resource.kind,
            "metadata": metadata,
            "spec": _without_empty(msgspec.to_builtins(resource.spec)),
            "status": msgspec.to_builtins(status),
        }
    )


def _without_empty(value: Any) -> Any:
    """Plain data without mappings that hold nothing, but for ``prefix: {}``, which says something by being there."""
    if isinstance(value, list | tuple):
        return [_without_empty(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _without_empty(one) for key, one in value.items()}
    return {key: one for key, one in kept.items() if one != {} or key == "prefix"}


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    namespace: str
    generation: int = 1


class StoredStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A status file as read back: which resource, its spec as it was, and the status."""

    kind: str
    metadata: _Head
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}

    @property
    def id(self) -> str:
        """The resource's ``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


def read_stored(state: Path) -> list[StoredStatus]:
    """All status files that can be read."""
    found: list[StoredStatus] = []
    for path in sorted((state / STATUS).glob("*.yaml")):
        if path.name.startswith("."):
            continue
        with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError):
            found.append(msgspec.convert(load(path.read_bytes()), StoredStatus))
    return found


def read_statuses(state: Path) -> dict[str, PolicyStatus]:
    """Policies' statuses by id, as they stand."""
    found: dict[str, PolicyStatus] = {}
    for stored in read_stored(state):
        if stored.kind == "RoutingPolicy":
            with contextlib.suppress(msgspec.MsgspecError):
                found[stored.id] = msgspec.convert(stored.status, PolicyStatus)
    return found


def read_engine_statuses(state: Path) -> dict[str, EngineStatus]:
    """Engines' statuses by id, as they stand."""
    found: dict[str, EngineStatus] = {}
    for stored in read_stored(state):
        if stored.kind == "InferenceEngine":
            with contextlib.suppress(msgspec.MsgspecError):
                found[stored.id] = msgspec.convert(stored.status, EngineStatus)
    return found


def read_events(state: Path) -> list[dict[str, Any]]:
    """Events as they stand; a file that can't be read is begun anew."""
    with contextlib.suppress(OSError, ValueError):
        data = load((state / EVENTS_FILE).read_bytes())
        if isinstance(data, dict) and isinstance(data.get("items"), list):
            return [event for event in data["items"] if isinstance(event, dict)]
    return []


def last_revision(state: Path, tables: tuple[RoutingTable, ...]) -> int:
    """The largest revision that any table or record shows."""
    return max([0, *(table.identity.revision for table in tables), *recorded_revisions(state)])


def heartbeat_path(state: Path) -> Path:
    """The file that routers judge the operator by."""
    return state / HEARTBEAT_FILE


__all__ = [
    "RESERVED",
    "StateIdentity",
    "StoredStatus",
    "heartbeat_path",
    "last_revision",
    "locked",
    "read_engine_statuses",
    "read_events",
    "read_statuses",
    "read_stored",
    "read_tables",
    "start_term",
    "status_document",
    "status_path",
    "table_files",
]

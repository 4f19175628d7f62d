"""Tables in the state directory: written when they change or when someone touched them, removed when orphaned.

On the routing-weight path. Routers pull them from here. Only files that an operator made are overwritten or removed; a
table that can't be published stays as it was, and the reason goes to the policy's status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace_api.table import RoutingTable
from headrace_operator.publisher.configmap import configmap_manifest, is_ours, read_configmap
from headrace_operator.publisher.files import Signature, remove, write_atomically
from headrace_operator.publisher.places import Place, Refusal, TableKey, key_of
from headrace_operator.publisher.state import RESERVED, table_files


@dataclass(slots=True)
class _Standing:
    table: RoutingTable
    path: Path
    signature: Signature


class TableDirectory:
    """The tables under ``state``; every method does its I/O before it returns."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._standing: dict[TableKey, _Standing] = {}
        self.refusals: dict[TableKey, Refusal] = {}

    def read_back(self) -> tuple[str, ...]:
        """Take up what stands there; gives what is wrong with other files, one line each."""
        faults = []
        for path in table_files(self._state):
            try:
                signature, data = Signature(path), path.read_bytes()
            except OSError as error:
                faults.append(f"{path}: {error.strerror}")
                continue
            found = read_configmap(data, str(path))
            if isinstance(found, str):
                faults.append(found)
            elif is_ours(data) and found.policy_namespace == path.parent.name:
                self._standing[key_of(found)] = _Standing(found, path, signature)
        return tuple(faults)

    def tables(self) -> tuple[RoutingTable, ...]:
        """All tables that stand, sorted by policy and front-end."""
        return tuple(self._standing[key].table for key in sorted(self._standing))

    def path(self, key: TableKey) -> Path | None:
        """Where a table stands."""
        standing = self._standing.get(key)
        return None if standing is None else standing.path

    def barred(self, places: Mapping[TableKey, Place]) -> frozenset[TableKey]:
        """Whose place is not to be had now, so that nothing need be decided for it; ``refusals`` says why."""
        found = set()
        for key, place in places.items():
            path = self._state / key.policy.partition("/")[0] / f"{place.name}.yaml"
            refusal = self._refusal(key, path, False) if place.publishes else None
            if refusal is not None:
                self.refusals[key] = refusal
                found.add(key)
            else:
                self.refusals.pop(key, None)
        for key in self.refusals.keys() - places.keys():
            del self.refusals[key]
        return frozenset(found)

    def publish(self, tables: Iterable[RoutingTable], places: Mapping[TableKey, Place]) -> tuple[RoutingTable, ...]:
        """Write these tables, where none is wanted any more to where they stand. Gives those that now stand."""
        written = []
        for table in tables:
            key = key_of(table)
            place = places.get(key)
            path = self.path(key) if place is None else self._state / table.policy_namespace / f"{place.name}.yaml"
            if path is not None and self._write(key, table, path):
                written.append(table)
        return tuple(written)

    def repair(self, places: Mapping[TableKey, Place]) -> tuple[TableKey, ...]:
        """Write again what someone removed, changed, or wants under another name; gives what was written."""
        repaired = []
        for key, standing in list(self._standing.items()):
            place = places.get(key)
            name = standing.path.stem if place is None or not place.publishes else place.name
            path = self._state / standing.table.policy_namespace / f"{name}.yaml"
            if path == standing.path and standing.signature.holds(path):
                continue
            if self._write(key, standing.table, path, ours=path == standing.path):
                repaired.append(key)
        return tuple(repaired)

    def remove(self, keys: Iterable[TableKey]) -> tuple[TableKey, ...]:
        """Remove the tables of policies that are gone; gives those removed."""
        removed = []
        for key in keys:
            standing = self._standing.pop(TableKey(*key), None)
            self.refusals.pop(TableKey(*key), None)
            if standing is not None:
                remove(standing.path)
                removed.append(TableKey(*key))
        return tuple(removed)

    def _write(self, key: TableKey, table: RoutingTable, path: Path, *, ours: bool = False) -> bool:
        """ours: the file at ``path`` was made by this operator, whatever someone has written into it since."""
        refusal = self._refusal(key, path, ours)
        if refusal is None:
            try:
                write_atomically(path, configmap_manifest(table, path.stem))
            except OSError as error:
                refusal = Refusal("WriteFailed", f"{path}: {error.strerror}; the old table stays")
        if refusal is not None:
            self.refusals[key] = refusal
            return False
        self.refusals.pop(key, None)
        old = self._standing.get(key)
        self._standing[key] = _Standing(table, path, Signature(path))
        if old is not None and old.path != path:
            remove(old.path)
        return True

    def _refusal(self, key: TableKey, path: Path, ours: bool) -> Refusal | None:
        if path.parent.name in RESERVED:
            return Refusal(
                "NamespaceReserved",
                f"namespace {path.parent.name!r} is the operator's own folder in --state; right would be another",
            )
        owner = next((other for other, one in self._standing.items() if other != key and one.path == path), None)
        if owner is not None:
            return Refusal(
                "ConfigMapTaken",
                f"ConfigMap {path.stem!r} carries the table of {owner.policy}, front-end {owner.frontend};"
                " right would be another publish.configMap",
            )
        standing_here = self._standing.get(key)
        if ours or (standing_here is not None and standing_here.path == path) or not path.exists():
            return None
        try:
            made_here = is_ours(path.read_bytes())
        except OSError as error:
            return Refusal("WriteFailed", f"{path}: {error.strerror}")
        if made_here:
            return None
        return Refusal("ConfigMapNotOurs", f"{path} was not made by Headrace and is left alone; remove it, or rename")

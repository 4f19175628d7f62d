"""A directory of manifests as the place where resources live: what a cluster's API server is to the other store.

On the routing-weight path. Level-triggered: each look gives all resources as they are now. A file that stops being
right keeps the resources that it last gave (the last valid spec stays in force, and the reason is told); a directory
that is suddenly empty or unreadable keeps everything, because an unmounted volume must not become an outage.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from headrace_api.engine import InferenceEngine
from headrace_api.policy import RoutingPolicy
from headrace_operator.store.faults import ResourceKey
from headrace_operator.store.manifests import SUFFIXES, Manifests, read_manifests
from headrace_operator.store.resources import Resource, ResourceName, Resources, name_of, spec_json
from headrace_operator.store.yaml_nodes import MAX_FILE_BYTES

# A file that is half written may still be valid: what changed must stand still this long, looked at so often.
SETTLE_SECONDS: Final = 0.05
SETTLE_LOOKS: Final = 10


class _Seen(NamedTuple):
    file: str
    resource: Resource


class Generation(NamedTuple):
    """How often a resource's spec changed, and the spec as JSON that this counts."""

    number: int
    spec: bytes


class DirectoryStore:
    """Reads one directory, again and again."""

    def __init__(
        self,
        directory: Path,
        *,
        generations: Mapping[ResourceName, Generation] | None = None,
    ) -> None:
        self._directory = directory
        self._generations = dict(generations or {})
        self._seen: dict[ResourceName, _Seen] = {}
        self._signature: object = None
        self._digests: dict[str, bytes] = {}
        self._resources = Resources()

    def look(self, *, thorough: bool) -> Resources:
        """The resources now; the same object as last time when no file changed. Waits for writers: call it in a thread.

        thorough: compare contents although names, sizes and times are as they were.
        """
        try:
            paths, signature = self._settled()
        except OSError as error:
            return self._hold(f"{self._directory}: {error.strerror}; what was read last stays in force")
        if signature == self._signature and not thorough:
            return self._resources
        self._signature = signature
        files, faults = _contents(paths)
        if not files and not faults and self._seen:
            return self._hold(f"{self._directory}: no manifests there any more; what was read last stays in force")
        digests = {name: hashlib.sha256(data).digest() for name, data in files.items()}
        if digests == self._digests and not faults and self._resources.all():
            return self._resources
        self._digests = digests
        self._resources = self._understood(files, faults)
        return self._resources

    def _settled(self) -> tuple[list[Path], list[tuple[Path, int, int, int]]]:
        """The files and their stamps, once nobody writes to them (or after a short while: writers can be endless)."""
        paths, signature = self._stamped()
        for _ in range(SETTLE_LOOKS):
            if signature == self._signature:
                break
            time.sleep(SETTLE_SECONDS)
            again = self._stamped()
            if again[1] == signature:
                break
            paths, signature = again
        return paths, signature

    def _stamped(self) -> tuple[list[Path], list[tuple[Path, int, int, int]]]:
        paths = manifest_files(self._directory)
        return paths, [(path, *_stamp(path)) for path in paths]

    def _hold(self, fault: str) -> Resources:
        if self._resources.faults != (fault,):
            self._resources = replace(self._resources, faults=(fault,), complete=False)
        self._signature = None
        self._digests = {}
        return self._resources

    def _understood(self, files: Mapping[str, bytes], unreadable: Mapping[str, str]) -> Resources:
        manifests = read_manifests(files.items())
        good = {name_of(resource): resource for resource in _all(manifests)}
        refused = _refused(manifests)
        unknown = {**_nameless(manifests), **unreadable}
        kept = {
            name: seen
            for name, seen in self._seen.items()
            if name not in good and (name in refused or seen.file in unknown)
        }
        files_of = {_name(key): origin.file for key, origin in manifests.origins.items()}
        numbered = {name: _Seen(files_of.get(name, ""), self._numbered(name, one)) for name, one in good.items()}
        self._seen = numbered | kept
        for name, seen in kept.items():
            refused.setdefault(name, unknown.get(seen.file, ""))
        resources = [seen.resource for _, seen in sorted(self._seen.items())]
        return Resources(
            engines=tuple(one for one in resources if isinstance(one, InferenceEngine)),
            policies=tuple(one for one in resources if isinstance(one, RoutingPolicy)),
            faults=(*(str(fault) for fault in manifests.faults), *unreadable.values()),
            refused=refused,
            # Without any manifest nothing was deleted for sure: the volume may not be mounted yet.
            complete=bool(files) and not refused and not unknown,
        )

    def _numbered(self, name: ResourceName, resource: Resource) -> Resource:
        """The resource with its generation: one more each time its spec changed."""
        spec = spec_json(resource.spec)
        old = self._generations.get(name)
        if old is None:
            generation = Generation(max(1, resource.metadata.generation), spec)
        elif old.spec == spec:
            generation = old
        else:
            generation = Generation(old.number + 1, spec)
        self._generations[name] = generation
        metadata = msgspec.structs.replace(resource.metadata, generation=generation.number)
        return msgspec.structs.replace(resource, metadata=metadata)


def manifest_files(directory: Path) -> list[Path]:
    """Files that may hold manifests, sorted: by suffix, without hidden ones; folders are not entered.

    Raises:
        OSError: the directory can't be read.
    """
    if not directory.is_dir():
        raise NotADirectoryError(20, "not a directory that can be read")
    return sorted(
        path
        for path in directory.iterdir()
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
    )


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _contents(paths: Iterable[Path]) -> tuple[dict[str, bytes], dict[str, str]]:
    """Contents by file, and what is wrong with those that can't be read; one that just went is left out."""
    files: dict[str, bytes] = {}
    faults: dict[str, str] = {}
    for path in paths:
        try:
            with path.open("rb") as file:
                files[str(path)] = file.read(MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            continue
        except OSError as error:
            faults[str(path)] = f"{path}: {error.strerror}; right would be a readable file"
    return files, faults


def _name(key: ResourceKey) -> ResourceName:
    return ResourceName(key.kind, f"{key.namespace}/{key.name}")


def _all(manifests: Manifests) -> tuple[Resource, ...]:
    return (*manifests.engines, *manifests.policies)


def _refused(manifests: Manifests) -> dict[ResourceName, str]:
    """Resources whose manifest is there and wrong, with what is wrong."""
    found = {_name(key): "" for key in manifests.refused}
    for fault in manifests.faults:
        kind, _, name = fault.resource.partition(" ")
        key = ResourceName(kind, name)
        if fault.severity == "refused" and key in found:
            found[key] = f"{found[key]}; {fault}" if found[key] else str(fault)
    return found


def _nameless(manifests: Manifests) -> dict[str, str]:
    """Files in which something is wrong that can't be told to belong to one resource, and what."""
    found = dict.fromkeys(manifests.unreadable, "can't be read whole")
    for fault in reversed(manifests.faults):
        if fault.severity == "refused" and not fault.resource:
            found[fault.file] = str(fault)
    return found

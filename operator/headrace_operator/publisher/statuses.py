"""Statuses in the state directory: quiet, coalesced, one file a resource.

On the routing-weight path, after the tables. A status is written when it differs from what stands there, at most once
per five seconds an object; what comes sooner waits, and only the latest is written.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final, NamedTuple

from headrace_api.base import Metadata, resource_id
from headrace_api.engine import InferenceEngine, InferenceEngineSpec
from headrace_api.policy import RoutingPolicy, RoutingPolicySpec
from headrace_api.status import EngineStatus, PolicyStatus
from headrace_operator.publisher.complaints import Complaints
from headrace_operator.publisher.files import Signature, remove, write_atomically
from headrace_operator.publisher.ports import StatusKey
from headrace_operator.publisher.state import STATUS, status_document, status_path

QUIET_SECONDS: Final = 5.0


class _Said(NamedTuple):
    """What a document was made from: comparing is cheaper than writing YAML for every resource at every look."""

    spec: InferenceEngineSpec | RoutingPolicySpec
    generation: int
    status: PolicyStatus | EngineStatus


class StatusDirectory:
    """Writes statuses under ``state/status``."""

    def __init__(self, state: Path, complaints: Complaints | None = None) -> None:
        self._state = state
        self._complaints = complaints or Complaints()
        self._said: dict[StatusKey, _Said] = {}
        self._wanted: dict[StatusKey, bytes] = {}
        self._written: dict[StatusKey, tuple[bytes, Signature]] = {}
        self._times: dict[StatusKey, float] = {}

    def set(
        self, resource: RoutingPolicy | InferenceEngine, generation: int, status: PolicyStatus | EngineStatus
    ) -> None:
        """Say what the resource's status is now; it is written by the next flush that may."""
        key = StatusKey(resource.kind, resource_id(resource.metadata))
        said = _Said(resource.spec, generation, status)
        if key not in self._wanted or self._said.get(key) != said:
            self._said[key] = said
            self._wanted[key] = status_document(resource, generation, status)

    def set_rejected(self, kind: str, metadata: Metadata, status: PolicyStatus | EngineStatus) -> None:
        """Nothing: a file that never was right says so in the log, where people who edit files look."""

    def keep_only(self, keys: Collection[StatusKey]) -> None:
        """Remove the statuses of resources that are gone."""
        wanted = {status_path(self._state, key.kind, key.id).name for key in keys}
        for key in [key for key in self._wanted if key not in keys]:
            del self._wanted[key]
            self._said.pop(key, None)
            self._written.pop(key, None)
            self._times.pop(key, None)
        for path in (self._state / STATUS).glob("*.yaml"):
            if path.name not in wanted and not path.name.startswith("."):
                remove(path)

    def flush(self, steady: float, *, all_of_them: bool = False) -> int:
        """Write what differs and may be written; gives the number written. steady: seconds on a steady clock."""
        written = 0
        for key, document in self._wanted.items():
            path = status_path(self._state, key.kind, key.id)
            standing = self._written.get(key)
            if standing is None:
                standing = _standing(path)
            if standing is not None and standing[0] == document and standing[1].holds(path):
                self._written[key] = standing
                continue
            last = self._times.get(key)
            if last is not None and steady - last < QUIET_SECONDS and not all_of_them:
                continue
            what = f"writing the status of {key.kind} {key.id}"
            try:
                write_atomically(path, document)
            except OSError as error:
                self._complaints.about(what, error.strerror or error)
                continue
            self._complaints.settled(what)
            self._written[key] = (document, Signature(path))
            self._times[key] = steady
            written += 1
        return written


def _standing(path: Path) -> tuple[bytes, Signature] | None:
    signature = Signature(path)
    try:
        return path.read_bytes(), signature
    except OSError:
        return None

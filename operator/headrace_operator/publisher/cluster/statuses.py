"""Statuses of resources in a cluster: quiet, coalesced, by server-side apply of the status subresource.

On the routing-weight path, after the tables. A status is written when it differs from what stands there, at most once
per five seconds an object (also where that fails), over the version of the resource that was read; a conflict is read
again, and only the leader tries again. What the API server refuses is told and not tried again until it is another.
What somebody else changed or took away, as watches tell, is written again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from headrace_api.base import API_VERSION, GROUP, VERSION, Metadata, resource_id
from headrace_api.engine import InferenceEngine
from headrace_api.policy import RoutingPolicy
from headrace_api.status import EngineStatus, PolicyStatus
from headrace_operator.kube.client import Json, KubeClient, KubeFault
from headrace_operator.kube.pool import Pool
from headrace_operator.kube.seen import SeenStatuses, digest_of, older
from headrace_operator.publisher.complaints import Complaints
from headrace_operator.publisher.ports import StatusKey
from headrace_operator.publisher.statuses import QUIET_SECONDS

log = logging.getLogger(__name__)

PLURALS: Final = {"RoutingPolicy": "routingpolicies", "InferenceEngine": "inferenceengines"}
ATTEMPTS: Final = 3
MANY: Final = 16
FLUSH_SECONDS: Final = 5.0
PORTION: Final = 64
Status = PolicyStatus | EngineStatus
Kind = TypeVar("Kind", PolicyStatus, EngineStatus)


class _Wanted(NamedTuple):
    uid: str
    status: Status


class ReadStatuses(NamedTuple):
    """What stood when this term began, by kind and id; versions of the resources, and digests of their statuses."""

    policies: dict[str, PolicyStatus]
    engines: dict[str, EngineStatus]
    versions: dict[StatusKey, str]
    digests: dict[StatusKey, int]


class ClusterStatuses:
    """Writes the statuses of both kinds."""

    def __init__(
        self,
        client: KubeClient,
        pool: Pool,
        stood: ReadStatuses,
        complaints: Complaints,
        watched: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
        seen: SeenStatuses | None = None,
    ) -> None:
        """watched: namespaces (none: all). clock: steady seconds, which pass while it writes. seen: fed by watches."""
        self._clock = clock
        self._watched = tuple(watched)
        self._client = client
        self._pool = pool
        self._complaints = complaints
        self._wanted: dict[StatusKey, _Wanted] = {}
        self._standing: dict[StatusKey, Status] = {
            **{StatusKey("RoutingPolicy", name): status for name, status in stood.policies.items()},
            **{StatusKey("InferenceEngine", name): status for name, status in stood.engines.items()},
        }
        self._uids: dict[StatusKey, str] = {}
        self._versions: dict[StatusKey, str] = dict(stood.versions)
        self._digests: dict[StatusKey, int] = dict(stood.digests)
        self._seen = seen or SeenStatuses()
        self._refused: dict[StatusKey, Status] = {}
        self._times: dict[StatusKey, float] = {}

    def set(self, resource: RoutingPolicy | InferenceEngine, _generation: int, status: Status) -> None:
        """Say what the resource's status is now; it is written by the next flush that may."""
        self._set(resource.kind, resource.metadata, status)

    def set_rejected(self, kind: str, metadata: Metadata, status: Status) -> None:
        """The same of a resource whose spec never was in force."""
        self._set(kind, metadata, status)

    def keep_only(self, keys: Collection[StatusKey]) -> None:
        """Forget what is gone; its status went with it."""
        known: dict[StatusKey, Any]
        for known in (
            self._wanted,
            self._standing,
            self._uids,
            self._versions,
            self._digests,
            self._refused,
            self._times,
        ):
            for key in known.keys() - keys:
                del known[key]

    def flush(self, steady: float, *, all_of_them: bool = False) -> int:
        """Write what differs and may be written; gives the number written. steady: seconds on a steady clock.

        What can't be written within FLUSH_SECONDS waits for the next time: rounds, and tables, wait for no backlog.

        Raises:
            NotLeading: nothing may be written any more.
        """
        self._notice()
        due = [
            key
            for key, wanted in self._wanted.items()
            if wanted.status != self._standing.get(key)
            and wanted.status != self._refused.get(key)
            and (all_of_them or steady - self._times.get(key, -float("inf")) >= QUIET_SECONDS)
        ]
        due.sort(key=lambda key: key.kind != "RoutingPolicy")  # what people wait for is a policy's Ready
        self._learn_versions(due)
        written, until = 0, self._clock() + FLUSH_SECONDS
        while due and (all_of_them or self._clock() < until):
            portion, due = due[:PORTION], due[PORTION:]
            written += self._flush(portion, steady)
        return written

    def _notice(self) -> None:
        """What stands no more as it was written is due again."""
        for name, seen in self._seen.news().items():
            key = StatusKey(*name)
            if key not in self._standing or key not in self._wanted or seen.uid != self._uids.get(key):
                continue
            if older(seen.version, self._versions.get(key, "")) or seen.digest == self._digests.get(key):
                continue
            log.info("the status of %s %s was changed by somebody else: it is written again", key.kind, key.id)
            del self._standing[key]
            self._versions[key] = seen.version

    def _flush(self, due: Sequence[StatusKey], steady: float) -> int:
        written = 0
        for key, outcome in zip(due, self._pool.each(due, self._write), strict=True):
            what = f"writing the status of {key.kind} {key.id}"
            self._times[key] = steady
            if not isinstance(outcome, KubeFault):
                self._complaints.settled(what)
                written += 1
            elif outcome.missing:
                self._wanted.pop(key, None)  # deleted meanwhile: the next look at the resources says so too
            else:
                self._complaints.about(what, outcome.message)
                if outcome.status == HTTPStatus.UNPROCESSABLE_ENTITY:
                    self._refused[key] = self._wanted[key].status
        return written

    def _set(self, kind: str, metadata: Metadata, status: Status) -> None:
        key = StatusKey(kind, resource_id(metadata))
        if metadata.uid and self._uids.setdefault(key, metadata.uid) != metadata.uid:
            # Another resource under the name: nothing of the old one's status stands there.
            self._uids[key] = metadata.uid
            self._standing.pop(key, None)
            self._versions.pop(key, None)
        self._wanted[key] = _Wanted(metadata.uid, status)

    def _learn_versions(self, due: Collection[StatusKey]) -> None:
        """One list a kind in place of a look at each, where many are new."""
        for kind, plural in PLURALS.items():
            if sum(key.kind == kind and key not in self._versions for key in due) < MANY:
                continue
            try:
                for path in scopes(plural, self._watched):
                    for one in self._client.every(path, metadata_only=True):
                        metadata = one["metadata"]
                        key = StatusKey(kind, f"{metadata['namespace']}/{metadata['name']}")
                        self._versions.setdefault(key, str(metadata.get("resourceVersion", "")))
            except KubeFault:
                return  # each is looked at then, and says what is wrong

    def _write(self, key: StatusKey) -> None:
        wanted = self._wanted[key]
        namespace, _, name = key.id.partition("/")
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURALS[key.kind]}/{name}"
        version = self._versions.get(key) or self._read_again(path, wanted)
        body = msgspec.to_builtins(wanted.status)
        for attempt in range(1, ATTEMPTS + 1):
            metadata = {"name": name, "namespace": namespace, "uid": wanted.uid, "resourceVersion": version}
            manifest = {
                "apiVersion": API_VERSION,
                "kind": key.kind,
                "metadata": {field: value for field, value in metadata.items() if value},
                "status": body,
            }
            try:
                found = self._client.apply(f"{path}/status", manifest)
            except KubeFault as fault:
                if not fault.conflict or attempt == ATTEMPTS:
                    raise
                version = self._read_again(path, wanted)
                continue
            self._standing[key] = wanted.status
            self._versions[key] = str(found["metadata"].get("resourceVersion", ""))
            self._digests[key] = digest_of(found)
            return

    def _read_again(self, path: str, wanted: _Wanted) -> str:
        """The version to write over; a resource that was made anew has another status to come."""
        metadata = self._client.get(path)["metadata"]
        if wanted.uid and metadata.get("uid") != wanted.uid:
            raise KubeFault(HTTPStatus.NOT_FOUND, "Replaced", "another resource has this name now")
        return str(metadata.get("resourceVersion", ""))


def read_statuses(client: KubeClient, watched: Collection[str]) -> ReadStatuses:
    """Statuses of both kinds as they stand; one that can't be understood is written anew.

    Raises:
        KubeFault: they can't be read.
    """
    found = ReadStatuses({}, {}, {}, {})
    for kind, plural in PLURALS.items():
        for path in scopes(plural, watched):
            for one in client.every(path):
                metadata = one["metadata"]
                key = StatusKey(kind, f"{metadata['namespace']}/{metadata['name']}")
                found.versions[key] = str(metadata.get("resourceVersion", ""))
                found.digests[key] = digest_of(one)
                if kind == "RoutingPolicy":
                    _take(one, PolicyStatus, found.policies)
                else:
                    _take(one, EngineStatus, found.engines)
    return found


def scopes(plural: str, watched: Collection[str]) -> list[str]:
    """Paths to list one kind by: cluster-wide, or one for each watched namespace."""
    base = f"/apis/{GROUP}/{VERSION}"
    return [f"{base}/namespaces/{namespace}/{plural}" for namespace in watched] or [f"{base}/{plural}"]


def _take(one: Json, kind: type[Kind], found: dict[str, Kind]) -> None:
    metadata = one["metadata"]
    try:
        if isinstance(one.get("status"), dict):
            found[f"{metadata['namespace']}/{metadata['name']}"] = msgspec.convert(one["status"], kind)
    except msgspec.MsgspecError:
        return

"""One kind of object as an API server has told it: fed by watch events, checked against lists, in any order.

On the routing-weight path. Events of one object may arrive twice, late, or not at all: whoever watches lists again
after a gap, and what was deleted in the gap is told by nobody. So every list's names and versions are compared with
what stands here: what a list no longer has is gone, what it has and never arrived means that the watch is broken.
Plain values, one thread at a time (ClusterStore holds the lock).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Generic, NamedTuple, TypeVar

from headrace_operator.kube.seen import older

LAG_SECONDS: Final = (
    15.0  # an event that a list shows may still be on its way so long: a watch begins on a busy machine
)
BEGIN_SECONDS: Final = 120.0  # what a watch begins with may take so long to arrive
GONE_KEPT: Final = 4096  # uids of deleted objects that are remembered, so that a late event doesn't bring them back
UNTOLD: Final = "0"  # the version of what is known, and to be told anew: older than any
BELIEVED_SHARE: Final = 0.5  # of all objects that one list may drop without a deletion's event

Value = TypeVar("Value")
Json = Mapping[str, Any]


class Key(NamedTuple):
    """Namespace (empty for what has none) and name."""

    namespace: str
    name: str


class Stamp(NamedTuple):
    """Which object, and which state of it."""

    key: Key
    uid: str
    version: str


@dataclass(frozen=True, slots=True)
class _Held(Generic[Value]):
    stamp: Stamp
    value: Value


class KindIndex(Generic[Value]):
    """Objects of one kind by key. ``read``: what is kept of an object, given what was kept before; None: nothing."""

    def __init__(self, read: Callable[[Json, Value | None], Value | None]) -> None:
        self._read = read
        self._held: dict[Key, _Held[Value]] = {}
        self._gone: dict[str, None] = {}
        self._late: dict[Key, tuple[str, float]] = {}
        self._doubted: frozenset[Key] = frozenset()
        self._beginning = True
        self._began_at: float | None = None
        self._newest = 0  # version of what was held and listed when a list was last compared
        self.verified_at: float | None = None

    def __iter__(self) -> Iterator[tuple[Key, Value]]:
        """Keys and values, sorted by key."""
        return iter([(key, self._held[key].value) for key in sorted(self._held)])

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: Key) -> Value | None:
        """What is kept of an object."""
        held = self._held.get(key)
        return None if held is None else held.value

    def begin(self) -> None:
        """A new watch begins: what the last one did not tell counts from now."""
        self._late = {}
        self._beginning, self._began_at = True, None

    def upsert(self, item: Json) -> bool:
        """Take an object as it was at some time; gives whether what is kept changed."""
        stamp = stamp_of(item)
        if stamp is None or stamp.uid in self._gone:
            return False
        held = self._held.get(stamp.key)
        if held is not None and older(stamp.version, held.stamp.version):
            return False
        value = self._read(item, None if held is None or held.stamp.version == UNTOLD else held.value)
        if value is None:
            return self._held.pop(stamp.key, None) is not None
        self._held[stamp.key] = _Held(stamp, value)
        return held is None or held.value != value

    def delete(self, item: Json) -> bool:
        """Take a deletion; one of an earlier object of the same name changes nothing."""
        stamp = stamp_of(item)
        if stamp is None:
            return False
        self._bury(stamp.uid)
        held = self._held.get(stamp.key)
        if held is None or (stamp.uid and held.stamp.uid != stamp.uid):
            return False
        del self._held[stamp.key]
        return True

    def compare(
        self,
        listed: Iterable[Json],
        version: str,
        at: float,
        *,
        partial: bool = False,
        heard_at: float = -inf,
    ) -> Compared:
        """Hold a full list of names and versions against what stands here. version: the list's. at: steady seconds.

        heard_at: when watches last told anything. One that begins tells all there is, thousands of objects one by one:
        while something still arrives nothing of that is late.

        partial: only some of the listed objects are kept at all, so that those unknown here are no sign of a gap.
        """
        if _number(version) and _number(version) < self._newest:
            return self._put_back(version)
        stamps = {stamp.key: stamp for item in listed if (stamp := stamp_of(item)) is not None}
        late = {
            key: stamp.version
            for key, stamp in stamps.items()
            if stamp.uid not in self._gone and self._lags(stamp, partial=partial)
        }
        self._late = {
            key: (version, self._late[key][1] if self._late.get(key, ("",))[0] == version else at)
            for key, version in late.items()
        }
        missing = [
            held.stamp
            for key, held in self._held.items()
            if (key not in stamps or stamps[key].uid != held.stamp.uid) and not older(version, held.stamp.version)
        ]
        dropped = self._drop(missing)
        self._began_at = at if self._began_at is None else self._began_at
        self._beginning = self._beginning and bool(late) and at - self._began_at < BEGIN_SECONDS
        arriving = self._beginning and at - heard_at < LAG_SECONDS
        broken = not arriving and any(at - since >= LAG_SECONDS for _, since in self._late.values())
        if not self._late and len(dropped) == len(missing):
            self.verified_at = at
        self._newest = max([_number(version), *(_number(held.stamp.version) for held in self._held.values())])
        return Compared(changed=bool(dropped), settled=self.verified_at == at, broken=broken)

    def _put_back(self, version: str) -> Compared:
        """The API server's store is a backup now: no list is older than what was told before it was asked for.

        What was told since the backup never was. Everything is to be told anew, and stays as it is until then.
        """
        self._newest = _number(version)
        self._gone, self._doubted, self._late = {}, frozenset(), {}
        self._held = {key: _Held(held.stamp._replace(version=UNTOLD), held.value) for key, held in self._held.items()}
        return Compared(changed=False, settled=False, broken=True)

    def _lags(self, stamp: Stamp, *, partial: bool) -> bool:
        held = self._held.get(stamp.key)
        if held is None:
            return not partial
        return older(held.stamp.version, stamp.version)

    def _drop(self, missing: list[Stamp]) -> list[Stamp]:
        """Remove what a list no longer has; most of a kind only when a second list in a row says so."""
        keys = frozenset(stamp.key for stamp in missing)
        sudden = len(missing) > 1 and len(missing) > BELIEVED_SHARE * len(self._held)
        if (sudden or len(missing) == len(self._held)) and not keys <= self._doubted:
            self._doubted = keys
            return []
        self._doubted = frozenset()
        for stamp in missing:
            self._bury(stamp.uid)
            del self._held[stamp.key]
        return missing

    def _bury(self, uid: str) -> None:
        if uid:
            self._gone[uid] = None
            while len(self._gone) > GONE_KEPT:
                del self._gone[next(iter(self._gone))]

    def drop_unless(self, wanted: Callable[[Key, Value], bool]) -> None:
        """Forget what nobody wants any more; it is not deleted, and may come again."""
        self._held = {key: held for key, held in self._held.items() if wanted(key, held.value)}


class Compared(NamedTuple):
    """What a comparison came to. settled: nothing is late or doubted. broken: something has been late for too long."""

    changed: bool
    settled: bool
    broken: bool


def stamp_of(item: object) -> Stamp | None:
    """Who an object is; None: it isn't one."""
    metadata = item.get("metadata") if isinstance(item, Mapping) else None
    if not isinstance(metadata, Mapping):
        return None
    name, namespace = metadata.get("name"), metadata.get("namespace")
    uid, version = metadata.get("uid"), metadata.get("resourceVersion")
    if not isinstance(name, str) or not name:
        return None
    return Stamp(Key(_text(namespace), name), _text(uid), _text(version))


def _number(version: str) -> int:
    return int(version) if version.isdecimal() else 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""

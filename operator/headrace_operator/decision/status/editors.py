"""Who edited what, for the line of history that an edit caused.

On the routing-weight path; pure. An edit is told only beside a cause that it can have had: a declared capacity beside
"capacity", a round trip beside "network". What a world's measurements changed has no editor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from headrace_api.engine import InferenceEngineSpec
from headrace_api.policy import Frontend, RoutingPolicySpec
from headrace_operator.decision.why.attribution import Causes
from headrace_operator.decision.why.text import fitted
from headrace_operator.snapshot.eligibility import bare_name
from headrace_operator.snapshot.model import EngineState, PolicyState, Snapshot

ROOM: Final = 90  # characters of a line of history, of 240
DRAINING: Final = "Draining"


def edits(before: Snapshot | None, now: Snapshot, policy: PolicyState, engines: Collection[str], causes: Causes) -> str:
    """Such as "chat by kubectl edit, h100-a by Argo CD at 3f2a91c"; "" where no known editor had a part.

    before: the world that causes are told against. engines: ids of those that the policy may use, or might. causes:
    none where these are the first weights.
    """
    groups = {cause for cause, _ in causes}
    words = [*_of_policy(before, policy, groups)]
    if before is not None:
        old = {engine.id: engine for engine in before.engines}
        for engine in now.engines:
            if engine.id in engines:
                words += _of_engine(old.get(engine.id), engine, groups)
    return fitted(words, ROOM)


def _by(name: str, editor: str) -> str:
    return f"{bare_name(name)} by {editor}"


def _of_policy(before: Snapshot | None, policy: PolicyState, groups: set[str]) -> Iterator[str]:
    if not policy.editor:
        return
    old = next((entry for entry in before.policies if entry.id == policy.id), None) if before is not None else None
    if not groups or (old is not None and groups & _edited_policy(old.spec, policy.spec)):
        yield _by(policy.id, policy.editor)


def _edited_policy(old: RoutingPolicySpec, new: RoutingPolicySpec) -> set[str]:
    """Groups of causes that the difference of two specs belongs to."""
    found = set()
    if old.network != new.network or _places(old) != _places(new):
        found.add("network")
    if _demands(old) != _demands(new):
        found.add("demand")
    rest = [
        msgspec.structs.replace(spec, network=new.network, frontends=tuple(map(_bare, spec.frontends)))
        for spec in (old, new)
    ]
    return found | ({"policy"} if rest[0] != rest[1] else set())


def _places(spec: RoutingPolicySpec) -> list[object]:
    return [(frontend.name, frontend.location) for frontend in spec.frontends]


def _demands(spec: RoutingPolicySpec) -> list[object]:
    return [(frontend.name, frontend.demand) for frontend in spec.frontends]


def _bare(frontend: Frontend) -> Frontend:
    return msgspec.structs.replace(frontend, demand=None)


def _of_engine(old: EngineState | None, engine: EngineState, groups: set[str]) -> Iterator[str]:
    """An edit, and a drain by annotation that began or ended: that one has a cause of its own, and no editor."""
    if old is None:
        if "policy" in groups and engine.editor:
            yield _by(engine.id, engine.editor)
        return
    if engine.editor and groups & _edited_engine(old, engine):
        yield _by(engine.id, engine.editor)
    elif "policy" in groups and _drained(old) != _drained(engine) and old.spec.state == engine.spec.state:
        yield f"{bare_name(engine.id)} {'drained' if _drained(engine) else 'resumed'}"


def _drained(engine: EngineState) -> bool:
    return engine.state == DRAINING != engine.spec.state


def _edited_engine(old: EngineState, new: EngineState) -> set[str]:
    one, other = old.spec, new.spec
    found = set()
    if one.capacity != other.capacity or one.endpoints != other.endpoints:
        found.add("capacity")
    if one.profile != other.profile:
        found.add("profiles")
    if one.location != other.location:
        found.add("network")
    if old.labels != new.labels or _rest(one, other) != other:
        found.add("policy")
    return found


def _rest(one: InferenceEngineSpec, other: InferenceEngineSpec) -> InferenceEngineSpec:
    """The one with those parts of the other that have causes of their own."""
    return msgspec.structs.replace(one, capacity=other.capacity, profile=other.profile)

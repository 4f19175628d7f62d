"""Cuts of a snapshot: what concerns some policies, so that a component costs what it holds, not what the fleet holds.

On the routing-weight path; pure. A cut is a snapshot: the policies with their demand, network, routes and signals, and
the engines that they select or still send to. A policy that selects none has its whole namespace, so that it can be
said why. What is solved, evaluated and told of a component is the same on its cut as on the whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Final, TypeVar

import msgspec

from headrace_operator.snapshot.model import (
    EngineState,
    PairNetwork,
    PreviousRoute,
    SavingSince,
    Snapshot,
    SourceDemand,
)
from headrace_operator.snapshot.selection import Selection

Cut = Callable[[tuple[str, ...]], Snapshot]
Entry = TypeVar("Entry", SourceDemand, PairNetwork, PreviousRoute, SavingSince)
_ID: Final = re.compile(r"[a-z0-9][a-z0-9.-]*/[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")


class Cutter:
    """Cuts of one snapshot; indexes are made once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.whole = snapshot
        self._policies = {policy.id: policy for policy in snapshot.policies}
        self._engines = {engine.id: engine for engine in snapshot.engines}
        self._selection = Selection(snapshot.engines)
        self._demand = _by_policy(snapshot.demand)
        self._network = _by_policy(snapshot.network)
        self._previous = _by_policy(snapshot.previous)
        self._savings = _by_policy(snapshot.savings)
        self._notes = [(note, ids_in(note)) for note in snapshot.notes]
        self._states = [(state, ids_in(state.name)) for state in snapshot.states]
        self._known: dict[tuple[str, ...], Snapshot] = {}

    def selected(self, policies: Iterable[str]) -> tuple[EngineState, ...]:
        """Engines that these policies select; for one that selects none those that it could."""
        found: dict[str, EngineState] = {}
        for name in policies:
            policy = self._policies.get(name)
            if policy is not None:
                engines = self._selection.of(name, policy.spec) or self._selection.of_namespace(name)
                found |= {engine.id: engine for engine in engines}
        return tuple(found[name] for name in sorted(found))

    def engines_of(self, policies: Collection[str]) -> tuple[EngineState, ...]:
        """Engines that concern these policies."""
        found = {engine.id: engine for engine in self.selected(policies)}
        for name in policies:
            sent = (self._engines.get(route.engine) for route in self._previous.get(name, ()))
            found |= {engine.id: engine for engine in sent if engine is not None}
        return tuple(found[name] for name in sorted(found))

    def __call__(self, policies: tuple[str, ...]) -> Snapshot:
        """What concerns these policies (ids)."""
        if policies not in self._known:
            self._known[policies] = self.with_engines(policies, self.engines_of(policies))
        return self._known[policies]

    def also(self, policies: tuple[str, ...], engines: Iterable[str]) -> Snapshot:
        """The same, with further engines (ids) as far as they are there."""
        found = {engine.id: engine for engine in self.engines_of(policies)}
        found |= {name: self._engines[name] for name in engines if name in self._engines}
        return self.with_engines(policies, tuple(found[name] for name in sorted(found)))

    def with_engines(self, policies: tuple[str, ...], engines: tuple[EngineState, ...]) -> Snapshot:
        """The policies' part of the snapshot over these engines."""
        ids = {*policies, *(engine.id for engine in engines)}
        return msgspec.structs.replace(
            self.whole,
            engines=engines,
            policies=tuple(self._policies[name] for name in sorted(set(policies)) if name in self._policies),
            demand=_those(self._demand, policies),
            network=_those(self._network, policies),
            previous=_those(self._previous, policies),
            savings=_those(self._savings, policies),
            # A metric source is nobody's in particular; those whose engines it knows pick it out.
            states=tuple(state for state, named in self._states if not named or not named.isdisjoint(ids)),
            notes=tuple(note for note, named in self._notes if not named.isdisjoint(ids)),
        )


def ids_in(text: str) -> frozenset[str]:
    """Ids (``namespace/name``) that a sentence names."""
    return frozenset(_ID.findall(text))


def _by_policy(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.policy, []).append(entry)
    return found


def _those(entries: dict[str, list[Entry]], policies: Collection[str]) -> tuple[Entry, ...]:
    """Entries of these policies, in their order: policy is the first part of each one's key."""
    return tuple(entry for name in sorted(set(policies)) for entry in entries.get(name, ()))

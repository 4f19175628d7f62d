"""The store without namespaces that another installation of the operator serves (publisher/cluster/claims.py).

On the routing-weight path, in a cluster. What stands there is nothing of ours: not solved for, not written, not told,
and not missed either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from headrace_operator.publisher.cluster.claims import Claims
from headrace_operator.store.resources import Resources


class Store(Protocol):
    """Where resources live."""

    def look(self, *, thorough: bool) -> Resources:
        """The resources now; the same object while nothing changed."""


class OwnNamespaces:
    """A store of what this installation serves. Looking at it claims namespaces with policies that nobody serves."""

    def __init__(self, store: Store, claims: Claims) -> None:
        self._store = store
        self._claims = claims
        self._known: tuple[Resources, Mapping[str, str]] | None = None
        self._shown = Resources()

    def look(self, *, thorough: bool) -> Resources:
        """The resources now; the same object while nothing changed.

        Raises:
            NotLeading: namespaces can't be claimed any more.
        """
        found = self._store.look(thorough=thorough)
        others = self._claims.hold({one.metadata.namespace for one in found.policies})
        if self._known is None or self._known[0] is not found or self._known[1] != others:
            self._known = (found, others)
            self._shown = without(found, others) if others else found
        return self._shown


def without(found: Resources, others: Mapping[str, str]) -> Resources:
    """Resources less those of namespaces that others serve, told as faults. others: installations by namespace."""
    told = (
        f"namespace {name} is served by another operator, that of namespace {whose}: nothing of it is read or written"
        " here; right would be operators whose watchNamespaces don't overlap"
        for name, whose in sorted(others.items())
    )
    return replace(
        found,
        engines=tuple(one for one in found.engines if one.metadata.namespace not in others),
        policies=tuple(one for one in found.policies if one.metadata.namespace not in others),
        faults=(*found.faults, *told),
        refused={name: why for name, why in found.refused.items() if name.id.partition("/")[0] not in others},
        rejected={name: one for name, one in found.rejected.items() if name.id.partition("/")[0] not in others},
    )

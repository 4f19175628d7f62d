"""Which engines a policy selects, found through an index: a fleet of policies and engines costs their sum.

On the routing-weight path; pure. An engine belongs to a policy that is in its namespace, whose labels it carries, and
of whose models it serves one, as base or adapter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace_api.policy import RoutingPolicySpec
from headrace_operator.snapshot.model import EngineState

NAMESPACE_SEPARATOR = "/"


class LabelIndex:
    """Positions of things in namespaces by their labels."""

    def __init__(self, entries: Iterable[tuple[str, Iterable[tuple[str, str]]]]) -> None:
        """entries: namespace and labels of each, in order of position."""
        self._everything: dict[str, set[int]] = {}
        self._labelled: dict[tuple[str, str, str], set[int]] = {}
        for at, (namespace, labels) in enumerate(entries):
            self._everything.setdefault(namespace, set()).add(at)
            for name, value in labels:
                self._labelled.setdefault((namespace, name, value), set()).add(at)

    def matching(self, namespace: str, labels: Mapping[str, str]) -> set[int]:
        """Positions in the namespace that carry all of the labels; a set of its own."""
        found = [self._labelled.get((namespace, name, value), set()) for name, value in labels.items()]
        if not found:
            return set(self._everything.get(namespace, ()))
        return set.intersection(*sorted(found, key=len)) if len(found) > 1 else set(found[0])


class Selection:
    """Engines by the policies that select them."""

    def __init__(self, engines: Sequence[EngineState]) -> None:
        self._engines = tuple(engines)
        self._index = LabelIndex((engine.id.partition(NAMESPACE_SEPARATOR)[0], engine.labels) for engine in engines)
        self._serving: dict[str, set[int]] = {}
        for at, engine in enumerate(self._engines):
            for served in engine.spec.models:
                for name in (served.name, *served.adapters):
                    self._serving.setdefault(name, set()).add(at)

    def of(self, policy: str, spec: RoutingPolicySpec) -> tuple[EngineState, ...]:
        """The engines that the policy (its id) selects, in the order in which they were given."""
        labelled = self._index.matching(policy.partition(NAMESPACE_SEPARATOR)[0], spec.engine_selector.match_labels)
        found: set[int] = set()
        for model in spec.models:
            found |= labelled & self._serving.get(model.name, set())
        return tuple(self._engines[at] for at in sorted(found))

    def of_namespace(self, policy: str) -> tuple[EngineState, ...]:
        """All engines that the policy could select."""
        return tuple(
            self._engines[at] for at in sorted(self._index.matching(policy.partition(NAMESPACE_SEPARATOR)[0], {}))
        )

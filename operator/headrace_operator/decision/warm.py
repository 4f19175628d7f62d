"""One warm model a component, kept over ticks, so that a tick on which nothing moves costs milliseconds.

On the routing-weight path. Holds state (the solver's basis), none of it needed for the answer: a process that starts
anew decides the same. Models of components that are gone are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headrace_operator.optimizer import Verdict, WarmModel
from headrace_operator.snapshot.model import Snapshot

KEPT: Final = 64  # components; the least recently asked for goes first


class WarmModels:
    """Keep one for the life of the process and hand its ``assess`` to ``decide``."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, ...], WarmModel] = {}

    def assess(self, snapshot: Snapshot, policies: tuple[str, ...], fixed: Mapping[str, float]) -> Verdict:
        """Whether the weights that stand for a component have to move."""
        model = self._models.pop(policies, None) or WarmModel()
        self._models[policies] = model
        while len(self._models) > KEPT:
            del self._models[next(iter(self._models))]
        return model.assess(snapshot, policies, fixed=fixed)

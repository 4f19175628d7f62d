"""An engine's place that is known from its pods alone is no edit: losing pods must not look like the administrator."""

from __future__ import annotations

import msgspec
import pytest

from headrace_api.base import Location
from headrace_operator.decision.losses import hold_losses
from headrace_operator.snapshot.build import build_snapshot
from headrace_operator.snapshot.model import Snapshot
from headrace_operator.snapshot.signals import EngineSignal, Reading, Signals
from support.engine_manifests import engine, policy


def snapshot(ready: float, location: Location, **spec: object) -> Snapshot:
    one = engine("a", **spec)
    one = msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, location=location))
    signals = Signals(
        engines=tuple(
            EngineSignal(engine=f"inf/{name}", ready_replicas=Reading(value=count))
            for name, count in (("a", ready), ("b", 1.0))
        )
    )
    return build_snapshot([one, engine("b")], [policy()], signals, at=0.0)


@pytest.mark.parametrize(
    ("after", "held"),
    [
        pytest.param(Location(region="us", zone="us-a"), True, id="the same place"),
        pytest.param(Location(region="us"), True, id="its zone is not known any more"),
        pytest.param(Location(region="us", zone="us-b"), True, id="only pods of another zone are left"),
    ],
)
def test_a_place_that_changes_with_the_pods_is_no_edit(after: Location, held: bool) -> None:
    before = snapshot(10.0, Location(region="us", zone="us-a"))
    _, holds = hold_losses(before, snapshot(1.0, after))
    assert bool(holds) is held


def test_an_edit_is_one() -> None:
    before = snapshot(10.0, Location(region="us"))
    _, holds = hold_losses(before, snapshot(1.0, Location(region="us"), maxModelLen=1000))
    assert holds == ()

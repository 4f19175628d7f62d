"""Round trips of every front-end to every engine a policy may use, by the API page's rules.

On the routing-weight path; pure. A listed pair wins over a rule: the most specific names first (cluster, zone, region),
in its own direction before the other one, so that a list is symmetric unless both directions stand. Unlisted: same zone
0.5 ms, same region 1 ms, else the policy's default. What is missing of a location is unknown and equals nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from headrace_api.base import Location
from headrace_api.policy import Frontend, Network
from headrace_api.units import seconds
from headrace_operator.snapshot.model import EngineState, Origin, PairNetwork, PolicyState, PreviousRoute
from headrace_operator.snapshot.readings import Ladder, usable
from headrace_operator.snapshot.signals import Reading, RoundTripSignal, SignalStatus

SAME_ZONE_SECONDS: Final = 0.0005
SAME_REGION_SECONDS: Final = 0.001


def _places(location: Location) -> list[str]:
    """Names of a location, the most specific first."""
    return [place for place in (location.cluster, location.zone, location.region) if place is not None]


def _ranked(here: list[str], there: list[str]) -> list[tuple[str, str]]:
    """Pairs of names, the most specific first; of equal ones that with the more specific front-end."""
    pairs = [(i + j, i, a, b) for i, a in enumerate(here) for j, b in enumerate(there)]
    return [(a, b) for _, _, a, b in sorted(pairs)]


class RoundTrips:
    """A policy's network, looked up by location."""

    def __init__(self, network: Network) -> None:
        self._listed = {(entry.from_, entry.to): seconds(entry.latency) for entry in network.round_trip}
        self._default = seconds(network.default)
        self._known: dict[tuple[Location, Location], tuple[float, Origin]] = {}

    def between(self, frontend: Location, engine: Location) -> tuple[float, Origin]:
        """Seconds from a front-end's location to an engine's and back, and whether someone stated them."""
        found = self._known.get((frontend, engine))
        if found is None:
            found = self._known[frontend, engine] = self._rule(frontend, engine)
        return found

    def _rule(self, frontend: Location, engine: Location) -> tuple[float, Origin]:
        for here, there in _ranked(_places(frontend), _places(engine)):
            listed = self._listed.get((here, there), self._listed.get((there, here)))
            if listed is not None:
                return listed, "Declared"
        if frontend.region is None or engine.region is None or frontend.region == engine.region:
            if frontend.zone is not None and frontend.zone == engine.zone:
                return SAME_ZONE_SECONDS, "Default"
            if frontend.region is not None and frontend.region == engine.region:
                return SAME_REGION_SECONDS, "Default"
        return self._default, "Default"


def pair_networks(
    policies: Iterable[PolicyState],
    selected: Mapping[str, tuple[EngineState, ...]],
    signals: Iterable[RoundTripSignal],
    *,
    elapsed: float,
    notes: list[str],
) -> tuple[PairNetwork, ...]:
    """Round trips by policy, front-end and engine, sorted; ``selected`` are each policy's engines by policy id."""
    measured = {(signal.frontend, signal.engine): signal.seconds for signal in signals}
    pairs: list[PairNetwork] = []
    for policy in policies:
        trips = RoundTrips(policy.spec.network)
        ladder = Ladder(seconds(policy.spec.staleness.hold), seconds(policy.spec.staleness.degrade))
        missing: list[str] = []
        for frontend in policy.spec.frontends:
            for engine in selected[policy.id]:
                pair = _pair(policy, frontend, engine, trips, measured, ladder, elapsed, notes)
                pairs.append(pair)
                if policy.spec.network.measured and pair.origin in ("Declared", "Default"):
                    missing.append(f"{frontend.name} to {engine.id}")
        if missing:
            first = ", ".join(sorted(missing)[:3])
            notes.append(f"{policy.id}: no round trip measured for {len(missing)} pairs ({first}); declared ones hold")
    return tuple(sorted(pairs, key=lambda pair: (pair.policy, pair.frontend, pair.engine)))


def unmeasured(
    policies: Iterable[PolicyState], network: Iterable[PairNetwork], previous: Iterable[PreviousRoute]
) -> tuple[SignalStatus, ...]:
    """Pairs that are to be measured, carry traffic by the last table, and are not measured: their declared value holds.

    Those without traffic may be in no table, and nobody connects there.
    """
    asked = {policy.id for policy in policies if policy.spec.network.measured}
    carrying = {(route.policy, route.frontend, route.engine) for route in previous if route.weight > 0}
    return tuple(
        SignalStatus(name=f"round trip {pair.policy} {pair.frontend} {pair.engine}", state="Unknown")
        for pair in network
        if pair.policy in asked
        and pair.origin in ("Declared", "Default")
        and (pair.policy, pair.frontend, pair.engine) in carrying
    )


def _pair(
    policy: PolicyState,
    frontend: Frontend,
    engine: EngineState,
    trips: RoundTrips,
    measured: Mapping[tuple[str, str], Reading],
    ladder: Ladder,
    elapsed: float,
    notes: list[str],
) -> PairNetwork:
    value, origin = trips.between(frontend.location, engine.spec.location)
    reading = measured.get((frontend.name, engine.id)) if policy.spec.network.measured else None
    found = usable(reading, elapsed, ladder, f"round trip {frontend.name} to {engine.id}")
    if found.note:
        notes.append(found.note)
    if found.value is not None:
        value, origin = found.value, found.origin
    return PairNetwork(policy=policy.id, frontend=frontend.name, engine=engine.id, round_trip=value, origin=origin)

"""Never two valid leaders: whatever is slow, lost, late, paused or deleted, and however clocks run."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace_operator.controller.leader import Leader, Timing
from support.fake_leases import LeaseClient, Leases, Time

TIMING = Timing(lease=15.0, renew=10.0, retry=2.0)
RATES = (0.9, 1.0, 1.1)  # clocks that run a tenth slow, right, and a tenth fast


class Candidates(RuleBasedStateMachine):
    """Three candidates at one server; each step of each may take time, within the call and between calls."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.server = Time(), Leases()
        self.clients = [LeaseClient(self.server) for _ in RATES]
        self.generation = 0
        self.leaders = [self.candidate(place) for place in range(len(RATES))]
        self.terms: list[int] = []
        self.deleted = False
        self.slow = 0.0

    def candidate(self, place: int) -> Leader:
        self.generation += 1
        client: Any = self.clients[place]
        client.passing = self.passing
        return Leader(client, "ops", f"{place}-{self.generation}", TIMING, clock=self.time.clock(RATES[place]))

    def passing(self) -> None:
        self.time.now += self.slow
        self.one_at_most()

    @rule(places=st.permutations(range(len(RATES))))
    def all_step(self, places: list[int]) -> None:
        for place in places:
            self.step(place, 0.0)

    @rule(place=st.integers(0, 2), slow=st.sampled_from((0.0, 0.5, 3.0, 12.0)))
    def one_steps(self, place: int, slow: float) -> None:
        self.step(place, slow)

    def step(self, place: int, slow: float) -> None:
        self.slow = slow
        leader = self.leaders[place]
        before = leader.term
        leader.step()
        if leader.term != before:
            self.terms.append(leader.term)

    @rule(seconds=st.sampled_from((2.0, 5.0, 9.0, 16.0, 60.0)))
    def pass_time(self, seconds: float) -> None:
        self.time.now += seconds

    @rule(place=st.integers(0, 2), kind=st.sampled_from(("down", "lost", "postponed", "well")))
    def trouble(self, place: int, kind: str) -> None:
        for name in ("down", "lost", "postponed"):
            setattr(self.clients[place], name, name == kind)

    @rule()
    def late(self) -> None:
        self.server.come_late()

    @rule()
    def delete(self) -> None:
        self.server.lease = None
        self.deleted = True

    @rule(place=st.integers(0, 2), politely=st.booleans())
    def restart(self, place: int, politely: bool) -> None:
        if politely:
            self.leaders[place].stop()
        self.leaders[place] = self.candidate(place)

    @invariant()
    def one_at_most(self) -> None:
        assert sum(leader.valid() for leader in self.leaders) <= 1

    @invariant()
    def terms_grow(self) -> None:
        assert self.deleted or self.terms == sorted(set(self.terms))


TestOneLeader = Candidates.TestCase
TestOneLeader.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)

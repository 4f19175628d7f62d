"""Whatever is done to a simulated engine: every request ends once, no block leaks, no time is invented."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_lab.engine.contract import Admission, EngineConfig, Progress, Request, StepCost
from headrace_lab.engine.steploop import StepLoop
from support.examples import examples

CONFIGS = st.builds(
    lambda blocks, seqs, budget, unit: EngineConfig(
        StepCost(0.01, 0.001, 0.0001, 0.00001), 16 * blocks, seqs, max(budget, seqs), 16 * unit
    ),
    blocks=st.integers(1, 30),
    seqs=st.integers(1, 6),
    budget=st.integers(1, 80),
    unit=st.integers(1, 3),
)
SUBMIT = st.tuples(st.just("submit"), st.integers(1, 200), st.integers(1, 40), st.integers(0, 3))
ACTS = st.lists(
    st.one_of(
        SUBMIT,
        SUBMIT,
        SUBMIT,
        st.tuples(st.just("abort"), st.integers(0, 20)),
        st.tuples(st.just("wait"), st.floats(0, 0.5)),
        st.tuples(st.just("slow"), st.sampled_from([0.5, 1.0, 3.0])),
        st.tuples(st.just("fail"), st.sampled_from([0.0, 0.5])),
        st.tuples(st.just("pause")),
        st.tuples(st.just("resume")),
        st.tuples(st.just("drain"), st.booleans()),
    ),
    max_size=60,
)


class World:
    """Drives a core by drawn acts and books what it says."""

    def __init__(self, config: EngineConfig) -> None:
        self.core = StepLoop(config, seed=7)
        self.now = 0.0
        self.requests: dict[int, Request] = {}
        self.admissions: Counter[Admission] = Counter()
        self.aborted: set[int] = set()
        self.progress: list[Progress] = []

    def submit(self, prompt: int, output: int, family: int) -> None:
        """A request whose prefix it shares with its family."""
        blocks = prompt // self.core.config.prefix_block_tokens
        prefix = tuple(family * 1000 + block for block in range(blocks))
        request = Request(sum(self.admissions.values()), prompt, output, prefix)
        admission = self.core.submit(request, self.now)
        self.admissions[admission] += 1
        if admission is Admission.QUEUED:
            self.requests[request.id] = request

    def abort(self, number: int) -> None:
        """Abort one that may or may not be there."""
        if self.core.abort(number, self.now):
            self.aborted.add(number)

    def do(self, name: str, *values: float) -> None:
        """One act, then the invariants that hold at any time."""
        match name:
            case "submit":
                self.submit(*map(int, values))
            case "abort":
                self.abort(int(values[0]))
            case "wait":
                self.now += values[0]
                self.progress += self.core.advance(self.now)
            case "slow":
                self.core.set_slow(values[0], self.now)
            case "fail":
                self.core.set_fail(values[0])
            case "pause":
                self.core.pause(self.now)
            case "resume":
                self.core.resume(self.now)
            case _:
                self.core.draining = bool(values[0])
        assert 0 <= self.core.kv_usage <= 1
        assert self.core.running <= self.core.config.max_num_seqs
        assert self.core.stats.busy <= self.now + 1e-9

    def settle(self) -> None:
        """Let everything end."""
        self.core.resume(self.now)
        for _ in range(100_000):
            event = self.core.next_event_time()
            if event is None:
                return
            self.now = event
            self.progress += self.core.advance(event)
        raise AssertionError("the engine never comes to rest")


@settings(max_examples=examples(150), deadline=None)
@given(CONFIGS, ACTS)
def test_conservation(config: EngineConfig, acts: list[tuple[object, ...]]) -> None:
    world = World(config)
    for act in acts:
        world.do(*act)  # type: ignore[arg-type]
    world.settle()
    core, stats = world.core, world.core.stats

    assert core.kv_usage == 0
    assert (core.running, core.waiting) == (0, 0)
    assert stats.busy <= world.now + 1e-9
    assert stats.submitted == stats.finished + stats.aborted + stats.failed + stats.refused
    assert stats.failed == world.admissions[Admission.FAILED]
    assert stats.aborted == len(world.aborted)
    tokens: dict[int, list[Progress]] = {number: [] for number in world.requests}
    for progress in world.progress:
        tokens[progress.id].append(progress)
    for number, request in world.requests.items():
        got = [progress.generated for progress in tokens[number]]
        ends = [progress.generated for progress in tokens[number] if progress.finished]
        assert got == list(range(1, len(got) + 1))
        if number in world.aborted:
            assert ends == []
        else:
            assert ends == [request.output_tokens] == [len(got)]
    assert [p.at for p in world.progress] == sorted(p.at for p in world.progress)


@settings(max_examples=examples(30), deadline=None)
@given(CONFIGS, ACTS)
def test_the_same_acts_give_the_same_tokens(config: EngineConfig, acts: list[tuple[object, ...]]) -> None:
    worlds = (World(config), World(config))
    for world in worlds:
        for act in acts:
            world.do(*act)  # type: ignore[arg-type]
        world.settle()
    assert worlds[0].progress == worlds[1].progress
    assert worlds[0].core.stats == worlds[1].core.stats

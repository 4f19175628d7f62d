"""The step loop by cases that a reader can compute by hand."""

from __future__ import annotations

import math

import pytest

from headrace_lab.engine.contract import Admission, EngineConfig, Progress, Request, StepCost
from headrace_lab.engine.steploop import StepLoop

# A step takes 1 s, 0.1 s a sequence, 0.01 s a prompt token.
COST = StepCost(base=1.0, per_sequence=0.1, per_prompt_token=0.01)


def config(**limits: int) -> EngineConfig:
    """An engine with blocks to spare unless a test says otherwise."""
    return EngineConfig(
        COST,
        **{
            "kv_cache_tokens": 16_000,
            "max_num_seqs": 8,
            "max_num_batched_tokens": 100,
            "prefix_block_tokens": 32,
            **limits,
        },
    )


def drain(core: StepLoop) -> list[Progress]:
    """Run until idle."""
    progress = []
    while (event := core.next_event_time()) is not None:
        progress += core.advance(event)
    return progress


def test_a_lone_request_takes_its_chunks_then_a_step_a_token() -> None:
    core = StepLoop(config())
    assert core.submit(Request(1, prompt_tokens=250, output_tokens=3), 10.0) is Admission.QUEUED
    first, second, last = drain(core)
    # Chunks of 100, 100 and 50 tokens: 2.1 + 2.1 + 1.6 s.
    assert first.gap == pytest.approx(5.8)
    assert first.at == pytest.approx(15.8)
    assert first.queued == 0
    assert [second.gap, last.gap] == pytest.approx([1.1, 1.1])
    assert [p.finished for p in (first, second, last)] == [False, False, True]
    assert core.stats.busy == pytest.approx(8.0)
    assert core.kv_usage == 0
    assert core.next_event_time() is None


def test_context_lengthens_a_step() -> None:
    cost = StepCost(base=1.0, per_sequence=0.0, per_prompt_token=0.0, per_context_token=0.001)
    core = StepLoop(EngineConfig(cost, 16_000, 8, 2048))
    core.submit(Request(1, prompt_tokens=500, output_tokens=3), 0.0)
    # Nothing is read while the prompt is computed, then 500 tokens, then 501.
    assert [p.gap for p in drain(core)] == pytest.approx([1.0, 1.5, 1.501])


def test_the_batch_is_bounded_and_the_queue_is_in_order() -> None:
    core = StepLoop(config(max_num_seqs=1))
    for number in (1, 2):
        core.submit(Request(number, prompt_tokens=40, output_tokens=2), 0.0)
    assert (core.running, core.waiting) == (1, 1)
    progress = drain(core)
    # Each: 1.5 s for the prompt, 1.1 s for the second token; the second one starts when the first has ended.
    assert [(p.id, p.at) for p in progress] == [
        (1, pytest.approx(1.5)),
        (1, pytest.approx(2.6)),
        (2, pytest.approx(4.1)),
        (2, pytest.approx(5.2)),
    ]
    assert progress[2].queued == pytest.approx(2.6)
    assert progress[2].gap == pytest.approx(2.6 + 1.5)


def test_running_requests_come_before_prompts_in_the_token_budget() -> None:
    core = StepLoop(config())
    core.submit(Request(1, prompt_tokens=10, output_tokens=9), 0.0)
    core.submit(Request(2, prompt_tokens=150, output_tokens=1), 0.5)
    progress = drain(core)
    of_second = next(p for p in progress if p.id == 2)
    # 1.2 s until the first step ends; then 1 + 99 tokens (1 + .2 + .99), then 1 + 51 (1 + .2 + .51).
    assert of_second.at == pytest.approx(1.2 + 2.19 + 1.71)
    assert of_second.queued == pytest.approx(0.7)


def test_a_sequence_that_the_budget_passes_over_waits_for_the_next_step() -> None:
    core = StepLoop(config(max_num_seqs=3, max_num_batched_tokens=3))
    core.submit(Request(1, prompt_tokens=7, output_tokens=1), 0.0)
    core.submit(Request(2, prompt_tokens=1, output_tokens=1), 0.0)
    progress = drain(core)
    # 3, 3, then the last token of the first one beside the second one's only token.
    assert [(p.id, p.at) for p in progress] == [(1, pytest.approx(1.13 + 1.13 + 1.22)), (2, pytest.approx(3.48))]


def test_without_blocks_the_youngest_gives_way_and_no_token_comes_twice() -> None:
    core = StepLoop(config(kv_cache_tokens=64))
    for number in (1, 2):
        core.submit(Request(number, prompt_tokens=16, output_tokens=33), 0.0)
    progress = drain(core)
    assert core.stats.preemptions >= 1
    ended = [p.id for p in progress if p.finished]
    assert ended == [1, 2]
    for number in (1, 2):
        assert [p.generated for p in progress if p.id == number] == list(range(1, 34))
    assert core.kv_usage == 0


def test_a_preempted_request_is_the_next_to_run() -> None:
    core = StepLoop(config(kv_cache_tokens=64, max_num_seqs=2))
    for number in (1, 2, 3):
        core.submit(Request(number, prompt_tokens=16, output_tokens=33), 0.0)
    progress = drain(core)
    assert core.stats.preemptions >= 1
    # The third one would fit beside the first one when the second one has given way, but it isn't its turn.
    first_ended = next(p.at for p in progress if p.id == 1 and p.finished)
    assert all(p.at > first_ended for p in progress if p.id == 3)
    assert [p.id for p in progress if p.finished] == [1, 2, 3]


def test_a_step_that_preempts_admits_nobody() -> None:
    core = StepLoop(config(kv_cache_tokens=64, max_num_batched_tokens=17))
    core.submit(Request(1, prompt_tokens=16, output_tokens=20), 0.0)
    core.submit(Request(2, prompt_tokens=16, output_tokens=20), 0.1)
    # The first one's 18th token needs the fifth block of four: the second one gives way, and a block is left that its
    # first chunk would fit; yet that step holds one sequence, and only the next one takes the second one in again.
    gaps = {p.generated: p.gap for p in drain(core) if p.id == 1}
    assert [gaps[17], gaps[18], gaps[19]] == pytest.approx([1.2, 1.1, 1.2 + 0.16])


def test_prompts_of_one_step_share_the_token_budget() -> None:
    core = StepLoop(config())
    for number in (1, 2, 3):
        core.submit(Request(number, prompt_tokens=80, output_tokens=1), 0.0)
    # 80 alone (1.9 s), then 80 + 20 (2.2 s), then the 60 that are left (1.7 s).
    assert [p.at for p in drain(core)] == pytest.approx([1.9, 4.1, 5.8])


def test_a_preempted_request_finds_what_is_still_cached_of_its_work() -> None:
    # 12 blocks. Both prompts take 5, each grows by one: after 16 more tokens each there is none left for the second.
    core = StepLoop(config(kv_cache_tokens=192, max_num_batched_tokens=200))
    core.submit(Request(1, prompt_tokens=80, output_tokens=40), 0.0)
    core.submit(Request(2, prompt_tokens=80, output_tokens=40), 0.0)
    drain(core)
    assert core.stats.preemptions == 1
    # Without its cached blocks it would compute 80 + 16 tokens once more, on top of the 160 prompt tokens.
    assert 160 < core.stats.computed_prompt_tokens < 160 + 80
    assert core.stats.finished == 2


def test_a_cached_prefix_is_not_computed_again() -> None:
    core = StepLoop(config(max_num_batched_tokens=1000))
    prefix = (b"a", b"b")  # two blocks of 32 tokens
    core.submit(Request(1, prompt_tokens=70, output_tokens=1, prefix=prefix), 0.0)
    assert drain(core)[0].gap == pytest.approx(1 + 0.1 + 0.70)
    core.submit(Request(2, prompt_tokens=70, output_tokens=1, prefix=prefix), 10.0)
    assert drain(core)[0].gap == pytest.approx(1 + 0.1 + 0.06)
    assert (core.stats.prefix_queries, core.stats.prefix_hits) == (140, 64)
    assert core.stats.prompt_tokens == 140


def test_another_prefix_hits_nothing_and_a_whole_prompt_never_comes_from_the_cache() -> None:
    core = StepLoop(config(max_num_batched_tokens=1000))
    for number, prefix in enumerate([(b"a", b"b"), (b"x", b"b"), (b"a", b"b")], start=1):
        core.submit(Request(number, prompt_tokens=64, output_tokens=1, prefix=prefix), 10.0 * number)
        drain(core)
    # The third one finds both blocks, but the last token's block must be computed: 32 hits, not 64.
    assert core.stats.prefix_hits == 32


def test_requests_share_a_prefix_while_both_run() -> None:
    core = StepLoop(config(max_num_batched_tokens=1000, kv_cache_tokens=160))
    core.submit(Request(1, prompt_tokens=65, output_tokens=9, prefix=(b"a", b"b")), 0.0)
    core.advance(1.9)
    core.submit(Request(2, prompt_tokens=65, output_tokens=9, prefix=(b"a", b"b")), 1.9)
    core.advance(3.2)
    # 10 blocks: 4 shared, one private each; two times 5 would be all.
    assert core.running == 2
    assert core.kv_usage == pytest.approx(0.6)


def test_a_duplicate_prefix_computed_at_the_same_time_is_freed_once() -> None:
    core = StepLoop(config(max_num_batched_tokens=1000))
    core.submit(Request(9, prompt_tokens=1, output_tokens=1), 0.0)
    for number in (1, 2):
        core.submit(Request(number, prompt_tokens=65, output_tokens=2, prefix=(b"a", b"b")), 0.5)
    drain(core)
    assert core.kv_usage == 0
    assert core.stats.finished == 3


def test_unused_prefixes_are_evicted_oldest_first() -> None:
    core = StepLoop(config(kv_cache_tokens=96, max_num_batched_tokens=1000))
    for at, (number, key) in enumerate([(1, b"a"), (2, b"b"), (3, b"c")]):
        core.submit(Request(number, prompt_tokens=33, output_tokens=1, prefix=(key,)), 10.0 * at)
        drain(core)
    # 6 blocks: each request needs 3, so the third one evicts the first one's two.
    core.submit(Request(4, prompt_tokens=33, output_tokens=1, prefix=(b"b",)), 40.0)
    drain(core)
    core.submit(Request(5, prompt_tokens=33, output_tokens=1, prefix=(b"a",)), 50.0)
    drain(core)
    assert core.stats.prefix_hits == 32


def test_abort_frees_slot_and_blocks_at_once() -> None:
    core = StepLoop(config(max_num_seqs=1))
    for number in (1, 2, 3):
        core.submit(Request(number, prompt_tokens=40, output_tokens=50), 0.0)
    assert core.kv_usage > 0
    assert core.abort(3, 0.5)
    assert core.abort(1, 1.0)
    assert core.kv_usage == 0
    assert (core.running, core.waiting) == (0, 1)
    progress = drain(core)
    # The step under way keeps its 1.5 s, then the second request's prompt runs.
    assert progress[0].id == 2
    assert progress[0].at == pytest.approx(3.0)
    assert (core.stats.aborted, core.stats.finished) == (2, 1)


def test_abort_drops_progress_that_nobody_took_and_knows_nobody_twice() -> None:
    core = StepLoop(config())
    core.submit(Request(1, prompt_tokens=1, output_tokens=5), 0.0)
    assert core.abort(1, 3.0)
    assert core.advance(10.0) == []
    assert not core.abort(1, 10.0)
    assert not core.abort(2, 10.0)
    assert core.stats.aborted == 1


def test_a_finished_request_cannot_be_aborted_and_its_tokens_are_kept() -> None:
    core = StepLoop(config())
    core.submit(Request(1, prompt_tokens=1, output_tokens=1), 0.0)
    assert not core.abort(1, 5.0)
    assert core.next_event_time() == 5.0
    assert [p.finished for p in core.advance(5.0)] == [True]


def test_slow_stretches_every_step_from_the_next_on() -> None:
    core = StepLoop(config())
    core.submit(Request(1, prompt_tokens=40, output_tokens=3), 0.0)
    core.set_slow(3.0, 0.2)
    assert core.slow == 3.0
    assert [p.gap for p in drain(core)] == pytest.approx([1.5, 3.3, 3.3])


def test_a_paused_engine_accepts_and_makes_no_step() -> None:
    core = StepLoop(config())
    core.submit(Request(1, prompt_tokens=40, output_tokens=1), 0.0)
    core.pause(0.5)
    core.pause(0.6)
    assert core.paused
    core.submit(Request(2, prompt_tokens=40, output_tokens=1), 50.0)
    assert core.next_event_time() is None
    assert core.advance(99.5) == []
    core.resume(99.5)
    # 1.0 s of the first step was left.
    assert [p.at for p in drain(core)] == pytest.approx([100.5, 102.0])


def test_an_idle_engine_that_was_paused_starts_on_resume() -> None:
    core = StepLoop(config())
    core.pause(0.0)
    core.submit(Request(1, prompt_tokens=40, output_tokens=1), 1.0)
    core.resume(5.0)
    core.resume(5.0)
    assert [p.at for p in drain(core)] == pytest.approx([6.5])


def test_draining_refuses_new_work_and_ends_the_old() -> None:
    core = StepLoop(config())
    core.submit(Request(1, prompt_tokens=1, output_tokens=2), 0.0)
    core.draining = True
    assert core.submit(Request(2, prompt_tokens=1, output_tokens=2), 0.1) is Admission.DRAINING
    assert [p.id for p in drain(core)] == [1, 1]
    assert core.stats.refused == 1


def test_failing_follows_its_share_and_its_seed() -> None:
    def outcomes(seed: int) -> list[Admission]:
        core = StepLoop(config(), seed)
        core.set_fail(0.2)
        assert core.fail == 0.2
        return [core.submit(Request(n, prompt_tokens=1, output_tokens=1), 0.0) for n in range(1000)]

    assert outcomes(1) == outcomes(1)
    assert outcomes(1) != outcomes(2)
    assert 160 <= outcomes(1).count(Admission.FAILED) <= 240


@pytest.mark.parametrize(("prompt", "output"), [(16_000, 1), (1, 16_000), (8001, 8000)])
def test_what_can_never_fit_is_refused(prompt: int, output: int) -> None:
    core = StepLoop(config())
    assert core.submit(Request(1, prompt, output), 0.0) is Admission.TOO_LONG
    assert core.next_event_time() is None


def test_a_request_of_exactly_the_cache_runs() -> None:
    core = StepLoop(config(kv_cache_tokens=64, max_model_len=64))
    assert core.submit(Request(1, prompt_tokens=30, output_tokens=34), 0.0) is Admission.QUEUED
    assert drain(core)[-1].finished


def test_a_late_call_books_steps_at_their_nominal_ends() -> None:
    core = StepLoop(config())
    core.submit(Request(1, prompt_tokens=40, output_tokens=3), 0.0)
    assert [p.at for p in core.advance(1000.0)] == pytest.approx([1.5, 2.6, 3.7])


@pytest.mark.parametrize("now", [4.9, math.nan, -math.inf])
def test_time_never_runs_backwards(now: float) -> None:
    core = StepLoop(config())
    core.advance(5.0)
    with pytest.raises(ValueError, match="monotonic"):
        core.advance(now)


@pytest.mark.parametrize(
    ("prompt", "output"), [(0, 1), (1, 0), (-5, 1)], ids=["nothing to read", "nothing to write", "negative"]
)
def test_a_request_without_tokens_is_a_fault(prompt: int, output: int) -> None:
    with pytest.raises(ValueError, match="at least one token"):
        StepLoop(config()).submit(Request(1, prompt, output), 0.0)


def test_an_id_in_use_is_a_fault() -> None:
    core = StepLoop(config())
    core.submit(Request(1, 1, 5), 0.0)
    with pytest.raises(ValueError, match="new id"):
        core.submit(Request(1, 1, 5), 0.0)


@pytest.mark.parametrize("factor", [0.0, -1.0, math.nan, math.inf])
def test_a_slow_factor_is_positive_and_finite(factor: float) -> None:
    with pytest.raises(ValueError, match="slow"):
        StepLoop(config()).set_slow(factor, 0.0)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_a_share_of_failures_is_a_share(share: float) -> None:
    with pytest.raises(ValueError, match="fail"):
        StepLoop(config()).set_fail(share)


@pytest.mark.parametrize(
    ("cost", "fault"),
    [
        ((0.0, 0.1, 0.1), "base 0"),
        ((math.nan, 0, 0), "base nan"),
        ((1, -1, 0), "per_sequence -1"),
        ((1, 0, math.inf), "inf"),
    ],
)
def test_costs_are_times(cost: tuple[float, float, float], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        StepCost(*cost)


@pytest.mark.parametrize(
    ("limits", "fault"),
    [
        ({"kv_cache_tokens": 15}, "kv_cache_tokens 15"),
        ({"max_num_seqs": 0}, "max_num_seqs 0"),
        ({"max_num_batched_tokens": 7}, "max_num_batched_tokens 7: right would be at least 8"),
        ({"max_model_len": 1}, "max_model_len 1"),
        ({"prefix_block_tokens": 24}, "prefix_block_tokens 24"),
        ({"prefix_block_tokens": 0}, "prefix_block_tokens 0"),
    ],
)
def test_limits_under_which_nothing_runs_are_refused(limits: dict[str, int], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        config(**limits)

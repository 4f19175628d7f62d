"""The step loop of one simulated engine: queue, bounded batch, chunked prefill, KV blocks, preemption.

Pure: time is an argument, chance comes from a seed, nothing sleeps. The same core serves real time behind HTTP
(``server``) and virtual time in a simulator. Latency is never looked up: time to first token and time between tokens
emerge from steps whose length is ``StepCost``'s; scheduling follows vLLM's V1 scheduler (running first, then
the queue in order; the youngest running request gives way when blocks run out and is computed again).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite

from headrace_lab.engine.contract import Admission, EngineConfig, Progress, Request, Stats
from headrace_lab.engine.kvcache import BLOCK_TOKENS, BlockPool, PrefixKey


class _Sequence:
    """A request inside the engine: what is known (prompt and output so far), what of it has its KV computed."""

    __slots__ = (
        "arrived",
        "computed",
        "generated",
        "gone",
        "known",
        "last",
        "output",
        "preempted",
        "prefix",
        "private",
        "queued",
        "request_id",
        "shared",
    )

    def __init__(self, request: Request, now: float) -> None:
        self.request_id = request.id
        self.output = request.output_tokens
        self.prefix = request.prefix
        self.arrived = now
        self.last = now
        self.queued: float | None = None
        self.known = request.prompt_tokens
        self.computed = 0
        self.generated = 0
        self.private = 0
        self.shared: list[PrefixKey] = []
        self.preempted = False
        self.gone = False


@dataclass
class _Step:
    """The step under way. ``parts``: each sequence and how many of its tokens are computed."""

    end: float
    seconds: float
    prompt_tokens: int
    parts: list[tuple[_Sequence, int]] = field(default_factory=list)


class StepLoop:
    """One replica. Every call that takes ``now`` first catches up with it; ``now`` never runs backwards.

    What happened meanwhile is kept until ``advance`` hands it out, so no call may lose another's progress.
    """

    def __init__(self, config: EngineConfig, seed: int = 0) -> None:
        self.config = config
        self.stats = Stats()
        self.draining = False
        self._rng = random.Random(seed)  # noqa: S311 - which requests fail in a simulation is no secret
        self._pool = BlockPool(config.kv_cache_tokens // BLOCK_TOKENS, config.prefix_block_tokens // BLOCK_TOKENS)
        self._slow = 1.0
        self._fail = 0.0
        self._left: float | None = None  # seconds left of the step that a pause interrupted
        self._paused = False
        self._now = 0.0
        self._step: _Step | None = None
        self._waiting: deque[_Sequence] = deque()
        self._running: list[_Sequence] = []
        self._known: dict[int, _Sequence] = {}
        self._progress: list[Progress] = []

    @property
    def running(self) -> int:
        """Requests in the batch."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def kv_usage(self) -> float:
        """Share of KV blocks held by requests, 0 to 1."""
        return self._pool.usage

    @property
    def slow(self) -> float:
        """How many times its usual length a step takes."""
        return self._slow

    @property
    def fail(self) -> float:
        """Share of requests that fail on arrival."""
        return self._fail

    @property
    def paused(self) -> bool:
        """Whether the engine hangs: it accepts requests and makes no step."""
        return self._paused

    def set_slow(self, factor: float, now: float) -> None:
        """Stretch every step that begins from now on. Raises ValueError unless finite and above 0."""
        if not isfinite(factor) or factor <= 0:
            raise ValueError(f"slow {factor!r}: right would be a factor above 0, such as 3.0")
        self._catch_up(now)
        self._slow = factor

    def set_fail(self, share: float) -> None:
        """Fail this share of the requests that arrive from now on. Raises ValueError outside 0 to 1."""
        if not 0 <= share <= 1:
            raise ValueError(f"fail {share!r}: right would be a share from 0 to 1, such as 0.2")
        self._fail = share

    def pause(self, now: float) -> None:
        """Hang: no step begins or ends until ``resume``."""
        self._catch_up(now)
        if not self._paused:
            self._paused = True
            self._left = None if self._step is None else self._step.end - self._now

    def resume(self, now: float) -> None:
        """Go on where ``pause`` stopped."""
        self._catch_up(now)
        if self._paused:
            self._paused = False
            if self._step is not None and self._left is not None:
                self._step.end = self._now + self._left
            self._begin(self._now)

    def fits(self, prompt_tokens: int, output_tokens: int) -> bool:
        """Whether such a request could ever run: context length and KV cache."""
        tokens = prompt_tokens + output_tokens
        return tokens <= self.config.max_model_len and tokens <= self._pool.total * BLOCK_TOKENS

    def submit(self, request: Request, now: float) -> Admission:
        """Queue a request, or say why not.

        Raises:
            ValueError: its id is in the engine already, or it has no token to read or to write.
        """
        if request.id in self._known or min(request.prompt_tokens, request.output_tokens) < 1:
            raise ValueError(f"request {request!r}: right would be a new id and at least one token in and out")
        self._catch_up(now)
        self.stats.submitted += 1
        if self.draining or not self.fits(request.prompt_tokens, request.output_tokens):
            self.stats.refused += 1
            return Admission.DRAINING if self.draining else Admission.TOO_LONG
        if self._fail and self._rng.random() < self._fail:
            self.stats.failed += 1
            return Admission.FAILED
        sequence = _Sequence(request, self._now)
        self._known[request.id] = sequence
        self._waiting.append(sequence)
        self._begin(self._now)
        return Admission.QUEUED

    def abort(self, request_id: int, now: float) -> bool:
        """End a request's work: its queue place, batch slot and blocks are free at once. False if it is not here.

        The step under way keeps its length: a kernel that was launched can't be recalled.
        """
        self._catch_up(now)
        sequence = self._known.pop(request_id, None)
        if sequence is None:
            return False
        self.stats.aborted += 1
        sequence.gone = True
        if sequence in self._running:
            self._running.remove(sequence)
            self._pool.release(sequence.private, sequence.shared)
        else:
            self._waiting.remove(sequence)
        self._progress = [progress for progress in self._progress if progress.id != request_id]
        return True

    def next_event_time(self) -> float | None:
        """When ``advance`` has something to do: now for kept progress, else the end of the step; None when idle."""
        if self._progress:
            return self._now
        if self._step is None or self._paused:
            return None
        return self._step.end

    def advance(self, now: float) -> list[Progress]:
        """Run all steps that end until ``now``; every token since the last call, in order of time."""
        self._catch_up(now)
        progress, self._progress = self._progress, []
        return progress

    def _catch_up(self, now: float) -> None:
        if not now >= self._now:
            raise ValueError(f"now {now!r} is before {self._now!r}: right would be a monotonic clock")
        while self._step is not None and not self._paused and self._step.end <= now:
            self._finish(self._step)
        self._now = now

    def _begin(self, at: float) -> None:
        """Start a step at ``at`` if the engine is idle and there is work."""
        if self._step is not None or self._paused or not self._known:
            return
        parts, prompt_tokens = self._schedule(at)
        context = sum(sequence.computed for sequence, _ in parts)
        seconds = self._slow * self.config.cost.seconds(len(parts), context, prompt_tokens)
        self._step = _Step(at + seconds, seconds, prompt_tokens, parts)

    def _schedule(self, at: float) -> tuple[list[tuple[_Sequence, int]], int]:
        """What the next step computes: the running sequences, then the queue while slots, budget and blocks last."""
        parts: list[tuple[_Sequence, int]] = []
        budget = self.config.max_num_batched_tokens
        prompt_tokens = 0
        preempted = False
        index = 0
        while index < len(self._running) and budget:
            sequence = self._running[index]
            tokens = min(sequence.known - sequence.computed, budget)
            if not self._grow(sequence, tokens):
                self._preempt(self._running.pop())
                preempted = True
                continue
            index += 1
            budget -= tokens
            if tokens > 1 or not sequence.generated:
                prompt_tokens += tokens
            parts.append((sequence, tokens))
        while self._waiting and budget and not preempted and len(self._running) < self.config.max_num_seqs:
            sequence = self._waiting[0]
            tokens = self._admit(sequence, budget, at)
            if not tokens:
                break
            self._waiting.popleft()
            self._running.append(sequence)
            budget -= tokens
            prompt_tokens += tokens
            parts.append((sequence, tokens))
        return parts, prompt_tokens

    def _admit(self, sequence: _Sequence, budget: int, at: float) -> int:
        """Give a queued sequence its cached prefix and blocks for a first chunk; its tokens, 0 if blocks are short."""
        unit = self.config.prefix_block_tokens
        hits = min(self._pool.hits(sequence.prefix), (sequence.known - 1) // unit)
        shared = list(sequence.prefix[:hits])
        self._pool.share(shared)
        sequence.shared = shared
        sequence.computed = hits * unit
        tokens = min(sequence.known - sequence.computed, budget)
        if not self._grow(sequence, tokens):
            self._drop(sequence)
            return 0
        if not sequence.preempted:
            self.stats.prefix_queries += sequence.known
            self.stats.prefix_hits += sequence.computed
            self.stats.prompt_tokens += sequence.known
        if sequence.queued is None:
            sequence.queued = at - sequence.arrived
        return tokens

    def _grow(self, sequence: _Sequence, tokens: int) -> bool:
        """Hold the blocks that ``tokens`` more will need."""
        held = sequence.private + len(sequence.shared) * self._pool.unit
        need = -(-(sequence.computed + tokens) // BLOCK_TOKENS) - held
        if need <= 0:
            return True
        if not self._pool.take(need):
            return False
        sequence.private += need
        return True

    def _preempt(self, sequence: _Sequence) -> None:
        """Back to the head of the queue; its KV stays cached under its own keys until others need the blocks."""
        unit = self.config.prefix_block_tokens
        known = len(sequence.prefix)
        own = [(sequence.request_id, index) for index in range(known, sequence.computed // unit)]
        sequence.prefix = (*sequence.prefix, *own)
        self._publish(sequence, own)
        self._drop(sequence)
        sequence.preempted = True
        self.stats.preemptions += 1
        self._waiting.appendleft(sequence)

    def _drop(self, sequence: _Sequence) -> None:
        self._pool.release(sequence.private, sequence.shared)
        sequence.private = 0
        sequence.shared = []
        sequence.computed = 0

    def _finish(self, step: _Step) -> None:
        """Book the step that ends now and begin the next one at the very moment."""
        self._step = None
        self.stats.steps += 1
        self.stats.busy += step.seconds
        self.stats.computed_prompt_tokens += step.prompt_tokens
        ended = False
        for sequence, tokens in step.parts:
            if sequence.gone:
                continue
            if tokens > 1 or not sequence.generated:
                unit = self.config.prefix_block_tokens
                first, last = sequence.computed // unit, (sequence.computed + tokens) // unit
                self._publish(sequence, sequence.prefix[first:last])
            sequence.computed += tokens
            if sequence.computed == sequence.known:
                ended |= self._emit(sequence, step.end)
        if ended:
            self._running = [sequence for sequence in self._running if not sequence.gone]
        self._begin(step.end)

    def _publish(self, sequence: _Sequence, keys: Sequence[PrefixKey]) -> None:
        """Offer computed prefix blocks to other requests."""
        for key in keys:
            if self._pool.publish(key):
                sequence.private -= self._pool.unit
                sequence.shared.append(key)

    def _emit(self, sequence: _Sequence, at: float) -> bool:
        """One output token; True if it was the last."""
        sequence.generated += 1
        sequence.known += 1
        self.stats.generated_tokens += 1
        finished = sequence.generated == sequence.output
        self._progress.append(
            Progress(sequence.request_id, at, sequence.generated, at - sequence.last, sequence.queued or 0.0, finished)
        )
        sequence.last = at
        if finished:
            self.stats.finished += 1
            sequence.gone = True
            del self._known[sequence.request_id]
            self._pool.release(sequence.private, sequence.shared)
        return finished

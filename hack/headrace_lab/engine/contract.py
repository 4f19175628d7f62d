"""The words of the step loop: what goes in, what comes out, what a step costs.

Pure, on the step loop of a simulated engine. Everything here is a value: a cost and limits that are valid by
construction, a request, the progress of one token, and counts. Times are seconds, lengths are tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

import msgspec

from headrace_lab.engine.kvcache import BLOCK_TOKENS, PrefixKey


@dataclass(frozen=True)
class StepCost:
    """Seconds of one step: base + per_sequence x n + per_context_token x KV tokens read + per_prompt_token x prefill.

    The design's ``a + b n + c x prompt tokens`` with b split in two, because the measured series need it: at 9,000
    tokens of context a running request costs three times what it costs at 1,500 (README beside the data).
    """

    base: float
    per_sequence: float
    per_prompt_token: float
    per_context_token: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what would make time stand still or run backwards."""
        for name in ("base", "per_sequence", "per_prompt_token", "per_context_token"):
            value = getattr(self, name)
            if not isfinite(value) or value < 0:
                raise ValueError(f"{name} {value!r}: right would be seconds, finite and not negative")
        if self.base == 0:
            raise ValueError("base 0: right would be a step that takes time")

    def seconds(self, sequences: int, context_tokens: int, prompt_tokens: int) -> float:
        """Length of a step over so many sequences with so many KV tokens that computes so many prompt tokens."""
        return (
            self.base
            + self.per_sequence * sequences
            + self.per_context_token * context_tokens
            + self.per_prompt_token * prompt_tokens
        )

    def scaled(self, factor: float) -> StepCost:
        """The same engine with every step ``factor`` times as long."""
        return StepCost(
            self.base * factor,
            self.per_sequence * factor,
            self.per_prompt_token * factor,
            self.per_context_token * factor,
        )


@dataclass(frozen=True)
class EngineConfig:
    """Limits of one engine, in vLLM's words; tokens and sequences."""

    cost: StepCost
    kv_cache_tokens: int
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    prefix_block_tokens: int = 512
    max_model_len: int = 131_072

    def __post_init__(self) -> None:
        """Refuse limits under which no request could ever run."""
        for name, least in (
            ("kv_cache_tokens", BLOCK_TOKENS),
            ("max_num_seqs", 1),
            ("max_num_batched_tokens", self.max_num_seqs),
            ("max_model_len", 2),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"{name} {getattr(self, name)}: right would be at least {least}")
        if self.prefix_block_tokens < BLOCK_TOKENS or self.prefix_block_tokens % BLOCK_TOKENS:
            raise ValueError(
                f"prefix_block_tokens {self.prefix_block_tokens}: right would be a multiple of {BLOCK_TOKENS}"
            )


@dataclass(frozen=True)
class Request:
    """One request: token counts, and the keys of its full prefix blocks, each of the whole prefix up to its end."""

    id: int
    prompt_tokens: int
    output_tokens: int
    prefix: Sequence[PrefixKey] = ()


class Admission(StrEnum):
    """What became of a submitted request. All but QUEUED end it at once."""

    QUEUED = "queued"
    DRAINING = "draining"
    FAILED = "failed"
    TOO_LONG = "too-long"


class Progress(msgspec.Struct, frozen=True, gc=False):
    """One output token of one request.

    ``gap``: seconds since the token before; for the first one since submission (time to first token).
    ``queued``: seconds from submission to the first step that worked on it.
    """

    id: int
    at: float
    generated: int
    gap: float
    queued: float
    finished: bool


@dataclass
class Stats:
    """Counts since the start. submitted = finished + aborted + failed + refused + those still waiting or running."""

    submitted: int = 0
    finished: int = 0
    aborted: int = 0
    failed: int = 0
    refused: int = 0
    preemptions: int = 0
    steps: int = 0
    busy: float = 0.0
    prompt_tokens: int = 0
    computed_prompt_tokens: int = 0
    generated_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0

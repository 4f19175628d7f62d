"""What routers' pages say of prompts: bytes a token by model.

On the engine-signal path. Counters of all routers are added. Ratios need no interval, so the whole first page of a
router counts, as far as it may: an operator that starts anew knows at once what the routers have seen. A counter that
fell belongs to a new process: its page is a first page again. Must not do I/O or read clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from headrace_operator.estimators.token_ratio import TokenRatio
from headrace_operator.loader.source import RouterCounts, RouterTarget, TargetSample

# Tokens of a first page that count: hours of the past must not outweigh the minutes to come.
FIRST_TOKENS: Final = 100_000.0


class PromptTrackers:
    """State of all routers' prompt counters between samples."""

    def __init__(self) -> None:
        self._pages: dict[RouterTarget, tuple[float, RouterCounts]] = {}
        self._ratios: dict[str, TokenRatio] = {}

    def retarget(self, routers: Iterable[RouterTarget]) -> None:
        """Which routers there are."""
        wanted = set(routers)
        self._pages = {target: page for target, page in self._pages.items() if target in wanted}

    def restore(self, ratios: Iterable[tuple[str, float]]) -> None:
        """What an earlier start had learned; it holds until enough was seen to say otherwise."""
        self._ratios |= {model: TokenRatio(told=ratio) for model, ratio in ratios}

    def observe(self, samples: Iterable[TargetSample]) -> None:
        """Take samples of routers."""
        at = float("-inf")
        usage: dict[str, tuple[float, float]] = {}
        for sample in samples:
            if not isinstance(sample.target, RouterTarget) or sample.outcome != "Read" or sample.counts is None:
                continue
            earlier = self._pages.get(sample.target)
            if earlier is not None and not sample.at > earlier[0]:
                continue
            self._pages[sample.target] = (sample.at, sample.counts)
            at = max(at, sample.at)
            for model, grown in _usage(None if earlier is None else earlier[1], sample.counts).items():
                old = usage.get(model, (0.0, 0.0))
                usage[model] = (old[0] + grown[0], old[1] + grown[1])
        for model, (body_bytes, tokens) in usage.items():
            self._ratios[model] = self._ratios.get(model, TokenRatio()).add(at, body_bytes, tokens)

    def bytes_per_token(self) -> tuple[tuple[str, float], ...]:
        """(model, ratio) of models whose ratio is known."""
        known = ((model, ratio.told) for model, ratio in sorted(self._ratios.items()))
        return tuple((model, told) for model, told in known if told is not None)


def _usage(earlier: RouterCounts | None, later: RouterCounts) -> Mapping[str, tuple[float, float]]:
    """Bytes and tokens by model since the earlier page; both counters of a model count, or neither."""
    grown: dict[str, tuple[float, float]] = {}
    for model, tokens in later.usage_tokens.items():
        body_bytes = later.usage_bytes.get(model)
        if body_bytes is None:
            continue
        before = (0.0, 0.0)
        if earlier is not None:
            before = (earlier.usage_bytes.get(model, 0.0), earlier.usage_tokens.get(model, 0.0))
        more = (body_bytes - before[0], tokens - before[1])
        if earlier is None or more[0] < 0 or more[1] < 0:
            part = min(1.0, FIRST_TOKENS / tokens) if tokens > 0 else 0.0
            more = (body_bytes * part, tokens * part)
        grown[model] = more
    return grown

"""What routers' pages say of prompts: bytes a token by model, lengths, and the edges of prompt classes.

On the engine-signal path. Counters of all routers are added. Ratios and lengths need no interval, so the whole first
page of a router counts, as far as it may: an operator that starts anew knows at once what the routers have seen. A
counter that fell belongs to a new process: its page is a first page again. Must not do I/O or read clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from headrace_operator.estimators.prompt_lengths import Edges, Lengths, choose, classes_of
from headrace_operator.estimators.token_ratio import TokenRatio
from headrace_operator.loader.classes import PRIOR, Expected
from headrace_operator.loader.demand import SourceName
from headrace_operator.loader.source import LengthKey, RouterCounts, RouterTarget, TargetSample

# Tokens and requests of a first page that count: days of the past must not outweigh the minutes to come.
FIRST_TOKENS: Final = 100_000.0
FIRST_REQUESTS: Final = 2000.0


class PromptTrackers:
    """State of all routers' prompt counters between samples."""

    def __init__(self) -> None:
        self._pages: dict[RouterTarget, tuple[float, RouterCounts]] = {}
        self._ratios: dict[str, TokenRatio] = {}
        self._lengths: dict[SourceName, Lengths] = {}
        self._all_lengths = Lengths()
        self._edges = Edges()

    @property
    def edges(self) -> tuple[int, ...]:
        """Input tokens between the prompt classes; none while there is one class."""
        return self._edges.values

    def retarget(self, routers: Iterable[RouterTarget]) -> None:
        """Which routers there are. One without a url: those that its metric source finds."""
        wanted = set(routers)
        found = {(target.frontend, target.source) for target in wanted if not target.url}
        self._pages = {
            target: page
            for target, page in self._pages.items()
            if target in wanted or (target.frontend, target.source) in found
        }

    def restore(self, ratios: Iterable[tuple[str, float]], edges: tuple[int, ...] = ()) -> None:
        """What an earlier start had learned; it holds until enough was seen to say otherwise."""
        self._edges = Edges(edges)
        self._ratios |= {model: TokenRatio(told=ratio) for model, ratio in ratios}

    def observe(self, samples: Iterable[TargetSample]) -> None:
        """Take samples of routers."""
        at = float("-inf")
        usage: dict[str, tuple[float, float]] = {}
        lengths: dict[SourceName, dict[float, float]] = {}
        for sample in samples:
            if isinstance(sample.target, RouterTarget) and sample.outcome == "Gone":
                self._pages.pop(sample.target, None)
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
            for key, count in _grown_lengths(None if earlier is None else earlier[1], sample.counts).items():
                counts = lengths.setdefault(SourceName(key.policy, sample.target.frontend, key.model), {})
                counts[key.bound] = counts.get(key.bound, 0.0) + count
        self._take_lengths(at, lengths)
        for model, (body_bytes, tokens) in usage.items():
            self._ratios[model] = self._ratios.get(model, TokenRatio()).add(at, body_bytes, tokens)

    def bytes_per_token(self) -> tuple[tuple[str, float], ...]:
        """(model, ratio) of models whose ratio is known."""
        known = ((model, ratio.told) for model, ratio in sorted(self._ratios.items()))
        return tuple((model, told) for model, told in known if told is not None)

    def expected(self, name: SourceName) -> tuple[Expected, ...]:
        """Share and mean tokens of each class of a source: its own lengths, drawn towards everybody's while few."""
        everybody = classes_of(self._all_lengths.counts, self.edges)
        total = sum(count for count, _ in everybody)
        own = classes_of(self._lengths.get(name, Lengths()).counts, self.edges)
        mine = sum(count for count, _ in own)
        found = []
        for (count, mean), (all_count, all_mean) in zip(own, everybody, strict=True):
            share = all_count / total if total > 0 else 1 / len(everybody)
            drawn = PRIOR * share
            tokens = (count * mean + drawn * all_mean) / (count + drawn) if count + drawn > 0 else all_mean
            found.append(Expected((count + drawn) / (mine + PRIOR), tokens))
        return tuple(found)

    def _take_lengths(self, at: float, lengths: Mapping[SourceName, Mapping[float, float]]) -> None:
        everything: dict[float, float] = {}
        for name, counts in lengths.items():
            self._lengths[name] = self._lengths.get(name, Lengths()).add(at, counts)
            for bound, count in counts.items():
                everything[bound] = everything.get(bound, 0.0) + count
        if everything:
            self._all_lengths = self._all_lengths.add(at, everything)
            self._edges = choose(self._edges, at, self._all_lengths)


def _grown_lengths(earlier: RouterCounts | None, later: RouterCounts) -> dict[LengthKey, float]:
    """Requests by the bucket they fell into since the earlier page; a first page's count for FIRST_REQUESTS at most."""
    found: dict[LengthKey, float] = {}
    by_owner: dict[tuple[str, str], list[LengthKey]] = {}
    for key in later.lengths:
        by_owner.setdefault((key.policy, key.model), []).append(key)
    for keys in by_owner.values():
        keys.sort()
        now = [later.lengths[key] for key in keys]
        before = [0.0 if earlier is None else earlier.lengths.get(key, 0.0) for key in keys]
        more = _apart([new - old for new, old in zip(now, before, strict=True)])
        if earlier is None or min(more) < -0.5:  # less than one request: rounding
            part = min(1.0, FIRST_REQUESTS / now[-1]) if now[-1] > 0 else 0.0
            more = [count * part for count in _apart(now)]
        found |= {key: max(0.0, count) for key, count in zip(keys, more, strict=True)}
    return found


def _apart(cumulative: Sequence[float]) -> list[float]:
    return [high - low for low, high in pairwise((0.0, *cumulative))]


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

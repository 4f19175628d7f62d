"""One round's answers of a Prometheus to samples: pages as they were scraped, each with its own time.

On the engine-signal path; pure. Samples are raw: every series of one scrape has the same timestamp, so they make up the
page that Prometheus read then. A page is given once. What is not there is told by replica, never counted as zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace_operator.estimators.liveness import Outcome
from headrace_operator.loader.pages import Series, engine_figures, router_counts
from headrace_operator.loader.prometheus_http import RangeSeries
from headrace_operator.loader.prometheus_match import Found, Index, Origin, Ups, assign, choose, own_labels
from headrace_operator.loader.source import EngineTarget, PageTarget, RouterTarget, TargetSample

PATIENCE: Final = 45.0  # seconds that one copy of a pair may be behind the other before the other is taken


class Answers(NamedTuple):
    """What one round found. skew: steady seconds less the server's. complete: nothing warned of missing parts."""

    ups: Ups
    series: Sequence[RangeSeries]
    at: float
    skew: float
    complete: bool


@dataclass(slots=True)
class Reader:
    """What one source has given already. name: the source's. replica_labels: by which copies of a pair differ."""

    name: str
    replica_labels: Sequence[str]
    _newest: dict[PageTarget, float] = field(default_factory=dict)
    _chosen: dict[PageTarget, Origin] = field(default_factory=dict)
    _roster: set[PageTarget] = field(default_factory=set)

    def read(self, index: Index, answers: Answers) -> list[TargetSample]:
        """Samples that were not given yet, oldest first, and a word for every target that has none."""
        found = assign(index, answers.ups, answers.series, self.replica_labels)
        samples: list[TargetSample] = []
        for target, origins in found.items():
            origin = choose(origins, self._chosen.get(target), PATIENCE)
            self._chosen[target] = origin
            samples += self._pages(target, origins[origin], answers.skew)
        samples.sort(key=lambda sample: sample.at)
        here = {target for target in found if target not in index.fixed}
        samples += self._missing(index, found, answers)
        samples += self._left(here, answers)
        known = index.fixed | self._roster
        self._newest = {target: at for target, at in self._newest.items() if target in known}
        self._chosen = {target: origin for target, origin in self._chosen.items() if target in known}
        return samples

    def _pages(self, target: PageTarget, found: Found, skew: float) -> list[TargetSample]:
        since = self._newest.get(target, float("-inf"))
        if found.newest <= since:
            return []
        self._newest[target] = found.newest
        pages: dict[float, dict[str, list[Series]]] = {}
        for name, series in found.series.items():
            for one in series:
                labels = own_labels(one.metric)
                for at, text in one.values:
                    if at > since:
                        pages.setdefault(at, {}).setdefault(name, []).append(Series(labels, _number(text)))
        return [self._sample(target, at + skew, page) for at, page in pages.items()]

    def _sample(self, target: PageTarget, at: float, page: Mapping[str, Sequence[Series]]) -> TargetSample:
        if isinstance(target, RouterTarget):
            counts, problem = router_counts(page, (), target.frontend)
            return TargetSample(target, at, "Answered" if problem else "Read", {}, counts, problem)
        figures = engine_figures(page, (), target.names, target.models)
        outcome: Outcome = "Read" if figures.values else "Answered"
        return TargetSample(target, at, outcome, figures.values, None, figures.problem)

    def _missing(self, index: Index, found: Mapping[PageTarget, object], answers: Answers) -> Iterable[TargetSample]:
        """A word for every target with an address that has no series."""
        down = self._down(index, answers.ups)
        engines = {target.engine for target in found if isinstance(target, EngineTarget)}
        for target in index.targets:
            if target in down:
                yield TargetSample(target, answers.at, "Down", problem=f"metric source {self.name}: up is 0")
            elif answers.complete and target not in found and _is_missed(target, engines):
                yield TargetSample(target, answers.at, "Gone", problem=_nothing(self.name, target))

    def _down(self, index: Index, ups: Ups) -> set[PageTarget]:
        """Targets that no scrape reaches now, although one is meant to."""
        states: dict[PageTarget, bool] = {}
        for key, labels in ups.labels.items():
            for target, _ in index.at_place(labels):
                if isinstance(target, RouterTarget) or _selects(target, labels):
                    states[target] = states.get(target, False) or ups.states[key]
        return {target for target, up in states.items() if not up}

    def _left(self, here: set[PageTarget], answers: Answers) -> Iterable[TargetSample]:
        """Replicas and routers that the source had found by itself and now does not, or can't read."""
        instances: dict[str, bool] = {}
        for (_, instance), up in answers.ups.states.items():
            instances[instance] = instances.get(instance, False) or up
        for target in self._roster - here if answers.complete else ():
            if instances.get(target.url) is False:
                here.add(target)
                yield TargetSample(target, answers.at, "Down", problem=f"metric source {self.name}: up is 0")
            else:
                yield TargetSample(target, answers.at, "Gone", problem=f"metric source {self.name} knows it no more")
        self._roster = here if answers.complete else self._roster | here


def _is_missed(target: PageTarget, engines: set[str]) -> bool:
    """Whether it is news that a target has no series; engines: those that something was found of."""
    return bool(target.url) or (isinstance(target, EngineTarget) and target.engine not in engines)


def _nothing(source: str, target: PageTarget) -> str:
    selector = target.selector if isinstance(target, EngineTarget) else ()
    which = f" with {', '.join(f'{name}={value}' for name, value in selector)}" if selector else ""
    return f"metric source {source} has no series of it{which}"


def _selects(target: EngineTarget, labels: Mapping[str, str]) -> bool:
    return all(labels.get(key, value) == value for key, value in target.selector)


def _number(text: str) -> float:
    """A value of Prometheus; what is none is unknown."""
    try:
        return float(text)
    except ValueError:
        return float("nan")

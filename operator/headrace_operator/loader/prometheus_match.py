"""Series of a Prometheus to the replicas and routers that they are of.

On the engine-signal path; pure. A scrape target is (job, instance). It belongs to a replica by its pod, or by its
address, or because the engine's selector finds it; one that Prometheus can't read now (``up == 0``) belongs to nobody.
Copies by high-availability pairs, by two jobs, or of a pod's former address count once: one is chosen and kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from headrace_api.names import METRIC_TABLE_REVISION
from headrace_operator.loader.pages import ROUTER_SAMPLES, sample_names
from headrace_operator.loader.prometheus_http import RangeSeries
from headrace_operator.loader.source import EngineTarget, PageTarget, RouterTarget

# What scraping renames where a series' own label clashes with one of its target.
EXPORTED: Final = "exported_"
# The revision of its table is there from a router's first second, also while nothing is asked of it.
ROUTER_NAMES: Final = ROUTER_SAMPLES | {METRIC_TABLE_REVISION}


class Origin(NamedTuple):
    """Where series come from: a scrape target as one of the copies of a pair saw it."""

    job: str
    instance: str
    copy: tuple[str, ...]


@dataclass(slots=True)
class Found:
    """Series of one origin that belong to one replica, by sample name; newest: time of the newest sample."""

    series: dict[str, list[RangeSeries]] = field(default_factory=dict)
    newest: float = float("-inf")
    exact: bool = False

    def add(self, name: str, series: RangeSeries) -> None:
        """One more series."""
        self.series.setdefault(name, []).append(series)
        self.newest = max(self.newest, series.values[-1][0])


class Ups(NamedTuple):
    """What ``up`` says. states: by (job, instance), the newest value. labels: of each."""

    states: Mapping[tuple[str, str], bool]
    labels: Mapping[tuple[str, str], Mapping[str, str]]


def read_ups(series: Iterable[RangeSeries]) -> Ups:
    """The series of ``up``; the newest sample of all copies counts."""
    newest: dict[tuple[str, str], float] = {}
    states: dict[tuple[str, str], bool] = {}
    labels: dict[tuple[str, str], Mapping[str, str]] = {}
    for one in series:
        if not one.values:
            continue
        at, value = one.values[-1]
        key = (one.metric.get("job", ""), one.metric.get("instance", ""))
        if at > newest.get(key, float("-inf")):
            newest[key], states[key], labels[key] = at, value == "1", one.metric
    return Ups(states, labels)


def own_labels(metric: Mapping[str, str]) -> Mapping[str, str]:
    """Labels as the exporter wrote them, whatever scraping renamed."""
    renamed = {name.removeprefix(EXPORTED): value for name, value in metric.items() if name.startswith(EXPORTED)}
    return {**metric, **renamed} if renamed else metric


class Index:
    """The targets of one source, by what finds them in an answer."""

    def __init__(self, targets: Sequence[PageTarget]) -> None:
        self.targets = tuple(targets)
        self.fixed = frozenset(targets)
        self.frontends: dict[str, RouterTarget] = {}
        self._placed: dict[tuple[str, str], list[PageTarget]] = {}
        self._selected: dict[tuple[str, ...], dict[tuple[str, ...], list[EngineTarget]]] = {}
        self._names: dict[int, frozenset[str]] = {}
        for target in targets:
            if target.url:
                self._place(target)
            elif isinstance(target, RouterTarget):
                self.frontends[target.frontend] = target
            else:
                self._select(target)

    def names(self) -> set[str]:
        """Names of all engine samples that are wanted."""
        found: set[str] = set()
        for target in self.targets:
            if isinstance(target, EngineTarget):
                found |= self._names_of(target)
        return found

    def reads_routers(self) -> bool:
        """Whether routers are among the targets."""
        return any(isinstance(target, RouterTarget) for target in self.targets)

    def _names_of(self, target: EngineTarget) -> frozenset[str]:
        key = id(target.names)
        if key not in self._names:
            self._names[key] = frozenset(sample_names(target.names))
        return self._names[key]

    def _place(self, target: PageTarget) -> None:
        address = urlsplit(target.url)
        places = [("address", address.netloc)]
        if target.pod:
            # A pod has its address for itself, and may show its metrics on another port; a machine may hold several.
            places += [("host", _host(address.netloc)), ("pod", target.pod)]
        for place in places:
            self._placed.setdefault(place, []).append(target)

    def _select(self, target: EngineTarget) -> None:
        names = tuple(name for name, _ in target.selector)
        values = tuple(value for _, value in target.selector)
        self._selected.setdefault(names, {}).setdefault(values, []).append(target)

    def at_place(self, labels: Mapping[str, str]) -> list[tuple[PageTarget, bool]]:
        """Targets where these labels' scrape target is; and whether the address is theirs too (not the pod alone)."""
        instance = labels.get("instance", "")
        found: dict[PageTarget, bool] = {}
        for place, exact in (
            (("address", instance), True),
            (("host", _host(instance)), True),
            (("pod", _pod(labels)), False),
        ):
            for target in self._placed.get(place, ()):
                if not _other_pod(target, labels):
                    found[target] = found.get(target, False) or exact
        return list(found.items())

    def wanted(self, target: PageTarget, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a series of that name with those labels is one of the target's."""
        if isinstance(target, RouterTarget):
            return name in ROUTER_NAMES
        return name in self._names_of(target) and all(labels.get(key) == value for key, value in target.selector)

    def selected(self, name: str, labels: Mapping[str, str]) -> list[EngineTarget]:
        """Engines that have no addresses here whose selector finds the series, each as the replica it comes from."""
        return [
            replace(target, url=labels.get("instance", ""))
            for keys, by_values in self._selected.items()
            for target in by_values.get(tuple(labels.get(key, "") for key in keys), ())
            if name in self._names_of(target)
        ]

    def routers_of(self, series: Iterable[RangeSeries]) -> dict[tuple[str, str], RouterTarget]:
        """Routers that the source finds, by (job, instance): some of their series say the front-end, all are theirs."""
        found: dict[tuple[str, str], RouterTarget] = {}
        for one in series if self.frontends else ():
            if one.metric.get("__name__") in ROUTER_NAMES:
                target = self.frontends.get(own_labels(one.metric).get("frontend", ""))
                if target is not None:
                    key = (one.metric.get("job", ""), one.metric.get("instance", ""))
                    found[key] = replace(target, url=key[1])
        return found


def _host(instance: str) -> str:
    """The host of ``host:port``, brackets of IPv6 left out; of anything else, all of it."""
    if instance.startswith("["):
        return instance[1:].partition("]")[0].lower()
    return instance.partition(":")[0].lower() if instance.count(":") == 1 else instance.lower()


def _pod(labels: Mapping[str, str]) -> str:
    return f"{labels.get('namespace', '')}/{labels.get('pod', '')}"


def _other_pod(target: PageTarget, labels: Mapping[str, str]) -> bool:
    """Whether both name a pod, and not the same: an address that another pod has taken over."""
    return bool(target.pod and labels.get("pod")) and target.pod != _pod(labels)


def assign(
    index: Index, ups: Ups, series: Sequence[RangeSeries], replica_labels: Sequence[str]
) -> dict[PageTarget, dict[Origin, Found]]:
    """All series by the target and the origin that they are of."""
    found: dict[PageTarget, dict[Origin, Found]] = {}
    routers = index.routers_of(series)
    places: dict[tuple[str, str, str, str], list[tuple[PageTarget, bool]]] = {}
    for one in series:
        name = one.metric.get("__name__", "")
        if not one.values or not name:
            continue
        key = (one.metric.get("job", ""), one.metric.get("instance", ""))
        if ups.states.get(key) is False:
            continue
        place = (*key, one.metric.get("namespace", ""), one.metric.get("pod", ""))
        if place not in places:
            places[place] = index.at_place(one.metric)
        origin = Origin(*key, tuple(one.metric.pop(label, "") for label in replica_labels))
        claims = _claimants(index, places[place], name, one.metric)
        if key in routers and name in ROUTER_NAMES:
            claims.append((routers[key], True))
        for target, exact in claims:
            entry = found.setdefault(target, {}).setdefault(origin, Found(exact=exact))
            entry.add(name, one)
    return found


def _claimants(
    index: Index, placed: Sequence[tuple[PageTarget, bool]], name: str, labels: Mapping[str, str]
) -> list[tuple[PageTarget, bool]]:
    claims = [(target, exact) for target, exact in placed if index.wanted(target, name, labels)]
    return claims + [(target, True) for target in index.selected(name, labels)]


def choose(found: Mapping[Origin, Found], last: Origin | None, patience: float) -> Origin:
    """One of several origins of the same replica: the one taken last while it is no more than ``patience`` behind.

    Of the others: the current address before a former one, then the newest.
    """
    exact = {origin: one for origin, one in found.items() if one.exact} or found
    newest = max(one.newest for one in exact.values())
    if last is not None and last in exact and exact[last].newest >= newest - patience:
        return last
    return max(exact, key=lambda origin: (exact[origin].newest, origin))

"""Parsed YAML to the configuration, or every fault in it: file, field, value, what is right.

On no path of requests. One bad value hides no other; values that are right one by one and impossible together are
faults too (case CRD-04). Must not read files (see config_file).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, get_args, get_type_hints

import msgspec

from headrace_api.units import number, seconds
from headrace_operator.estimators.replica import Signal
from headrace_operator.loader.config import OperatorConfig
from headrace_operator.loader.config_base import ConfigStruct
from headrace_operator.loader.config_places import LOCAL, OWN_PAGES

_SECRET: Final = re.compile(r"\.auth\b|\.tenant\b|[Kk]ubeconfig")
_CREDENTIALS: Final = re.compile(r"//[^\s'\"]*@")
SIGNALS: Final = frozenset(name for part in get_args(Signal) for name in get_args(part))


def parse_config(data: object, file: str) -> OperatorConfig | tuple[str, ...]:
    """The configuration out of parsed YAML, or every fault in it, one line each: file, field, value, what is right."""
    faults = list(_faults(data, OperatorConfig, file, ""))
    if faults:
        return tuple(faults)
    config = msgspec.convert(data if data is not None else {}, OperatorConfig)
    faults = list(_crossed(config, file))
    return tuple(faults) if faults else config


def _faults(data: object, kind: type[ConfigStruct], file: str, at: str) -> list[str]:
    """Faults field by field: one bad value hides no other."""
    where = f"{file}: {at}" if at else f"{file}: the file"
    if data is None:
        return []
    if not isinstance(data, Mapping):
        return [f"{where}: {_shown(data, at)} is not a mapping; right would be fields such as {_example(kind)}"]
    hints = get_type_hints(kind, include_extras=True)
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    found = [
        f"{file}: {_path(at, str(name))}: unknown field; right would be one of {', '.join(sorted(fields))}"
        for name in data
        if name not in fields
    ]
    for name, field in fields.items():
        if name not in data:
            if field.required:
                found.append(f"{file}: {_path(at, name)}: missing; it is required")
            continue
        found.extend(_field_faults(data[name], hints[field.name], file, _path(at, name)))
    return found


def _field_faults(value: object, hint: Any, file: str, path: str) -> list[str]:
    if isinstance(hint, type) and issubclass(hint, ConfigStruct):
        return _faults(value, hint, file, path)
    item = _item_struct(hint)
    if item is not None and item in get_args(hint):
        # A part that may be left out.
        return _faults(value, item, file, path)
    if item is not None and isinstance(value, list):
        found = [fault for index, entry in enumerate(value) for fault in _faults(entry, item, file, f"{path}[{index}]")]
        if found:
            return found
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        return [f"{file}: {path}: {_shown(value, path)}: {str(error).replace('`', '')}"]
    return []


def _item_struct(hint: Any) -> type[ConfigStruct] | None:
    for part in get_args(hint):
        for inner in (part, *get_args(part)):
            if isinstance(inner, type) and issubclass(inner, ConfigStruct):
                return inner
    return None


def _crossed(config: OperatorConfig, file: str) -> Iterator[str]:
    """Values that are right one by one and impossible together (case CRD-04)."""
    for path, value, low, high, right in _times(config):
        if not low <= seconds(value) <= high:
            yield f"{file}: {path}: {value!r}: right would be {right}"
    if not 1024 <= number(config.scrape.max_page) <= 2**28:
        yield f"{file}: scrape.maxPage: {config.scrape.max_page!r}: right would be 1Ki to 256Mi"
    if config.penalty.exit_percent >= config.penalty.enter_percent:
        yield (
            f"{file}: penalty.exitPercent: {config.penalty.exit_percent}: right would be less than"
            f" enterPercent ({config.penalty.enter_percent})"
        )
    for index, names in enumerate(config.metric_names):
        if names.signal not in SIGNALS:
            right = ", ".join(sorted(SIGNALS))
            yield f"{file}: metricNames[{index}].signal: {names.signal!r}: right would be one of {right}"
    for fault in (*_sources(config), *_routers(config), *_clusters(config)):
        yield f"{file}: {fault}"


def _times(config: OperatorConfig) -> Iterator[tuple[str, str, float, float, str]]:
    """Path, value, least and most seconds, and the same in words."""
    yield "tick", config.tick, 0.1, 300, "100ms to 5m"
    yield "scrape.interval", config.scrape.interval, 0.1, 300, "100ms to 5m"
    yield "scrape.timeout", config.scrape.timeout, 0.001, 30, "above 0s and up to 30s"
    yield "penalty.window", config.penalty.window, 1, 3600, "1s to 1h"
    for index, source in enumerate(config.metric_sources):
        yield f"metricSources[{index}].interval", source.interval, 0.1, 300, "100ms to 5m"
        yield f"metricSources[{index}].timeout", source.timeout, 0.1, 60, "100ms to 1m"
    yield "leaderElection.leaseDuration", config.leader_election.lease_duration, 3, 300, "3s to 5m, in whole seconds"
    yield "leaderElection.renewDeadline", config.leader_election.renew_deadline, 1, 300, "1s to 5m"
    yield "leaderElection.retryPeriod", config.leader_election.retry_period, 0.1, 60, "100ms to 1m"


def _sources(config: OperatorConfig) -> Iterator[str]:
    names = [source.name for source in config.metric_sources]
    yield from _twice("metricSources", "name", names)
    for index, source in enumerate(config.metric_sources):
        path = f"metricSources[{index}]"
        if source.name == OWN_PAGES:
            yield f"{path}.name: {OWN_PAGES!r} means engines' own pages; right would be another name"
        if source.auth is not None and (source.auth.basic is None) == (source.auth.bearer_token_file is None):
            yield f"{path}.auth: right would be one of bearerTokenFile, basic"
        if not 2**16 <= number(source.max_answer) <= 2**30:
            yield f"{path}.maxAnswer: {source.max_answer!r}: right would be 64Ki to 1Gi"
    yield from _known("defaultSource", config.default_source, names)


def _known(path: str, name: str | None, names: Iterable[str]) -> Iterator[str]:
    right = [*names, OWN_PAGES]
    if name is not None and name not in right:
        yield f"{path}: {name!r}: no such metric source; right would be one of {', '.join(right)}"


def _routers(config: OperatorConfig) -> Iterator[str]:
    frontends = [entry.frontend for entry in config.routers]
    for name in _repeated(frontends):
        yield f"routers: front-end {name!r} stands twice; right would be one entry with all its urls"
    names = [source.name for source in config.metric_sources]
    for index, entry in enumerate(config.routers):
        path = f"routers[{index}]"
        yield from _known(f"{path}.source", entry.source, names)
        if entry.urls and entry.service is not None:
            yield f"{path}: urls and service; right would be one of them, it names all routers of {entry.frontend}"
        if not entry.urls and entry.service is None and not config.source_of(entry.source):
            yield f"{path}.urls: missing; right would be urls, service, or a metric source that finds the routers"


def _clusters(config: OperatorConfig) -> Iterator[str]:
    names = [cluster.name for cluster in config.clusters]
    yield from _twice("clusters", "name", names)
    if LOCAL in names:
        yield f"clusters[{names.index(LOCAL)}].name: {LOCAL!r} is the operator's own; right would be another name"
    for name in _repeated(config.watch_namespaces):
        yield f"watchNamespaces: {name!r} stands twice"
    lease = config.leader_election
    if not seconds(lease.retry_period) < seconds(lease.renew_deadline) < seconds(lease.lease_duration):
        yield (
            f"leaderElection: retryPeriod {lease.retry_period}, renewDeadline {lease.renew_deadline}, leaseDuration"
            f" {lease.lease_duration}; right would be each shorter than the next"
        )
    if seconds(lease.lease_duration) % 1:
        yield f"leaderElection.leaseDuration: {lease.lease_duration!r}: right would be whole seconds, as a Lease holds"


def _twice(where: str, field: str, names: Iterable[str]) -> Iterator[str]:
    for name in _repeated(names):
        yield f"{where}: {field} {name!r} stands twice; right would be one entry"


def _repeated(names: Iterable[str]) -> list[str]:
    found = list(names)
    return sorted({name for name in found if found.count(name) > 1})


def _path(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _example(kind: type[ConfigStruct]) -> str:
    return ", ".join(field.encode_name for field in msgspec.structs.fields(kind)[:3])


def _shown(value: object, path: str) -> str:
    """The value, cut; never what may be a secret that somebody wrote in place of a file's name."""
    if _SECRET.search(path):
        return "(not shown)"
    text = _CREDENTIALS.sub("//…@", repr(value))
    return text if len(text) <= 80 else text[:79] + "…"

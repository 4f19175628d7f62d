"""Reads what the operator wrote, as any outsider could: tables and status files in its state folder.

Polled, because the demo must see every publication but may not be part of the system it shows. A file that is gone or
half-readable is skipped and read again: files are renamed into place, so the next look succeeds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from headrace_api.table import TABLE_KEY, WEIGHT_TOTAL, ModelRoutes, RoutingTable
from headrace_lab.demo.fleet import NAMESPACE, POLICY

WEIGHTS_CHANGED = "WeightsChanged"  # the Event whose message is a line of history
_TIME = re.compile(r"^\d{4}-\d{2}-\d{2}T\S+ ")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Publication(NamedTuple):
    """One front-end's table: when (seconds of the run), what identity, what fraction goes to which engine.

    weights: bare engine name -> fraction, the mean over prompt classes. work: the share of the engine that one
    request per second takes, of those that these weights send there.
    """

    at: float
    frontend: str
    term: int
    revision: int
    weights: Mapping[str, float]
    work: Mapping[str, float]


class OperatorEvent(NamedTuple):
    """One Event as the operator wrote it, at an instant of the run."""

    at: float
    reason: str
    message: str


class Observer:
    """Everything published so far, in order; call ``poll`` often.

    Lines of history stand in Events at once and in status a little later; both are read, so that none is missed.
    history: line without its time -> when it was first seen.
    """

    def __init__(self, state: Path, frontends: Sequence[str], began: float) -> None:
        """``began``: the run's second 0 on the wall clock (seconds since the epoch)."""
        self._paths = {name: state / NAMESPACE / f"headrace-{POLICY}-{name}.yaml" for name in frontends}
        self._status_path = state / "status" / f"routingpolicy-{NAMESPACE}-{POLICY}.yaml"
        self._events_path = state / "events.yaml"
        self._seen: dict[Path, int] = {}
        self._told: dict[str, int] = {}
        self.began = began
        self.publications: list[Publication] = []
        self.latest: dict[str, Publication] = {}
        self.status: Mapping[str, Any] = {}
        self.history: dict[str, float] = {}
        self.events: list[OperatorEvent] = []

    def poll(self) -> list[Publication]:
        """Read what changed; returns the new publications."""
        fresh = []
        for frontend, path in self._paths.items():
            text = self._changed(path)
            table = None if text is None else table_of(text)
            if table is None:
                continue
            publication = publication_of(table, frontend, path.stat().st_mtime - self.began)
            fresh.append(publication)
            self.latest[frontend] = publication
        self.publications += fresh
        self._take_events()
        self._take_status()
        return fresh

    def _take_events(self) -> None:
        at = self._since(self._events_path)
        for item in _list_in(self._changed(self._events_path)):
            try:
                name, count, reason, message = (str(item["metadata"]["name"]), int(item["count"]), *_words(item))
                about = item["involvedObject"]["kind"]
            except (KeyError, TypeError, ValueError):
                continue
            if self._told.get(name, 0) >= count or about != "RoutingPolicy":
                continue
            self._told[name] = count
            if reason == WEIGHTS_CHANGED:
                self.history.setdefault(untimed(message), at)
            elif at >= 0:  # before, everything is still being started
                self.events.append(OperatorEvent(at, reason, message))

    def _since(self, path: Path) -> float:
        try:
            return path.stat().st_mtime - self.began
        except OSError:
            return 0.0

    def _take_status(self) -> None:
        text = self._changed(self._status_path)
        if text is None:
            return
        try:
            resource = yaml.load(text, Loader=_Loader)  # noqa: S506  a safe loader
            self.status = resource["status"]
        except (yaml.YAMLError, KeyError, TypeError):
            self._seen.pop(self._status_path, None)
            return
        for line in reversed(self.status.get("history", ())):
            self.history.setdefault(untimed(line), self._since(self._status_path))

    def _changed(self, path: Path) -> str | None:
        try:
            stamp = path.stat().st_mtime_ns
            if self._seen.get(path) == stamp:
                return None
            text = path.read_text(encoding="utf-8")
        except OSError:
            return None
        self._seen[path] = stamp
        return text


def untimed(line: str) -> str:
    """A line of history without its time, as it stands in Events."""
    return _TIME.sub("", line)


def _list_in(text: str | None) -> list[Any]:
    """The items of a List manifest; none when it is no such thing."""
    try:
        items = yaml.load(text or "", Loader=_Loader)["items"]  # noqa: S506  a safe loader
    except (yaml.YAMLError, KeyError, TypeError):
        return []
    return items if isinstance(items, list) else []


def _words(item: Mapping[str, Any]) -> tuple[str, str]:
    return str(item["reason"]), str(item["message"])


def table_of(manifest: str) -> RoutingTable | None:
    """The table in a ConfigMap manifest; None when it holds none."""
    try:
        data = yaml.load(manifest, Loader=_Loader)["data"][TABLE_KEY]  # noqa: S506  a safe loader
        return msgspec.json.decode(data, type=RoutingTable)
    except (yaml.YAMLError, KeyError, TypeError, msgspec.MsgspecError):
        return None


def publication_of(table: RoutingTable, frontend: str, at: float) -> Publication:
    """A table's weights by engine; the demo has one model."""
    identity = table.identity
    return Publication(at, frontend, identity.term, identity.revision, *_by_engine(table.models[0]))


def _by_engine(model: ModelRoutes) -> tuple[dict[str, float], dict[str, float]]:
    """Weights, and the work of a request that reaches the engine by them: of the classes as each is sent there."""
    found: dict[str, list[tuple[float, float]]] = {}
    for routes in model.classes:
        for route in routes.routes:
            found.setdefault(route.engine.rpartition("/")[2], []).append((route.weight, route.work_share))
    weights = {name: sum(weight for weight, _ in parts) for name, parts in found.items()}
    work = {
        name: sum(weight * share for weight, share in parts) / weights[name]
        if weights[name]
        else sum(share for _, share in parts) / len(parts)
        for name, parts in found.items()
    }
    return {name: weight / WEIGHT_TOTAL / len(model.classes) for name, weight in weights.items()}, work


def term_of(state: Path) -> int:
    """The operator's term as its state folder says; 0 when it can't be read."""
    try:
        return int(json.loads((state / "identity.json").read_text())["term"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0

"""The operator's configuration: tick, what to scrape and how, and the thresholds of liveness and penalties.

Written by who runs the operator (a file, or Helm values), never by tenants: addresses of metrics stand here and not in
resources, so that nobody can make the operator send something elsewhere. Must not read files (see config_file).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, get_args, get_type_hints

import msgspec
from msgspec import Meta

from headrace_api.base import LabelName
from headrace_api.engine import Url
from headrace_api.units import Duration, Quantity, number, seconds
from headrace_operator.estimators.penalty import PenaltyRules
from headrace_operator.estimators.replica import Signal

SIGNALS: Final = frozenset(name for part in get_args(Signal) for name in get_args(part))


class ConfigStruct(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """Base of the configuration: camelCase, unknown fields refused."""


class ScrapeConfig(ConfigStruct, frozen=True, kw_only=True):
    """How metrics pages are read: how often, how long one may take, how many at once, how large."""

    interval: Duration = "5s"
    timeout: Duration = "2s"
    concurrency: Annotated[int, Meta(ge=1, le=1024)] = 64
    max_page: Quantity = "4Mi"


class RoutersConfig(ConfigStruct, frozen=True, kw_only=True):
    """All routers of one front-end: whose metrics are its demand. urls: their admin addresses."""

    frontend: LabelName
    urls: Annotated[tuple[Url, ...], Meta(min_length=1, max_length=1024)]


class LivenessConfig(ConfigStruct, frozen=True, kw_only=True):
    """refused: connects refused in a row, nothing read between, after which a replica is dead."""

    refused: Annotated[int, Meta(ge=1, le=100)] = 3


class PenaltyConfig(ConfigStruct, frozen=True, kw_only=True):
    """Thresholds of penalties; percentages of the expected latency, of requests, of a model's capacity."""

    enter_percent: Annotated[int, Meta(ge=110, le=10_000)] = 200
    exit_percent: Annotated[int, Meta(ge=100, le=10_000)] = 130
    min_requests: Annotated[int, Meta(ge=1, le=100_000)] = 20
    after: Duration = "60s"
    window: Duration = "60s"
    recover_after: Duration = "60s"
    recover_step: Duration = "30s"
    expiry: Duration = "10m"
    max_percent: Annotated[int, Meta(ge=0, le=100)] = 50
    error_percent: Annotated[int, Meta(ge=1, le=100)] = 20

    def rules(self) -> PenaltyRules:
        """The thresholds as the estimator takes them."""
        return PenaltyRules(
            enter=self.enter_percent / 100,
            exit=self.exit_percent / 100,
            min_requests=self.min_requests,
            after=seconds(self.after),
            recover_after=seconds(self.recover_after),
            recover_step=seconds(self.recover_step),
            expiry=seconds(self.expiry),
            max_share=self.max_percent / 100,
            error_share=self.error_percent / 100,
        )


class TrimConfig(ConfigStruct, frozen=True, kw_only=True):
    """Whether engines are trimmed by measured token times against their profiles."""

    enabled: bool = True


class PromptClassesConfig(ConfigStruct, frozen=True, kw_only=True):
    """Whether requests are told apart by the length of their prompts, where engines differ by it.

    Off by default: with a class's demand still young, the demo's weights moved more and TTFT was no better
    (docs/adr/0009-prompt-classes-are-off.md).
    """

    enabled: bool = False


class MetricNames(ConfigStruct, frozen=True, kw_only=True):
    """Other names for one signal of one runtime, tried in this order before the built-in ones."""

    runtime: Annotated[str, Meta(min_length=1, max_length=64)]
    signal: Annotated[str, Meta(min_length=1, max_length=64)]
    names: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=256)], ...], Meta(min_length=1, max_length=8)]


class OperatorConfig(ConfigStruct, frozen=True, kw_only=True):
    """The whole configuration; every part has a default."""

    tick: Duration = "5s"
    scrape: ScrapeConfig = ScrapeConfig()
    routers: Annotated[tuple[RoutersConfig, ...], Meta(max_length=1024)] = ()
    liveness: LivenessConfig = LivenessConfig()
    penalty: PenaltyConfig = PenaltyConfig()
    trim: TrimConfig = TrimConfig()
    prompt_classes: PromptClassesConfig = PromptClassesConfig()
    metric_names: Annotated[tuple[MetricNames, ...], Meta(max_length=256)] = ()
    records: Annotated[int, Meta(ge=1, le=4096)] = 64


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
        return [f"{where}: {_shown(data)} is not a mapping; right would be fields such as {_example(kind)}"]
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
    if item is not None and isinstance(value, list):
        found = [fault for index, entry in enumerate(value) for fault in _faults(entry, item, file, f"{path}[{index}]")]
        if found:
            return found
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        return [f"{file}: {path}: {_shown(value)}: {str(error).replace('`', '')}"]
    return []


def _item_struct(hint: Any) -> type[ConfigStruct] | None:
    for part in get_args(hint):
        for inner in (part, *get_args(part)):
            if isinstance(inner, type) and issubclass(inner, ConfigStruct):
                return inner
    return None


def _crossed(config: OperatorConfig, file: str) -> list[str]:
    """Values that are right one by one and impossible together (case CRD-04)."""
    found: list[str] = []
    if not 0.1 <= seconds(config.tick) <= 300:
        found.append(f"{file}: tick: {config.tick!r}: right would be 100ms to 5m")
    if not 0.1 <= seconds(config.scrape.interval) <= 300:
        found.append(f"{file}: scrape.interval: {config.scrape.interval!r}: right would be 100ms to 5m")
    if not 0 < seconds(config.scrape.timeout) <= 30:
        found.append(f"{file}: scrape.timeout: {config.scrape.timeout!r}: right would be above 0s and up to 30s")
    if not 1024 <= number(config.scrape.max_page) <= 2**28:
        found.append(f"{file}: scrape.maxPage: {config.scrape.max_page!r}: right would be 1Ki to 256Mi")
    if config.penalty.exit_percent >= config.penalty.enter_percent:
        found.append(
            f"{file}: penalty.exitPercent: {config.penalty.exit_percent}: right would be less than"
            f" enterPercent ({config.penalty.enter_percent})"
        )
    if not 1 <= seconds(config.penalty.window) <= 3600:
        found.append(f"{file}: penalty.window: {config.penalty.window!r}: right would be 1s to 1h")
    frontends = [entry.frontend for entry in config.routers]
    found.extend(
        f"{file}: routers: front-end {name!r} stands twice; right would be one entry with all its urls"
        for name in sorted({name for name in frontends if frontends.count(name) > 1})
    )
    for index, names in enumerate(config.metric_names):
        if names.signal not in SIGNALS:
            right = ", ".join(sorted(SIGNALS))
            found.append(f"{file}: metricNames[{index}].signal: {names.signal!r}: right would be one of {right}")
    return found


def _path(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _example(kind: type[ConfigStruct]) -> str:
    return ", ".join(field.encode_name for field in msgspec.structs.fields(kind)[:3])


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"

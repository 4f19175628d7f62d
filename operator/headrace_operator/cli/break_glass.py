"""Break-glass: sets and removes the annotations that hold a policy's weights or drain an engine, for a day at most.

Not on any path: the operator reads the annotations like any edit. They are set by a merge patch under a field manager
of their own, so that a GitOps tool, which compares only what Git states, leaves them alone. Reads no clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from headrace_api.base import NAME_PATTERN
from headrace_api.commands import EnvironmentFailed, InputError
from headrace_api.names import ANNOTATION_DRAIN_UNTIL, ANNOTATION_FREEZE_UNTIL, ANNOTATION_WHY
from headrace_api.units import seconds
from headrace_operator.cli.cluster_access import CLI_MANAGER, failed
from headrace_operator.kube.client import KubeClient, KubeFault
from headrace_operator.snapshot.build_engines import BREAK_GLASS_SECONDS
from headrace_operator.snapshot.clock import epoch_seconds, rfc3339

API: Final = "/apis/headrace.dev/v1alpha1/namespaces"
MAX_WHY: Final = 120  # characters: it stands in one line of history, beside the weights
CLOCKS_APART: Final = 60.0  # seconds: what is set for a whole day must not be too much for the operator's clock
TRIES: Final = 4
SEEN_NAMES: Final = 8


class Target(NamedTuple):
    """What can be held: its kind, its names on the command line, its annotation, what it is while that holds."""

    kind: Literal["RoutingPolicy", "InferenceEngine"]
    plural: str
    names: tuple[str, ...]
    annotation: str
    state: str

    @property
    def resource(self) -> str:
        """The resource's full name, as in a Role."""
        return f"{self.plural}.headrace.dev"


POLICY: Final = Target(
    "RoutingPolicy",
    "routingpolicies",
    ("rpol", "policy", "routingpolicy", "routingpolicies", "routingpolicies.headrace.dev"),
    ANNOTATION_FREEZE_UNTIL,
    "frozen",
)
ENGINE: Final = Target(
    "InferenceEngine",
    "inferenceengines",
    ("ieng", "engine", "inferenceengine", "inferenceengines", "inferenceengines.headrace.dev"),
    ANNOTATION_DRAIN_UNTIL,
    "drained",
)
TARGETS: Final = (POLICY, ENGINE)


class Glass(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One resource's break-glass annotations as they stand."""

    kind: str
    namespace: str
    name: str
    until: Annotated[str, Meta(description="RFC 3339, as the annotation says it.")]
    why: str
    state: Annotated[
        Literal["InForce", "Expired", "Ignored"],
        Meta(description="Ignored: no time, or more than 24 h ahead; the operator says so and does nothing."),
    ]


class BreakGlassReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a command did, and what stands in the namespace after it."""

    action: Literal["freeze", "drain", "resume"]
    changed: bool
    targets: Annotated[tuple[Glass, ...], Meta(description="The resource after the command; empty once resumed.")]
    previous: Annotated[tuple[Glass, ...], Meta(description="What stood on it before.")]
    standing: tuple[Glass, ...]
    notes: tuple[str, ...]


def read_until(text: str, now: float) -> str:
    """``--until`` as RFC 3339 in UTC: a time of that form, or a duration from ``now`` (epoch seconds).

    Raises:
        ValueError: it is neither, past, or more than 24 h ahead.
    """
    at = epoch_seconds(text)
    if at is None:
        try:
            at = now + seconds(text)
        except ValueError:
            right = "right would be a duration such as 2h or 1h30m, or 2026-01-31T12:00:00Z"
            raise ValueError(f"--until: {text!r} is no time; {right}") from None
    if at <= now:
        raise ValueError(f"--until: {text} is over; right would be a time ahead, at most 24h")
    if at > now + BREAK_GLASS_SECONDS + 1:
        raise ValueError(f"--until: {text} is more than 24h ahead; right would be at most 24h, and again tomorrow")
    return rfc3339(min(at, now + BREAK_GLASS_SECONDS - CLOCKS_APART))


def read_why(text: str) -> str:
    """``--why`` as one line.

    Raises:
        ValueError: it is empty, too long, or holds what can't be printed.
    """
    line = " ".join(text.split())
    if not line or len(line) > MAX_WHY or not line.isprintable():
        raise ValueError(
            f"--why: {len(line)} characters; right would be a reason for those who come after you, 1 to {MAX_WHY}"
            " characters that can be printed"
        )
    return line


def read_name(text: str, allowed: tuple[Target, ...]) -> tuple[tuple[Target, ...], str]:
    """The targets that a NAME or KIND/NAME can mean, and the bare name.

    Raises:
        ValueError: no such kind, or no name of a resource.
    """
    prefix, slash, name = text.rpartition("/")
    meant = tuple(target for target in allowed if not slash or prefix.lower() in target.names)
    short = " or ".join(f"{target.names[0]}/NAME" for target in allowed)
    if not meant:
        raise ValueError(f"{text}: {prefix!r} can't be used here; right would be NAME or {short}")
    if not re.fullmatch(NAME_PATTERN, name):
        raise ValueError(f"{text}: {name!r} is no resource's name; right would be NAME or {short}")
    return meant, name


def hold(
    client: KubeClient, action: Literal["freeze", "drain"], namespace: str, name: str, until: str, why: str, now: float
) -> BreakGlassReport:
    """Freeze a policy or drain an engine.

    Raises:
        InputError: there is no such resource.
        EnvironmentFailed: the API server can't be asked, or refuses.
    """
    target = POLICY if action == "freeze" else ENGINE
    doing = f"{action} {namespace}/{name}"
    before = _get(client, target, namespace, name, doing)
    if before is None:
        raise InputError([_absent(client, (target,), namespace, name)])
    wanted = {target.annotation: until, ANNOTATION_WHY: why}
    after = _annotated(client, target, namespace, name, before, lambda _: wanted, doing)
    standing, notes = _standing(client, namespace, now)
    return BreakGlassReport(
        action=action,
        changed=True,
        targets=tuple(filter(None, [_glass(target, after, now)])),
        previous=tuple(filter(None, [_glass(target, before, now)])),
        standing=standing,
        notes=(*_without_effect(target, after), *notes),
    )


def resume(client: KubeClient, targets: tuple[Target, ...], namespace: str, name: str, now: float) -> BreakGlassReport:
    """End a freeze or a drain; of a policy and an engine of the same name the one that is held, or both.

    Raises:
        InputError: there is no such resource.
        EnvironmentFailed: the API server can't be asked, or refuses.
    """
    doing = f"resume {namespace}/{name}"
    found = [(target, _get(client, target, namespace, name, doing)) for target in targets]
    there = [(target, raw) for target, raw in found if raw is not None]
    if not there:
        raise InputError([_absent(client, targets, namespace, name)])
    previous: list[Glass] = []
    owned: list[str] = []
    for target, raw in there:
        glass = _glass(target, raw, now)
        if glass is None:
            continue
        previous.append(glass)
        owned += _kept_elsewhere(target, raw)
        _annotated(client, target, namespace, name, raw, _removal(target), doing)
    standing, notes = _standing(client, namespace, now)
    return BreakGlassReport(
        action="resume",
        changed=bool(previous),
        targets=(),
        previous=tuple(previous),
        standing=standing,
        notes=(*owned, *notes),
    )


def _removal(target: Target) -> Callable[[Mapping[str, Any]], Mapping[str, str | None]]:
    """Takes the annotation away, and the reason with it, unless the other annotation still needs that."""
    other = next(each.annotation for each in TARGETS if each is not target)

    def patch(annotations: Mapping[str, Any]) -> Mapping[str, str | None]:
        return {target.annotation: None} | ({} if other in annotations else {ANNOTATION_WHY: None})

    return patch


def _path(target: Target, namespace: str, name: str = "") -> str:
    return f"{API}/{namespace}/{target.plural}" + (f"/{name}" if name else "")


def _get(client: KubeClient, target: Target, namespace: str, name: str, doing: str) -> dict[str, Any] | None:
    """The resource; None where it is absent."""
    try:
        return client.get(_path(target, namespace, name))
    except KubeFault as fault:
        if fault.missing and fault.reason == "NotFound":
            return None
        raise failed(fault, doing, "get", target.resource, namespace) from None


def _annotated(
    client: KubeClient,
    target: Target,
    namespace: str,
    name: str,
    raw: dict[str, Any],
    patch: Callable[[Mapping[str, Any]], Mapping[str, str | None]],
    doing: str,
) -> dict[str, Any]:
    """The resource with its annotations patched: just the one that was read, read again while others change it."""
    for rest in reversed(range(TRIES)):
        metadata = _metadata(raw)
        body = {
            "metadata": {
                "annotations": patch(_annotations(raw)),
                "resourceVersion": metadata.get("resourceVersion"),
            }
        }
        try:
            return client.merge(_path(target, namespace, name), body, manager=CLI_MANAGER)
        except KubeFault as fault:
            if not fault.conflict or not rest:
                raise failed(fault, doing, "patch", target.resource, namespace) from None
        again = _get(client, target, namespace, name, doing)
        if again is None:
            raise EnvironmentFailed(f"cannot {doing}: it was deleted just now")
        raw = again
    raise AssertionError("the last try returns or raises")


def _metadata(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    found = raw.get("metadata")
    return found if isinstance(found, dict) else {}


def _annotations(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    found = _metadata(raw).get("annotations")
    return found if isinstance(found, dict) else {}


def _glass(target: Target, raw: Mapping[str, Any], now: float) -> Glass | None:
    """The annotations as they stand; None without one."""
    metadata, annotations = _metadata(raw), _annotations(raw)
    text = annotations.get(target.annotation)
    if text is None:
        return None
    until = epoch_seconds(str(text))
    ignored = until is None or until > now + BREAK_GLASS_SECONDS
    return Glass(
        kind=target.kind,
        namespace=str(metadata.get("namespace", "")),
        name=str(metadata.get("name", "")),
        until=str(text),
        why=str(annotations.get(ANNOTATION_WHY, "")),
        state="Ignored" if until is None or ignored else "Expired" if until <= now else "InForce",
    )


def _standing(client: KubeClient, namespace: str, now: float) -> tuple[tuple[Glass, ...], tuple[str, ...]]:
    """Break-glass of the whole namespace; who may not list it is told so, for the rest is done already."""
    found: list[Glass] = []
    notes: list[str] = []
    for target in TARGETS:
        try:
            items = client.list(_path(target, namespace), metadata_only=True).get("items") or []
        except KubeFault as fault:
            notes.append(f"what else stands is not known: {fault.message}")
            continue
        found += filter(None, (_glass(target, item, now) for item in items))
    return tuple(sorted(found, key=lambda glass: (glass.kind, glass.name))), tuple(dict.fromkeys(notes))


def _absent(client: KubeClient, targets: tuple[Target, ...], namespace: str, name: str) -> str:
    """What there is instead."""
    there: list[str] = []
    for target in targets:
        try:
            items = client.list(_path(target, namespace), metadata_only=True).get("items") or []
        except KubeFault:
            continue
        there += [str(_metadata(item).get("name")) for item in items]
    kinds = " or ".join(target.kind for target in targets)
    if not there:
        return f"there is no {kinds} {namespace}/{name}, nor any other in that namespace; right would be -n NAMESPACE"
    names = sorted(set(there))
    more = f" and {len(names) - SEEN_NAMES} more" if len(names) > SEEN_NAMES else ""
    return f"there is no {kinds} {namespace}/{name}; there are {', '.join(names[:SEEN_NAMES])}{more}"


def _without_effect(target: Target, raw: Mapping[str, Any]) -> list[str]:
    """Why the annotation changes nothing, where its spec says the same or more."""
    spec = raw.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    if target is ENGINE and spec.get("state", "Active") != "Active":
        return [f"its spec.state is {spec['state']}: it takes no new requests in any case"]
    if target is POLICY and spec.get("mode") == "Shadow":
        return ["its spec.mode is Shadow: it publishes nothing in any case"]
    return []


def _kept_elsewhere(target: Target, raw: Mapping[str, Any]) -> list[str]:
    """Other field managers that own the annotation: where one of them is a GitOps tool, it comes back."""
    managed = _metadata(raw).get("managedFields")
    owners = []
    for entry in managed if isinstance(managed, list) else ():
        fields = entry.get("fieldsV1") if isinstance(entry, dict) else None
        metadata = fields.get("f:metadata") if isinstance(fields, dict) else None
        names = metadata.get("f:annotations") if isinstance(metadata, dict) else None
        if isinstance(names, dict) and f"f:{target.annotation}" in names:
            owners.append(str(entry.get("manager")))
    return [
        f"{owner} had set it too: where it comes from a file or from Git, take it out there, or it comes back"
        for owner in sorted(set(owners))
        if owner != CLI_MANAGER
    ]

"""Who last edited a resource: read from the bookkeeping that the API server does for every writer (managedFields).

On the routing-weight path; pure: it works on the metadata of an object as the API server returned it. What counts is
an edit of what decisions are made from, spec and labels; status and annotations are not. It names the writer's field
manager in people's words and, where a GitOps tool left one, the Git revision. Whatever is there, it never raises: who
edited is told where it is known, and never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec

from headrace_api.base import MAX_EDITOR
from headrace_api.names import ANNOTATION_GIT_REVISION
from headrace_api.status import clip

MAX_NAME: Final = 40
MAX_REVISION: Final = 40
# A whole commit, by SHA-1 or SHA-256; Flux writes main@sha1:COMMIT. Seven digits are what Git and Argo CD show.
COMMIT: Final = re.compile(r"\b(?:sha1:|sha256:)?([0-9a-f]{7})[0-9a-f]{33}(?:[0-9a-f]{24})?\b")
# Field managers that people know under another name. kubectl's subcommands are kubectl-SUBCOMMAND.
MANAGERS: Final = {
    "kubectl": "kubectl apply",
    "kubectl-client-side-apply": "kubectl apply",
    "kubectl-last-applied": "kubectl apply",
    "argocd-controller": "Argo CD",
    "argocd-application-controller": "Argo CD",
    "kustomize-controller": "Flux",
    "helm-controller": "Flux",
    "flux": "Flux",
    "helm": "Helm",
}
KUBECTL: Final = "kubectl-"
FROM_GIT: Final = frozenset({"Argo CD", "Flux"})
_REVISION: Final = f"f:{ANNOTATION_GIT_REVISION}"
# Made by the API server for fields that were there before it kept books.
NOBODY: Final = "before-first-apply"


def cut_entry(managed: Mapping[str, Any]) -> dict[str, Any]:
    """A writer's entry of managedFields without the lists of its fields, for those who keep many: it reads the same."""
    fields = managed.get("fieldsV1")
    spec = fields.get("f:spec") if isinstance(fields, dict) else None
    kept: dict[str, Any] = {"f:spec": {str(crc32(msgspec.json.encode(spec))): {}}} if spec else {}
    if _owns_revision(fields):
        kept["f:metadata"] = {"f:annotations": {_REVISION: {}}}
    return {**{name: managed.get(name) for name in ("manager", "operation", "time")}, "fieldsV1": kept}


class _Entry(NamedTuple):
    """One writer's line of the books: when it last wrote, which fields are its own."""

    manager: str
    time: str
    fields: Any


def editor_of(now: Mapping[str, Any], before: Mapping[str, Any] | None = None, known: str = "") -> str:
    """The editor of the spec that stands, such as ``kubectl edit`` or ``Argo CD at 3f2a91c``; "" when unknown.

    now: an object's metadata with its managedFields. before: that of the object as seen last, and ``known`` what was
    said of it then; with them the answer is exact, since a writer's time moves with its annotations too. Without:
    whoever of those that own a part of the spec wrote last.
    """
    entries = _entries(now)
    if before is not None and _same_edit(now, before):
        return known
    if before is None or before.get("uid") != now.get("uid"):
        owners = [entry for entry in entries.values() if _of_spec(entry)]
        return _words(max(owners, key=lambda entry: entry.time), now) if owners else ""
    old = _entries(before)
    wrote = [entry for key, entry in entries.items() if key not in old or old[key].time != entry.time]
    if not wrote and entries == old:
        # The same writer within the same second: its time has no finer unit.
        wrote = list(entries.values())
    wrote = [entry for entry in wrote if _of_spec(entry)] or wrote
    return _words(max(wrote, key=lambda entry: entry.time), now) if wrote else ""


def _same_edit(now: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    return all(now.get(key) == before.get(key) for key in ("uid", "generation", "labels"))


def _entries(metadata: Mapping[str, Any]) -> dict[tuple[str, str], _Entry]:
    """Writers of the object itself (not of its status), by manager and operation."""
    found: dict[tuple[str, str], _Entry] = {}
    managed = metadata.get("managedFields")
    for entry in managed if isinstance(managed, list) else ():
        if not isinstance(entry, dict) or entry.get("subresource"):
            continue
        manager, time = entry.get("manager"), entry.get("time")
        if isinstance(manager, str) and isinstance(time, str) and manager != NOBODY:
            found[manager, str(entry.get("operation"))] = _Entry(manager, time, entry.get("fieldsV1"))
    return found


def _owns_revision(fields: Any) -> bool:
    metadata = fields.get("f:metadata") if isinstance(fields, dict) else None
    annotations = metadata.get("f:annotations") if isinstance(metadata, dict) else None
    return isinstance(annotations, dict) and _REVISION in annotations


def _of_spec(entry: _Entry) -> bool:
    return isinstance(entry.fields, dict) and bool(entry.fields.get("f:spec"))


def _words(entry: _Entry, metadata: Mapping[str, Any]) -> str:
    """The editor as a sentence has it: at most MAX_EDITOR characters, on one line."""
    manager = _printable(entry.manager)
    spoken = manager.replace(KUBECTL, "kubectl ", 1) if manager.startswith(KUBECTL) else manager
    name = clip(MANAGERS.get(manager, spoken), MAX_NAME)
    # One that another writer left says nothing of this one's edit.
    revision = _revision(metadata) if name in FROM_GIT and _owns_revision(entry.fields) else ""
    return clip(f"{name} at {revision}" if revision else name, MAX_EDITOR)


def _revision(metadata: Mapping[str, Any]) -> str:
    """The Git revision that the annotation states, commits in it cut to the length that people use."""
    annotations = metadata.get("annotations")
    text = annotations.get(ANNOTATION_GIT_REVISION) if isinstance(annotations, dict) else None
    if not isinstance(text, str):
        return ""
    return clip(COMMIT.sub(lambda match: match[1], _printable(text.strip())), MAX_REVISION)


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)

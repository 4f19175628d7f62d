"""Which paths pass: a closed list, checked on the very string that is forwarded.

On the request path. The raw target is compared as it came, never decoded or normalised, so that guard and forwarder
cannot see different paths (SEC-01); an absolute-form target loses its authority, which is never dialled. Must not
invent a path: what is not listed is refused here and reaches no engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final
from urllib.parse import unquote


class Kind(Enum):
    """What a path means to the router."""

    CHAT = "chat"
    COMPLETION = "completion"
    EMBEDDING = "embedding"
    RESPONSES = "responses"
    MESSAGES = "messages"
    MODELS = "models"
    MODEL = "model"
    POLICY = "policy"


BUILT_IN: Final = {
    "/v1/chat/completions": Kind.CHAT,
    "/v1/completions": Kind.COMPLETION,
    "/v1/embeddings": Kind.EMBEDDING,
    "/v1/responses": Kind.RESPONSES,
    "/v1/messages": Kind.MESSAGES,
}
_MODELS: Final = "/v1/models"
_ABSOLUTE: Final = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
# RFC 3986's characters of a path and query and those that browsers and RFC 9112's lenient parsers leave bare.
_SENDABLE: Final = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class Route:
    """A request that may pass. ``target`` is path and query exactly as they are forwarded."""

    kind: Kind
    path: str
    target: str
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a target does not pass."""

    status: int
    code: str
    message: str
    allow: str | None = None


def resolve(method: str, raw_target: str, policy_paths: Iterable[str] = ()) -> Route | Refused:
    """The route of a raw request target, or why there is none."""
    target = raw_target
    if absolute := _ABSOLUTE.match(raw_target):
        target = raw_target[absolute.end() :]
        target = target if target.startswith("/") else "/" + target
    if not _SENDABLE.fullmatch(target) or "#" in target or not target.startswith("/"):
        return Refused(400, "bad_request", "the request target has characters that must be percent-encoded")
    path, _, _ = target.partition("?")
    if kind := BUILT_IN.get(path):
        return Route(kind, path, target) if method == "POST" else _not_allowed(method, path, "POST")
    if path == _MODELS or (path.startswith(_MODELS + "/") and len(path) > len(_MODELS) + 1):
        if method not in ("GET", "HEAD"):
            return _not_allowed(method, path, "GET, HEAD")
        if path == _MODELS:
            return Route(Kind.MODELS, path, target)
        return Route(Kind.MODEL, path, target, unquote(path[len(_MODELS) + 1 :]))
    if path in policy_paths:
        return (
            Route(Kind.POLICY, path, target) if method in ("POST", "GET") else _not_allowed(method, path, "GET, POST")
        )
    return Refused(404, "unknown_path", f"the router passes no such path: {path[:128]}")


def shown(target: str) -> str:
    """The path alone, as logs and traces may show it: a query may hold a key, an authority a password."""
    absolute = _ABSOLUTE.match(target)
    return (target[absolute.end() :] if absolute else target).partition("?")[0] or "/"


def _not_allowed(method: str, path: str, allow: str) -> Refused:
    return Refused(405, "method_not_allowed", f"{path} takes {allow}, not {method[:32]}", allow)

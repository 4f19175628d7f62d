"""A request's affinity key: what says that it belongs with others whose prefix an engine has cached.

On the request path. The policy's rules are asked in their order, the first that yields something wins; an empty
header or field is a missing one. Without any, the request has no key and is spread by weight, never sent to
"the engine of the empty key".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

import msgspec

from headrace_api.table import TableAffinity
from headrace_router.core.body import field
from headrace_router.core.json_shapes import BodyFacts, Turn
from headrace_router.core.json_text import elements

# Of each part of the opening this many bytes from both ends are hashed, and its length: enough to tell
# conversations apart, bounded whatever is sent.
_END_BYTES: Final = 4_096
# Of a plain prompt, whose turns can't be told apart, the first bytes: about two blocks of 512 tokens, which all
# turns of one conversation share. Whole prompts would give every turn a key of its own.
_PROMPT_BYTES: Final = 4_096
# Of the turns up to the first user's this many parts are read; a longer opening is known by its beginning.
_OPENING_STEPS: Final = 4_096
# Longer keys are known by their digest: a key is kept as long as its request and hashed at each of its picks.
_LONGEST_KEY: Final = 256


class AffinityRules:
    """A table's rules, prepared: (kind, name, name as bytes) in order, names of headers in lower case.

    fields, headers: the names that they read.
    """

    __slots__ = ("fields", "headers", "rules")

    def __init__(self, affinity: TableAffinity) -> None:
        rules: list[tuple[str, str]] = []
        for rule in affinity.keys:
            if rule.header is not None:
                rules.append(("header", rule.header.lower()))
            elif rule.field is not None:
                rules.append(("field", rule.field))
            else:
                rules.append(("prefix", ""))
        self.rules = tuple((kind, name, _encoded(name)) for kind, name in rules)
        self.fields = frozenset(name for kind, name in rules if kind == "field")
        self.headers = frozenset(_encoded(name) for kind, name in rules if kind == "header")


_TURN: Final = msgspec.json.Decoder(Turn)
_TEXT: Final = msgspec.json.Decoder(str | None)


def lower_names(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers as a mapping with lower-case names; of a repeated one the first that is not empty counts."""
    found: dict[str, str] = {}
    for name, value in pairs:
        lowered = name.lower()
        if not found.get(lowered):
            found[lowered] = value
    return found


def affinity_key(rules: AffinityRules, headers: Mapping[str, str], body: BodyFacts | None) -> bytes | None:
    """The key, or None without any.

    Args:
        rules: the policy's.
        headers: by their names in lower case (``lower_names``).
        body: what was read of the body; None where there is none yet.
    """
    return key_of(rules, {_encoded(name): _encoded(value) for name, value in headers.items()}, body)


def key_of(rules: AffinityRules, headers: dict[bytes, bytes], body: BodyFacts | None) -> bytes | None:
    """The same of header lines as they came: names in lower case, values of repeated ones as ``lower_names`` has it."""
    for kind, name, header in rules.rules:
        if kind == "header":
            key = headers.get(header, b"")
            # Space around a value may be more than ASCII's.
            key = key.strip() if key.isascii() else _encoded(key.decode("utf-8", "surrogateescape").strip())
        elif body is None:
            continue
        elif kind == "field":
            key = _field_key(field(body, name))
        else:
            key = _opening_key(body)
        if key:
            return key if len(key) <= _LONGEST_KEY else blake2b(key, digest_size=32).digest()
    return None


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _field_key(value: object) -> bytes:
    """A scalar's text; an object's or list's own bytes (a session may be named by a structure)."""
    raw = bytes(value) if isinstance(value, msgspec.Raw) else _encoded(str(value or ""))
    if raw[:1] not in (b'"', b"n"):
        return b"" if raw in (b"{}", b"[]") else raw
    return (_TEXT.decode(raw) or "").strip().encode()


def _opening_key(body: BodyFacts) -> bytes:
    """A digest of system prompt and first user turn; of a plain prompt's beginning; b"" if neither is there."""
    turns = bytes(body.messages) or bytes(body.input)
    if turns[:1] == b"[":
        return _conversation_key(turns, bytes(body.system) + bytes(body.instructions))
    prompt = turns or bytes(body.prompt)
    if prompt in (b"", b"null", b'""', b"[]"):
        return b""
    digest = blake2b(prompt[:_PROMPT_BYTES], digest_size=16)
    _absorb(digest, bytes(body.instructions))
    return digest.digest()


def _conversation_key(turns: bytes, system: bytes) -> bytes:
    digest = blake2b(digest_size=16)
    _absorb(digest, system)
    for turn in elements(turns, _OPENING_STEPS):
        if turn is None:
            _absorb(digest, turns[:_PROMPT_BYTES])
            return digest.digest()
        try:
            message = _TURN.decode(turn)
        except (msgspec.DecodeError, RecursionError):
            return b""  # not turns of a conversation; the engine is the one to say so
        _absorb(digest, _encoded(message.role))
        _absorb(digest, bytes(message.content))
        if message.role == "user":
            return digest.digest()
    return b""


def _absorb(digest: blake2b, part: bytes) -> None:
    digest.update(b"%d;" % len(part))
    digest.update(part if len(part) <= 2 * _END_BYTES else part[:_END_BYTES] + part[-_END_BYTES:])

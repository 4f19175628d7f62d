"""Clients' API keys: who may use this router. Known by their hashes alone, read again as they change.

On the request path. A key comes as ``Authorization: Bearer KEY`` or ``x-api-key: KEY``; none of them is ever passed on,
kept, logged or compared byte by byte: its hash is looked up, by a number that differs from process to process, and
compared in constant time. Without keys (missing or broken from the start) everything is refused: open is never an
accident.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Final

from headrace_router.http1.lines import CREDENTIAL
from headrace_router.http1.request_head import RequestHead
from headrace_router.mounted import Reread, Unusable, entries, read_file
from headrace_router.proxy.refusals import Refusal

MAX_FILE: Final = 4 * 2**20
MAX_KEYS: Final = 20_000
# Bytes of a key that a client may show; hashing more would be work for nothing.
MAX_KEY: Final = 1024
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._@-]{0,62}[A-Za-z0-9])?")
_HASH: Final = re.compile(r"sha256:([0-9a-fA-F]{64})")
_RIGHT: Final = "right would be NAME sha256:HEX, the hash of a key in 64 hexadecimal digits"

_NONE_GIVEN: Final = Refusal(
    401,
    "invalid_api_key",
    "an API key is needed; right would be Authorization: Bearer KEY, or x-api-key: KEY",
    final=True,
    authenticate="Bearer",
)
_UNKNOWN: Final = Refusal(
    401, "invalid_api_key", "this API key is not known here", final=True, authenticate='Bearer error="invalid_token"'
)
_AMBIGUOUS: Final = Refusal(
    401, "invalid_api_key", "a request has one API key; this one shows several", final=True, authenticate="Bearer"
)
_NO_KEYS: Final = Refusal(503, "no_keys", "this router has read no API keys yet", retry_after=5.0)


class ClientKeys(Reread[dict[str, bytes]]):
    """The keys of a file, or of the files of a mounted Secret. ``check`` runs in a thread, one at a time."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._names: dict[bytes, tuple[bytes, str]] = {}

    def __len__(self) -> int:
        return len(self._names)

    def who(self, head: RequestHead) -> str | Refusal:
        """The name of the request's key, or why the request is refused."""
        names = self._names
        if not names:
            return _NO_KEYS
        shown: bytes | None = None
        for line in head.marked:
            if not line.rule & CREDENTIAL:
                continue
            if line.name == b"authorization":
                key = _bearer(line.value)
            elif line.name == b"x-api-key":
                key = line.value
            else:
                continue
            # Some clients show the same key in both.
            if shown is not None and not compare_digest(shown, key):
                return _AMBIGUOUS
            shown = key
        if shown is None:
            return _NONE_GIVEN
        if len(shown) > MAX_KEY:
            return _UNKNOWN
        digest = sha256(shown).digest()
        found = names.get(digest)
        if found is None or not compare_digest(found[0], digest):
            return _UNKNOWN
        return found[1]

    def _take(self, raw: dict[str, bytes]) -> bool:
        names = self._parse(raw)
        if names == self._names:
            return False
        self._names = names
        return True

    def _read(self) -> dict[str, bytes]:
        """Contents by file name."""
        files = list(entries(self.path)) if self.path.is_dir() else [self.path]
        found = {}
        for file in files:
            content = read_file(file, MAX_FILE)
            if content is None:
                raise Unusable(f"{file} does not exist; right would be a file of API keys")
            found[file.name] = content
        return found

    def _parse(self, raw: dict[str, bytes]) -> dict[bytes, tuple[bytes, str]]:
        names: dict[bytes, tuple[bytes, str]] = {}
        for file, content in raw.items():
            where = self.path if len(raw) == 1 and not self.path.is_dir() else self.path / file
            for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
                words = line.split("#", 1)[0].split()
                if not words:
                    continue
                name, digest = _entry(words, file, f"{where}, line {number}")
                names[digest] = (digest, name)
        if not names:
            raise Unusable(f"{self.path} holds no API key; {_RIGHT}")
        if len(names) > MAX_KEYS:
            raise Unusable(f"{self.path} holds more than {MAX_KEYS} API keys")
        return names


def _entry(words: Sequence[str], file: str, where: str) -> tuple[str, bytes]:
    """Name and hash of a line; alone in a mounted Secret's file, a hash has the file's name."""
    name, stated = (file, words[0]) if len(words) == 1 else (words[0], words[1])
    found = _HASH.fullmatch(stated)
    # What stands there may be a key in the clear: it is not shown.
    if found is None or len(words) > 2:
        raise Unusable(f"{where}: {_RIGHT}")
    if not _NAME.fullmatch(name):
        raise Unusable(f"{where}: no name; right would be at most 64 letters, digits and ._@-")
    return name, bytes.fromhex(found[1])


def _bearer(value: bytes) -> bytes:
    """The key in an Authorization header; empty, which is no key, where it has another form."""
    scheme, _, key = value.partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" else b""

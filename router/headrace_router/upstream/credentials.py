"""What engines' references to Secrets and ConfigMaps mean to this router: keys to show, authorities to trust.

Beside the request path: files below one folder are read in a thread now and then; a request meets a dictionary. The
folder is DIR/NAMESPACE/secrets/NAME/KEY and DIR/NAMESPACE/configmaps/NAME/KEY, the namespace being the engine's own:
who may write engines in one namespace can't have another's key sent to an address of his. What is missing is refused
with a clear word, never replaced by the client's key or the system's authorities. Must never tell a key.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from headrace_api.table import TableEngine
from headrace_router.mounted import Unusable, entries, read_file, settled
from headrace_router.upstream.port import NotSent
from headrace_router.upstream.trust import system_trust, trust_in

MAX_KEY: Final = 16 * 1024
MAX_CA: Final = 2**20
SECRETS: Final = "secrets"
CONFIGMAPS: Final = "configmaps"
# What may stand in a header without splitting it or being read as two things.
_KEY: Final = re.compile(rb"[\x21-\x7e]+")


class Reference(NamedTuple):
    """A file below the folder. kind: SECRETS or CONFIGMAPS."""

    namespace: str
    kind: str
    name: str
    key: str

    def __str__(self) -> str:
        return "/".join(self)


class Checked(NamedTuple):
    """What a look at the files found: references with another meaning than before, and what was refused now."""

    changed: frozenset[Reference]
    refused: tuple[str, ...]


def ca_of(engine: TableEngine) -> Reference | None:
    """The authority that an engine names; None: the system's. It goes into the engine's Address."""
    tls = engine.tls
    if tls is None or tls.ca_config_map is None:
        return None
    return Reference(_namespace(engine), CONFIGMAPS, tls.ca_config_map, tls.ca_key or "ca.crt")


def key_of(engine: TableEngine) -> Reference | None:
    """The key that an engine names; None: it names none."""
    if engine.auth is None:
        return None
    return Reference(_namespace(engine), SECRETS, engine.auth.secret, engine.auth.key)


class EngineCredentials:
    """All that is mounted. ``check`` runs in a thread, one at a time; everything else in the loop."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._raw: dict[Reference, bytes | str] = {}
        self._lines: dict[Reference, bytes] = {}
        self._contexts: dict[Reference, ssl.SSLContext] = {}
        self._errors: dict[Reference, str] = {}
        self._wanted: frozenset[Reference] = frozenset()
        self._trouble: str | None = None
        self._system = system_trust()

    def follow(self, engines: Iterable[TableEngine]) -> None:
        """Called with each new view: what is mounted beyond its engines' references is nobody's trouble."""
        wanted: set[Reference | None] = set()
        for engine in engines:
            if engine.auth is not None:
                wanted.add(key_of(engine))
            if engine.tls is not None:
                wanted.add(ca_of(engine))
        self._wanted = frozenset(each for each in wanted if each is not None)

    def authorization(self, engine: TableEngine) -> bytes | None:
        """The header line with the engine's own key; None: it names none.

        Raises:
            NotSent: it names one that isn't there.
        """
        reference = key_of(engine)
        if reference is None:
            return None
        line = self._lines.get(reference)
        if line is None:
            raise NotSent(self._missing(reference))
        return line

    def context(self, ca: Reference | None) -> ssl.SSLContext:
        """Whom to believe; the same object until the authority changes.

        Raises:
            NotSent: the authority isn't there.
        """
        if ca is None:
            return self._system
        context = self._contexts.get(ca)
        if context is None:
            raise NotSent(self._missing(ca))
        return context

    def complete(self) -> bool:
        """Whether nothing is missing that the followed engines name."""
        return all(self._known(each) for each in self._wanted)

    def lacking(self, engine: TableEngine) -> str | None:
        """Why an engine can't be used; None: nothing that it names is missing."""
        if engine.auth is None and engine.tls is None:
            return None
        key, ca = key_of(engine), ca_of(engine)
        if key is not None and key not in self._lines:
            return self._missing(key)
        if ca is not None and ca not in self._contexts:
            return self._missing(ca)
        return None

    def errors(self) -> list[str]:
        """What is wrong now with what the tables name, a line each."""
        found = {each for each in self._wanted if each in self._errors or not self._known(each)}
        lines = [self._errors.get(each) or self._missing(each) for each in sorted(found)]
        return lines if self._trouble is None else [self._trouble, *lines]

    def check(self) -> Checked:
        """Read what is mounted; blocks. What is broken keeps its last meaning, what is gone has none."""
        try:
            raw = settled(self._read)
        except Unusable as unusable:
            new = self._trouble != str(unusable)
            self._trouble = str(unusable)
            return Checked(frozenset(), (self._trouble,) if new else ())
        self._trouble = None
        changed = self._forget(self._raw.keys() - raw.keys())
        refused: list[str] = []
        for reference, content in raw.items():
            if content == self._raw.get(reference):
                continue
            error = self._take(reference, content)
            if error is None:
                changed.add(reference)
                self._errors.pop(reference, None)
            else:
                self._errors[reference] = error
                if reference in self._wanted:
                    refused.append(error)
        self._raw = raw
        return Checked(frozenset(changed), tuple(refused))

    def _read(self) -> dict[Reference, bytes | str]:
        """Contents, or in words why there is none."""
        found: dict[Reference, bytes | str] = {}
        for namespace in entries(self.folder) if self.folder is not None else ():
            for kind, most in ((SECRETS, MAX_KEY), (CONFIGMAPS, MAX_CA)):
                for name in entries(namespace / kind):
                    for key in entries(name):
                        try:
                            content: bytes | str | None = read_file(key, most)
                        except Unusable as error:
                            content = str(error)
                        if content is not None:
                            found[Reference(namespace.name, kind, name.name, key.name)] = content
        return found

    def _take(self, reference: Reference, content: bytes | str) -> str | None:
        """Give a reference its new meaning; else say what is wrong."""
        if isinstance(content, str):
            return content
        if reference.kind == CONFIGMAPS:
            try:
                self._contexts[reference] = trust_in(content)
            except ValueError as error:
                return f"{self._path(reference)} {error}"
            return None
        key = content.strip()
        if not _KEY.fullmatch(key):
            return f"{self._path(reference)} holds no key: {len(key)} bytes, not all of them visible ASCII signs"
        self._lines[reference] = b"Authorization: Bearer " + key + b"\r\n"
        return None

    def _forget(self, gone: Iterable[Reference]) -> set[Reference]:
        gone = set(gone)
        for reference in gone:
            self._lines.pop(reference, None)
            self._contexts.pop(reference, None)
            self._errors.pop(reference, None)
        return gone

    def _known(self, reference: Reference) -> bool:
        return reference in self._lines or reference in self._contexts

    def _path(self, reference: Reference) -> Path:
        return Path(self.folder or "", *reference)

    def _missing(self, reference: Reference) -> str:
        what = "key" if reference.kind == SECRETS else "certificate authority"
        if self.folder is None:
            return f"the engine's {what} {reference} can't be read; right would be --credentials-dir"
        error = self._errors.get(reference)
        return error or f"the engine's {what} is missing: right would be the file {self._path(reference)}"


def _namespace(engine: TableEngine) -> str:
    return engine.id.partition("/")[0]

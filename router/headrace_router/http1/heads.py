"""What request heads and response heads have in common: header lines, some of which stood in the last head already.

On the request path. A head is three runs of lines: before, own, behind. The outer two stand still from head to head on
a connection (see recurring.py) and remember what was asked about them; of a head that was read by itself all lines are
its own. Must not decide what happens to a message.
"""

from __future__ import annotations

from typing import Final

from headrace_router.http1.lines import CREDENTIAL, STEERS, STOPS_BEFORE_CLIENT, STOPS_BEFORE_ENGINE, Line

REQUEST_ID_IS: Final = b"x-request-id: "
_NO_NAMES: Final[frozenset[bytes]] = frozenset()


class Still:
    """Lines in a row that don't change, with answers that are kept. ``rules``: the flags of all together."""

    __slots__ = ("_drops", "_keep", "_names", "_peer", "_said", "_to_client", "_to_engine", "_wanted", "lines", "rules")

    def __init__(self, lines: list[Line]) -> None:
        self.lines = lines
        rules = 0
        for line in lines:
            rules |= line.rule
        self.rules = rules
        self._to_engine: bytes | None = None
        self._to_client: bytes | None = None
        self._peer = ""
        self._said = b""
        self._keep = _NO_NAMES
        self._drops = False
        self._names: frozenset[bytes] | None = None
        self._wanted: list[Line] = []

    def to_engine(self, keep: frozenset[bytes], drops: bool) -> bytes:
        """What of it passes to engines, joined; see ``passing``."""
        found = self._to_engine
        if found is None or self._keep is not keep or self._drops != drops:
            found = self._to_engine = b"".join(passing(self.lines, keep, drops)) if self.lines else b""
            self._keep = keep
            self._drops = drops
        return found

    def said(self, peer: str) -> bytes:
        """What is said to engines behind a client's lines, up to the request id."""
        if peer is not self._peer:
            self._peer = peer
            self._said = forwarded(peer)
        return self._said

    def to_client(self) -> bytes:
        """What of it passes to clients, joined."""
        found = self._to_client
        if found is None:
            found = b"".join([line.raw for line in self.lines if not line.rule & STOPS_BEFORE_CLIENT])
            self._to_client = found
        return found

    def wanted(self, names: frozenset[bytes]) -> list[Line]:
        """The lines of these names."""
        if self._names is not names:
            self._names = names
            self._wanted = [line for line in self.lines if line.name in names]
        return self._wanted


NOTHING: Final = Still([])


class Head:
    """Header lines of a message; ``rules``: the flags of all together."""

    __slots__ = ("before", "behind", "own", "rules")

    def __init__(self, before: Still, own: list[Line], behind: Still, rules: int) -> None:
        self.before = before
        self.own = own
        self.behind = behind
        self.rules = rules

    @property
    def lines(self) -> list[Line]:
        """All of them, in their order; not to be changed."""
        before, behind = self.before.lines, self.behind.lines
        return [*before, *self.own, *behind] if before or behind else self.own

    @property
    def marked(self) -> list[Line]:
        """Those that any rule is about."""
        return [line for line in self.lines if line.rule]

    @property
    def count(self) -> int:
        """How many they are."""
        return len(self.before.lines) + len(self.own) + len(self.behind.lines)

    def get(self, name: bytes) -> bytes | None:
        """The first value of a header; ``name`` in lower case."""
        for line in self.lines:
            if line.name == name:
                return line.value
        return None

    def all(self, name: bytes) -> list[bytes]:
        """All values of a header in their order."""
        return [line.value for line in self.lines if line.name == name]

    def wanted(self, names: frozenset[bytes]) -> list[Line]:
        """The lines of these names, in their order. ``names``: the same object from head to head, never changed."""
        before = self.before.wanted(names) if self.before.lines else None
        behind = self.behind.wanted(names) if self.behind.lines else None
        own = [line for line in self.own if line.name in names]
        if before:
            own = before + own
        return own + behind if behind else own


def forwarded(peer: str) -> bytes:
    """Whom a request comes from, and the beginning of the request id's line."""
    return b"".join([b"X-Forwarded-For: ", peer.encode("latin-1", "replace"), b"\r\n", REQUEST_ID_IS])


def passing(lines: list[Line], keep: frozenset[bytes], drops: bool) -> list[bytes]:
    """What an engine may get of lines. ``keep``: internal names that pass. ``drops``: credentials don't."""
    stops = STOPS_BEFORE_ENGINE | CREDENTIAL if drops else STOPS_BEFORE_ENGINE
    passed = []
    for line in lines:
        rule = line.rule
        if not rule or (not rule & stops and (not rule & STEERS or line.name in keep)):
            passed.append(line.raw)
    return passed

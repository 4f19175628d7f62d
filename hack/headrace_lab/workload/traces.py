"""Reads the cut traces into plain records; every fault of a line is named with its number and field.

Text in, records out. What the fields mean stands in ``headrace_lab/data/README.md``.
"""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from importlib import resources
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

MOONCAKE_BLOCK_TOKENS = 512  # one hash id a block of so many prompt tokens (Mooncake's trace)
CONVERSATIONS_FILE = "mooncake_conversation_head.jsonl"
ARRIVALS_FILE = "azure_2023_conv_stretch.csv"
ROUND_TRIPS_FILE = "azure_round_trips_ms.csv"

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)  # any: only differences count
_Count = Annotated[int, Meta(ge=1, le=10_000_000)]


class TraceError(ValueError):
    """A trace that can't be used; the message names line and field."""


class Turn(msgspec.Struct, frozen=True):
    """One request of Mooncake's conversation trace: prompt and answer in tokens, ids of the prompt's blocks."""

    timestamp: Annotated[int, Meta(ge=0)]
    input_length: _Count
    output_length: _Count
    hash_ids: Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(min_length=1, max_length=100_000)]

    @property
    def session(self) -> int:
        """The conversation: its second block, because the first (the system prompt) is the same in all of them."""
        return self.hash_ids[1] if len(self.hash_ids) > 1 else -1 - self.input_length


class Arrival(NamedTuple):
    """One request of Azure's trace: seconds since the trace began, and the answer's tokens."""

    at: float
    output_tokens: int


def read_conversations(text: str) -> tuple[Turn, ...]:
    """Turns in the trace's order.

    Raises:
        TraceError: a line is no turn, or there is none.
    """
    decoder = msgspec.json.Decoder(Turn)
    turns = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            turns.append(decoder.decode(line))
        except msgspec.MsgspecError as error:
            raise TraceError(f"conversation trace, line {number}: {error}") from error
    if not turns:
        raise TraceError("conversation trace: empty; right would be one JSON object a line")
    return tuple(turns)


def read_arrivals(text: str) -> tuple[Arrival, ...]:
    """Arrivals in order of time, counted from the first.

    Raises:
        TraceError: a column is missing, a line can't be read, or fewer than two arrivals.
    """
    rows = csv.DictReader(io.StringIO(text))
    stamps: list[tuple[float, int]] = []
    for number, row in enumerate(rows, start=2):
        try:
            # Seven digits of a second; Python reads six.
            moment = datetime.fromisoformat(row["TIMESTAMP"][:26] + "+00:00")
            tokens = int(row["GeneratedTokens"])
        except (KeyError, TypeError, ValueError) as error:
            raise TraceError(
                f"arrival trace, line {number}: {error!r}; right would be 2023-11-16 18:15:46.68,374,44"
            ) from error
        if tokens < 0:
            raise TraceError(f"arrival trace, line {number}: GeneratedTokens is {tokens}; right would be 0 or more")
        stamps.append(((moment - _EPOCH).total_seconds(), max(1, tokens)))
    stamps.sort()
    if len(stamps) < 2 or stamps[-1][0] <= stamps[0][0]:
        raise TraceError("arrival trace: fewer than two different times; right would be at least two")
    return tuple(Arrival(at - stamps[0][0], tokens) for at, tokens in stamps)


def read_round_trips(text: str) -> dict[tuple[str, str], float]:
    """Round trips in seconds by (from, to); regions are written as Azure's API writes them (``eastus``).

    Raises:
        TraceError: a cell off the diagonal is missing, negative or no number.
    """
    trips: dict[tuple[str, str], float] = {}
    for row in csv.DictReader(io.StringIO(text)):
        origin = row.pop("Source")
        for name, cell in row.items():
            if name == origin:
                continue
            try:
                value = float(cell)
            except (TypeError, ValueError):
                value = -1.0
            if not 0 <= value < 10_000:
                raise TraceError(f"round trips, {origin} to {name}: {cell!r}; right would be milliseconds, such as 85")
            trips[slug(origin), slug(name)] = value / 1000
    return trips


def slug(region: str) -> str:
    """``East US`` as ``eastus``."""
    return region.replace(" ", "").lower()


def packaged(name: str) -> str:
    """Text of one of the files in ``headrace_lab/data``."""
    return resources.files("headrace_lab").joinpath("data", name).read_text(encoding="utf-8")

"""One measured demand told apart by prompt class.

On the engine-signal path. The sum is the estimate it always was; only its parts are found here: shares and tokens as
routers counted them under the labels of the present edges, drawn towards what the lengths' histogram says while few
were counted. So an edge that moves needs no new start, and nothing counted under other edges is taken for these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Final, NamedTuple

import msgspec

from headrace_api.names import prompt_class_labels
from headrace_operator.snapshot.signals import DemandSignal, Reading

# Requests that the histogram's word is worth.
PRIOR: Final = 50.0


class ClassCounts(NamedTuple):
    """Requests offered, requests ended, and the tokens of those, lately, of one prompt class."""

    offered: float = 0.0
    ended: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0


class Expected(NamedTuple):
    """What the histogram of lengths says of one class: its share of requests, and its mean input tokens."""

    share: float
    input_tokens: float


def by_class(
    whole: DemandSignal, counted: Mapping[str, ClassCounts], expected: Sequence[Expected], edges: tuple[int, ...]
) -> tuple[DemandSignal, ...]:
    """The signal's parts, one a class in their order; rates and variances add up to the whole's.

    counted: by label of a prompt class; other labels than those of ``edges`` count for nothing.
    """
    labels = prompt_class_labels(edges)
    seen = [counted.get(label, ClassCounts()) for label in labels]
    offered = sum(counts.offered for counts in seen)
    mean = sum(one.share * one.input_tokens for one in expected)
    found = []
    for number, (counts, prior) in enumerate(zip(seen, expected, strict=True)):
        share = (counts.offered + PRIOR * prior.share) / (offered + PRIOR)
        rate = whole.requests_per_second
        length = prior.input_tokens
        if whole.input_tokens is not None and mean > 0:
            length *= whole.input_tokens.value / mean
        found.append(
            msgspec.structs.replace(
                whole,
                prompt_class=number,
                requests_per_second=msgspec.structs.replace(
                    rate, value=rate.value * share, deviation=rate.deviation * sqrt(share)
                ),
                input_tokens=_drawn(counts.input_tokens, counts.ended, whole.input_tokens, length),
                output_tokens=_drawn(counts.output_tokens, counts.ended, whole.output_tokens, None),
            )
        )
    return tuple(found)


def _drawn(tokens: float, ended: float, whole: Reading | None, prior: float | None) -> Reading | None:
    """Mean tokens of a class, drawn towards ``prior`` (None: the whole's mean); unknown where the whole's is."""
    if whole is None:
        return None
    value = (tokens + PRIOR * (whole.value if prior is None else prior)) / (ended + PRIOR)
    return msgspec.structs.replace(whole, value=value)

"""Status of both kinds: the audit that ``kubectl describe`` prints.

Written by the publisher, read by people and by the next operator. It holds nothing that moves by itself: every number
is that of the last published decision, under ``asOf``; live ages and load are metrics. Every field written must stand
here, because the API server drops unknown fields and still answers 200 (case STS-04). describe sorts keys by name and
prints one line a list item, so lists hold whole sentences.

These types bound what they read and what the CRD accepts; who writes them cuts texts to the bounds first (``clip``).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from headrace_api.base import ATOMIC

MAX_CONDITIONS: Final = 12
MAX_MESSAGE: Final = 400
MAX_WEIGHTS: Final = 64
MAX_WEIGHT_TEXT: Final = 160
MAX_WHY: Final = 40
MAX_WHY_TEXT: Final = 160
MAX_HISTORY: Final = 10
MAX_HISTORY_TEXT: Final = 240
MAX_SIGNALS: Final = 8
MAX_SIGNAL_TEXT: Final = 160
MAX_FIGURE: Final = 64

Time = Annotated[
    str,
    Meta(max_length=32, extra_json_schema={"format": "date-time"}, description="A time in RFC 3339, UTC."),
]
Figure = Annotated[str, Meta(max_length=MAX_FIGURE, description="A figure with its unit.")]
Sentence = Annotated[str, Meta(max_length=MAX_WHY_TEXT, description="One sentence.")]


class StatusStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of status: camelCase, what is empty is left out, unknown fields of a newer version are ignored."""


class Condition(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One condition in the form that Kubernetes tools read."""

    type: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=64,
            pattern=r"^[A-Za-z][A-Za-z0-9]*$",
            description="What is judged: Ready, Solved, …",
        ),
    ]
    status: Annotated[Literal["True", "False", "Unknown"], Meta(description="Whether it holds.")]
    reason: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=64,
            pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            description="One word for machines.",
        ),
    ]
    message: Annotated[str, Meta(max_length=MAX_MESSAGE, description="A sentence for people, with the numbers.")]
    last_transition_time: Annotated[Time, Meta(description="When status last changed.")]
    observed_generation: Annotated[
        int, Meta(ge=0, le=2**53, description="The metadata.generation that this was judged from.")
    ] = 0


Conditions = Annotated[
    tuple[Condition, ...],
    Meta(
        max_length=MAX_CONDITIONS,
        extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        description=(
            "Ready says that this generation is accepted and in force; Reconciling and Stalled are present only when"
            " True; Stalled means that only an edit helps."
        ),
    ),
]
ObservedGeneration = Annotated[
    int, Meta(ge=0, le=2**53, description="The metadata.generation that this status speaks of.")
]


class LatencyParts(StatusStruct, frozen=True, kw_only=True):
    """Expected mean latency of a request, and what it is made of."""

    total: Annotated[Figure, Meta(description="Network, time to first token and decoding together.")] = ""
    network: Annotated[Figure, Meta(description="Round trips between front-ends and engines.")] = ""
    ttft: Annotated[Figure, Meta(description="Time to first token, at the engine.")] = ""
    decode: Annotated[Figure, Meta(description="All tokens after the first.")] = ""


class PolicySummary(StatusStruct, frozen=True, kw_only=True):
    """The last published decision in figures."""

    demand: Annotated[Figure, Meta(description="Offered load over all front-ends and models.")] = ""
    capacity: Annotated[Figure, Meta(description="What the eligible engines can carry of this mix.")] = ""
    utilization: Annotated[Figure, Meta(description="Load over capacity of the engines in use.")] = ""
    engines: Annotated[Figure, Meta(description="Engines in use, of those eligible.")] = ""
    latency: LatencyParts = LatencyParts()
    shed: Annotated[Figure, Meta(description="Demand that is refused, as a share.")] = ""
    revision: Annotated[int, Meta(ge=0, le=2**53, description="Revision of the published tables.")] = 0
    hash: Annotated[str, Meta(max_length=128, description="Hash over the content of the published tables.")] = ""
    solver: Annotated[Figure, Meta(description="The solver's verdict, and how long it took.")] = ""
    changed: Annotated[Time, Meta(description="When the weights last changed.")] | None = None


class PolicyStatus(StatusStruct, frozen=True, kw_only=True):
    """What the weights are now, since when, what they were before, why they changed, and what limits the system."""

    observed_generation: ObservedGeneration = 0
    conditions: Conditions = ()
    as_of: Annotated[Time, Meta(description="When the decision that this status shows was published.")] | None = None
    summary: PolicySummary = PolicySummary()
    weights: Annotated[
        tuple[Annotated[str, Meta(max_length=MAX_WEIGHT_TEXT, description="One front-end and model.")], ...],
        Meta(
            max_length=MAX_WEIGHTS,
            extra_json_schema=ATOMIC,
            description="Where each front-end's requests go: 'fe-us-east: h100-use1-a 78 %, l40s-use1-b 22 %'.",
        ),
    ] = ()
    why: Annotated[
        tuple[Sentence, ...],
        Meta(
            max_length=MAX_WHY,
            extra_json_schema=ATOMIC,
            description="What limits the system, the largest changes, and why full and unused engines are so.",
        ),
    ] = ()
    history: Annotated[
        tuple[Annotated[str, Meta(max_length=MAX_HISTORY_TEXT, description="One change.")], ...],
        Meta(
            max_length=MAX_HISTORY,
            extra_json_schema=ATOMIC,
            description="Changes of the weights, newest first: time, revision, causes in percent, who edited.",
        ),
    ] = ()
    signals: Annotated[
        tuple[Annotated[str, Meta(max_length=MAX_SIGNAL_TEXT, description="One signal.")], ...],
        Meta(
            max_length=MAX_SIGNALS,
            extra_json_schema=ATOMIC,
            description="Signals that are not fresh: name, state (Held, Widened, Unknown), since when.",
        ),
    ] = ()


class FittedProfile(StatusStruct, frozen=True, kw_only=True):
    """Latency against utilisation as fitted from what was measured; it stands beside the declared profile."""

    fitted: Annotated[Time, Meta(description="When it was fitted.")] | None = None
    reference: Annotated[Figure, Meta(description="The mix it was fitted with: input and output tokens.")] = ""
    ttft: Annotated[str, Meta(max_length=512, description="Time to first token by utilisation, as text.")] = ""
    tbot: Annotated[str, Meta(max_length=512, description="Time between output tokens by utilisation, as text.")] = ""
    error: Annotated[Figure, Meta(description="Median error on samples held out.")] = ""


class EngineStatus(StatusStruct, frozen=True, kw_only=True):
    """What the operator knows of the engine, and what it holds against it."""

    observed_generation: ObservedGeneration = 0
    conditions: Conditions = ()
    as_of: Annotated[Time, Meta(description="When this was last written.")] | None = None
    models: Annotated[str, Meta(max_length=MAX_WEIGHT_TEXT, description="The models it serves, adapters counted.")] = ""
    ready_replicas: Annotated[int, Meta(ge=0, le=1_000_000, description="Replicas that are ready.")] | None = None
    replicas_from: Annotated[
        str, Meta(max_length=MAX_FIGURE, description="Where the number of replicas comes from.")
    ] = ""
    penalty: Annotated[Figure, Meta(description="Factor on its effective capacity, below 1 while penalised.")] = ""
    profile: FittedProfile | None = None
    why: Annotated[
        tuple[Sentence, ...],
        Meta(max_length=MAX_WHY, extra_json_schema=ATOMIC, description="Why it is penalised, unavailable or unused."),
    ] = ()
    signals: Annotated[
        tuple[Annotated[str, Meta(max_length=MAX_SIGNAL_TEXT, description="One signal.")], ...],
        Meta(
            max_length=MAX_SIGNALS,
            extra_json_schema=ATOMIC,
            description="Signals that are not fresh: name, state (Held, Widened, Unknown), since when.",
        ),
    ] = ()


def clip(text: str, bound: int) -> str:
    """The text, cut to ``bound`` characters with an ellipsis at its end when it is longer."""
    return text if len(text) <= bound else text[: bound - 1].rstrip() + "…"

"""What a call of an API server that did not come off means for a table: a condition's reason, and a sentence.

On the routing-weight path; pure.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from headrace_operator.kube.client import KubeFault
from headrace_operator.publisher.cluster.objects import Seen, Spot
from headrace_operator.publisher.places import Refusal, TableKey

RETRY_SECONDS: Final = 15.0
"""How long a place that was refused is left alone."""
TAKEN: Final = "ConfigMapTaken"
SILENT: Final = "ClusterUnreachable"
GONE: Final = frozenset({0, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})
"""Statuses of answers that are none: there is no server, or none behind what stands before it."""


def refusal_of(cluster: str, fault: KubeFault) -> Refusal:
    """The refusal that a fault comes to."""
    if fault.status in GONE:
        return Refusal(SILENT, f"cluster {cluster} does not answer: {fault.message}; the old table stays")
    if fault.forbidden:
        return Refusal("Forbidden", f"cluster {cluster}: {fault.message}; the old table stays")
    if fault.missing:
        return Refusal("NamespaceMissing", f"cluster {cluster}: {fault.message}; make the namespace there")
    return Refusal("WriteFailed", f"cluster {cluster}: {fault.message}; the old table stays")


def not_ours(cluster: str, spot: Spot, other: Seen | None) -> Refusal:
    """Somebody else made the ConfigMap. other: with the label of an operator, but not of this one."""
    who = "was not made by Headrace" if other is None else f"was made by another Headrace (policy uid {other.policy})"
    return Refusal(
        "ConfigMapNotOurs", f"cluster {cluster}: ConfigMap {spot} {who} and is left alone; remove it, or rename"
    )


def taken(spot: Spot, owner: TableKey) -> Refusal:
    """Another table has the place."""
    return Refusal(
        TAKEN,
        f"ConfigMap {spot.name!r} carries the table of {owner.policy}, front-end {owner.frontend};"
        " right would be another publish.configMap",
    )


def newer_term(cluster: str, spot: Spot, standing: int, term: int) -> Refusal:
    """A table that carried a term after this one's when this one began: routers would take nothing older."""
    return Refusal(
        "NewerTerm",
        f"cluster {cluster}: ConfigMap {spot} carries term {standing}, this operator has term {term} and leaves it"
        " alone; right would be to restart the operator: it then takes a term above",
    )

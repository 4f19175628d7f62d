"""What service accounts asked of an API server, by its audit log, beside what their roles grant."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple


class Asked(NamedTuple):
    """A request: verb, resource with its subresource, the answer's code, when it came (RFC 3339, UTC).

    granted: by a role; what is granted may still be refused (403 in a namespace that is just going).
    """

    verb: str
    resource: str
    code: int
    at: str
    granted: bool


def asked_by(lines: Iterable[str], account: str) -> list[Asked]:
    """Every finished request of a service account (NAMESPACE:NAME) for resources, in order."""
    found = []
    for line in lines:
        one = json.loads(line)
        where = one.get("objectRef")
        if one["user"].get("username") != f"system:serviceaccount:{account}" or not where or "resource" not in where:
            continue
        resource = "/".join(filter(None, (where["resource"], where.get("subresource", ""))))
        code = one.get("responseStatus", {}).get("code", 0)
        allowed = one.get("annotations", {}).get("authorization.k8s.io/decision") != "forbid"
        found.append(Asked(one["verb"], resource, code, one["requestReceivedTimestamp"], allowed))
    return found


def granted(objects: Iterable[Mapping[str, Any]], account: str) -> set[tuple[str, str]]:
    """(verb, resource) of all roles bound to a service account (its bare name) among these objects."""
    objects = list(objects)
    bound = {
        (one["roleRef"]["kind"], one["roleRef"]["name"])
        for one in objects
        if one["kind"].endswith("RoleBinding") and any(subject["name"] == account for subject in one["subjects"])
    }
    return {right for one in objects if (one["kind"], one["metadata"]["name"]) in bound for right in _rights(one)}


def _rights(role: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for rule in role["rules"]:
        yield from ((verb, resource) for verb in rule["verbs"] for resource in rule["resources"])

"""A table's canonical bytes, its content hash, and the bound on its size.

On the routing-weight path; pure. Same content, same bytes: fields stand in the order of their types, lists were sorted
by whoever made them, floats were rounded there. The hash leaves out identity and issued time, so that two publications
of the same content are known as the same.
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

import msgspec

from headrace_api.policy import Frontend
from headrace_api.table import MAX_TABLE_BYTES, Identity, RoutingTable

_NOBODY = Identity(uid="-", term=0, revision=0)


class TableTooLarge(NamedTuple):
    """The table does not fit a ConfigMap; it is never split, the old one stays."""

    policy: str
    frontend: str
    size: int

    @property
    def message(self) -> str:
        """What is wrong and what would be right."""
        return (
            f"the table of front-end {self.frontend} has {self.size:,} bytes, more than {MAX_TABLE_BYTES:,}; "
            "the old table stays; spread the policy's models over several policies"
        )


def encode_table(table: RoutingTable) -> bytes:
    """The canonical JSON of a table, one line."""
    return msgspec.json.encode(table) + b"\n"


def content_hash(table: RoutingTable) -> str:
    """SHA-256 in hex over everything but identity, issued time and the hash itself."""
    return sha256(encode_table(msgspec.structs.replace(table, identity=_NOBODY, issued="", hash=""))).hexdigest()


def stamped(table: RoutingTable, identity: Identity, issued: str) -> RoutingTable:
    """The table with its identity, issued time (RFC 3339) and the hash of its content.

    Also how a new leader puts its term on an unchanged table: the hash stays what it was.
    """
    return msgspec.structs.replace(table, identity=identity, issued=issued, hash=content_hash(table))


def too_large(table: RoutingTable) -> TableTooLarge | None:
    """The fault of a table above MAX_TABLE_BYTES, or None."""
    size = len(encode_table(table))
    if size <= MAX_TABLE_BYTES:
        return None
    return TableTooLarge(f"{table.policy_namespace}/{table.policy}", table.frontend, size)


def configmap_name(policy: str, frontend: Frontend) -> str:
    """Name of the ConfigMap that carries a front-end's table of a policy (its bare name or its id)."""
    return frontend.publish.config_map or f"headrace-{policy.rpartition('/')[2]}-{frontend.name}"

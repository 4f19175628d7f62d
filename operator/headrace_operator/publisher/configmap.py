"""A table as the manifest of a ConfigMap, and back.

On the routing-weight path. The same manifest stands in a cluster and in a state directory. Labels are Headrace's own
only (GitOps tools track objects by others). No ownerReference here: standalone has no collector of garbage, and one
across namespaces would have the table collected (kubernetes/website#29480).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import yaml

from headrace_api.names import LABEL_FRONTEND, LABEL_MANAGED, LABEL_POLICY, LABEL_POLICY_UID
from headrace_api.table import TABLE_KEY, RoutingTable
from headrace_operator.decision.tables.encode import encode_table

MANAGER: Final = "headrace-operator"
MAX_LABEL: Final = 63
MAX_MANIFEST: Final = 4 * 2**20
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def configmap_manifest(table: RoutingTable, name: str) -> bytes:
    """The manifest of the ConfigMap ``name`` in the policy's namespace that carries the table."""
    labels = {
        LABEL_FRONTEND: table.frontend,
        LABEL_MANAGED: MANAGER,
        LABEL_POLICY: table.policy,
        LABEL_POLICY_UID: table.identity.uid,
    }
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": table.policy_namespace,
            "labels": {key: value for key, value in labels.items() if len(value) <= MAX_LABEL},
        },
        "data": {TABLE_KEY: encode_table(table).decode()},
    }
    return dump(manifest)


def dump(value: object) -> bytes:
    """YAML in the form that this operator writes: block style, keys in the given order, no aliases."""
    text: str = yaml.dump(value, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=1_000_000)
    return text.encode()


class _PlainDumper(_Dumper):  # type: ignore[misc]
    def ignore_aliases(self, _data: object) -> bool:
        return True


def load(data: bytes) -> object:
    """Parsed YAML of a file that this operator wrote.

    Raises:
        ValueError: it is not YAML, or it is larger than anything written here.
    """
    if len(data) > MAX_MANIFEST:
        raise ValueError(f"{len(data)} bytes; right would be at most {MAX_MANIFEST}")
    try:
        return yaml.load(data, Loader=_Loader)  # noqa: S506
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {str(error).splitlines()[0]}") from error


def is_ours(data: bytes) -> bool:
    """Whether a file at a table's place was made by an operator: only those are overwritten or removed."""
    try:
        manifest = load(data)
    except ValueError:
        return False
    if not isinstance(manifest, dict) or not isinstance(manifest.get("metadata"), dict):
        return False
    labels = manifest["metadata"].get("labels")
    return isinstance(labels, dict) and labels.get(LABEL_MANAGED) == MANAGER


def read_configmap(data: bytes, path: str) -> RoutingTable | str:
    """The table in a manifest, or one line that says what is wrong."""
    try:
        manifest = load(data)
    except ValueError as error:
        return f"{path}: {error}"
    if not isinstance(manifest, dict) or not isinstance(manifest.get("data"), dict):
        return f"{path}: not a ConfigMap with data; right would be the key {TABLE_KEY}"
    text = manifest["data"].get(TABLE_KEY)
    if not isinstance(text, str):
        return f"{path}: data has no key {TABLE_KEY}"
    try:
        return msgspec.json.decode(text, type=RoutingTable)
    except (msgspec.MsgspecError, UnicodeError) as error:
        return f"{path}: {TABLE_KEY}: {error}"

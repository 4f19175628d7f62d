"""How people's commands reach a cluster: kubectl's arguments, its kubeconfig, its namespace, and faults in words.

Not on any path: these commands end when they have answered. They act as the person who calls them, under a field
manager of their own, so that an API server and a GitOps tool tell them from the operator.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from headrace_api.base import GROUP
from headrace_api.commands import EnvironmentFailed
from headrace_operator.cli.plan import MAX_NAMESPACE, NAMESPACE

if TYPE_CHECKING:
    from headrace_operator.kube.client import KubeClient, KubeFault

CLI_MANAGER: Final = "headrace-cli"


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """kubectl's -n, --context and --kubeconfig."""
    parser.add_argument("-n", "--namespace", metavar="NAMESPACE", type=_namespace, help="default: the context's")
    parser.add_argument("--context", metavar="NAME", help="of the kubeconfig; default: its current one")
    parser.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, else ~/.kube/config")


def _namespace(text: str) -> str:
    if not NAMESPACE.fullmatch(text) or len(text) > MAX_NAMESPACE:
        raise argparse.ArgumentTypeError(f"{text!r}; right would be a namespace: a-z, 0-9 and - between them")
    return text


def cluster(arguments: argparse.Namespace) -> KubeClient:
    """The cluster that the arguments mean.

    Raises:
        EnvironmentFailed: there is none.
    """
    from headrace_operator.kube.client import connect

    return connect("the API server", kubeconfig=arguments.kubeconfig, context=arguments.context)


def namespace_of(arguments: argparse.Namespace) -> str:
    """The namespace asked for, else the context's, else ``default``."""
    from kubernetes.config import ConfigException, list_kube_config_contexts

    if arguments.namespace:
        return str(arguments.namespace)
    try:
        contexts, active = list_kube_config_contexts(arguments.kubeconfig)
    except (ConfigException, OSError, ValueError, TypeError):
        return "default"
    named = [entry for entry in contexts if entry.get("name") == arguments.context]
    chosen = named[0] if named else active
    found = (chosen.get("context") or {}).get("namespace")
    return str(found or "default")


def failed(fault: KubeFault, doing: str, verb: str, resource: str, namespace: str) -> EnvironmentFailed:
    """A fault in words. doing: "freeze inference/chat"; verb, resource: what a Role must allow."""
    if fault.forbidden:
        scope = f"-n {namespace}" if namespace else "--all-namespaces"
        return EnvironmentFailed(
            f"may not {doing}: {fault.message}; right would be a Role that allows to {verb} {resource}"
            f" (kubectl auth can-i {verb} {resource} {scope})"
        )
    if fault.missing and resource.endswith(GROUP):
        return EnvironmentFailed(f"cannot {doing}: this cluster has no {resource}; right would be to install its CRDs")
    if fault.conflict:
        return EnvironmentFailed(f"cannot {doing}: {fault.message}; others keep changing it, try again")
    return EnvironmentFailed(f"cannot {doing}: {fault.message}")

"""Publishing to Kubernetes: the ports of an operator in a cluster."""

from headrace_operator.publisher.cluster.build import ClusterPublisher, TermBehind, cluster_publisher

__all__ = ["ClusterPublisher", "TermBehind", "cluster_publisher"]

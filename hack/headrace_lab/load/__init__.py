"""Load for routers in a cluster: a bounded stream of requests from a pod, and a result that a test can read."""

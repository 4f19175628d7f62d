"""A fleet of the size that the scale tests ask for: engines behind Services, each shared by three policies.

Plain manifests, in rings: of each model ten engines a block, and policies that take ten engines each, shifted so that
neighbours share some. Every engine is in three policies, and all policies of a model are one problem. The Services have
no selector: their EndpointSlices are written by the test, as an endpoint controller would, so that no pod is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

NAMESPACE = "scale"
SHARERS = 3  # policies an engine is in
ENGINES_A_POLICY = 10
SHIFTS = (0, 3, 6)  # of the engines that the policies of a ring begin with
REGIONS = ("eastus", "westeurope")
PORT = 8000
CAPACITY = 12.0  # requests/s of a replica
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class BigFleet:
    """models x engines_a_model engines. Engine i's two replicas are at ports first_port + 2 i and the next of host."""

    models: int = 10
    engines_a_model: int = 100
    host: str = "172.18.0.1"
    first_port: int = 20000
    rate: float = 30.0  # declared requests/s of a front-end

    @property
    def engines(self) -> int:
        return self.models * self.engines_a_model

    @property
    def policies(self) -> int:
        return self.engines * SHARERS // ENGINES_A_POLICY

    @property
    def ports(self) -> range:
        """Where the replicas' metrics pages are."""
        return range(self.first_port, self.first_port + 2 * self.engines)

    def resources(self) -> Iterator[Json]:
        """Engines and policies."""
        for number in range(self.engines):
            yield self._engine(number)
        for model in range(self.models):
            for ring in range(SHARERS):
                for block in range(self.engines_a_model // ENGINES_A_POLICY):
                    yield self._policy(model, ring, block)

    def backing(self) -> Iterator[Json]:
        """Services and their EndpointSlices."""
        for number in range(self.engines):
            meta = {"name": engine_name(number), "namespace": NAMESPACE}
            ports = [{"name": "http", "port": PORT, "targetPort": PORT}]
            yield {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": ports}}
            for replica in (0, 1):
                yield self.endpoint_slice(number, replica)

    def endpoint_slice(self, number: int, replica: int, *, ready: bool = True) -> Json:
        """One replica of an engine: a slice of its own, since all replicas of the test have one address."""
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{engine_name(number)}-{replica}",
                "namespace": NAMESPACE,
                "labels": {"kubernetes.io/service-name": engine_name(number)},
            },
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": self.first_port + 2 * number + replica, "protocol": "TCP"}],
            "endpoints": [{"addresses": [self.host], "conditions": {"ready": ready, "serving": ready}}],
        }

    def _engine(self, number: int) -> Json:
        model, place = divmod(number, self.engines_a_model)
        blocks = {
            f"ring-{ring}": f"m{model}-{(place - shift) % self.engines_a_model // ENGINES_A_POLICY}"
            for ring, shift in enumerate(SHIFTS)
        }
        return {
            "apiVersion": "headrace.dev/v1alpha1",
            "kind": "InferenceEngine",
            "metadata": {"name": engine_name(number), "namespace": NAMESPACE, "labels": blocks},
            "spec": {
                "models": [{"name": f"model-{model}"}],
                "endpoints": {"service": {"name": engine_name(number), "port": PORT}},
                "location": {"region": REGIONS[number % 2]},
                "runtime": "vLLM",
                "hardware": {"accelerator": "H100-80GB", "count": 4},
                "capacity": {"perReplica": {"requestsPerSecond": int(CAPACITY)}},
                "profile": {
                    "ttft": [
                        {"utilizationPercent": 0, "latency": f"{80 + number % 17}ms"},
                        {"utilizationPercent": 80, "latency": "200ms"},
                        {"utilizationPercent": 100, "latency": "2s"},
                    ],
                    "tbot": [
                        {"utilizationPercent": 0, "latency": "9ms"},
                        {"utilizationPercent": 100, "latency": "31ms"},
                    ],
                },
                "rampUp": "1s",
            },
        }

    def _policy(self, model: int, ring: int, block: int) -> Json:
        name = f"m{model}-r{ring}-{block}"
        return {
            "apiVersion": "headrace.dev/v1alpha1",
            "kind": "RoutingPolicy",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "models": [{"name": f"model-{model}"}],
                "engineSelector": {"matchLabels": {f"ring-{ring}": f"m{model}-{block}"}},
                "frontends": [
                    {
                        "name": f"{region}-r{ring}-{block}",
                        "location": {"region": region},
                        "demand": {"requestsPerSecond": int(self.rate), "inputTokens": 900, "outputTokens": 220},
                    }
                    for region in REGIONS
                ],
                "network": {"roundTrip": [{"from": REGIONS[0], "to": REGIONS[1], "latency": "84ms"}]},
            },
        }


def engine_name(number: int) -> str:
    return f"e{number:04d}"


def loads(tables: Iterable[Json], rates: dict[tuple[str, str], float]) -> dict[str, float]:
    """Requests/s by engine that these tables send there. rates: by (policy, front-end)."""
    found: dict[str, float] = {}
    for table in tables:
        [model] = table["models"]
        [routes] = model["classes"]
        kept = 1 - max(routes.get("shed", {}).values(), default=0.0)
        for route in routes["routes"]:
            rate = rates[table["policy"], table["frontend"]] * kept * route["weight"] / 10_000
            found[route["engine"]] = found.get(route["engine"], 0.0) + rate
    return found

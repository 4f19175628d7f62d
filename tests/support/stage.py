"""The whole product in a cluster of the tests: chart, images and sample as hack/cluster/stage.sh puts them there.

Everything that end-to-end tests ask or change goes through here: tables and statuses as the API server has them, what
the simulated engines were asked, a load from a pod, the API server's audit log.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Self

from support.checkout import ROOT
from support.cluster import Cluster, await_true, cluster_command

SAMPLE = ROOT / "manifests" / "samples" / "cluster"
SYSTEM, INFERENCE, LOAD = "headrace-system", "inference", "headrace-load"
MODEL = "llama-3.1-70b"
DEMAND = {"fe-us-east": 40.0, "fe-eu-west": 25.0}  # the sample's, requests/s
STAGE_SECONDS = 1500  # images of an edited checkout are built and the router compiled, on a busy machine
WEIGHT_TOTAL = 10_000


class Stage:
    """Headrace and its sample, in ``cluster``. Installed once; tests leave it as they found it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def install(self, *values: str) -> None:
        """Install it, or bring it up to date. ``values``: further helm values files."""
        done = subprocess.run(
            [ROOT / "hack" / "cluster" / "stage.sh", self.cluster.name],
            env={**os.environ, "STAGE_VALUES": " ".join(values)},
            capture_output=True,
            text=True,
            timeout=STAGE_SECONDS,
        )
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}\n{self.tell()}"
        self.cluster.kubectl("create", "namespace", LOAD, check=False)

    def tell(self) -> str:
        """What a person would look at first when something is wrong."""
        asked = [
            ["get", "pods", "--all-namespaces"],
            ["get", "rpol,ieng", "--all-namespaces"],
            ["describe", "rpol", "chat", f"--namespace={INFERENCE}"],
            [
                "logs",
                f"--namespace={SYSTEM}",
                "--selector=app.kubernetes.io/component=operator",
                "--tail=40",
                "--prefix",
            ],
        ]
        return "\n\n".join(self.cluster.kubectl(*one, check=False).stdout for one in asked)

    def resource(self, kind: str, name: str, namespace: str = INFERENCE) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.get(kind, name, f"--namespace={namespace}")
        return found

    def status(self, policy: str = "chat", namespace: str = INFERENCE) -> dict[str, Any]:
        """A policy's status; empty before it has one."""
        found: dict[str, Any] = self.resource("rpol", policy, namespace).get("status", {})
        return found

    def condition(self, kind: str, name: str, of: str, namespace: str = INFERENCE) -> dict[str, Any]:
        """One condition of a resource; ``{"status": "absent"}`` if it has none of that type."""
        conditions = self.resource(kind, name, namespace).get("status", {}).get("conditions", [])
        return next((found for found in conditions if found["type"] == of), {"status": "absent"})

    def table(self, frontend: str, policy: str = "chat", namespace: str = INFERENCE) -> dict[str, Any]:
        """A front-end's table as it stands at the API server."""
        configmap = self.resource("configmap", f"headrace-{policy}-{frontend}", namespace)
        found: dict[str, Any] = json.loads(configmap["data"]["table.json"])
        return found

    def weights(self, frontend: str, policy: str = "chat", namespace: str = INFERENCE) -> dict[str, float]:
        """A front-end's weights: engine (without its namespace) -> share; engines of no weight are left out."""
        return weights_of(self.table(frontend, policy, namespace))

    def pods(self, selector: str, namespace: str = INFERENCE) -> list[dict[str, Any]]:
        """The pods of a label selector that are not about to end."""
        found = self.cluster.get("pods", f"--namespace={namespace}", f"--selector={selector}")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def engine_pods(self, engine: str) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.pods(f"app.kubernetes.io/instance={engine}")]

    def engine_states(self) -> dict[str, dict[str, Any]]:
        """Every simulated engine's pod by name: what it counts, with ``engine``."""
        states = {}
        for pod in self.pods("app.kubernetes.io/name=simulated-engine"):
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            engine = pod["metadata"]["labels"]["app.kubernetes.io/instance"]
            said = self.cluster.kubectl(
                "get", "--raw", f"/api/v1/namespaces/{namespace}/pods/{name}:8000/proxy/lab/state"
            )
            states[name] = {**json.loads(said.stdout), "engine": engine}
        return states

    def asked(self) -> dict[str, Counter[str]]:
        """Requests that reached the engines: front-end -> engine -> number, counted by the engines themselves."""
        found: dict[str, Counter[str]] = {}
        for state in self.engine_states().values():
            for frontend, number in state["asked"].items():
                found.setdefault(frontend, Counter())[state["engine"]] += number
        return found

    def scale(self, engine: str, replicas: int) -> None:
        self.cluster.kubectl(
            "scale", f"deployment/{engine}", f"--namespace={INFERENCE}", f"--replicas={replicas}", "--timeout=60s"
        )

    def patch(self, kind: str, name: str, patch: Mapping[str, object], namespace: str = INFERENCE) -> None:
        self.cluster.kubectl(
            "patch", kind, name, f"--namespace={namespace}", "--type=merge", f"--patch={json.dumps(patch)}"
        )

    def watch_tables(self, policy: str = "chat") -> TableWatch:
        """Every table of a policy that stands while the ``with`` statement lasts."""
        return TableWatch(self.cluster, policy)

    def audit(self) -> list[dict[str, Any]]:
        """The API server's audit log since the cluster began, oldest first."""
        return [json.loads(line) for line in self.cluster.audit().splitlines()]

    def load(self, name: str, **options: object) -> Load:
        """A load from a pod, by the options of ``python -m headrace_lab.load``; use it in a ``with`` statement."""
        return Load(self.cluster, name, options)


def weights_of(table: Mapping[str, Any]) -> dict[str, float]:
    """Engine (without its namespace) -> share of the only model and prompt class of a table."""
    [model] = table["models"]
    [routes] = model["classes"]
    return {
        route["engine"].split("/")[1]: route["weight"] / WEIGHT_TOTAL for route in routes["routes"] if route["weight"]
    }


class Watch(AbstractContextManager["Watch"]):
    """Every state of some objects, as the API server told them to a watch while the ``with`` statement lasts."""

    def __init__(self, cluster: Cluster, *what: str) -> None:
        """what: as after ``kubectl get``."""
        watching = ("get", *what, "--watch", "--output=json", f"--namespace={INFERENCE}")
        self._command = cluster_command(cluster.name, "exec", "kubectl", *watching)

    def __enter__(self) -> Self:
        self._told = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(self._command, stdout=self._told, stdin=subprocess.DEVNULL)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._told.close()

    def objects(self) -> list[dict[str, Any]]:
        """All that was told so far, oldest first."""
        self._told.seek(0)
        rest, decoder = self._told.read().lstrip(), json.JSONDecoder()
        found = []
        while rest:
            try:
                one, end = decoder.raw_decode(rest)
            except json.JSONDecodeError:
                break  # just being written
            found.append(one)
            rest = rest[end:].lstrip()
        return found


class TableWatch(Watch):
    """Tables by front-end and revision."""

    def __init__(self, cluster: Cluster, policy: str) -> None:
        super().__init__(cluster, "configmaps", f"--selector=headrace.dev/policy={policy}")

    def tables(self) -> dict[str, dict[int, dict[str, Any]]]:
        """Front-end -> revision -> table."""
        found: dict[str, dict[int, dict[str, Any]]] = {}
        for configmap in self.objects():
            table = json.loads(configmap["data"]["table.json"])
            found.setdefault(table["frontend"], {})[table["identity"]["revision"]] = table
        return found


class Load(AbstractContextManager["Load"]):
    """A Job that sends requests. On leaving, the Job and its pod are deleted, whatever happened."""

    def __init__(self, cluster: Cluster, name: str, options: Mapping[str, object]) -> None:
        self._cluster = cluster
        self._name = name
        self._options = options

    def __enter__(self) -> Self:
        self._cluster.kubectl("apply", "--filename=-", stdin=json.dumps(self._job()))
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.kubectl(
            "delete", "job", self._name, f"--namespace={LOAD}", "--cascade=foreground", "--timeout=60s", check=False
        )

    def await_first(self, seconds: float = 120) -> None:
        """Wait until requests are being answered."""
        await_true(lambda: " sent, " in self.log(), f"load {self._name} sends", seconds)

    def log(self) -> str:
        return self._cluster.kubectl("logs", f"job/{self._name}", f"--namespace={LOAD}", check=False).stdout

    def stop(self, seconds: float = 120) -> dict[str, Any]:
        """End it early; what it reports."""
        term = "import os, signal; os.kill(1, signal.SIGTERM)"
        self._cluster.kubectl("exec", f"job/{self._name}", f"--namespace={LOAD}", "--", "python", "-c", term)
        return self.result(seconds)

    def result(self, seconds: float) -> dict[str, Any]:
        """Wait until it has ended; what it reports (headrace_lab.load.result.LoadResult)."""
        deadline = time.monotonic() + seconds
        while True:
            last = (self.log().splitlines() or [""])[-1]
            if last.startswith("{"):
                found: dict[str, Any] = json.loads(last)
                return found
            assert time.monotonic() < deadline, f"load {self._name} has no result after {seconds:.0f} s:\n{self.log()}"
            time.sleep(0.5)

    def _job(self) -> dict[str, Any]:
        arguments = [*targets(DEMAND), "--model", MODEL]
        for option, value in self._options.items():
            for one in value if isinstance(value, list) else [value]:
                flag = f"--{option.replace('_', '-')}"
                arguments += [flag] if one is True else [flag, str(one)]
        container = {
            "name": "load",
            "image": "localhost/headrace/lab:test",
            "command": ["python", "-m", "headrace_lab.load"],
            "args": arguments,
            "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
        }
        pod = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 30,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
        }
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": self._name, "namespace": LOAD},
            "spec": {"backoffLimit": 0, "activeDeadlineSeconds": 1800, "template": {"spec": pod}},
        }


def targets(frontends: Iterable[str]) -> list[str]:
    """The options that name the front-ends' Services."""
    return [
        part
        for name in frontends
        for part in ("--to", f"{name}=http://headrace-router-{name}.{SYSTEM}.svc.cluster.local:8080")
    ]


def rates() -> list[str]:
    """The options that ask for the sample's own demand."""
    return [f"{name}={rate:g}" for name, rate in DEMAND.items()]

"""300 policies over 1,000 engines, each in three of them, read from a real Prometheus: how long, how much, how quiet.

What is counted stands in the API server's audit log. Engines have no pods: each has a Service whose two EndpointSlices
the test writes, and its replicas' 2,000 metrics pages come from one process (support/engine_pages.py) that Prometheus
scrapes. Figures go to stderr; nothing is asserted of times, only that bounds ten times as generous hold.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.big_fleet import CAPACITY, NAMESPACE, BigFleet, loads
from support.checkout import ROOT
from support.cluster import Cluster, await_true, cluster_command
from support.live_operator import NAMESPACE as OPS
from support.live_operator import LiveOperator, clean, prepare, writes
from support.prometheus_process import prometheus_program
from support.stage import Stage

pytestmark = pytest.mark.timeout(3600)

QUIET_SECONDS = 600
CHURN_SECONDS = 600
CHURN_A_MINUTE = 10  # of 1,000 engines: 1 %
READY_SECONDS = 1200  # two minutes were measured on a machine that had two cores for ten
SHORT_QUIET = 60
SCRAPE = "15s"
PROMETHEUS_PORT = 29090


def report(what: str, value: object) -> None:
    sys.stderr.write(f"{what}: {value}\n")


def test_a_calm_minute_writes_nothing(stage: Stage) -> None:
    """The 60-second form: nobody asks anything of the sample, and the audit log has no write of the operator's."""
    account = "system:serviceaccount:headrace-system:headrace-operator"

    def written(since: float) -> list[str]:
        return [line for line in lines_by(stage.audit(), account, since) if " leases" not in line]

    # What an earlier test did dies down first; then a minute of nothing, of which there must be one.
    await_true(lambda: not written(time.time() - SHORT_QUIET), "a minute without a write, Leases apart", 600)
    assert any(" leases" in line for line in lines_by(stage.audit(), account, time.time() - SHORT_QUIET))


def lines_by(audit: list[dict[str, Any]], account: str, since: float) -> list[str]:
    """ "verb resource" of an account's writes since a time, Leases among them."""
    found = []
    for event in audit:
        at = datetime.fromisoformat(event["requestReceivedTimestamp"].replace("Z", "+00:00")).timestamp()
        if event["user"]["username"] == account and event["verb"] not in ("get", "list", "watch") and at > since:
            found.append(f"{event['verb']} {event['objectRef']['resource']}")
    return found


class Fleet:
    """Pages and Prometheus in the cluster's network, an operator, and a fleet that is not applied yet."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.fleet = BigFleet(host=own_address(cluster))
        self._processes: list[subprocess.Popen[bytes]] = []
        pages = [self.fleet.host, str(self.fleet.first_port), str(len(self.fleet.ports)), str(self.fleet.models)]
        self._start("pages", sys.executable, "-m", "support.engine_pages", *pages)
        self._start("prometheus", prometheus_program(), *self._prometheus())
        self.operator = LiveOperator(cluster, "op-scale", folder, 9103)
        config = folder / "operator.yaml"
        source = {"name": "prom", "url": f"http://{self.fleet.host}:{PROMETHEUS_PORT}"}
        config.write_text(yaml.safe_dump({"metricSources": [source], "defaultSource": "prom"}))
        self.operator.start("--config", str(config))

    def _prometheus(self) -> list[str]:
        targets = [f"{self.fleet.host}:{port}" for port in self.fleet.ports]
        config = {
            "global": {"scrape_interval": SCRAPE, "scrape_timeout": "10s"},
            "scrape_configs": [{"job_name": "engines", "static_configs": [{"targets": targets}]}],
        }
        place = self.folder / "prometheus.yml"
        place.write_text(yaml.safe_dump(config))
        data = self.folder / "data"
        address = f"{self.fleet.host}:{PROMETHEUS_PORT}"
        return [f"--config.file={place}", f"--storage.tsdb.path={data}", f"--web.listen-address={address}"]

    def _start(self, name: str, *program: str) -> None:
        paths = os.pathsep.join(str(ROOT / part) for part in ("tests", "operator", "crds"))
        with (self.folder / f"{name}.log").open("wb") as log:
            command = cluster_command(self.cluster.name, "exec", "env", f"PYTHONPATH={paths}", *program)
            self._processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def writer(self, *what: str, seconds: float) -> dict[str, Any]:
        """Run support.fleet_writer; what it tells."""
        paths = os.pathsep.join(str(ROOT / part) for part in ("tests", "operator", "crds"))
        program = [sys.executable, "-m", "support.fleet_writer", str(self.cluster.kubeconfig), self.fleet.host, *what]
        command = cluster_command(self.cluster.name, "exec", "env", f"PYTHONPATH={paths}", *program)
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def ready(self) -> int:
        """Policies that are Ready, their status being of their generation."""
        return sum(
            any(one["type"] == "Ready" and one["status"] == "True" for one in policy["status"].get("conditions", []))
            for policy in self.cluster.get("rpol", f"--namespace={NAMESPACE}")["items"]
            if policy.get("status", {}).get("observedGeneration") == policy["metadata"]["generation"]
        )

    def memory(self) -> float:
        """Resident MiB of the operator."""
        place = Path(f"/proc/{self.operator.process.pid}/status").read_text()
        return int(place.split("VmRSS:")[1].split()[0]) / 1024

    def calls(self, since: float) -> Counter[str]:
        """API calls of the operator since a time, by verb and resource."""
        found: Counter[str] = Counter()
        for line in self.cluster.audit().splitlines():
            event = json.loads(line)
            at = datetime.fromisoformat(event["requestReceivedTimestamp"].replace("Z", "+00:00")).timestamp()
            if event["user"]["username"] == f"system:serviceaccount:{OPS}:op-scale" and at >= since:
                found[f"{event['verb']} {event.get('objectRef', {}).get('resource', 'discovery')}"] += 1
        return found

    def written(self) -> int:
        """Writes of the operator so far, Leases apart."""
        return sum(event["objectRef"]["resource"] != "leases" for event in writes(self.cluster, "op-scale"))

    def most_loaded(self) -> float:
        """The largest load of an engine over its capacity, by the tables of all policies at their declared demand."""
        found = self.cluster.get("configmap", f"--namespace={NAMESPACE}", "--selector=headrace.dev/policy")["items"]
        tables = [json.loads(one["data"]["table.json"]) for one in found]
        assert len(tables) == 2 * self.fleet.policies
        rates = {(table["policy"], table["frontend"]): self.fleet.rate for table in tables}
        ready: Counter[str] = Counter()
        for one in self.cluster.get("endpointslices", f"--namespace={NAMESPACE}")["items"]:
            if one["endpoints"][0]["conditions"]["ready"]:
                ready[f"{NAMESPACE}/{one['metadata']['labels']['kubernetes.io/service-name']}"] += 1
        sent = loads(tables, rates)
        return max(load / (CAPACITY * ready[engine]) for engine, load in sent.items() if load > 0)

    def end(self) -> None:
        self.operator.end()
        for process in self._processes:
            process.kill()
            process.wait()


def own_address(cluster: Cluster) -> str:
    """This side's address in the cluster's network, which its nodes reach."""
    [node] = cluster.get("nodes")["items"]
    address: str = next(one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP")
    found = cluster.execute("ip", "-o", "route", "get", address).stdout.split()
    return found[found.index("src") + 1]


@pytest.fixture(scope="module")
def big(bare: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    prepare(bare)
    bare.kubectl("create", "namespace", NAMESPACE)
    made = Fleet(bare, tmp_path_factory.mktemp("scale"))
    try:
        await_true(made.operator.leads, "it leads before anything is there")
        yield made
    finally:
        made.end()
        bare.kubectl("delete", "namespace", NAMESPACE)
        clean(bare)


@pytest.mark.long
def test_a_thousand_engines_at_once(big: Fleet) -> None:
    """300 policies, 1,000 engines, 600 tables; every engine is in three policies, and none is overbooked."""
    told = big.writer("apply", seconds=1200)
    await_true(lambda: big.ready() == big.fleet.policies, "all are Ready", READY_SECONDS)
    report("from the first resource's creation to all Ready, s", round(time.time() - told["began"], 1))
    report("of these its creation, s", round(told["ended"] - told["began"], 1))
    report("the operator's memory, MiB", round(big.memory()))
    report("its API calls", dict(big.calls(told["began"])))
    assert big.most_loaded() <= 1 + 1e-4


@pytest.mark.long
def test_ten_minutes_of_nothing_write_nothing(big: Fleet) -> None:
    await_true(lambda: still(big), "a minute without a write", READY_SECONDS)
    before, began = big.written(), time.time()
    time.sleep(QUIET_SECONDS)
    report("calls in ten minutes of nothing", dict(big.calls(began)))
    assert big.written() == before


def still(big: Fleet) -> bool:
    before = big.written()
    time.sleep(SHORT_QUIET)
    return big.written() == before


@pytest.mark.long
def test_ten_minutes_of_change(big: Fleet) -> None:
    """1 % of the engines change a minute: tables follow, none is overbooked, and memory does not grow without end."""
    before, began = big.memory(), time.time()
    told = big.writer("churn", str(CHURN_SECONDS), str(CHURN_A_MINUTE), seconds=CHURN_SECONDS + 300)
    assert told["flips"] >= CHURN_A_MINUTE * CHURN_SECONDS / 60 * 0.9
    report("memory before and after, MiB", (round(before), round(big.memory())))
    report("calls in ten minutes of change", dict(big.calls(began)))
    await_true(lambda: big.most_loaded() <= 1 + 1e-4, "tables follow the last change", 600)
    assert big.memory() < 2 * before

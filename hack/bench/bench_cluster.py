"""How long an edit takes to reach every router of a cluster: 2 front-ends x 3 pods, 50 edits, under load.

`python hack/bench/bench_cluster.py [--edits N] [--name RUNNING]`. Measured are, for each edit and front-end: from the
edit's request to the operator's write of the table (both by the API server's audit log), and from that write to the
moment at which the last of the front-end's routers applied it (by the routers' own admin ports). All clocks are this
machine's. It also reports whether a request failed or a pod was restarted meanwhile; exit 1 if so. No time is judged
(the machine may be shared); the target is a p95 under 1 s from publication to applied.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "hack" / "cluster" / "cluster.py"
FRONTENDS = ("fe-us-east", "fe-eu-west")
PODS = 3
LOOKS = 0.1  # seconds between two looks at a router; when it applied a table, it says itself
EDIT_SECONDS = 60.0
VALUES = """
routerDefaults: {replicas: 3}
"""


class Moment(NamedTuple):
    """Epoch seconds of one edit at one front-end: asked for, written by the operator, applied by the last router."""

    edited: float
    published: float
    applied: float


def cluster(name: str, *arguments: str, stdin: str = "") -> str:
    """A command of hack/cluster; what it prints."""
    command = [sys.executable, str(CLUSTER), "--name", name, *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True).stdout


def kubectl(*arguments: str, stdin: str = "") -> str:
    """Inside the cluster's network."""
    return subprocess.run(["kubectl", *arguments], input=stdin, capture_output=True, text=True, check=True).stdout


def items(kind: str, namespace: str, selector: str) -> list[dict[str, Any]]:
    listed = kubectl("get", kind, f"--namespace={namespace}", f"--selector={selector}", "--output=json")
    found: list[dict[str, Any]] = json.loads(listed)["items"]
    return found


def router_pods() -> dict[str, list[dict[str, Any]]]:
    pods = items("pods", "headrace-system", "app.kubernetes.io/component=router")
    pods = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return {
        name: [pod for pod in pods if pod["metadata"]["labels"]["headrace.dev/frontend"] == name] for name in FRONTENDS
    }


def applied(pod: dict[str, Any]) -> tuple[int, float]:
    """(revision, epoch seconds) of the table that a router uses."""
    address = pod["status"]["podIP"]
    with urllib.request.urlopen(f"http://{address}:9090/readyz", timeout=5) as answer:
        [told] = json.load(answer)["tables"]
    return told["revision"], told["appliedAt"]


def revision(frontend: str) -> tuple[int, int]:
    """(revision, body limit) of the table that stands at the API server."""
    text = kubectl(
        "get",
        "configmap",
        f"headrace-chat-{frontend}",
        "--namespace=inference",
        "--output=jsonpath={.data.table\\.json}",
    )
    table = json.loads(text)
    return table["identity"]["revision"], table["limits"]["body"]


def measure(edits: int) -> tuple[list[dict[str, Any]], bool]:
    """Inside the cluster's network: make the edits, and tell when each router applied each revision."""
    pods = router_pods()
    assert all(len(of) == PODS for of in pods.values()), {name: len(of) for name, of in pods.items()}
    seen = []
    with ThreadPoolExecutor(len(FRONTENDS) * PODS) as threads:
        for number in range(edits):
            size = 32 + number % 2 + 1
            kubectl(
                "patch", "rpol", "chat", "--namespace=inference", "--type=merge",
                f'--patch={{"spec":{{"limits":{{"body":"{size}Mi"}}}}}}',
            )  # fmt: skip
            for name in FRONTENDS:
                deadline = time.monotonic() + EDIT_SECONDS
                while (stands := revision(name))[1] != size << 20:
                    assert time.monotonic() < deadline, f"edit {number} is not in the table of {name}: {stands}"
                    time.sleep(LOOKS)
                while True:
                    told = list(threads.map(applied, pods[name]))
                    if all(of >= stands[0] for of, _ in told):
                        break
                    assert time.monotonic() < deadline, f"revision {stands[0]} of {name} is not applied: {told}"
                    time.sleep(LOOKS)
                seen.append({"edit": number, "frontend": name, "size": size, "applied": [at for _, at in told]})
    after = router_pods()
    same = [uids(of) for of in pods.values()] == [uids(of) for of in after.values()]
    return seen, same


def uids(pods: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return sorted(
        (pod["metadata"]["uid"], sum(one["restartCount"] for one in pod["status"]["containerStatuses"])) for pod in pods
    )


def moments(seen: list[dict[str, Any]], log: str) -> list[Moment]:
    """Each edit at each front-end, with its two writes from the audit log."""
    asked, written = [], {name: [] for name in FRONTENDS}  # type: ignore[var-annotated]
    for line in log.splitlines():
        event = json.loads(line)
        of = event.get("objectRef", {})
        if event["verb"] not in ("patch", "update") or event["responseStatus"].get("code") != 200:
            continue
        at = datetime.fromisoformat(event["stageTimestamp"]).timestamp()
        if of.get("resource") == "routingpolicies" and not of.get("subresource") and "kubectl" in event["userAgent"]:
            asked.append(at)
        for name in FRONTENDS:
            if of.get("resource") == "configmaps" and of.get("name") == f"headrace-chat-{name}":
                written[name].append(at)
    edits = [list(group) for _, group in groupby(seen, key=lambda one: one["edit"])]
    asked = asked[-len(edits) :]
    found = []
    for at, group in zip(asked, edits, strict=True):
        for one in group:
            last = max(one["applied"])
            published = max(
                (written_at for written_at in written[one["frontend"]] if at <= written_at <= last + 0.05), default=at
            )
            found.append(Moment(at, published, last))
    return found


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def row(what: str, values: list[float]) -> str:
    figures = "".join(f"{1000 * quantile(values, share):10.0f}" for share in (0.5, 0.95, 0.99))
    return f"{what:<34}{figures}{1000 * max(values):10.0f}"


def run(name: str, edits: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        values = Path(folder) / "values.yaml"
        values.write_text(VALUES)
        stage = [str(ROOT / "hack" / "cluster" / "stage.sh"), name]
        subprocess.run(stage, env={**os.environ, "STAGE_VALUES": str(values)}, check=True, stdout=sys.stderr)
    job = (ROOT / "manifests" / "samples" / "cluster" / "load.yaml").read_text()
    cluster(name, "exec", "kubectl", "delete", "job", "load", "--namespace=inference", "--ignore-not-found")
    cluster(name, "exec", "kubectl", "apply", "-f", "-", stdin=job.replace("--duration=75", "--duration=3000"))
    time.sleep(20)
    command = ["exec", sys.executable, str(Path(__file__).resolve()), "--inside", "--edits", str(edits)]
    measured = json.loads(cluster(name, *command).splitlines()[-1])
    stop = ["python", "-c", "import os, signal; os.kill(1, signal.SIGTERM)"]
    cluster(name, "exec", "kubectl", "exec", "job/load", "--namespace=inference", "--", *stop)
    cluster(
        name, "exec", "kubectl", "wait", "--for=jsonpath={.status.ready}=0", "job/load", "--namespace=inference",
        "--timeout=150s",
    )  # fmt: skip
    load = json.loads(cluster(name, "exec", "kubectl", "logs", "job/load", "--namespace=inference").splitlines()[-1])
    found = moments(measured["seen"], cluster(name, "audit"))
    counts = load["counts"]
    print(f"{edits} edits, {len(FRONTENDS)} front-ends x {PODS} routers; milliseconds")
    print(f"{'':<34}{'p50':>10}{'p95':>10}{'p99':>10}{'max':>10}")
    print(row("edit -> publication", [one.published - one.edited for one in found]))
    print(row("publication -> applied everywhere", [one.applied - one.published for one in found]))
    print(row("edit -> applied everywhere", [one.applied - one.edited for one in found]))
    print(
        f"requests meanwhile: {counts['requests']}, failed: {counts['failed']}; pods all the same: {measured['same']}"
    )
    return 0 if measured["same"] and not counts["failed"] else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edits", type=int, default=50, metavar="N")
    parser.add_argument("--name", help="a cluster of hack/cluster that stays; default: one of its own that goes")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        seen, same = measure(asked.edits)
        print(json.dumps({"seen": seen, "same": same}))
        return 0
    name = asked.name or f"bench-{os.getpid()}"
    cluster(name, "up", *([] if asked.name else ["--owner", str(os.getpid())]))
    try:
        return run(name, asked.edits)
    finally:
        if not asked.name:
            cluster(name, "down")


if __name__ == "__main__":
    sys.exit(main())

"""The test cluster itself: pods and Services work, our images run, and nothing stays behind."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.cluster import Cluster, await_true, cluster_command

pytestmark = [pytest.mark.long, pytest.mark.timeout(2700)]

TOOLS = "localhost/headrace/tools:test"
# Two answering pods behind a Service, and one that asks.
ECHO = f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: echo}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: echo}}}}
  template:
    metadata: {{labels: {{app: echo}}}}
    spec:
      containers:
      - name: echo
        image: {TOOLS}
        command: [socat, "TCP-LISTEN:8080,fork,reuseaddr", "SYSTEM:echo $HOSTNAME"]
        readinessProbe: {{tcpSocket: {{port: 8080}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: echo}}
spec: {{selector: {{app: echo}}, ports: [{{port: 80, targetPort: 8080}}]}}
---
apiVersion: v1
kind: Pod
metadata: {{name: client}}
spec:
  containers:
  - {{name: client, image: {TOOLS}, command: [sleep, infinity]}}
"""
ASK = "getent hosts echo.default.svc.cluster.local && exec 3<>/dev/tcp/echo.default.svc.cluster.local/80 && cat <&3"


@pytest.fixture(scope="module")
def cluster(bare: Cluster) -> Cluster:
    return bare


def test_pods_run_and_a_service_is_found_by_name(cluster: Cluster) -> None:
    cluster.load("tools")
    cluster.kubectl("apply", "--filename=-", stdin=ECHO)
    cluster.kubectl("rollout", "status", "deployment/echo", "--timeout=240s")
    cluster.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=240s")
    pods = {pod["metadata"]["name"] for pod in cluster.get("pods", "--selector=app=echo")["items"]}
    answered: set[str] = set()

    def ask() -> bool:
        said = cluster.kubectl("exec", "client", "--", "bash", "-c", ASK, check=False)
        if said.returncode == 0:
            answered.add(said.stdout.splitlines()[-1])
        return answered == pods

    await_true(ask, f"both pods of the Service answer by its name: {pods} wanted, {answered} came")
    assert len(pods) == 2


def restricted_pod(name: str, image: str, command: str) -> str:
    """A pod with no rights that runs one Python command and ends."""
    return f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  securityContext: {{runAsNonRoot: true, seccompProfile: {{type: RuntimeDefault}}}}
  containers:
  - name: one
    image: localhost/headrace/{image}:test
    command: [bash, -c, '{command}']
    securityContext:
      readOnlyRootFilesystem: true
      allowPrivilegeEscalation: false
      capabilities: {{drop: [ALL]}}
"""


@pytest.mark.parametrize("image", ["operator", "router"])
def test_our_images_run_without_rights(cluster: Cluster, image: str) -> None:
    cluster.load(image)
    solver = "import numpy, pulp, highspy"
    command = f'headrace --version && id -u && if python -c "{solver}"; then echo solves; fi 2>&1'
    cluster.kubectl("apply", "--filename=-", stdin=restricted_pod(image, image, command))

    def phase() -> str:
        return str(cluster.get("pod", image)["status"]["phase"])

    await_true(lambda: phase() in {"Succeeded", "Failed"}, f"the pod of {image} ends")
    said = cluster.kubectl("logs", image).stdout
    assert phase() == "Succeeded", said
    assert said.startswith("headrace ")
    assert "\n65532\n" in said
    assert ("solves" in said) == (image == "operator"), "a router needs no solver; less to attack"


def descendants(pid: int) -> set[tuple[int, str]]:
    """A process and all below it, each with its start time: an id alone may be another's later."""
    parents: dict[int, list[int]] = {}
    started: dict[int, str] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] == "Z":  # ended; whoever inherited it has not asked how
            continue
        parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
        started[int(stat.parent.name)] = fields[19]
    found, waiting = set(), [pid]
    while waiting:
        process = waiting.pop()
        if process in started:
            found.add((process, started[process]))
        waiting += parents.get(process, [])
    return found


def still_running(processes: set[tuple[int, str]]) -> set[tuple[int, str]]:
    return {process for pid, start in processes for process in descendants(pid) if process == (pid, start)}


def network_links() -> list[str]:
    return sorted(path.name for path in Path("/sys/class/net").iterdir())


def left_behind(name: str) -> list[str]:
    """Mounts, control groups and files on this machine that bear a cluster's name."""
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if name in line]
    groups = [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/*{name}*")]
    groups += [str(path) for path in Path("/sys/fs/cgroup").glob(f"*{name}*")]
    runs = [str(path) for path in Path("/run/headrace-cluster").glob(f"{name}*")]
    return mounts + groups + runs


def private_record(name: str) -> dict[str, object]:
    path = Path("/run/headrace-cluster") / name / "record.json"
    facts = json.loads(path.read_text()) if path.exists() else {}
    assert isinstance(facts, dict)
    return facts


@pytest.fixture
def mortal() -> Iterator[subprocess.Popen[bytes]]:
    """Some process, to be killed."""
    with subprocess.Popen(["sleep", "infinity"]) as process:
        yield process
        process.kill()


def test_two_at_once_and_nothing_stays_of_one_whose_owner_was_killed(
    cluster: Cluster, mortal: subprocess.Popen[bytes]
) -> None:
    if cluster.how != "private":
        pytest.skip(f"a {cluster.how} cluster: its Docker is not ours to look into")
    links = network_links()
    second = Cluster("orphan", owner=mortal.pid)
    second.up()
    names = [made.get("nodes")["items"][0]["metadata"]["name"] for made in (cluster, second)]
    assert names[0] != names[1]

    facts = private_record(second.name)
    data, holder = Path(str(facts["data"])), facts["holder"]
    assert isinstance(holder, dict)
    processes = descendants(holder["pid"])
    assert len(processes) > 20  # the control plane, at least
    assert data.is_dir()
    assert left_behind(second.name)
    assert network_links() == links
    mortal.send_signal(signal.SIGKILL)
    mortal.wait()
    Cluster("nobody").down()  # any later run sweeps

    await_true(lambda: not still_running(processes), "every process of the cluster ends")
    assert left_behind(second.name) == []
    assert not data.exists()
    assert network_links() == links
    assert len(cluster.get("nodes")["items"]) == 1


def test_nothing_stays_of_one_killed_while_it_came_up(cluster: Cluster) -> None:
    if cluster.how != "private":
        pytest.skip(f"a {cluster.how} cluster: its Docker is not ours to look into")
    unfinished = Cluster("unfinished")
    with subprocess.Popen(
        cluster_command(unfinished.name, "up"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as making:
        await_true(lambda: private_record(unfinished.name).get("init"), "its Docker starts")
        making.kill()
    facts = private_record(unfinished.name)
    holder = facts["holder"]
    assert isinstance(holder, dict)
    processes = descendants(holder["pid"])
    assert processes
    Cluster("nobody").down()
    await_true(lambda: not still_running(processes), "every process of the cluster ends")
    assert left_behind(unfinished.name) == []
    assert not Path(str(facts["data"])).exists()


def test_down_leaves_nothing() -> None:
    """Its own cluster, so that the others' stays for them."""
    links = network_links()
    made = Cluster("brief")
    made.up()
    if made.how != "private":
        made.down()
        pytest.skip(f"a {made.how} cluster: its Docker is not ours to look into")
    facts = private_record(made.name)
    holder = facts["holder"]
    assert isinstance(holder, dict)
    processes = descendants(holder["pid"])
    made.down()
    assert still_running(processes) == set()
    assert left_behind(made.name) == []
    assert not Path(str(facts["data"])).exists()
    assert network_links() == links


def certificate_authority(kubeconfig: str) -> str:
    found = yaml.safe_load(kubeconfig)["clusters"][0]["cluster"]["certificate-authority-data"]
    assert isinstance(found, str)
    return found


def test_a_second_one_beside_it_is_reached_by_its_pods_and_goes_alone(cluster: Cluster) -> None:
    """Another cluster in the sense of ``publish.cluster``: an API server of its own, with its own CA, in reach."""
    far = Cluster("far")
    far.up(beside=cluster)
    try:
        mine, its = cluster.internal_kubeconfig(), far.internal_kubeconfig()
        assert certificate_authority(mine) != certificate_authority(its)
        server = yaml.safe_load(its)["clusters"][0]["cluster"]["server"]
        cluster.load("tools")
        address, _, port = server.removeprefix("https://").rpartition(":")
        asking = f"exec 3<>/dev/tcp/{address}/{port} && echo reached"
        cluster.kubectl("apply", "--filename=-", stdin=tools_pod("reaching", asking))
        await_true(lambda: cluster.get("pod", "reaching")["status"]["phase"] in {"Succeeded", "Failed"}, "it asked")
        assert cluster.kubectl("logs", "reaching").stdout == "reached\n"
        far.kubectl("create", "namespace", "only-there")
        assert cluster.kubectl("get", "namespace", "only-there", check=False).returncode != 0
    finally:
        far.down()
        cluster.kubectl("delete", "pod", "reaching", "--ignore-not-found", "--now")
    assert left_behind(far.name) == []
    assert len(cluster.get("nodes")["items"]) == 1


def tools_pod(name: str, command: str) -> str:
    """A pod that runs one shell command and ends."""
    container = {"name": "one", "image": TOOLS, "command": ["bash", "-c", command]}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def test_the_api_server_stops_hangs_and_comes_back_and_tells_who_asked(cluster: Cluster) -> None:
    if cluster.how == "given":
        pytest.skip("a given cluster's API server is not ours to stop")
    cluster.api("stop")
    try:
        refused = cluster.kubectl("get", "nodes", "--request-timeout=5s", check=False)
        assert refused.returncode != 0
    finally:
        cluster.api("start")
    cluster.api("pause")
    try:
        hung = cluster.kubectl("get", "nodes", "--request-timeout=3s", check=False)
        assert hung.returncode != 0
    finally:
        cluster.api("resume")
    cluster.kubectl("create", "namespace", "asked-for")
    cluster.kubectl("delete", "namespace", "asked-for")
    asked = [json.loads(line) for line in cluster.audit().splitlines()]
    about = [event["verb"] for event in asked if event.get("objectRef", {}).get("name") == "asked-for"]
    assert {"create", "delete"} <= set(about)
    assert all("requestObject" not in event for event in asked), "bodies, with secrets in them, are not logged"

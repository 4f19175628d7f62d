"""The sample in a cluster: the chart installs it, requests go where the tables say, and people can read it all."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from support.cluster import await_true
from support.stage import DEMAND, SAMPLE, SYSTEM, Stage, rates, weights_of

pytestmark = pytest.mark.timeout(2700)  # with nothing cached all of Kubernetes is compiled

GOLDEN = Path(__file__).parent / "golden"
REPLICAS = {"b200-westus2": 1, "h100-swedencentral": 1, "h200-eastus": 3, "h200-westeurope": 1}
WARM_UP = 20.0  # seconds until the routers' counts, not declarations, are the demand


def test_everything_is_ready_and_says_so(stage: Stage) -> None:
    policy = stage.resource("rpol", "chat")
    conditions = {one["type"]: one for one in policy["status"]["conditions"]}
    assert policy["status"]["observedGeneration"] == policy["metadata"]["generation"]
    for kind in ("Ready", "Published", "Solved", "CapacitySufficient"):
        assert conditions[kind]["status"] == "True", conditions[kind]
    assert {"Reconciling", "Stalled"}.isdisjoint(conditions)
    for engine, replicas in REPLICAS.items():
        status = stage.resource("ieng", engine)["status"]
        assert status["readyReplicas"] == replicas
        assert stage.condition("ieng", engine, "Ready")["status"] == "True"


def test_routers_run_compiled(stage: Stage) -> None:
    """ADR 21: their image has a compiled router, for the image's own Python."""
    pods = stage.pods("app.kubernetes.io/component=router", SYSTEM)
    assert pods
    for pod in pods:
        said = stage.cluster.kubectl("logs", pod["metadata"]["name"], f"--namespace={SYSTEM}").stdout
        assert re.search(r"(?m)^headrace router: serving on .*, compiled$", said), said[:2000]


def test_requests_reach_the_engines_in_the_weights_proportions(stage: Stage) -> None:
    prove_proportions(stage, duration=45.0, tolerance=0.05)


@pytest.mark.long
def test_2000_requests_a_frontend_reach_the_engines_in_the_weights_proportions(stage: Stage) -> None:
    prove_proportions(stage, duration=WARM_UP + 2000 / min(DEMAND.values()), tolerance=0.03)


def prove_proportions(stage: Stage, duration: float, tolerance: float) -> None:
    """Requests without keys at the policy's own demand; the engines count them, the answers say by which revision."""
    before = stage.asked()
    with stage.watch_tables() as watch, stage.load("proportions", rate=rates(), duration=duration) as load:
        load.await_first()
        time.sleep(WARM_UP)  # a demand that is not measured yet is no fault of the proportions
        settled = {frontend: max(tables) for frontend, tables in watch.tables().items()}
        result = load.result(duration + 300)
        tables = watch.tables()
    after = stage.asked()
    assert result["counts"]["failed"] == result["counts"]["notSent"] == 0, result["failures"]
    for frontend in DEMAND:
        told = Counter(bare_names(result["frontends"][frontend]["engines"]))
        counted = after[frontend] - before.get(frontend, Counter())
        assert counted.total() - told.total() <= 0.01 * told.total()  # second attempts
        assert sum((told - counted).values()) == 0, f"answers of engines that were not asked: {told} {counted}"
        weights = {revision: weights_of(table) for revision, table in tables[frontend].items()}
        revisions = {
            int(revision): bare_names(engines)
            for revision, engines in result["frontends"][frontend]["revisions"].items()
            if int(revision) >= settled[frontend]
        }
        assert farthest(revisions, weights) <= tolerance, f"{frontend}: {revisions}\n{weights}"


def bare_names(engines: Mapping[str, int]) -> dict[str, int]:
    """Engines without their namespace."""
    return {name.rpartition("/")[2]: number for name, number in engines.items()}


def farthest(revisions: Mapping[int, Mapping[str, int]], weights: Mapping[int, Mapping[str, float]]) -> float:
    """The largest difference of an engine's share of all requests from what the revisions' weights would give it."""
    total = sum(sum(engines.values()) for engines in revisions.values())
    assert total > 0
    difference: Counter[str] = Counter()
    for revision, engines in revisions.items():
        for engine, number in engines.items():
            difference[engine] += number  # type: ignore[assignment]
        for engine, weight in weights[revision].items():
            difference[engine] -= weight * sum(engines.values())  # type: ignore[assignment]
    return max(abs(value) for value in difference.values()) / total


TEXT = (
    "text"  # a namespace for the same sample whose front-ends have no routers: its numbers are declared ones and stay
)
MASKS = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
    (r"((?:UID|Resource Version|Hash): +)\S+", r"\1MASKED"),
    (r"\brev \d+", "rev N"),
    (r"(Revision: +)\d+", r"\1N"),
    (r"^  (Normal|Warning) +(\S+) +\d.*? +headrace-operator", r"  \1  \2  AGE  headrace-operator"),
    (r"^  (Type|----) +(Reason|------) +(Age|----) +(From|----) +(Message|-------)$", r"  \1  \2  \3  \4  \5"),
)
AGES = r"((?:CHANGED +)?AGE|(?:\d+[smh](?:\d+[smh])? +)?\d+[smh](?:\d+[smh])?)$"


def masked(text: str) -> str:
    """A text without what differs from run to run."""
    for pattern, instead in MASKS:
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def settled(stage: Stage, engine: str) -> bool:
    """Whether an engine of TEXT is as it stays: one replica that is read, with nothing that makes it count for less."""
    status = stage.resource("ieng", engine, TEXT).get("status", {})
    fresh = any(one["type"] == "SignalsFresh" and one["status"] == "True" for one in status.get("conditions", []))
    return fresh and status.get("readyReplicas") == 1 and not status.get("why")


@pytest.fixture(scope="module")
def text(stage: Stage) -> Any:
    """The sample again, one pod an engine, at front-ends that no router serves."""
    moved = "\n---\n".join((SAMPLE / name).read_text() for name in ("namespace.yaml", "simulated-engines.yaml"))
    engines = (SAMPLE / "engines.yaml").read_text()
    policy = (SAMPLE / "policy.yaml").read_text().replace("name: fe-", "name: text-")

    def put(documents: str) -> None:
        for old in ("namespace: inference", "name: inference"):
            documents = documents.replace(old, old.replace("inference", TEXT))
        stage.cluster.kubectl("apply", "--filename=-", stdin=documents.replace("replicas: 3", "replicas: 1"))

    put(moved)
    for engine in REPLICAS:
        stage.cluster.kubectl("rollout", "status", f"deployment/{engine}", f"--namespace={TEXT}", "--timeout=240s")
    put(engines)
    for engine in REPLICAS:
        await_true(lambda engine=engine: settled(stage, engine), f"{engine} is read, and its ramp-up is over", 120)
    put(policy)
    stage.cluster.kubectl("wait", "--for=condition=Ready", "rpol/chat", f"--namespace={TEXT}", "--timeout=240s")
    await_true(lambda: stage.condition("rpol", "chat", "SignalsFresh", TEXT)["status"] == "True", "signals are fresh")
    yield
    stage.cluster.kubectl("delete", "namespace", TEXT, "--timeout=120s")


def test_get_reads_well(stage: Stage, text: None, golden: Callable[[Path, str], None]) -> None:
    said = stage.cluster.kubectl("get", "rpol,ieng", f"--namespace={TEXT}").stdout
    golden(
        GOLDEN / "get.txt", re.sub(AGES, lambda found: "AGE" if found[0][0].isdigit() else found[0], said, flags=re.M)
    )


def test_describe_tells_the_whole_story(stage: Stage, text: None, golden: Callable[[Path, str], None]) -> None:
    said = stage.cluster.kubectl("describe", "rpol", "chat", f"--namespace={TEXT}").stdout
    golden(GOLDEN / "describe-policy.txt", masked(said))


def test_describe_of_an_engine(stage: Stage, text: None, golden: Callable[[Path, str], None]) -> None:
    said = stage.cluster.kubectl("describe", "ieng", "h200-westeurope", f"--namespace={TEXT}").stdout
    golden(GOLDEN / "describe-engine.txt", masked(said))

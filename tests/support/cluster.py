"""A real Kubernetes cluster for tests, behind the commands of hack/cluster: the tests know nothing else of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.checkout import ROOT

PROGRAM = ROOT / "hack" / "cluster" / "cluster.py"
NO_CLUSTER_HERE = 3
UP_SECONDS = 2400  # with nothing cached all of Kubernetes is compiled


def cluster_command(name: str, *arguments: str) -> list[str]:
    return [sys.executable, str(PROGRAM), "--name", name, *arguments]


class Cluster:
    """One cluster of this test run; it ends with ``owner``, which is the run's own process unless told otherwise."""

    def __init__(self, name: str, owner: int | None = None) -> None:
        self.name = f"{name}-{os.getpid()}"
        self.owner = owner or os.getpid()
        self.how = ""
        self.kubeconfig = Path()

    def up(self, beside: Cluster | None = None) -> None:
        """Bring it up; where none can be had the test fails, or is skipped if HEADRACE_SKIP_E2E=1 asks for that.

        ``beside`` another it is on the same Docker: the other's pods reach its API at the address of
        ``internal_kubeconfig``, by a CA of its own.
        """
        where = ["--beside", beside.name] if beside else []
        done = self._run("up", "--owner", str(self.owner), *where, seconds=UP_SECONDS, check=False)
        if done.returncode == NO_CLUSTER_HERE:
            word = f"e2e NOT RUN: {done.stderr.strip()}"
            if os.environ.get("HEADRACE_SKIP_E2E") == "1":
                pytest.skip(word)
            pytest.fail(word)
        assert done.returncode == 0, done.stderr
        facts = json.loads(done.stdout)
        self.how, self.kubeconfig = facts["how"], Path(facts["kubeconfig"])

    def internal_kubeconfig(self) -> str:
        """An administrator's kubeconfig that works in pods of a cluster beside this one."""
        return self._run("kubeconfig").stdout

    def down(self) -> None:
        self._run("down")

    def load(self, *images: str) -> None:
        """Build some of the test images of hack/cluster/images.py and give them to the nodes."""
        self._run("load", *images, seconds=UP_SECONDS)

    def audit(self) -> str:
        """The API server's audit log, a JSON object a line."""
        return self._run("audit").stdout

    def api(self, what: str) -> None:
        """Stop or start the API server; pause or resume it, so that it takes connections and answers nothing."""
        self._run("api", what)

    def execute(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program of this machine in the cluster's network, where addresses of pods and Services mean them."""
        return self._run("exec", *command, check=check)

    def kubectl(self, *arguments: str, check: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return self._run("exec", "kubectl", *arguments, check=check, stdin=stdin)

    def established(self) -> None:
        """Wait until all types that were applied are served; of one that is a moment old ``kubectl wait`` fails."""
        waiting = ("wait", "--for=condition=Established", "--timeout=10s", "crd", "--all")
        await_true(lambda: self.kubectl(*waiting, check=False).returncode == 0, "all types are established")

    def get(self, *arguments: str) -> Any:
        """What ``kubectl get`` says of it, as JSON."""
        return json.loads(self.kubectl("get", *arguments, "--output=json").stdout)

    def _run(
        self, *arguments: str, seconds: float = 280, check: bool = True, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            cluster_command(self.name, *arguments), input=stdin, capture_output=True, text=True, timeout=seconds
        )
        assert done.returncode == 0 or not check, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done


def await_true(condition: Callable[[], object], what: str, seconds: float = 240) -> None:
    """Wait until ``condition`` holds, and fail with ``what`` if it doesn't in ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not in {seconds:.0f} s: {what}"
        time.sleep(0.2)

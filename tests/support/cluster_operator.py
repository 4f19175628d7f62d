"""The operator as a process beside a test cluster: this checkout's own, leading, with the rights of the kubeconfig."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from support.cluster import Cluster, await_true, cluster_command

HEADRACE = (sys.executable, "-m", "headrace_cli.main")


@contextlib.contextmanager
def leading_operator(cluster: Cluster, log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """``headrace run`` until it leads; ends with the block."""
    environment = os.environ | {"POD_NAMESPACE": "default", "POD_NAME": "operator"}
    command = cluster_command(cluster.name, "exec", *HEADRACE, "run", *arguments)
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            await_true(lambda: process.poll() is not None or "leading from now on" in log.read_text(), "a leader")
            assert process.poll() is None, log.read_text()
            yield process
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()
            process.wait()


def headrace(cluster: Cluster, *words: str, code: int = 0) -> str:
    """What a command says that is run for the cluster, and ends with ``code``."""
    done = subprocess.run(
        cluster_command(cluster.name, "exec", *HEADRACE, *words), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr

"""A Docker daemon of our own, in namespaces of its own: process ids, mounts, network.

Its first process is all that holds it: when that one is killed, the kernel ends the daemon, every container and pod,
and takes their mounts, bridges and iptables rules away. Left to remove are files and control groups. The machine's own
network, iptables and Docker, if there are any, are not touched, and any number of such daemons can run.
"""

# ruff: noqa: S603, S607 (runs this machine's own tools, found on PATH)
from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import parts
from record import Process, Record

START_SECONDS = 90.0
STOP_SECONDS = 60.0
COMMANDS = {"dockerd": "docker.io", "docker": "docker.io", "iptables": "iptables", "ip": "iproute2"}


def check() -> None:
    """Raise Unable with what is missing if this machine can't run one."""
    if os.geteuid() != 0:
        raise parts.Unable(
            "no Docker answers and we are not root, so none can be started; set HEADRACE_E2E_KUBECONFIG to a cluster's "
            "kubeconfig, give this user a Docker that can pull images, or run as root"
        )
    parts.need(COMMANDS)


def start(record: Record) -> None:
    """Start the daemon and wait until it answers; fills in and saves ``record.init``."""
    Path(record.data).mkdir(parents=True)
    log = record.folder / "docker.log"
    unshare = ["unshare", "--net", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child"]
    with log.open("wb") as output:
        holder = subprocess.Popen(
            [*unshare, parts.HERE / "daemon.sh", record.folder, record.data, record.group],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    record.holder = Process.of(holder.pid)
    record.save()
    deadline = time.monotonic() + START_SECONDS
    while record.init is None or not _answers(record):
        if holder.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"our Docker daemon did not start:\n{_tail(log)}")
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        if record.init is None and children:
            record.init = Process.of(int(children[0]))
            record.save()
        time.sleep(0.05)


def environment(record: Record) -> dict[str, str]:
    """Variables with which docker and kind find the daemon, and no setting of the machine's own."""
    return {
        "DOCKER_HOST": f"unix://{record.docker_folder}/docker.sock",
        "DOCKER_CONFIG": f"{record.docker_folder}/docker-config",
    }


def inside(record: Record) -> list[str]:
    """What to put before a command so that it runs in the daemon's network."""
    if record.init is None or not record.init.alive():
        raise parts.Unable(f"cluster {record.name} does not run any more; take it down and up again")
    return ["nsenter", f"--net=/proc/{record.init.pid}/ns/net", "--"]


def stop(record: Record) -> None:
    """End everything of it and remove its data and control groups; works on whatever a killed run left."""
    for process in (record.init, record.holder):  # the holder's death would end the first process as well
        if process and process.alive():
            os.kill(process.pid, signal.SIGKILL)
            _await_end(process)
    shutil.rmtree(record.data, ignore_errors=True)
    for hierarchy in [Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir()]:
        _remove_group(hierarchy / record.group.lstrip("/"))


def _await_end(process: Process) -> None:
    deadline = time.monotonic() + STOP_SECONDS
    while process.alive():
        if time.monotonic() > deadline:
            raise RuntimeError(f"process {process.pid} of a test cluster does not end")
        time.sleep(0.05)


def _answers(record: Record) -> bool:
    if not (record.folder / "docker.sock").exists():
        return False
    asked = subprocess.run(
        ["docker", "version"], env={**os.environ, **environment(record)}, capture_output=True, check=False
    )
    return asked.returncode == 0


def _remove_group(group: Path) -> None:
    """Remove a control group and all below it. The kernel's files in it can't be removed, and go with it."""
    if not group.is_dir():
        return
    deadline = time.monotonic() + STOP_SECONDS
    for folder, _, _ in os.walk(group, topdown=False):
        while True:
            try:
                Path(folder).rmdir()
                break
            except FileNotFoundError:
                break
            except OSError:  # busy: the last of its processes is ending
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])

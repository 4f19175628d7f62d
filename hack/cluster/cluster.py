#!/usr/bin/env python3
"""The test cluster's one interface: up, exec, load-image, down. README.md beside it tells how it works.

Progress goes to standard error; ``up`` prints one line of JSON: name, how it was made, kubeconfig. It exits with 3, and
a word on what is needed, where no cluster can be had.
"""

# ruff: noqa: S603, S606 (runs this machine's own tools, found on PATH)
from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True

import images  # noqa: E402
import kind  # noqa: E402
import parts  # noqa: E402
import private  # noqa: E402
import record  # noqa: E402
from cache import locked  # noqa: E402

GIVEN = "HEADRACE_E2E_KUBECONFIG"
GIVEN_LOAD = "HEADRACE_E2E_LOAD_IMAGE"


def up(name: str, owner: int | None) -> dict[str, str]:
    """Have a cluster called ``name``: the one given by the environment, the one that runs already, or a new one."""
    if given := os.environ.get(GIVEN):
        return {"name": name, "how": "given", "kubeconfig": given}
    started = time.monotonic()
    with locked(record.home() / "lock"):
        sweep()
        cluster = record.find(name)
        if cluster is None:
            cluster = _claim(name, owner)
        elif not cluster.ready:
            raise parts.Unable(f"process {cluster.maker.pid} is just making cluster {name}; choose another --name")
    if not cluster.ready:
        try:
            _make(cluster)
        except BaseException:
            remove(cluster)
            raise
        sys.stderr.write(f"headrace: cluster {name} is up after {time.monotonic() - started:.0f} s\n")
    return {"name": name, "how": cluster.how, "kubeconfig": str(cluster.kubeconfig)}


def _claim(name: str, owner: int | None) -> record.Record:
    owning = None if owner is None else record.Process.of(owner)
    if owning and not owning.alive():
        raise parts.Unable(f"--owner {owner}: no such process")
    cluster = record.Record(name, "docker", record.Process.of(os.getpid()), owning)
    cluster.save()
    return cluster


def _make(cluster: record.Record) -> None:
    image, kubectl = kind.official_image(), None
    if image is None:
        image, kubectl = _start_docker(cluster)
    kind.create(cluster, parts.kind(), image, kubectl)
    cluster.ready = True
    cluster.save()


def _start_docker(cluster: record.Record) -> tuple[str, Path]:
    """Start a Docker of our own with our node image; returns the image's name and kubectl."""
    private.check()
    made_of = parts.private_parts()
    cluster.how, cluster.data = "private", str(record.data_folder(cluster.name))
    cluster.save()
    private.start(cluster)
    return kind.import_node(cluster, made_of), made_of.kubernetes


def remove(cluster: record.Record) -> None:
    """Take a cluster down, whatever state it is in, and forget it."""
    private.stop(cluster) if cluster.how == "private" else kind.delete(cluster)
    cluster.forget()


def sweep() -> None:
    """Take down the clusters whose owners are dead."""
    for cluster in record.every():
        if cluster.abandoned():
            sys.stderr.write(f"headrace: removing cluster {cluster.name}, left by a run that is gone\n")
            remove(cluster)


def execute(name: str, command: list[str]) -> None:
    """Become ``command``, in the cluster's network, with its KUBECONFIG, kubectl and kind."""
    if given := os.environ.get(GIVEN):
        os.execvpe(command[0], command, {**os.environ, "KUBECONFIG": str(Path(given).resolve())})
    cluster = _running(name)
    environment = kind.environment(cluster)
    os.environ["PATH"] = environment["PATH"]
    argv = [*kind.inside(cluster), *command]
    os.execvpe(argv[0], argv, environment)


def load_image(name: str, image: str) -> None:
    """Give the cluster's nodes an image: an archive's path, or a name that the machine's Docker knows."""
    if GIVEN in os.environ:
        if GIVEN_LOAD not in os.environ:
            raise parts.Unable(f"set {GIVEN_LOAD} to a command that takes an image archive to the cluster of {GIVEN}")
        subprocess.run([*shlex.split(os.environ[GIVEN_LOAD]), image], check=True, stdout=2)
    else:
        kind.load(_running(name), image)


def down(name: str) -> None:
    """Take the cluster down; one that the environment gives, or that is not there, is left alone."""
    if GIVEN in os.environ:
        return
    with locked(record.home() / "lock"):
        if cluster := record.find(name):
            remove(cluster)
        sweep()


def _running(name: str) -> record.Record:
    cluster = record.find(name)
    if cluster is None or not cluster.ready:
        raise parts.Unable(f"no cluster {name} runs here; `up` makes one")
    return cluster


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="default", help="which cluster, if there are several (default: %(default)s)")
    commands = parser.add_subparsers(dest="verb", required=True)
    making = commands.add_parser("up", help=up.__doc__)
    making.add_argument("--owner", type=int, metavar="PID", help="a process with which the cluster's life ends")
    commands.add_parser("exec", help=execute.__doc__).add_argument("command", nargs=argparse.REMAINDER)
    commands.add_parser("load-image", help=load_image.__doc__).add_argument("image")
    commands.add_parser("image", help=images.archive.__doc__).add_argument("image", choices=images.IMAGES)
    commands.add_parser("down", help=down.__doc__)
    asked = parser.parse_args()
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?", asked.name):
        parser.error(f"--name {asked.name}: right would be up to 30 small letters, digits and hyphens")
    try:
        match asked.verb:
            case "up":
                sys.stdout.write(json.dumps(up(asked.name, asked.owner)) + "\n")
            case "exec":
                command = asked.command[1:] if asked.command[:1] == ["--"] else asked.command
                if not command:
                    parser.error("exec: no command given")
                execute(asked.name, command)
            case "load-image":
                load_image(asked.name, asked.image)
            case "image":
                sys.stdout.write(f"{images.archive(asked.image)}\n")
            case "down":
                down(asked.name)
    except parts.Unable as reason:
        sys.stderr.write(f"headrace: no test cluster: {reason}\n")
        return parts.EXIT_ENVIRONMENT
    except RuntimeError as fault:
        sys.stderr.write(f"headrace: test cluster: {fault}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

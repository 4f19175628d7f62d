#!/usr/bin/env python3
"""The test cluster's one interface. README.md beside it tells how it works.

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
from collections.abc import Callable
from pathlib import Path

sys.dont_write_bytecode = True

import images  # noqa: E402
import kind  # noqa: E402
import node  # noqa: E402
import parts  # noqa: E402
import private  # noqa: E402
import record  # noqa: E402
from cache import locked  # noqa: E402

GIVEN = "HEADRACE_E2E_KUBECONFIG"
GIVEN_LOAD = "HEADRACE_E2E_LOAD_IMAGE"


def up(name: str, owner: int | None, beside: str = "") -> dict[str, str]:
    """Have a cluster called ``name``: the one given by the environment, the one that runs already, or a new one.

    ``beside`` another, it is one of its own, with its own CA, on the same Docker: their pods reach each other's nodes.
    """
    if given := os.environ.get(GIVEN):
        if beside:
            raise parts.Unable(f"{GIVEN} names one cluster; none can be made beside it")
        return {"name": name, "how": "given", "kubeconfig": given}
    started = time.monotonic()
    with locked(record.home() / "lock"):
        sweep()
        cluster = record.find(name)
        if cluster is None:
            cluster = _claim(name, owner, _running(beside) if beside else None)
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


def _claim(name: str, owner: int | None, host: record.Record | None) -> record.Record:
    owning = None if owner is None else record.Process.of(owner)
    if owning and not owning.alive():
        raise parts.Unable(f"--owner {owner}: no such process")
    cluster = record.Record(name, "docker", record.Process.of(os.getpid()), owning)
    if host:
        cluster.beside, cluster.how, cluster.init = host.beside or host.name, host.how, host.init
    cluster.save()
    return cluster


def _make(cluster: record.Record) -> None:
    image, kubectl = None if cluster.how == "private" else kind.official_image(), None
    if image is None:
        image, kubectl = _start_docker(cluster)
    kind.create(cluster, parts.kind(), image, kubectl)
    cluster.ready = True
    cluster.save()


def _start_docker(cluster: record.Record) -> tuple[str, Path]:
    """Start a Docker of our own with our node image; returns the image's name and kubectl."""
    private.check()
    made_of = parts.private_parts()
    if cluster.beside:
        return kind.import_node(cluster, made_of), made_of.kubernetes
    cluster.how, cluster.data = "private", str(record.data_folder(cluster.name))
    cluster.save()
    private.start(cluster)
    return kind.import_node(cluster, made_of), made_of.kubernetes


def remove(cluster: record.Record) -> None:
    """Take a cluster down, whatever state it is in, and forget it."""
    if cluster.how == "private" and not cluster.beside:
        private.stop(cluster)
    elif cluster.how == "docker" or (cluster.init and cluster.init.alive()):
        kind.delete(cluster)
    cluster.forget()
    for other in record.every():
        if other.beside == cluster.name:
            remove(other)


def sweep() -> None:
    """Take down the clusters whose owners are dead."""
    for cluster in record.every():
        if cluster.abandoned():
            sys.stderr.write(f"headrace: removing cluster {cluster.name}, left by a run that is gone\n")
            remove(cluster)


def execute(name: str, command: list[str]) -> None:
    """Become ``command``, in the cluster's network, with its KUBECONFIG, kubectl, kind and helm."""
    if given := os.environ.get(GIVEN):
        os.execvpe(command[0], command, {**os.environ, "KUBECONFIG": str(Path(given).resolve())})
    cluster = _running(name)
    environment = kind.environment(cluster)
    if command[0] == "helm" and not (cluster.folder / "bin" / "helm").exists():
        (cluster.folder / "bin" / "helm").symlink_to(parts.helm())
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


def load(name: str, wanted: list[str]) -> None:
    """Build images of our own, give the nodes what they don't have of them, and print what each now is."""
    for which in wanted:
        made = images.build(which)
        started = time.monotonic()
        if GIVEN in os.environ:
            load_image(name, str(images.archive(which)))
        else:
            sent = sum(layer.stat().st_size for layer in node.give(_running(name), made))
            took = time.monotonic() - started
            sys.stderr.write(f"headrace: image {which}: {sent / 1e6:.0f} MB to the nodes in {took:.1f} s\n")
        sys.stdout.write(f"{which} {made.identity()}\n")


def on_node(name: str, command: Callable[[record.Record], None]) -> None:
    """Do something that only a node of our own allows."""
    if GIVEN in os.environ:
        raise parts.Unable(f"{GIVEN} names a cluster whose nodes are not ours")
    command(_running(name))


def audit(cluster: record.Record) -> None:
    """Print the API server's audit log, oldest first, a JSON object a line (audit-policy.yaml tells what is in it)."""
    argv = node.audit(cluster)
    os.execvpe(argv[0], argv, kind.environment(cluster))


def kubeconfig(cluster: record.Record) -> None:
    """Print a kubeconfig of the cluster's administrator that works in pods of a cluster beside it."""
    sys.stdout.write(node.internal_kubeconfig(cluster))


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


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="default", help="which cluster, if there are several (default: %(default)s)")
    commands = parser.add_subparsers(dest="verb", required=True)

    def command(verb: str, what: Callable[..., object]) -> argparse.ArgumentParser:
        return commands.add_parser(verb, help=" ".join((what.__doc__ or "").split()))

    making = command("up", up)
    making.add_argument("--owner", type=int, metavar="PID", help="a process with which the cluster's life ends")
    making.add_argument("--beside", default="", metavar="NAME", help="on the Docker of that cluster")
    command("exec", execute).add_argument("command", nargs=argparse.REMAINDER)
    command("load", load).add_argument("images", nargs="+", choices=images.IMAGES)
    command("load-image", load_image).add_argument("image")
    command("image", images.archive).add_argument("image", choices=images.IMAGES)
    command("audit", audit)
    command("kubeconfig", kubeconfig)
    command("api", node.api).add_argument("what", choices=node.API_SCRIPTS)
    command("down", down)
    asked = parser.parse_args()
    for name in (asked.name, getattr(asked, "beside", "")):
        if name and not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?", name):
            parser.error(f"--name {name}: right would be up to 30 small letters, digits and hyphens")
    if asked.verb == "exec":
        asked.command = asked.command[1:] if asked.command[:1] == ["--"] else asked.command
        if not asked.command:
            parser.error("exec: no command given")
    return asked


def _do(asked: argparse.Namespace) -> None:
    match asked.verb:
        case "up":
            sys.stdout.write(json.dumps(up(asked.name, asked.owner, asked.beside)) + "\n")
        case "exec":
            execute(asked.name, asked.command)
        case "load":
            load(asked.name, asked.images)
        case "load-image":
            load_image(asked.name, asked.image)
        case "image":
            sys.stdout.write(f"{images.archive(asked.image)}\n")
        case "audit":
            on_node(asked.name, audit)
        case "kubeconfig":
            on_node(asked.name, kubeconfig)
        case "api":
            on_node(asked.name, lambda cluster: node.api(cluster, asked.what))
        case "down":
            down(asked.name)


def main() -> int:
    asked = _arguments()
    try:
        _do(asked)
    except parts.Unable as reason:
        sys.stderr.write(f"headrace: no test cluster: {reason}\n")
        return parts.EXIT_ENVIRONMENT
    except RuntimeError as fault:
        sys.stderr.write(f"headrace: test cluster: {fault}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

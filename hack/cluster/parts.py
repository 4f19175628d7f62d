"""What the test cluster is built from, and by which step of ``steps/``; each part is cached by its inputs' content."""

# ruff: noqa: S603, S607 (runs this machine's own tools, found on PATH)
from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import cache

HERE = Path(__file__).resolve().parent
VERSIONS = HERE / "versions.sh"
EXIT_ENVIRONMENT = 3


class Unable(Exception):
    """This machine can't do it; the message says what would be needed."""


@dataclass(frozen=True)
class Parts:
    """Files that a private cluster is made from."""

    kubernetes: Path  # answers to kubectl and every other name
    node_root: Path  # the node image's root file system, a tar
    node_key: str


def versions() -> dict[str, str]:
    """The variables of versions.sh."""
    lines = (line for line in VERSIONS.read_text().splitlines() if line and not line.startswith("#"))
    return dict(line.split("=", 1) for line in lines)


def kind() -> Path:
    """The kind program, of the pinned release."""
    return _program("kind", [], versions()["KIND"])


def helm() -> Path:
    """The helm program, of the release that its module pins."""
    key = cache.content_hash([HERE / "steps" / "helm.sh", HERE / "helm"], versions()["KUBERNETES"])
    return cache.part("helm", key, lambda place: step("helm.sh", place)) / "helm"


def kubernetes() -> Path:
    """All of Kubernetes in one program, which acts by the name it is called with, kubectl among them."""
    return _program("kubernetes", [HERE / "kubernetes"], versions()["KUBERNETES"])


def private_parts() -> Parts:
    """All parts for a machine that can pull no image."""
    programs = {
        "kubernetes": kubernetes(),
        "coredns": _program("coredns", [HERE / "coredns"]),
        "pause": _program("pause", [HERE / "pause"]),
    }
    base = base_root("node")
    inputs = [VERSIONS, HERE / "node", HERE / "steps" / "node.sh", HERE / "image.py"]
    key = cache.content_hash(inputs, base.parent.name, *(program.parent.name for program in programs.values()))

    def build(place: Path) -> None:
        gathered = place / "programs"
        gathered.mkdir()
        for name, program in programs.items():
            (gathered / name).symlink_to(program)
        step("node.sh", base, gathered, place)
        shutil.rmtree(gathered)

    node = cache.part("node", key, build)
    return Parts(programs["kubernetes"], node / "node.tar", key)


def base_root(which: str) -> Path:
    """A Debian with the packages of steps/``which``.packages, as a tar."""
    script, packages = HERE / "steps" / "base.sh", HERE / "steps" / f"{which}.packages"

    def build(place: Path) -> None:
        need({"debootstrap": "debootstrap"})
        step("base.sh", packages, place)

    return cache.part(f"base-{which}", cache.content_hash([script, packages]), build) / "base.tar"


def _program(name: str, inputs: list[Path], version: str = "") -> Path:
    key = cache.content_hash([HERE / "steps" / "go.sh", *inputs], version)
    return cache.part(name, key, lambda place: step("go.sh", name, place)) / name


def step(script: str, *arguments: str | Path) -> None:
    """Run a script of steps/; what it prints goes to standard error."""
    done = subprocess.run([HERE / "steps" / script, *arguments], stdout=2, check=False)
    if done.returncode == EXIT_ENVIRONMENT:
        raise Unable(f"steps/{script} could not work here, see above")
    if done.returncode != 0:
        raise RuntimeError(f"steps/{script} {' '.join(map(str, arguments))} ended with {done.returncode}")


def need(packages: dict[str, str]) -> None:
    """Have the commands (keys) on this machine, by installing their Debian packages (values) if we are root."""
    absent = {command: package for command, package in packages.items() if not shutil.which(command)}
    if not absent:
        return
    names = sorted(set(absent.values()))
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Unable(f"no {', '.join(sorted(absent))} on PATH; install {' '.join(names)}, or run as root on Debian")
    # In run level 1 the packages' services are not started: the machine's own Docker stays off.
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    subprocess.run(["apt-get", "-qq", "update"], check=True, stdout=2, env=quiet)
    install = ["apt-get", "-qq", "install", "--yes", "--no-install-recommends", *names]
    subprocess.run(install, check=True, stdout=subprocess.DEVNULL, env=quiet)

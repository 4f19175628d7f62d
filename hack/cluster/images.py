"""Images that are built here, without Docker, for `load-image`, from the list of what goes into each: hack/images.toml.

An image is a Debian with a list of packages (steps/NAME.packages); ours have on it, as layers of their own, the locked
requirements and the distribution built from this checkout. They exist for tests on machines that can pull nothing.
"""

# ruff: noqa: S603 (runs Python)
from __future__ import annotations

import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import cache
import image
import parts
import prometheus

ROOT = parts.HERE.parents[1]
LIST = tomllib.loads((ROOT / "hack" / "images.toml").read_text(encoding="utf-8"))
OUR_SETTINGS: dict[str, object] = {
    "User": LIST["user"],
    "Env": ["PATH=/opt/headrace/bin:/usr/bin:/bin", *(f"{key}={value}" for key, value in LIST["environment"].items())],
}


@dataclass(frozen=True)
class Contents:
    """What an image is made from."""

    base: str  # steps/<base>.packages
    requirements: str = ""  # requirements/<requirements>.txt, and with it the distribution; empty: neither
    compiled: bool = False  # whether the router's hot modules are
    entrypoint: list[str] = field(default_factory=list)
    settings: dict[str, object] = field(default_factory=dict)  # as in the OCI image specification: User, Env, …
    program: str = ""  # a program of its own, by PROGRAMS


def _ours_of(which: str) -> Contents:
    listed = LIST[which]
    return Contents("python", listed["requirements"], listed["compiled"], LIST["entrypoint"], OUR_SETTINGS)


IMAGES = {
    "operator": _ours_of("operator"),
    "router": _ours_of("router"),
    # Simulated engines and the load on them; they need what a router needs, so that both images share their layers.
    "lab": _ours_of("router"),
    # A shell, socat and the network's tools: for pods that ask and answer in tests.
    "tools": Contents("node"),
    # A real Prometheus; a pod says its arguments (--config.file, --storage.tsdb.path) and mounts what it writes to.
    "prometheus": Contents(
        "python", program="prometheus", entrypoint=["/usr/bin/prometheus"], settings={"User": "65534:65534"}
    ),
}

PROGRAMS = {"prometheus": prometheus.layer}


def name(which: str) -> str:
    """What a pod calls the image."""
    return f"localhost/headrace/{which}:test"


def build(which: str) -> image.Image:
    """Build an image of our own, if it is not there: its layers and what they are started with."""
    contents = IMAGES[which]
    layers = [parts.base_root(contents.base)]
    if contents.requirements:
        layers.append(_dependencies(layers[0], ROOT / "requirements" / f"{contents.requirements}.txt"))
        layers.append(_ours(layers[0], contents.compiled))
    if contents.program:
        layers.append(PROGRAMS[contents.program]())
    return image.Image(name(which), layers, contents.entrypoint, contents.settings)


def archive(which: str) -> Path:
    """Build an image of our own, if it is not there, and print its archive's path, for load-image."""
    made = build(which)
    key = cache.content_hash([parts.HERE / "image.py"], repr(IMAGES[which]), *(at.parent.name for at in made.layers))

    def write(place: Path) -> None:
        image.write_archive(place / f"{which}.tar", made.layers, {made.name: made.entrypoint}, made.settings)

    return cache.part(f"image-{which}", key, write) / f"{which}.tar"


def _dependencies(base: Path, requirements: Path) -> Path:
    script = "dependencies.sh"

    def build(place: Path) -> None:
        parts.step(script, base, requirements, _python_with("pip"), place)

    key = cache.content_hash([*_steps(script), requirements], base.parent.name)
    return cache.part(f"dependencies-{requirements.stem}", key, build) / "layer.tar"


def _ours(base: Path, compiled: bool) -> Path:
    script = "ours.sh"
    modules = [_modules()] if compiled else []

    def build(place: Path) -> None:
        parts.step(script, base, ROOT, _python_with("hatchling"), place, *modules)

    sources = [ROOT / source for source in LIST["sources"]]
    made_of = [base.parent.name, *(folder.parent.name for folder in modules)]
    key = cache.content_hash([*_steps(script), *sources], *made_of)
    return cache.part("ours_compiled" if compiled else "ours", key, build) / "layer.tar"


def _modules() -> Path:
    """The router's hot modules, compiled for the images' Python in a Debian that has a compiler."""
    script = "compile.sh"
    base = parts.base_root("compile")

    def build(place: Path) -> None:
        parts.step(script, base, ROOT, _python_with("pip"), place)

    sources = [ROOT / source for source in (*LIST["compiler"], "router/headrace_router", "crds/headrace_api")]
    locks = [ROOT / "requirements" / f"{name}.txt" for name in ("compile", "router")]
    key = cache.content_hash([*_steps(script), *sources, *locks], base.parent.name)
    return cache.part("modules", key, build) / "modules"


def _steps(script: str) -> list[Path]:
    """The script, and what those on a base's root begin with."""
    return [parts.HERE / "steps" / name for name in (script, "root.sh")]


def _python_with(module: str) -> Path:
    """This interpreter or the checkout's environment, whichever has ``module``."""
    for python in (Path(sys.executable), ROOT / ".venv" / "bin" / "python"):
        if python.exists():
            tried = subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False)
            if tried.returncode == 0:
                return python
    raise parts.Unable(f"no Python with {module}; `make dev` makes an environment that has it")

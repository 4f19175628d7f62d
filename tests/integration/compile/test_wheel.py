"""A plain wheel is pure; with the hook it has the router's hot modules compiled, and is for this Python alone."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from support.checkout import ROOT

# The compiled package comes from where compiled.py keeps it: only how it gets into a wheel is looked at.
WITHOUT_COMPILING = """
import os, shutil, sys
sys.path.insert(0, "hack/compile")
import compiled, package
made = compiled.compiled(os.cpu_count())
package.make = lambda folder, jobs, install: shutil.copytree(made, folder, dirs_exist_ok=True)
from hatchling.cli import hatchling
sys.exit(hatchling())
"""
ASK = """
from headrace_router.proxy import exchange
from headrace_router.telemetry.form import FORM
print(FORM, exchange.__file__)
"""
REQUIRES = "import hatchling.build, json; print(json.dumps(hatchling.build.get_requires_for_build_wheel()))"


def imported(tree: Path) -> set[str]:
    """Top-level packages that the modules below ``tree`` import."""
    names: set[str] = set()
    for file in tree.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return names


def normal(distribution: str) -> str:
    """One name of the several that mean the same."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def wheel(folder: Path, **env: str) -> Path:
    command = [sys.executable, "-c", WITHOUT_COMPILING, "build", "--target", "wheel", "--directory", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("*.whl")
    return made


def runs(made: Path, folder: Path) -> str:
    with zipfile.ZipFile(made) as archive:
        archive.extractall(folder)
    env = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", ASK], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    form, _, file = done.stdout.strip().partition(" ")
    assert Path(file).is_relative_to(folder)
    return form


def test_a_plain_wheel_is_pure(tmp_path: Path) -> None:
    made = wheel(tmp_path / "wheel", HATCH_BUILD_HOOKS_ENABLE="")
    assert made.name.endswith("-py3-none-any.whl")
    assert runs(made, tmp_path / "there") == "source"


@pytest.mark.parametrize("enabled", ["", "1"])
def test_the_hook_asks_for_every_distribution_whose_types_are_read(enabled: str) -> None:
    """pip gives a build nothing else: what the compiler can't find is Any to it, which strict types refuse."""
    env = {**os.environ, "HATCH_BUILD_HOOKS_ENABLE": enabled}
    done = subprocess.run(
        [sys.executable, "-c", REQUIRES], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    asked = {normal(re.split(r"[^\w.-]", one, maxsplit=1)[0]) for one in json.loads(done.stdout)}
    names = imported(ROOT / "router" / "headrace_router") | imported(ROOT / "crds" / "headrace_api")
    owners = {name: {normal(owner) for owner in of} for name, of in packages_distributions().items() if name in names}
    others = {name: of for name, of in owners.items() if "headrace" not in of}
    assert "msgspec" in others
    assert sorted(name for name, of in others.items() if not of & asked) == ([] if enabled else sorted(others))


@pytest.mark.timeout(900)  # with nothing cached the router is compiled
def test_with_the_hook_it_is_compiled_and_has_its_source_too(tmp_path: Path) -> None:
    made = wheel(tmp_path / "wheel", HATCH_BUILD_HOOKS_ENABLE="1")
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert f"-{tag}-{tag}-" in made.name
    names = zipfile.ZipFile(made).namelist()
    compiled = {name.partition(".")[0] for name in names if name.endswith(".so") and "/" in name}
    listed = subprocess.run(
        [sys.executable, "-c", "import package; print(*package.modules())"],
        cwd=ROOT / "hack" / "compile",
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert compiled == {name.removesuffix(".py") for name in listed}
    assert set(listed) <= set(names)
    assert len([name for name in names if "__mypyc" in name]) == 1
    assert not any(name.startswith(("hack/", "tests/", "headrace_api/headrace")) for name in names)
    assert runs(made, tmp_path / "there") == "compiled"

"""helm and kubectl without a cluster: what the chart and the kustomize overlays say."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.checkout import ROOT

CHART = ROOT / "manifests" / "charts" / "headrace"
OVERLAYS = ROOT / "manifests" / "kustomize" / "overlays"
NAMESPACE = "headrace-system"
NOT_HERE = 3
BUILD_SECONDS = 2400  # with nothing cached they are compiled

Objects = dict[str, dict[str, Any]]


@cache
def program(name: str) -> str:
    """The path of helm or kubernetes, built if it is not there; where it can't be, the test fails (or is skipped)."""
    command = [sys.executable, str(ROOT / "hack" / "cluster" / "program.py"), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS)
    if done.returncode == NOT_HERE and os.environ.get("HEADRACE_SKIP_E2E") == "1":
        pytest.skip(f"NOT RUN: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def helm(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([program("helm"), *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 or not check, done.stderr
    return done


def template(values: Path | None = None, *options: str) -> Objects:
    """The chart's objects, without the types, by "kind namespace/name"."""
    given = [f"--values={values}"] if values else []
    command = ["template", "headrace", str(CHART), f"--namespace={NAMESPACE}", "--set=crds.install=false"]
    return by_name(helm(*command, *given, *options).stdout)


def kustomize(folder: Path) -> Objects:
    """What ``kubectl kustomize`` makes of a folder; the whole of Kubernetes is one program that goes by its name."""
    command = ["kubectl", "kustomize", str(folder)]
    done = subprocess.run(command, executable=program("kubernetes"), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return by_name(done.stdout)


def by_name(text: str) -> Objects:
    found: Objects = {}
    for one in yaml.safe_load_all(text):
        if one:
            key = name_of(one)
            assert key not in found, f"{key} stands twice"
            found[key] = one
    return found


def name_of(one: Mapping[str, Any]) -> str:
    namespace = one["metadata"].get("namespace", "")
    return f"{one['kind']} {namespace + '/' if namespace else ''}{one['metadata']['name']}"

"""Modules of hack/compile, which are scripts."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from support.checkout import ROOT


def compile_module(name: str) -> ModuleType:
    """The one of that name."""
    spec = importlib.util.spec_from_file_location(f"hack_compile_{name}", ROOT / "hack" / "compile" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module

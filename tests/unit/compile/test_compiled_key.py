"""What is kept compiled is what its key says (hack/compile/compiled.py)."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from support.checkout import ROOT
from support.compile_modules import compile_module


@dataclass
class Compiling:
    """A build that compiles nothing. copies: of what it is made from; during: what happens while it runs."""

    compiled: ModuleType
    package: ModuleType
    copies: Path
    during: Callable[[], object] = lambda: None

    def make(self, _folder: Path, _jobs: int, *, copied: Callable[[Path], None]) -> None:
        copied(self.copies)
        self.during()

    def refused(self, what: str) -> None:
        with pytest.raises(self.package.Unable, match=f"{what}.* changed .*; right would be to run it again"):
            self.compiled.compiled(1)


@pytest.fixture
def compiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiling:
    monkeypatch.syspath_prepend(str(ROOT / "hack" / "compile"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiled = compile_module("compiled")
    package = sys.modules["package"]
    found = Compiling(compiled, package, tmp_path / "copies")
    for tree in (package.SOURCE, package.BESIDE):
        shutil.copytree(tree, found.copies / tree.name)
    steps = tmp_path / "steps"
    shutil.copytree(package.HERE, steps)
    monkeypatch.setattr(package, "HERE", steps)
    monkeypatch.setattr(package, "make", found.make)
    monkeypatch.setattr(package, "need", lambda **_: None)
    monkeypatch.setattr(package, "compiler", lambda: sys.executable)
    return found


def test_what_was_edited_while_another_was_built_is_not_kept(compiling: Compiling) -> None:
    """The key is made at the start, the copy when it is one's turn, minutes later."""
    kept = compiling.compiled.compiled(1)
    assert kept.is_dir()
    shutil.rmtree(kept)
    (compiling.copies / compiling.package.SOURCE.name / "outbox.py").write_text("edited")
    compiling.refused("the router's source")
    assert not kept.exists()


@pytest.mark.parametrize("step", ["build.py", "rehearsal/usual.py", "modules.txt"])
def test_nor_is_what_was_made_by_steps_that_were_edited_meanwhile(compiling: Compiling, step: str) -> None:
    """They run from the checkout, not from a copy; at any time of the build it may be another step than the key's."""
    before = compiling.compiled.compiled(1)
    shutil.rmtree(before)
    edited = compiling.package.HERE / step
    compiling.during = lambda: edited.write_text("edited")
    compiling.refused("hack/compile")
    assert not before.exists()
    compiling.during = lambda: None
    after = compiling.compiled.compiled(1)
    assert after.is_dir()
    assert after != before

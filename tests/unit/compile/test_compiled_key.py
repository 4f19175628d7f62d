"""What is kept compiled is what its key says (hack/compile/compiled.py)."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.checkout import ROOT
from support.compile_modules import compile_module


def test_what_was_edited_while_another_was_built_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is made at the start, the copy when it is one's turn, minutes later."""
    monkeypatch.syspath_prepend(str(ROOT / "hack" / "compile"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiled = compile_module("compiled")
    package = sys.modules["package"]
    copies = tmp_path / "copies"
    for tree in (package.SOURCE, package.BESIDE):
        shutil.copytree(tree, copies / tree.name)

    def make(_folder: Path, _jobs: int, *, copied: Callable[[Path], None]) -> None:
        copied(copies)

    monkeypatch.setattr(package, "make", make)
    monkeypatch.setattr(package, "need", lambda **_: None)
    monkeypatch.setattr(package, "compiler", lambda: sys.executable)
    kept = compiled.compiled(1)
    assert kept.is_dir()
    shutil.rmtree(kept)
    (copies / package.SOURCE.name / "outbox.py").write_text("edited")
    with pytest.raises(package.Unable, match="right would be to run it again"):
        compiled.compiled(1)
    assert not kept.exists()

"""What the hot modules do means the same as source and compiled: a package with one of each kind is run in both forms.

It is compiled as the router is, mending included; so this is also what a new mypyc has to pass (docs/adr/0021).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from support.checkout import ROOT

TWIN = Path(__file__).parent / "twin"
# What is known to differ, and nothing stands on: which error an index beyond 62 bits raises, that `raise … from` leaves
# its cause in the context alone, and that an abstract class can be made.
OTHER = {
    *(f"item {1 << power}" for power in (62, 70)),
    *(f"{what} {sign}{1 << 70}" for what in ("byte", "item") for sign in ("", "-")),
    *(f"order {error}" for error in ("KeyError('k')", "IndexError('i')")),
    "abstract",
}
STEP = ROOT / "hack" / "compile" / "build.py"


def told(folder: Path) -> tuple[str, dict[str, str]]:
    command = [sys.executable, "-m", "twin.tell"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found["file"], found["told"]


def compiled(folder: Path, rehearsal: str) -> None:
    env = {**os.environ, "MYPYPATH": str(folder), "PYTHONHASHSEED": "0"}
    command = [sys.executable, str(STEP), "2", rehearsal, "twin/kinds.py"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def twins(*folders: Path) -> None:
    for folder in folders:
        shutil.copytree(TWIN, folder / "twin", ignore=shutil.ignore_patterns("__pycache__"))


def test_all_kinds_mean_the_same(tmp_path: Path) -> None:
    """By what they do themselves as the rehearsal: the compiler has every kind's counts."""
    twins(tmp_path)
    file, source = told(tmp_path)
    assert file.endswith(".py")
    compiled(tmp_path, "twin.tell")
    file, now = told(tmp_path)
    assert file.endswith(".so")
    assert len(source) > 1500
    assert now.keys() == source.keys()
    other = {name: f"{name}: {source[name]}, compiled {now[name]}" for name in source if now[name] != source[name]}
    assert other.keys() == OTHER, "\n".join(other[name] for name in sorted(other.keys() - OTHER))


def test_a_result_has_nothing_of_its_place(tmp_path: Path) -> None:
    """Without a rehearsal, whose counts may differ with addresses."""
    folders = [tmp_path / "a", tmp_path / "elsewhere" / "b"]
    twins(*folders)
    for folder in folders:
        compiled(folder, "-")
    made = [{str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.so")} for folder in folders]
    assert made[0]
    assert made[0] == made[1]

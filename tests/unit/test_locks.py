"""Lock files: what hack/dev/lock.sh writes, and what images and compilers rely on."""

from __future__ import annotations

import re

import pytest

from support.checkout import ROOT

LOCKS = sorted(path.stem for path in (ROOT / "requirements").glob("*.txt"))


def locked(name: str) -> set[str]:
    """A lock's entries: distribution, version, where it is for, hashes."""
    return set(re.split(r"(?m)^(?=\S)", (ROOT / "requirements" / f"{name}.txt").read_text())) - {""}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_versions_and_hashes_and_no_address(name: str) -> None:
    entries = locked(name)
    assert entries
    for entry in entries:
        assert re.fullmatch(r"[a-z0-9.-]+==[0-9][\w.+!]*( ; [^\n\\]+)?( \\\n +--hash=sha256:[0-9a-f]{64})+\n", entry)


@pytest.mark.parametrize("name", [name for name in LOCKS if name != "dev"])
def test_every_lock_holds_what_tests_ran_with(name: str) -> None:
    """So no two locks differ: what is compiled with one version runs with no other."""
    assert locked(name) - locked("dev") == set()


def test_what_builds_is_locked_wherever_a_wheel_is_built() -> None:
    assert locked("build") <= locked("all")
    assert locked("build") < locked("compile")

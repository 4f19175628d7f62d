"""Every module with long tests belongs to a part of ``make test-long``."""

from __future__ import annotations

import re

from support.checkout import ROOT


def test_every_module_with_long_tests_has_a_part() -> None:
    script = (ROOT / "hack" / "dev" / "test_long.sh").read_text()
    named = {
        module for line in re.findall(r"(?m)^(?:part|beside) \S+ cluster (.*)$", script) for module in line.split()
    }
    long = {
        path.stem.removeprefix("test_")
        for path in (ROOT / "tests" / "e2e").glob("test_*.py")
        if "pytest.mark.long" in path.read_text()
    }
    assert long
    assert long <= named
